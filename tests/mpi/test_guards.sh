#!/usr/bin/env bash
# Clipping, loss scaling and what is not finite, over ranks and strategies. T18: the norm is that of the full gradients and the
# same bits under every strategy; T19: a step that is bad on one rank updates nothing on any, and the scale is the same on all.
. "$(dirname "$0")/lib.bash"

py() {
	python3 - "$tmp" "$@" << 'PY' || bad "$*"
import array, json, math, sys
tmp, what, *args = sys.argv[1:]

def steps(name):
    with open('%s/%s.log' % (tmp, name)) as f:
        return [e for e in map(json.loads, f) if e['event'] == 'step']

def weights(name):
    with open('%s/%s/net_final.weights' % (tmp, name), 'rb') as f:
        return array.array('f', f.read()[20:])

def near(a, b, tolerance=1e-5):
    return abs(a - b) <= tolerance * abs(b)

def change(name):  # of one step of rate .05 without momentum and decay: the mean gradient that was taken
    return [(a - b) / .05 for a, b in zip(weights(name), weights('start'))]

if what == 'norm':  # NAME P MAX: the norm that is logged, and that of the update
    name, p, most = args[0], args[1], float(args[2])
    full = change('free')
    norm = {'1': lambda g: sum(map(abs, g)), '2': lambda g: math.sqrt(sum(x * x for x in g)), 'inf': lambda g: max(map(abs, g))}[p]
    got = steps(name)[0]['grad_norm']
    ok = near(got, norm(full), 1e-4) and near(norm(change(name)), min(most, norm(full)), 1e-3)
    print(name, p, got, norm(full), norm(change(name)))
elif what == 'value':  # NAME LIMIT
    limit = float(args[1])
    want, got = change('free'), change(args[0])
    bounded = sum(abs(x) > limit for x in want)
    ok = bounded > 10 and all(abs(max(-limit, min(limit, x)) - y) < 1e-4 for x, y in zip(want, got))
    print(args[0], bounded, 'elements bounded')
elif what == 'bits':  # NAMES: the same norms and weights
    seen = {json.dumps([(s.get('grad_norm'), s['loss']) for s in steps(n)]) + str(hash(weights(n).tobytes())) for n in args}
    ok = len(seen) == 1 and len(steps(args[0])) > 0
elif what == 'skipped':  # NAME STEPS: which
    ok = [s['step'] for s in steps(args[0]) if s.get('skipped')] == json.loads(args[1])
elif what == 'scales':  # NAME LIST
    ok = [s['loss_scale'] for s in steps(args[0])] == json.loads(args[1])
    print([s['loss_scale'] for s in steps(args[0])])
elif what == 'same':  # NAMES: weights
    ok = len({weights(n).tobytes() for n in args}) == 1
elif what == 'after':  # a scale at which the sum of two ranks' gradients is infinite and neither of them is: of the largest element
    largest = steps('largest')[0]['grad_norm'] * 48
    with open(tmp + '/factor', 'w') as f:
        f.write('%.6g' % (1.02 * 3.4028234e38 / largest))
    ok = True
elif what == 'memory':  # NAME
    with open('%s/%s.log' % (tmp, args[0])) as f:
        end = [json.loads(line) for line in f][-1]
    ok = end['event'] == 'end' and end['allocs_after_first_step'] == 0 and all(
        r['planned_bytes'] == r['measured_bytes'] for rank in end['ranks'] for r in rank['regions'])
sys.exit(not ok)
PY
}

# go N NAME FLAGS...: on N ranks, in its own folder
go() {
	local n=$1 name=$2
	shift 2
	ranks "$n" -backup "$tmp/$name" -log "$tmp/$name.log" "$@"
}

net "$tmp/net.cfg" 0 1
sed -i 's/^momentum=.*/momentum=0/; s/^decay=.*/decay=0/' "$tmp/net.cfg"
cfg=$tmp/net.cfg
most=$(echo ${NP:-1 2 3} | tr ' ' '\n' | sort -n | tail -n 1)

# weights to start from, and one free step
go 0 start
[ "$status" = 0 ] || bad start
w=$tmp/start/net_final.weights
from() {
	local n=$1 name=$2
	shift 2
	if [ "$n" = 0 ]; then
		"$bin" classifier train "$tmp/x.data" "$cfg" "$w" -clear -threads 1 -plugin none -backup "$tmp/$name" -log "$tmp/$name.log" "$@" \
			> "$tmp/out" 2> "$tmp/err" < /dev/null
	else
		scripts/run-mpi.sh "$n" "$bin" classifier train "$tmp/x.data" "$cfg" "$w" -clear -threads 1 -backup "$tmp/$name" \
			-log "$tmp/$name.log" "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null
	fi
	status=$?
	[ "$status" = 0 ] || bad "$name: status $status: $(tail -n 3 "$tmp/err")"
}
from 0 free

# T18: p = 1, 2, inf against the full gradients, alone and on ranks
from 0 p2 -clip_norm .25
py norm p2 2 .25
for p in 1 2 inf; do
	max=$([ $p = 1 ] && echo 3 || echo .05)
	from "$most" "n$p" -clip_norm $max -fsdp.clip_p $p
	py norm "n$p" $p $max
done
from "$most" above -fsdp.clip_norm 1000
py norm above 2 1000
py memory above
from 0 v0 -clip_value .002
py value v0 .002
from "$most" v -fsdp.clip_value .002
py value v .002

