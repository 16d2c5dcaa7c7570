#!/usr/bin/env bash
# What rounded values and gradients cost: the digits, trained on two ranks with fp32 and with 16 bits on their way, evaluated by the
# plain program. The mean over the seeds stays within 0.5 points, and exactly half the bytes are sent.
# SEEDS: how many (1). UPDATES: of each run, with the steps of the policy as much earlier (200; points are 2 then); if empty, all
# of the cfg.
. "$(dirname "$0")/lib.bash"
seeds=${SEEDS:-1} updates=${UPDATES-200}
cfg=$tmp/digits-fsdp.cfg
cp cfg/digits-fsdp.cfg "$cfg"
points=0.5
if [ -n "$updates" ]; then
	sed -i "s/^max_batches=.*/max_batches=$updates/; s/^steps=.*/steps=$((updates * 6 / 10)),$((updates * 85 / 100))/" "$cfg"
	points=2
fi

for ((seed = 0; seed < seeds; seed++)); do
	for format in fp32 bf16 fp16; do
		[ "$format" = fp16 ] && [ "$seed" != 0 ] && continue
		rm -rf "$tmp/backup"
		wire=(-fsdp.wire "$format")
		[ "$format" = bf16 ] && wire+=(-fsdp.reduce bf16)
		ranks 2 -seed "$seed" -log "$tmp/$format.$seed.log" "${wire[@]}"
		[ "$status" = 0 ] || { bad "$format, seed $seed: status $status"; tail -n 5 "$tmp/err"; continue; }
		"$bin" classifier valid "$tmp/x.data" "$cfg" "$tmp/backup/digits-fsdp_final.weights" -plugin none -threads 1 \
			> "$tmp/valid" 2> "$tmp/err" < /dev/null || bad "$format, seed $seed: evaluation"
		sed -n 's/^[0-9]* images: top 1: \([0-9.]*\).*/\1/p' "$tmp/valid" >> "$tmp/$format.top1"
	done
done

python3 - "$tmp" "$seeds" "$points" << 'PY' || bad 'fp32 and 16 bits on the wire'
import json, sys
tmp, seeds, points = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])

def top1(name):
    return [float(x) for x in open('%s/%s.top1' % (tmp, name))]

def sent(name, seed):
    ends = [json.loads(x) for x in open('%s/%s.%d.log' % (tmp, name, seed))]
    rank = [r for e in ends for r in e.get('ranks', [])][0]
    for k in ('gather', 'reduce'):
        assert rank[k]['counted_bytes'] == rank[k]['planned_bytes'] > 0, rank[k]
    return rank['gather']['counted_bytes'], rank['reduce']['counted_bytes']

full, half = top1('fp32'), top1('bf16')
assert len(full) == len(half) == seeds, (full, half)
mean = lambda x: 100 * sum(x) / len(x)
print('fp32 %s, mean %.3f' % (full, mean(full)))
print('bf16 %s, mean %.3f' % (half, mean(half)))
print('fp16 %s' % top1('fp16'))
assert abs(mean(full) - mean(half)) <= points, 'further apart than %g points' % points
assert abs(mean(full[:1]) - mean(top1('fp16'))) <= max(points, 2), 'fp16 values'
for seed in range(seeds):
    whole, narrow = sent('fp32', seed), sent('bf16', seed)
    assert [2 * x for x in narrow] == list(whole), (whole, narrow)
assert [2 * sent('fp16', 0)[0], sent('fp16', 0)[1]] == list(sent('fp32', 0))
PY
finish
