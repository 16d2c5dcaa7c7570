#!/usr/bin/env bash
# Training sharded over 1 to 4 ranks with every layer and optimizer, against one process.
#
# Each net is a convolution, the layer in question, a connected layer and its loss, in two or more blocks. One rank with the
# plugin has the bits of no plugin. More ranks add in another order: 1e-5 relative on the losses of 10 steps (single
# precision rounds a loss to 6e-8, and the nets are smooth). Batch normalisation takes a rank's own images, so there only
# one rank is compared.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
printf '%s\n' 'low -1' 'high -1' '0 0' '1 0' '2 0' '3 0' '4 1' '5 1' '6 1' '7 1' > "$tmp/tree"

make_net() { # make_net KEYS MIDDLE END, as printf's %b; of two equal keys the first counts
	{
		printf '[net]\n%b\nbatch=24\nsubdivisions=1\nwidth=8\nheight=8\nchannels=1\nlearning_rate=0.01\nmomentum=0.9\n' "$1"
		printf 'decay=0.0005\nmax_batches=10\n[fsdp]\ntimeout=60\n'
		printf '[block]\nname=first\n[convolutional]\nfilters=8\nsize=3\nstride=1\npad=1\nactivation=leaky\n'
		printf '[block]\nname=middle\n%b\n' "$2"
		printf '[block]\nname=last\n[connected]\noutput=10\nactivation=linear\n%b\n' "$3"
	} > "$cfg"
}

run() { # run NAME RANKS FLAGS...
	local name=$1
	shift
	rm -rf "${tmp:?}/$name"
	verb=train
	ranks "$@" -backup "$tmp/$name" -log "$tmp/$name.log"
	[ $status = 0 ] || { bad "$what: $name: status $status"; tail -n 5 "$tmp/err"; }
}

same() { # same A B: losses and final weights
	cmp -s "$tmp/$1/net_final.weights" "$tmp/$2/net_final.weights" || bad "$what: final weights of $1 and $2 differ"
	[ "$(losses "$tmp/$1.log")" = "$(losses "$tmp/$2.log")" ] || bad "$what: losses of $1 and $2 differ"
}

close() { # close A B: the losses of ten steps
	paste <(losses "$tmp/$1.log") <(losses "$tmp/$2.log") | awk '
		NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; k++ }
		END { printf " %.1e", worst; exit !(k == 10 && worst <= 1e-5) }' || bad "$what: losses of $1 and $2"
}

whole() { # whole LOG RANKS: nothing allocated in a step, planned is measured
	python3 - "$1" "$2" <<-'EOF' || bad "$what: end event of $1"
	import json, sys
	end = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "end"][-1]
	assert end["allocs_after_first_step"] == 0 and len(end["ranks"]) == int(sys.argv[2]), end
	for r in end["ranks"]:
	    for g in r["regions"]:
	        assert g["planned_bytes"] == g["measured_bytes"], (r["rank"], g)
	    for q in ("gather", "reduce"):
	        assert r[q]["planned_bytes"] == r[q]["counted_bytes"] and r[q]["planned_calls"] == r[q]["counted_calls"], (r["rank"], q, r[q])
	EOF
}

check() { # check RANKS: the net of $cfg
	local n
	run plain 0
	echo -n "$what:"
	for n in $1; do
		run ranks$n "$n"
		whole "$tmp/ranks$n.log" "$n"
		if [ "$n" = 1 ]; then
			same plain ranks1
			echo -n " same"
		else
			close ranks$n plain
		fi
	done
	echo
}

all=${NP:-1 2 3 4}
soft='[softmax]'
while IFS='|' read -r what middle end keys; do
	[ -n "$what" ] || continue
	make_net "$keys" "${middle//TMP/$tmp}" "$(printf %s "${end:-$soft}" | sed "s#TMP#$tmp#")"
	case $what in
	*batch_normalize* | batchnorm) check 1 ;;
	*) check "$all" ;;
	esac