# T18: same norm, to the bit, whoever owns what; shards that own nothing; copies
sed 's/^max_batches=.*/max_batches=4/; s/^subdivisions=.*/subdivisions=2/' "$tmp/net.cfg" > "$tmp/four.cfg"
mkdir -p "$tmp/four" && mv "$tmp/four.cfg" "$tmp/four/net.cfg"
cfg=$tmp/four/net.cfg
names=
for s in full grad_op opt replicate; do
	go "$most" "bits_$s" -clip_norm .3 -fsdp.strategy $s -fsdp.blocks each
	[ "$status" = 0 ] || bad "$s: status $status: $(tail -n 3 "$tmp/err")"
	names="$names bits_$s"
	py memory "bits_$s"
done
py bits $names
if [ "${FOUR:-}" ] || [ "$most" -ge 4 ]; then
	for s in hybrid_full hybrid_grad_op hybrid_full_opt; do
		go 4 "bits_$s" -clip_norm .3 -fsdp.strategy $s -fsdp.shard 2 -fsdp.blocks each
		[ "$status" = 0 ] || bad "$s: status $status: $(tail -n 3 "$tmp/err")"
	done
	go 4 bits_4 -clip_norm .3
	py bits bits_4 bits_hybrid_full bits_hybrid_grad_op bits_hybrid_full_opt
fi

# a power of two that is taken out again changes no bit
go "$most" scaled -clip_norm .3 -fsdp.loss_scale dynamic
py bits bits_full scaled
py scales scaled '[65536, 65536, 65536, 65536]'
go 0 alone
go 0 alone_scaled -loss_scale 1024
py same alone alone_scaled

# a gradient that is not finite, before reduction and after it
[ "$most" -ge 2 ] || finish
cfg=$tmp/net.cfg
go 2 stop -nan stop -clip_value 1e30
[ "$status" = 0 ] || bad "guards without a fault: status $status"

# an image that is not a number in the second rank's part of a batch; images with large gradients
python3 - "$tmp" << 'PY'
import struct, sys
tmp = sys.argv[1]
def npy(name, shape, values):
    head = ("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % (shape,)).encode()
    head += b' ' * (-(len(head) + 11) % 64) + b'\n'
    with open(tmp + '/' + name, 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head + struct.pack('<%df' % len(values), *values))
n, bad = 48 * 6, 48 * 2 + 40        # the third step's
x = [((i * 7919 + 13) % 101) / 101 for i in range(n * 64)]
y = [float(k == i % 10) for i in range(n) for k in range(10)]
npy('y.npy', (n, 10), y)
npy('good.npy', (n, 64), [1000 * v for v in x])
x[bad * 64:bad * 64 + 64] = [float('nan')] * 64
npy('nan.npy', (n, 64), x)
for name in 'good', 'nan':
    with open('%s/%s.data' % (tmp, name), 'w') as f:
        f.write('classes=10\nformat=npy\ntrain=%s/%s.npy\ntrain_truth=%s/y.npy\nbackup=%s/b\nshuffle=0\n' % (tmp, name, tmp, tmp))
PY
net "$tmp/six.cfg" 1 6
mkdir -p "$tmp/six" && mv "$tmp/six.cfg" "$tmp/six/net.cfg"
cfg=$tmp/six/net.cfg
cp "$tmp/nan.data" "$tmp/x.data"
go 2 loss
wants 1 'rank 1: step 3: block stem: loss is nan' 'nan=loss'
go 2 stop -nan stop
wants 1 'rank 1: step 3: block' 'nan=stop'
for n in 0 2; do
	go $n "skip$n" -nan skip
	wants 0 'step 3: updates nothing' "nan=skip on $n"
	grep -aq "$([ $n = 2 ] && echo 'rank 1: ')step 3: block tail: a gradient is not finite before reduction" "$tmp/err" ||
		bad "nan=skip on $n: the block is not named: $(grep -a step "$tmp/err")"
	py skipped "skip$n" '[3]'
	python3 -c '
import array, math, sys
sys.exit(not all(map(math.isfinite, array.array("f", open(sys.argv[1], "rb").read()[20:]))))' "$tmp/skip$n/net_final.weights" ||
		bad "nan=skip on $n: weights that are not finite"
done
go 2 scale -nan skip -loss_scale dynamic
py scales scale '[65536, 65536, 65536, 32768, 32768, 32768]'
py skipped scale '[3]'
go 2 on -nan continue
wants 0 'rank 1: step 3: block tail: a gradient is not finite before reduction' 'nan=continue'

# a resumed run goes on with its scale
go 2 saved -nan skip -loss_scale dynamic -save_every 5
ranks 2 -backup "$tmp/saved" -log "$tmp/again.log" -nan skip -loss_scale dynamic -resume "$tmp/saved/net.ckpt/5"
[ "$status" = 0 ] || bad "resumed: $(tail -n 2 "$tmp/err")"
py scales again '[32768]'

# too large a scale: of the gradient, where the loss is finite; not before reduction where each rank's is finite
cp "$tmp/good.data" "$tmp/x.data"
cfg=$tmp/net.cfg
go 2 large -nan stop -loss_scale 1e38
wants 1 'step 1: block' 'a gradient that is too large'
grep -aq 'loss is' "$tmp/err" && bad 'a gradient that is too large: it is the loss'
grep -aq 'a gradient is not finite' "$tmp/err" || bad "not said: $(tail -n 1 "$tmp/err")"
go 2 largest -clip_norm 1e9 -clip_p inf
py after
go 2 sum -nan stop -loss_scale "$(cat "$tmp/factor")"
wants 1 'a gradient is not finite after reduction' 'a sum that is too large'
go 2 sum -nan loss -loss_scale dynamic
[ "$status" = 0 ] || bad 'dynamic'
finish
