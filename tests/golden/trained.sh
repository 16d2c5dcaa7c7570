#!/usr/bin/env bash
# A net trained here on two sharded ranks, consolidated, is a net for Debian's library: the digits, class by class.
#   STEPS (150) of the 900 of cfg/digits-fsdp.cfg; ALL=1: all of them
# With -legacy-bn every digit gets the class that the library gives it. Our own rule of batch normalisation moves outputs by about
# 1e-4, so a digit that lies between two classes could change sides: the number of those is printed, and must be 1 % at most.
cd "$(dirname "$0")/../.." || exit 1
. tests/golden/lib.bash
steps=${STEPS:-150}
cfg=cfg/digits-fsdp.cfg
[ "${ALL:-0}" = 1 ] && steps=$(key $cfg max_batches)

if [ -z "$peer" ]; then
	echo "SKIP golden trained: the package darknet is not installed (apt-get install darknet)"
	exit 0
fi
sed "s/^max_batches=.*/max_batches=$steps/" $cfg > "$tmp/digits.cfg"
if ! scripts/run-mpi.sh 2 "$bin" train cfg/digits.data "$tmp/digits.cfg" -backup "$tmp/backup" -save_every "$steps" -keep 1 \
	> "$tmp/train.txt" 2> "$tmp/train.err" < /dev/null; then
	tail -n 5 "$tmp/train.err"
	fail "training on two ranks"
	verdict trained
	exit
fi
ours fsdp consolidate "$tmp/backup/digits.ckpt" "$tmp/digits.weights" || fail consolidate
ours net "$tmp/digits.cfg" -plain "$tmp/plain.cfg" || fail 'net -plain'

# all validation images as floats, as the loader gives them: byte / 255
images=$(python3 - data/digits/valid-images.idx "$tmp/in" << 'PY'
import array, gzip, struct, sys
with open(sys.argv[1], 'rb') as f:
    raw = f.read()
if raw[:2] == b'\x1f\x8b':
    raw = gzip.decompress(raw)
assert raw[:3] == b'\0\0\x08', 'not bytes in IDX'
dims = struct.unpack('>%dI' % raw[3], raw[4:4 + 4 * raw[3]])
pixels = raw[4 + 4 * raw[3]:]
array.array('f', [p / 255 for p in pixels]).tofile(open(sys.argv[2], 'wb'))
print(dims[0])
PY
) || fail 'reading the images'
classes=10
compare npy "$tmp/in" "$tmp/in.npy" "$images" 1 8 8 || fail 'images as an array'
oracle forward "$tmp/plain.cfg" "$tmp/digits.weights" "$tmp/in" "$tmp/theirs" || fail oracle
for rule in -legacy-bn own; do
	ours forward "$tmp/digits.cfg" "$tmp/digits.weights" "$tmp/in.npy" "$tmp/ours.npy" -plugin none $([ $rule = own ] || echo $rule) ||
		fail "forward, $rule"
	if [ $rule = own ]; then
		check "$steps steps, $images digits, $rule: outputs" compare max "$tmp/ours.npy" "$tmp/theirs" 2e-3
	else
		check "$steps steps, $images digits, $rule: outputs" compare max "$tmp/ours.npy" "$tmp/theirs" 1e-4
		check "$steps steps, $images digits, $rule: classes" compare top "$tmp/ours.npy" "$tmp/theirs" $classes 1
	fi
	differ=$(compare count "$tmp/ours.npy" "$tmp/theirs" $classes)
	echo "  $rule: classes: $differ"
	[ $rule = own ] && check "$rule: at most 1 % differ" test "${differ%% *}" -le $((images / 100))
done
# the library finds the digits too: a file of noise would also agree with itself
right=$(python3 - data/digits/valid-labels.idx "$tmp/theirs" $classes << 'PY'
import array, gzip, sys
raw = open(sys.argv[1], 'rb').read()
if raw[:2] == b'\x1f\x8b':
    raw = gzip.decompress(raw)
labels, k = raw[8:], int(sys.argv[3])
p = array.array('f')
p.frombytes(open(sys.argv[2], 'rb').read())
print(sum(max(range(k), key=lambda c: p[i * k + c]) == labels[i] for i in range(len(labels))))
PY
)
echo "  Debian's library classifies $right of $images digits correctly with our weights"
check "$steps steps: at least 9 of 10 right" test "$right" -ge $((images * 9 / 10))
verdict trained