done << 'EOF'
dropout|[dropout]\nprobability=.4
softmax in groups|[maxpool]\nsize=2\nstride=2|[softmax]\ngroups=2\ntemperature=2
softmax with a tree|[maxpool]\nsize=2\nstride=2|[softmax]\ntree=TMP/tree
softmax inside|[softmax]\ngroups=8\nnoloss=1
logistic|[maxpool]\nsize=2\nstride=2|[logistic]
cost sse|[maxpool]\nsize=2\nstride=2|[cost]\ntype=sse\nscale=.5
cost L1|[maxpool]\nsize=2\nstride=2|[cost]\ntype=L1\nscale=.5
cost smooth|[maxpool]\nsize=2\nstride=2|[cost]\ntype=smooth
cost seg|[maxpool]\nsize=2\nstride=2|[activation]\nactivation=logistic\n[cost]\ntype=seg
cost masked|[maxpool]\nsize=2\nstride=2|[cost]\ntype=masked
cost wgan|[maxpool]\nsize=2\nstride=2|[cost]\ntype=wgan
route|[convolutional]\nfilters=4\nsize=1\nstride=1\nactivation=leaky\n[route]\nlayers=-1,0
route of a group|[route]\nlayers=-1\ngroups=2\ngroup_id=1
upsample|[upsample]\nstride=2\n[maxpool]\nsize=2\nstride=2
reorg|[reorg]\nstride=2
reorg in reverse|[reorg]\nstride=2\nreverse=1
reorg3d|[reorg3d]\nstride=2
reorg flattened|[reorg]\nflatten=1
activation|[activation]\nactivation=mish
crop|[crop]\ncrop_width=6\ncrop_height=6\nflip=1\nnoadjust=1
normalization|[normalization]\nsize=3
local|[local]\nfilters=5\nsize=3\nstride=1\npad=1\nactivation=leaky
deconvolutional|[deconvolutional]\nfilters=5\nsize=2\nstride=2\nactivation=leaky
l2norm|[l2norm]
avgpool|[avgpool]
local_avgpool|[local_avgpool]\nsize=2\nstride=2
shortcut|[convolutional]\nfilters=8\nsize=3\nstride=1\npad=1\nactivation=leaky\n[shortcut]\nfrom=-2\nactivation=leaky
scale_channels|[avgpool]\n[connected]\noutput=8\nactivation=logistic\n[scale_channels]\nfrom=0
sam|[convolutional]\nfilters=8\nsize=1\nstride=1\nactivation=logistic\n[sam]\nfrom=0
dilation and groups|[convolutional]\nfilters=8\nsize=3\nstride=1\npadding=2\ndilation=2\ngroups=2\nactivation=leaky
shared params|[convolutional]\nfilters=8\nsize=3\nstride=1\npad=1\nactivation=leaky\n[convolutional]\nfilters=8\nsize=3\nstride=1\npad=1\nactivation=leaky\nshare_index=1
stopbackward|[maxpool]\nsize=2\nstride=2\nstopbackward=1
batchnorm|[batchnorm]
batch_normalize|[convolutional]\nbatch_normalize=1\nfilters=8\nsize=3\nstride=1\npad=1\nactivation=leaky
adam|[maxpool]\nsize=2\nstride=2||optimizer=adam\nlearning_rate=.001\neps=1e-4
adamw|[maxpool]\nsize=2\nstride=2||optimizer=adamw\nlearning_rate=.001\ndecay=.05\neps=1e-4
adam and subdivisions|[local]\nfilters=5\nsize=3\nstride=1\npad=1\nactivation=leaky||subdivisions=2\noptimizer=adam\neps=1e-4
sgdr|[maxpool]\nsize=2\nstride=2||policy=sgdr\nsgdr_cycle=4
EOF

# a checkpoint of Adam's moments: resumed on the same ranks it gives the bits of the run that went through, on others its losses
for o in adam adamw; do
	make_net "optimizer=$o\nlearning_rate=.001\neps=1e-4" '[local]\nfilters=5\nsize=3\nstride=1\npad=1\nactivation=leaky' "$soft"
	for n in $all; do
		what="$o resumed on $n ranks"
		run through "$n" -save_every 5 -keep 0
		run resumed "$n" -resume "$tmp/through/net.ckpt/5"
		cmp -s "$tmp/through/net_final.weights" "$tmp/resumed/net_final.weights" || bad "$what: other final weights"
		echo "$what: compared"
	done
	what="$o resumed without the plugin"
	run single 0 -resume "$tmp/through/net.ckpt/5"
	paste <(losses "$tmp/through.log" | tail -n 5) <(losses "$tmp/single.log") | awk '
		NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; k++ }
		END { printf "'"$what"': %.1e\n", worst; exit !(k == 5 && worst <= 1e-5) }' || bad "$what: losses"
done

# images from files with full augmentation, and sizes that change: the same on any number of ranks
gcc -O1 -o "$tmp/make_images" tests/cli/make_images.c -lm || exit 1
mkdir "$tmp/pictures"
"$tmp/make_images" "$tmp/pictures" 50 10 40 || exit 1
printf '%s\n' "$tmp"/pictures/*.jpg > "$tmp/list"
for i in 0 1 2 3 4 5 6 7 8 9; do echo "c${i}_"; done > "$tmp/labels"
printf 'classes=10\ntrain=%s\nvalid=%s\nlabels=%s\nbackup=%s\n' "$tmp/list" "$tmp/list" "$tmp/labels" "$tmp/backup" > "$tmp/x.data"
images() { # images STEPS KEYS MIDDLE END
	make_net "$2" "$3" "$4"
	sed -i "s/^max_batches=.*/max_batches=$1/; s/^width=.*/width=32/; s/^height=.*/height=32/; s/^channels=.*/channels=3/" "$cfg"
}
what="images"
images 10 'angle=7\nhue=.1\nsaturation=.75\nexposure=.75\naspect=.75' '[maxpool]\nsize=2\nstride=2' "$soft"
check "$all"
what="sizes that change"
images 90 'random=1\nangle=7\nlearning_rate=.001' '[convolutional]\nfilters=10\nsize=3\nstride=4\npad=1\nactivation=linear' '[avgpool]\n[softmax]'
sed -i '/^\[connected\]/,/^activation=linear/d; s/^batch=.*/batch=12/; 0,/^stride=1/s//stride=4/' "$cfg"
run plain 0
echo -n "$what:"
for n in $all; do
	run ranks$n "$n"
	whole "$tmp/ranks$n.log" "$n"
	"$bin" fsdp plan "$cfg" -world "$n" -threads 1 -json > "$tmp/plan.json" 2> "$tmp/err"
	python3 - "$tmp/ranks$n.log" "$tmp/plan.json" <<-'EOF' || bad "$what: $n ranks: the offline plan"
	import json, sys
	ran = [json.loads(l) for l in open(sys.argv[1])][-1]["ranks"][0]["regions"]
	plan = json.load(open(sys.argv[2]))["regions"]
	assert {g["name"]: g["planned_bytes"] for g in ran} == {g["name"]: g["planned_bytes"] for g in plan}, (ran, plan)
	EOF
	if [ "$n" = 1 ]; then
		same plain ranks1
		echo -n " same"
	else
		paste <(losses "$tmp/ranks$n.log") <(losses "$tmp/plain.log") | awk '
			NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; k++ }
			END { printf " %.1e", worst; exit !(k == 90 && worst <= 1e-5) }' || bad "$what: $n ranks"
	fi
done
echo
finish
