#!/usr/bin/env bash
# Every strategy under mpirun: the bits of the weights, planned and counted bytes, memory of the regions by formula, checkpoints from
# any to any, refusals. T5 and T6 (parity), T8 (calls), T11 (memory), T12 and T13 (accumulation), T27 (partial release), T29 (short).
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg

# ways N: what runs on N ranks
ways() {
	printf '%s\n' full grad_op opt replicate "full -fsdp.release 0"
	[ "$1" = 4 ] && printf '%s\n' "full -fsdp.release 2" "hybrid_full -fsdp.shard 2" "hybrid_full -fsdp.shard 2 -fsdp.release 0" \
		"hybrid_grad_op -fsdp.shard 2" "hybrid_full_opt -fsdp.shard 2" "hybrid_full -fsdp.shard 1" "hybrid_full_opt -fsdp.shard 1"
}

sum_of() {
	cat "$tmp/backup"/*_final.weights | sha256sum
}

# T5, T6, T8, T27: 50 steps, one microbatch each
for n in ${NP:-2 3 4}; do
	[ "$n" -gt 1 ] || continue
	net "$cfg" 1 50
	want=
	while read -r way; do
		# shellcheck disable=SC2086
		ranks "$n" -log "$tmp/log" -clear -fsdp.strategy $way
		[ "$status" = 0 ] || { bad "$n ranks, $way: status $status"; tail -n 5 "$tmp/err"; continue; }
		got=$(sum_of)
		want=${want:-$got}
		echo "$n ranks, $way: ${got:0:16}"
		[ "$got" = "$want" ] || bad "$n ranks, $way: other bits than full"
		counted "$n ranks, $way"
	done < <(ways "$n")
done

# T12, T13: three microbatches
net "$cfg" 1 10
sed -i 's/^subdivisions=.*/subdivisions=3/' "$cfg"
n=4
want=
while read -r way; do
	# shellcheck disable=SC2086
	ranks "$n" -log "$tmp/log" -clear -fsdp.strategy $way
	[ "$status" = 0 ] || { bad "$way: status $status"; tail -n 5 "$tmp/err"; continue; }
	counted "$way"
	got=$(sum_of)
	[ -n "$want" ] || want=$got
	[ "$got" = "$want" ] || bad "$n ranks, 3 microbatches, $way: other bits than full"
done < <(ways $n)
for kind in "no_sync" "no_sync_keep" "hybrid_last"; do
	want=
	for way in full opt replicate "hybrid_full -fsdp.shard 2" "hybrid_grad_op -fsdp.shard 2" "hybrid_full_opt -fsdp.shard 2"; do
		[ $kind = hybrid_last ] && [ "${way#hybrid}" = "$way" ] && continue
		# shellcheck disable=SC2086
		ranks "$n" -log "$tmp/log" -clear -fsdp.accumulate $kind -fsdp.strategy $way
		[ "$status" = 0 ] || { bad "$kind, $way: status $status"; tail -n 5 "$tmp/err"; continue; }
		counted "$kind, $way"
		got=$(sum_of)
		want=${want:-$got}
		[ "$got" = "$want" ] || bad "$kind, $way: other bits than the others"
	done
done

# T12: a run that goes on with another kind of accumulation trains as one that did not change it
net "$cfg" 0 20
sed -i 's/^subdivisions=.*/subdivisions=3/' "$cfg"
ranks 4 -clear -log "$tmp/through.log"
losses "$tmp/through.log" > "$tmp/through"
for pair in "no_sync sharded" "sharded no_sync_keep" "no_sync_keep no_sync"; do
	rm -rf "$tmp/backup"
	sed -i 's/^max_batches=.*/max_batches=10/' "$cfg"
	ranks 4 -save_every 10 -fsdp.accumulate "${pair% *}" -log "$tmp/log"
	[ "$status" = 0 ] || { bad "T12 $pair: status $status"; tail -n 5 "$tmp/err"; }
	sed -i 's/^max_batches=.*/max_batches=20/' "$cfg"
	ranks 4 -resume "$tmp/backup/net.ckpt/10" -fsdp.accumulate "${pair#* }" -log "$tmp/log"
	[ "$status" = 0 ] || { bad "T12 $pair: status $status"; tail -n 5 "$tmp/err"; }
	losses "$tmp/log" | paste - "$tmp/through" | awk '
		NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; k++ }
		END { printf "T12 '"$pair"': %.1e\n", worst; exit !(k == 20 && worst <= 1e-5) }' || bad "T12 $pair: losses"
