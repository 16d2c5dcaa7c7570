#!/usr/bin/env bash
# layout=planned:row and planned:tensor under mpirun: the bits of the weights are those of flat under every strategy, planned and
# counted bytes agree, a run goes on under another layout bit for bit. T1 (layouts), T29 (layouts).
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg

# ways N: what runs on N ranks
ways() {
	printf '%s\n' full grad_op opt replicate
	[ "$1" = 4 ] && printf '%s\n' "full -fsdp.release 2" "hybrid_full -fsdp.shard 2" "hybrid_grad_op -fsdp.shard 2" \
		"hybrid_full_opt -fsdp.shard 2" "hybrid_full_opt -fsdp.shard 1"
}

sum_of() {
	cat "$tmp/backup"/*_final.weights | sha256sum
}

for n in ${NP:-1 2 3 4}; do
	net "$cfg" 1 50
	ranks "$n" -log "$tmp/log" -clear -fsdp.layout flat
	want=$(sum_of)
	while read -r way; do
		for layout in planned:row planned:tensor; do
			rm -rf "$tmp/backup"
			# shellcheck disable=SC2086
			ranks "$n" -log "$tmp/log" -clear -fsdp.layout $layout -fsdp.strategy $way
			[ "$status" = 0 ] || { bad "$n ranks, $layout, $way: status $status"; tail -n 5 "$tmp/err"; continue; }
			[ "$(sum_of)" = "$want" ] || bad "$n ranks, $layout, $way: other bits than flat"
			counted "$n ranks, $layout, $way"
		done
	done < <(ways "$n")
done

# stopped under one layout, and gone on with under another
net "$cfg" 1 20
n=3
ranks $n -clear
want=$(sum_of)
for from in flat planned:row planned:tensor; do
	for to in flat planned:row planned:tensor; do
		rm -rf "$tmp/backup"
		sed -i 's/^max_batches=.*/max_batches=10/' "$cfg"
		ranks $n -save_every 10 -fsdp.layout $from
		[ "$status" = 0 ] || { bad "save under $from: status $status"; tail -n 5 "$tmp/err"; }
		sed -i 's/^max_batches=.*/max_batches=20/' "$cfg"
		ranks $n -save_every 10 -resume "$tmp/backup/net.ckpt/10" -fsdp.layout $to
		[ "$status" = 0 ] || { bad "from $from to $to: status $status"; tail -n 5 "$tmp/err"; }
		[ "$(sum_of)" = "$want" ] || bad "from $from to $to: other bits"
	done
	"$bin" fsdp verify "$tmp/backup/net.ckpt/20" > "$tmp/out" 2>&1 || { bad "$to: verify"; cat "$tmp/out"; }
	"$bin" fsdp consolidate "$tmp/backup/net.ckpt/20" "$tmp/all.weights" > /dev/null || bad "$to: consolidate"
	cmp -s "$tmp/all.weights" "$tmp/backup/net_final.weights" || bad "$to: the consolidated file is another"
done

# what is printed adds up, and what is no layout is refused where it stands
for layout in flat planned:row planned:tensor; do
	"$bin" fsdp plan "$cfg" -world 4 -json -threads 1 -fsdp.layout $layout > "$tmp/plan.json" || bad "plan of $layout"
	python3 - "$tmp/plan.json" $layout <<-'EOP' || bad "plan of $layout"
	import json, sys
	p, layout = json.load(open(sys.argv[1])), sys.argv[2]
	assert p["layout"] == layout
	pad = gathered = 0
	for b in p["blocks"]:
	    pad += b["padding_bytes"]
	    gathered += b["gathered_bytes"]
	    assert abs(b["padding_ratio"] - (b["padding_bytes"] / b["gathered_bytes"] if b["params"] else 0)) < 1e-6, b
	    assert b["padding_bytes"] == b["gathered_bytes"] - 4 * b["params"], b
	assert abs(p["padding_ratio"] - pad / gathered) < 1e-6
	EOP
done
"$bin" fsdp plan "$cfg" -world 4 -threads 1 -fsdp.layout planned:row | grep -q '^padding in all: 0\.[0-9]* of what is gathered' || bad "no padding in the plan"
sed -i 's/^\[fsdp\]/&\nlayout=planned:column/' "$cfg"
ranks 2 -clear
wants 1 "net.cfg:$(grep -n planned "$cfg" | cut -d: -f1): layout=planned:column: unknown; this version supports flat, planned:row, planned:tensor" "no layout"
finish
