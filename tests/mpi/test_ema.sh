#!/usr/bin/env bash
# The exponential mean of the values: that of the values of every step, to single precision; the same bits whoever owns what; in
# checkpoints, in the weights file beside the final one, and in what is consolidated.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 0 8

go() { # go N NAME FLAGS...
	local n=$1 name=$2
	shift 2
	ranks "$n" -backup "$tmp/$name" -log "$tmp/$name.log" "$@"
	[ "$status" = 0 ] || { bad "$name: status $status"; tail -n 3 "$tmp/err"; }
}

equal() { # equal A B WHAT
	cmp -s "$1" "$2" || bad "$3"
}

go 0 plain -ema .75 -save_every 1 -keep 0
for step in 1 2 3 4 5 6 7 8; do
	"$bin" fsdp consolidate "$tmp/plain/net.ckpt/$step" "$tmp/$step.weights" > "$tmp/out" 2>&1 || bad "step $step"
done
# each step rounds a product and a sum: 8 of them, with values below 1
python3 - "$tmp" << 'PY' || bad "another mean"
import array, sys
def floats(name):
    with open('%s/%s' % (sys.argv[1], name), 'rb') as f:
        return array.array('f', f.read()[20:])
mean = list(floats('1.weights'))
for step in range(2, 9):
    mean = [.75 * m + .25 * w for m, w in zip(mean, floats('%d.weights' % step))]
got, last = floats('plain/net_ema.weights'), floats('8.weights')
worst = max(abs(a - b) for a, b in zip(mean, got))
apart = max(abs(a - b) for a, b in zip(last, got))
print('largest difference from the mean %.1e, of the mean from the values %.1e' % (worst, apart))
sys.exit(not (worst < 1e-6 and apart > 1e-3))
PY

"$bin" fsdp consolidate -ema "$tmp/plain/net.ckpt/8" "$tmp/mean.weights" > "$tmp/out" 2>&1 || bad "consolidate -ema"
equal "$tmp/mean.weights" "$tmp/plain/net_ema.weights" "consolidate -ema is not what training saved"

# without it nothing is kept, and asked for in vain
go 0 without -save_every 4
equal "$tmp/without/net_final.weights" "$tmp/plain/net_final.weights" "the mean changes the values"
[ -e "$tmp/without/net_ema.weights" ] && bad "a mean that nobody wanted"
"$bin" fsdp consolidate -ema "$tmp/without/net.ckpt/8" "$tmp/none.weights" > "$tmp/out" 2> "$tmp/err"
[ $? = 1 ] && grep -q "net.ckpt/8: has no mean of the values: its run was without -ema" "$tmp/err" || bad "consolidate -ema without"

for n in ${NP:-1 2 3 4}; do
	for strategy in full opt replicate grad_op hybrid_full_opt; do
		more=()
		[ $strategy = hybrid_full_opt ] && { [ "$n" = 4 ] || continue; more=(-fsdp.shard 2); }
		go "$n" r -fsdp.ema .75 -fsdp.strategy $strategy "${more[@]}"
		[ "$n" = 1 ] && [ $strategy = full ] && equal "$tmp/r/net_ema.weights" "$tmp/plain/net_ema.weights" "plain and one rank"
		if [ $strategy = full ]; then
			cp "$tmp/r/net_ema.weights" "$tmp/full.weights"
		else
			equal "$tmp/r/net_ema.weights" "$tmp/full.weights" "$n ranks: $strategy is not full"
		fi
		python3 - "$tmp/r.log" <<- 'PY' || bad "$n ranks, $strategy: memory"
			import json, sys
			end = [json.loads(line) for line in open(sys.argv[1])][-1]
			for rank in end['ranks']:
			    region = {r['name']: r for r in rank['regions']}
			    assert all(r['planned_bytes'] == r['measured_bytes'] for r in region.values())
			    assert region['ema']['planned_bytes'] == region['optimizer']['planned_bytes'] > 0    # as momentum
			assert end['allocs_after_first_step'] == 0
		PY
		rm -rf "$tmp/r" "$tmp/r.log"
	done
	echo "$n ranks: the same mean under all strategies"
done

# stopped at step 4 under one strategy, on again under another; and begun without
for n in ${NP:-2}; do
	[ "$n" = 2 ] || continue
	go 2 half -ema .75 -fsdp.strategy opt
	cp "$tmp/half/net_ema.weights" "$tmp/two.weights"
	rm -rf "$tmp/half"
	sed -i 's/^max_batches=.*/max_batches=4/' "$cfg"
	go 2 half -ema .75 -fsdp.strategy opt -save_every 4
	sed -i 's/^max_batches=.*/max_batches=8/' "$cfg"
	go 2 half -ema .75 -fsdp.strategy full -resume "$tmp/half/net.ckpt"
	equal "$tmp/half/net_ema.weights" "$tmp/two.weights" "a resumed mean"
	go 2 on -ema .75 -resume "$tmp/without/net.ckpt/4"
	grep -q "has no mean of the values: -ema begins with the values" "$tmp/err" || bad "a mean that begins late is not told of"
done
finish