done
rm -rf "$tmp/backup"

# T8, T11: calls and regions by formula; one optimizer state, every block with params learns. Padded elements T of the blocks are
# those of gathered_bytes; slots are the two largest of alternate blocks.
net "$cfg" 0 10
sed -i 's/^subdivisions=.*/subdivisions=2/' "$cfg"
while read -r way; do
	# shellcheck disable=SC2086
	"$bin" fsdp plan "$cfg" -world 4 -json -threads 1 -fsdp.strategy $way > "$tmp/plan.json" || bad "plan of $way"
	python3 - "$tmp/plan.json" "$way" <<-'EOF' || bad "plan of $way"
	import json, sys
	p, way = json.load(open(sys.argv[1])), sys.argv[2].split()
	name = way[0]
	shard = int(way[way.index("-fsdp.shard") + 1]) if "-fsdp.shard" in way else {"opt": 1, "replicate": 1}.get(name, 4)
	stays = name.endswith("grad_op") or way[-2:] == ["-fsdp.release", "0"]
	part = 2 if way[-2:] == ["-fsdp.release", "2"] else 0
	T = [b["gathered_bytes"] for b in p["blocks"] if b["params"]]
	region = {r["name"]: r["planned_bytes"] for r in p["regions"]}
	cut = 4 if name.endswith("opt") else shard
	assert p["mesh"] == {"replicas": 4 // shard, "shards": shard}, p["mesh"]
	assert region["params"] == sum(T) // shard, region
	assert region["grads"] == sum(T) // cut and region["optimizer"] == sum(T) // cut, region
	ring = max(T[0::2]) + max(T[1::2])
	kept = sum(b["gathered_bytes"] for b in p["blocks"] if b["backward_gather"]) // part if part else 0
	slots = 0 if shard == 1 else sum(T) if stays else ring + kept
	assert region["param_slots"] == slots, (region, slots)
	A, n = 2, len(T)
	gathers = 0 if shard == 1 else A * n + (0 if stays else A * sum(b["backward_gather"] for b in p["blocks"]))
	reduces = A * n * (2 if 1 < shard < 4 else 1)
	if shard < 4:
	    if cut == 4:
	        gathers += n
	    else:
	        reduces += n
	assert p["gather"]["planned_calls"] == gathers, (p["gather"], gathers)
	assert p["reduce"]["planned_calls"] == reduces, (p["reduce"], reduces)
	bytes_rs = A * sum(T) * (shard - 1) // shard if shard > 1 else A * sum(T) * 3 // 4
	if 1 < shard < 4:
	    bytes_rs += A * sum(T) // shard * (4 // shard - 1) // (4 // shard)
	if shard < 4 and cut != 4:
	    bytes_rs += sum(T) // shard * (4 // shard - 1) // (4 // shard)
	assert p["reduce"]["planned_bytes"] == bytes_rs, (p["reduce"], bytes_rs)
	EOF
done < <(ways 4)

# T29: a run that is stopped and goes on under another strategy, at another number of ranks or without the plugin, ends as if it
# had not been: bit for bit under strategies of equal bits
net "$cfg" 1 20
ranks 4 -log "$tmp/log" -clear -save_every 10
want=$(sum_of)
chain="full;hybrid_full_opt -fsdp.shard 2;replicate;opt;grad_op;hybrid_grad_op -fsdp.shard 2"
from=
while read -r -d ';' way; do
	for to in full opt "hybrid_full_opt -fsdp.shard 2"; do
		rm -rf "$tmp/backup"
		sed -i 's/^max_batches=.*/max_batches=10/' "$cfg"
		# shellcheck disable=SC2086
		ranks 4 -save_every 10 -fsdp.strategy $way
		[ "$status" = 0 ] || { bad "save under $way: status $status"; tail -n 5 "$tmp/err"; }
		sed -i 's/^max_batches=.*/max_batches=20/' "$cfg"
		# shellcheck disable=SC2086
		ranks 4 -save_every 10 -resume "$tmp/backup/net.ckpt/10" -fsdp.strategy $to
		[ "$status" = 0 ] || { bad "from $way to $to: status $status"; tail -n 5 "$tmp/err"; }
		[ "$(sum_of)" = "$want" ] || bad "from $way to $to: other bits"
	done
	"$bin" fsdp verify "$tmp/backup/net.ckpt/20" > "$tmp/out" 2>&1 || { bad "$way: verify"; cat "$tmp/out"; }
	"$bin" fsdp consolidate "$tmp/backup/net.ckpt/20" "$tmp/all.weights" > /dev/null || bad "$way: consolidate"
	cmp -s "$tmp/all.weights" "$tmp/backup/net_final.weights" || bad "$way: the consolidated file is another"
	from=$way
done <<< "$chain;"
[ -n "$from" ] || bad "no strategy was saved under"

# memory: a plan that is too large is refused before the first step with what fits, and that runs. 8/10 are params and states
net "$cfg" 0 3
python3 - "$cfg" <<-'EOF'
	import sys
	text = open(sys.argv[1]).read()
	head, mid, tail = text.partition("name=mid\n")[0], "", "name=tail\n" + text.partition("name=tail\n")[2]
	for i in range(8):
	    mid += "name=mid%d\n[connected]\noutput=700\nactivation=leaky\n[block]\n" % i
	open(sys.argv[1], "w").write(head + mid + tail)
	EOF
"$bin" fsdp plan "$cfg" -world 4 -json -threads 1 -fsdp.strategy replicate > "$tmp/plan.json" || bad "plan of a large net"
half=$(python3 -c 'import json, sys
p = json.load(open(sys.argv[1]))
r = {x["name"]: x["planned_bytes"] for x in p["regions"]}
assert r["params"] + r["grads"] + r["optimizer"] >= .8 * p["total_bytes"], r
print(p["total_bytes"] // 2)' "$tmp/plan.json") || bad "params and states are not most of it"
rm -rf "$tmp/backup"
ranks 4 -fsdp.strategy replicate -fsdp.memory "$half"
wants 1 "memory is $half bytes" "replicated, half the memory"
[ ! -e "$tmp/backup/net.ckpt" ] || bad "a refused run has left a checkpoint"
[ "$(grep -c '^darknet:' "$tmp/err")" = 1 ] || bad "a refused plan is said by more than one rank"
grep -Eq '^strategy=full: [0-9]+ bytes$' "$tmp/err" || { bad "full is not said to fit"; cat "$tmp/err"; }
full=$(sed -n 's/^strategy=full: \([0-9]*\) bytes$/\1/p' "$tmp/err")
"$bin" fsdp plan "$cfg" -world 4 -json -threads 1 > "$tmp/plan.json"
grep -q "\"total_bytes\":$full," "$tmp/plan.json" || bad "full wants other than the $full bytes that were said"
ranks 4 -clear -fsdp.memory "$half" -fsdp.collectives mpi -log "$tmp/log"
[ "$status" = 0 ] || { bad "full, half the memory: status $status"; tail -n 5 "$tmp/err"; }
# check 8: what the process has taken at most, beyond one that has one neuron
python3 - "$cfg" "$tmp/one.cfg" <<-'EOF'
	import sys
	text = open(sys.argv[1]).read()
	open(sys.argv[2], "w").write(text.partition("[fsdp]")[0] + "[fsdp]\ntimeout=20\n[connected]\noutput=10\nactivation=linear\n[softmax]\n")
	EOF
big=$cfg
cfg=$tmp/one.cfg
ranks 4 -clear -fsdp.collectives mpi -log "$tmp/one.log"
cfg=$big
[ "$status" = 0 ] || bad "a small net: status $status"
rm -rf "$tmp/backup"
python3 - "$tmp/log" "$tmp/one.log" "$half" <<-'EOF' || bad "more memory than memory= allows"
	import json, sys
	big, one = (json.loads(open(f).read().splitlines()[-1])["peak_rss_bytes"] for f in sys.argv[1:3])
	print("peak %d, of a small net %d: %d, allowed %d" % (big, one, big - one, int(sys.argv[3]) + (16 << 20)))
	sys.exit(big - one > int(sys.argv[3]) + (16 << 20))
	EOF
"$bin" fsdp plan "$cfg" -world 4 -threads 1 -fsdp.memory 1K 2> "$tmp/offers" && bad "1K fits"
grep -Eq '^none of [0-9]+ other plans; the smallest of them is .*: [0-9]+ bytes; ' "$tmp/offers" || { bad "not said that none fits"; cat "$tmp/offers"; }
least=$(sed -n 's/^none of .*: \([0-9]*\) bytes; .*/\1/p' "$tmp/offers")
# every offer wants what it says when it is taken, wherever the limit lies; those of smaller blocks win over markers as flags
kinds=
while read -r -d ';' limit base; do
	read -r -a start <<< "$base"
	"$bin" fsdp plan "$cfg" -world 4 -threads 1 "${start[@]}" -fsdp.memory "$limit" 2> "$tmp/offers" && bad "$limit fits"
	while IFS= read -r offer; do
		keys=${offer%%: *}
		bytes=${offer##*: }
		flags=()
		for key in $keys; do flags+=("-fsdp.${key%%=*}" "${key#*=}"); done
		for ((i = 0; i < ${#start[@]}; i += 2)); do
			[[ " $keys" == *" ${start[i]#-fsdp.}="* ]] || flags+=("${start[i]}" "${start[i + 1]}")
		done
		kinds+=" $keys"
		"$bin" fsdp plan "$cfg" -world 4 -json -threads 1 "${flags[@]}" > "$tmp/plan.json" 2> /dev/null || bad "the offer $keys is refused"
		grep -q "\"total_bytes\":${bytes% bytes}," "$tmp/plan.json" || bad "$keys wants other than $bytes"
	done < <(grep -E '^[a-z_]+=.*: [0-9]+ bytes$' "$tmp/offers")
done <<< "$half -fsdp.strategy replicate;$((half * 7 / 10)) -fsdp.strategy replicate;$half -fsdp.strategy full -fsdp.blocks whole;$least -fsdp.strategy full;"
for kind in strategy=full limit=1 blocks=size: blocks=each recompute=; do
	[[ $kinds == *$kind* ]] || bad "nothing was offered with $kind: $kinds"
done

# a strategy of one block, and its own release; plain runs do not mind the keys
net "$cfg" 1 20
sed -i -e 's/^name=mid/&\nstrategy=replicate/' -e 's/^name=stem/&\nrelease=0/' "$cfg"
ranks 4 -log "$tmp/log" -clear
[ "$status" = 0 ] || { bad "strategies by block: status $status"; tail -n 5 "$tmp/err"; }
[ "$(sum_of)" = "$want" ] || bad "strategies by block: other bits"
counted "strategies by block"
ranks 0 -clear
wants 0 "" "without the plugin"
grep -q 'unknown\|unused' "$tmp/err" && bad "a plain run warns of a block's strategy"
sed -i 's/^strategy=replicate/strategy=zero3/' "$cfg"
ranks 2 -clear
wants 1 "net.cfg:$(grep -n zero3 "$cfg" | cut -d: -f1): strategy=zero3: unknown; this version supports full, grad_op" "unknown strategy"
sed -i -e '/^strategy=zero3/d' -e 's/^release=0/release=3/' "$cfg"
ranks 4 -clear
wants 1 "net.cfg:$(grep -n '^release=3' "$cfg" | cut -d: -f1): block stem: release=3 is not 0, 1 or another divisor of its 4 shards" "no divisor"
net "$cfg" 1 20
ranks 2 -clear -fsdp.strategy hybrid_full
wants 1 "what fits: 1" "one host's ranks are all"
ranks 4 -clear -fsdp.strategy hybrid_full -fsdp.shard 3
wants 1 "shard=3 does not divide a world of 4 ranks; what does: 1, 2" "no divisor of the world"
ranks 2 -clear -fsdp.shard 2
wants 1 "is for hybrid strategies" "shard without a hybrid strategy"
finish
