#!/usr/bin/env bash
# Params that stay whole under mpirun (persistent=, ignored=): the bits of the weights, with windows and messages, with clipping, from
# a checkpoint to another threshold; planned and counted bytes; what blocks are said to have sent. T18 (persistent), T21, T29.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg

sum_of() {
	cat "$tmp/backup"/*_final.weights | sha256sum
}

# of the four blocks: 9, 81 and scales 9; 37 and 5328; 10 and 370
for n in ${NP:-1 2 3 4}; do
	net "$cfg" 1 30
	for clip in "" "-clip_norm .3"; do
		want=
		for way in 0 10 371 100000 "371 -fsdp.strategy grad_op" "38 -fsdp.layout planned:row -fsdp.poison 1" "100 -fsdp.collectives mpi"; do
			rm -rf "$tmp/backup"
			# shellcheck disable=SC2086
			ranks "$n" -log "$tmp/log" -clear $clip -fsdp.persistent $way
			[ "$status" = 0 ] || { bad "$n ranks, persistent=$way $clip: status $status"; tail -n 5 "$tmp/err"; continue; }
			got=$(sum_of)
			want=${want:-$got}
			[ "$got" = "$want" ] || bad "$n ranks, persistent=$way $clip: other bits"
			counted "$n ranks, persistent=$way $clip"
			python3 - "$tmp/log" <<-'EOP' || bad "$n ranks, persistent=$way: sums of blocks"
			import json, sys
			end = [json.loads(x) for x in open(sys.argv[1])][-1]
			for r in end["ranks"]:
			    assert len(r["blocks"]) == 4, r["blocks"]
			    for k in ("gather", "reduce"):
			        assert sum(b[k + "_bytes"] for b in r["blocks"]) == 30 * r[k]["planned_bytes"], (k, r)
			EOP
		done
	done
done

# stopped with one threshold, gone on with another; a block that is ignored
net "$cfg" 1 20
n=3
ranks $n -clear
want=$(sum_of)
for ways in "0 38" "38 0" "371 10"; do
	rm -rf "$tmp/backup"
	sed -i 's/^max_batches=.*/max_batches=10/' "$cfg"
	ranks $n -save_every 10 -fsdp.persistent "${ways% *}"
	sed -i 's/^max_batches=.*/max_batches=20/' "$cfg"
	ranks $n -save_every 10 -resume "$tmp/backup/net.ckpt/10" -fsdp.persistent "${ways#* }"
	[ "$status" = 0 ] || { bad "persistent=$ways: status $status"; tail -n 5 "$tmp/err"; }
	[ "$(sum_of)" = "$want" ] || bad "persistent=$ways: other bits"
	"$bin" fsdp verify "$tmp/backup/net.ckpt/20" > "$tmp/out" 2>&1 || { bad "$ways: verify"; cat "$tmp/out"; }
	"$bin" fsdp consolidate "$tmp/backup/net.ckpt/20" "$tmp/all.weights" > /dev/null || bad "$ways: consolidate"
	cmp -s "$tmp/all.weights" "$tmp/backup/net_final.weights" || bad "$ways: the consolidated file is another"
done
sed -i -e 's/^name=mid/&\nignored=1/' -e 's/^name=tail/&\npersistent=11/' "$cfg"
ranks $n -log "$tmp/log" -clear
[ "$status" = 0 ] || { bad "an ignored block: status $status"; tail -n 5 "$tmp/err"; }
[ "$(sum_of)" = "$want" ] || bad "an ignored block: other bits"
counted "an ignored block"
ranks 0 -clear
wants 0 "" "without the plugin"
grep -q 'unknown\|unused' "$tmp/err" && bad "a plain run warns of keys of a block"
sed -i 's/^ignored=1/ignored=2/' "$cfg"
ranks 2 -clear
wants 1 "net.cfg:$(grep -n '^ignored' "$cfg" | cut -d: -f1): [block] ignored=2: must be from 0 to 1" "ignored=2"

# T21: layers of two blocks share their params: the bits of all in one block, also from a checkpoint on
net "$cfg" 1 20
python3 - "$cfg" <<-'EOP'
	import sys
	text = open(sys.argv[1]).read()
	a = text.index("[block]\nname=tail")
	tied = "[block]\nname=%s\n[connected]\noutput=37\nactivation=leaky\n"
	text = text[:a] + tied % "left" + tied % "right" + "share_index=-1\n" + text[a:]
	open(sys.argv[1], "w").write(text)
	EOP
for n in 0 1 2 3; do
	rm -rf "$tmp/backup"
	ranks $n -clear $([ $n = 0 ] || echo -fsdp.blocks whole)
	[ "$status" = 0 ] || { bad "$n ranks, shared in one block: status $status"; tail -n 5 "$tmp/err"; }
	[ $n = 1 ] && { [ "$(sum_of)" = "$want" ] || bad "one rank, shared params: other bits than the plain run"; }
	want=$(sum_of)
	rm -rf "$tmp/backup"
	sed -i 's/^max_batches=.*/max_batches=10/' "$cfg"
	ranks $n -save_every 10 $([ $n = 0 ] || echo -fsdp.strategy opt)
	sed -i 's/^max_batches=.*/max_batches=20/' "$cfg"
	ranks $n -log "$tmp/log" -save_every 10 -resume "$tmp/backup/net.ckpt/10"
	[ "$status" = 0 ] || { bad "$n ranks, shared by two blocks: status $status"; tail -n 5 "$tmp/err"; }
	[ "$(sum_of)" = "$want" ] || bad "$n ranks, shared by two blocks: other bits"
	[ $n -lt 2 ] || counted "$n ranks, shared by two blocks"
done
"$bin" fsdp consolidate "$tmp/backup/net.ckpt/20" "$tmp/all.weights" > /dev/null || bad "shared: consolidate"
cmp -s "$tmp/all.weights" "$tmp/backup/net_final.weights" || bad "shared: the consolidated file is another"
finish
