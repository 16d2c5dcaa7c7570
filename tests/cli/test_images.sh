#!/usr/bin/env bash
# Images from outside: lists, prediction, CIFAR-10, sheets, sizes that change, timing verbs, and what wrong files are told to be.
. "$(dirname "$0")/lib.bash"

gcc -O1 -o "$tmp/make_images" tests/cli/make_images.c -lm || exit 1
mkdir "$tmp/pictures of things"
"$tmp/make_images" "$tmp/pictures of things" 40 3 24 || exit 1
pictures=("$tmp/pictures of things"/*.jpg)
# a byte order mark, CRLF, blanks in paths, no line feed at the end
printf '\xef\xbb\xbf' > "$tmp/train.list"
printf '%s\r\n' "${pictures[@]}" >> "$tmp/train.list"
truncate -s -2 "$tmp/train.list"
printf '%s\n' "${pictures[@]:0:7}" > "$tmp/valid.list"
printf 'c0_\nc1_\nc2_\n' > "$tmp/labels.list"
printf 'red\ngreen things\nblau\xc3\xa4\n' > "$tmp/names.list"
data() { # data FILE KEY=VALUE...: the usual, the keys given standing first
	local f=$tmp/$1
	shift
	printf '%s\n' "$@" "classes=3" "train=$tmp/train.list" "valid=$tmp/valid.list" "labels=$tmp/labels.list" "names=$tmp/names.list" \
		"backup=$tmp/b" "top=2" > "$f"
}
data x.data
cat > "$tmp/net.cfg" << 'EOF'
[net]
batch=8
subdivisions=2
width=16
height=16
channels=3
learning_rate=0.05
max_batches=30
max_crop=24
angle=7
hue=.1
saturation=.75
exposure=.75
aspect=.75
[convolutional]
filters=6
size=3
stride=2
pad=1
activation=leaky
[connected]
output=3
activation=linear
[softmax]
EOF
cfg=$tmp/net.cfg

# --- a list: training, the same run again, evaluation ---
run 0 classifier train "$tmp/x.data" "$cfg" -threads 1 -log "$tmp/log" -valid 15 -save_every 10
[ "$(head -n 6 "$tmp/out" | tail -n 3)" = $'40\n16 24\nSeed: 0' ] || fail 'number of images, crop, seed'
has out '^Validation after (15|30): 7 images, top 1: ' 2
has err 'warning' 0
cp "$tmp/b/net_final.weights" "$tmp/a.weights"
python3 - "$tmp/log" << 'EOF' || fail 'the log'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
steps = [l for l in lines if l['event'] == 'step']
assert len(steps) == 30 and steps[-1]['loss'] < .9 * steps[0]['loss'], (steps[0], steps[-1])
end = lines[-1]
assert end['allocs_after_first_step'] == 0, end
assert all(r['planned_bytes'] == r['measured_bytes'] for r in end['ranks'][0]['regions']), end
EOF
run 0 classifier train "$tmp/x.data" "$cfg" -threads 1 -backup "$tmp/b1" -resume "$tmp/b/net.ckpt/20"
cmp -s "$tmp/a.weights" "$tmp/b1/net_final.weights" || fail 'a resumed run gives the file of the whole run'
run 0 classifier train "$tmp/x.data" "$cfg" -threads 1 -backup "$tmp/b2" -seed 5
cmp -s "$tmp/a.weights" "$tmp/b2/net_final.weights" && fail 'another seed gives other weights'
run 0 classifier valid "$tmp/x.data" "$cfg" "$tmp/a.weights"
has out "^$tmp/pictures of things/c0_0.jpg, 0, ([01]\.[0-9]{6}, ){2}\$" 1
has out '^[0-6]: top 1: [01]\.[0-9]{6}, top 2: [01]\.[0-9]{6}$' 7
printf '%s\n' "$tmp/no label here.jpg" "$tmp/c0_c1_.jpg" >> "$tmp/train.list.more"
(cat "$tmp/train.list"; echo; cat "$tmp/train.list.more") > "$tmp/odd.list"
data odd.data "train=$tmp/odd.list"
run 1 classifier train "$tmp/odd.data" "$cfg" -threads 1 -backup "$tmp/b3"
has err '^warning: .*of 42 images 1 ha.* no label .* 1 ' 1
has err "^darknet: $tmp/odd.list:4[12]: \".*(no label here|c0_c1_).jpg\": " 1

# --- prediction ---
p=(classifier predict "$tmp/x.data" "$cfg" "$tmp/a.weights")
run 0 "${p[@]}" "${pictures[0]}"
has out '^ ?[ 0-9]?[0-9]\.[0-9]{2}%: (red|green things|blauä)$' 2
[ "$(wc -l < "$tmp/out")" = 2 ] || fail 'top lines and nothing else on standard output'
has err "^$tmp/pictures of things/c0_0.jpg: Predicted in [0-9]+\.[0-9]{6} seconds\.\$" 1
head -n 1 "$tmp/out" | grep -q red || fail 'the class is the one it was trained on'
cp "$tmp/out" "$tmp/one"
run 0 "${p[@]}" "${pictures[0]}" -t 3
[ "$(wc -l < "$tmp/out")" = 3 ] || fail '-t 3 prints three lines'
run 0 "${p[@]}" "${pictures[0]}" -top 1 -backend ref
[ "$(wc -l < "$tmp/out")" = 1 ] || fail '-top 1 prints one line'
run 1 "${p[@]}" "${pictures[0]}" -t 4
has err '^darknet: -t: the best 4 classes are asked for, the net has 3$' 1
run 1 "${p[@]}" "$tmp/missing.jpg"
has err '^darknet: .*missing.jpg": ' 1
run 0 "${p[@]}"
[ "$(cat "$tmp/out")" = 'Enter Image Path: ' ] || fail 'the prompt, and an end at once'
prompt() { # prompt STATUS: the lines of standard input
	local got
	cases=$((cases + 1))
	timeout 60 "$bin" "${p[@]}" > "$tmp/out" 2> "$tmp/err"
	got=$?
	[ $got -eq "$1" ] || fail "prompt: status $got, wanted $1"
}
printf '%s\r\n%s' "${pictures[0]}" "${pictures[1]}" | prompt 0
has err 'Predicted in' 2
[ "$(head -n 2 "$tmp/out" | sed 's/^Enter Image Path: //')" = "$(cat "$tmp/one")" ] || fail 'the prompt gives the lines of FILE'
[ "$(tail -n 1 "$tmp/out")" = 'Enter Image Path: ' ] || fail 'the prompt stands last'
printf '%s\n%s\n\n%s\n' "$tmp/nosuch.png" "$tmp/x.data" "${pictures[2]}" | prompt 1
has err '^darknet: .*(nosuch.png|x.data)": ' 2
has err 'Predicted in' 1
head -c 100000 /dev/zero | tr '\0' x | prompt 1
(sleep 1; echo "${pictures[0]}"; sleep 1; echo "${pictures[0]}") | prompt 0
has err 'Predicted in' 2
run 0 forward "$cfg" "$tmp/a.weights" "${pictures[0]}" "$tmp/y.npy"
python3 - "$tmp/y.npy" "$tmp/one" << 'EOF' || fail 'forward: an image is what predict sees'
import re, struct, sys
b = open(sys.argv[1], 'rb').read()
y = struct.unpack('<3f', b[-12:])
best = [float(l.split('%')[0]) for l in open(sys.argv[2])]
assert [round(100 * v, 2) for v in sorted(y, reverse=True)[:2]] == best, (y, best)
EOF
run 2 "${p[@]:0:4}"

# --- a tree of classes: what is ranked are the leaves, by probabilities from the top down ---
printf '%s\n' 'cold -1' 'warm -1' 'c0_ 1' 'c1_ 0' 'c2_ 0' > "$tmp/tree"
printf '%s\n' cold warm c0_ c1_ c2_ > "$tmp/five.list"
data tree.data classes=5 "labels=$tmp/five.list" "names=$tmp/five.list" "tree=$tmp/tree" top=3
sed "s/^output=3/output=5/; s#^\[softmax\]#&\ntree=$tmp/tree#" "$cfg" > "$tmp/tree.cfg"
run 0 classifier train "$tmp/tree.data" "$tmp/tree.cfg" -threads 1
run 0 classifier predict "$tmp/tree.data" "$tmp/tree.cfg" "$tmp/b/tree_final.weights" "${pictures[0]}"
has out '^ *[0-9]+\.[0-9]{2}%: c[012]_$' 3
awk '{ s += $1 } END { exit !(s > 99.9 && s < 100.1) }' "$tmp/out" || fail 'the leaves of a tree add up to 100 %'
run 0 classifier valid "$tmp/tree.data" "$tmp/tree.cfg" "$tmp/b/tree_final.weights"
has out '^7 images: top 1: .*, top 3: 1.000000, ' 1

# --- classes and names that do not fit ---
refuse() { # refuse TEXT KEY=VALUE...: classifier train, valid or predict with these keys
	local text=$1
	shift
	data bad.data "$@"
	run 1 classifier "${verb:-train}" "$tmp/bad.data" "$cfg" ${verb:+"$tmp/a.weights"}
	has err "^darknet: .*$text" 1
}
refuse 'bad.data:1: .*classes=4, but .* 3 labels' classes=4
refuse 'classes=2, but the net has 3 outputs' classes=2
head -n 2 "$tmp/names.list" > "$tmp/two.list"
refuse 'two.list: 2 names, but there are 3 classes' "names=$tmp/two.list"
refuse 'two.list.* 2 labels' "labels=$tmp/two.list"
sed 's/^classes=.*/classes=9/; s#^names=.*#names='"$tmp/two.list#" cfg/digits.data > "$tmp/digits.data"
printf '[net]\nbatch=8\nmax_batches=2\ninputs=64\n[connected]\noutput=12\n[softmax]\n' > "$tmp/twelve.cfg"
run 1 classifier train "$tmp/digits.data" "$tmp/twelve.cfg" -backup "$tmp/b4"
has err '^darknet: .*class 9, classes=9 ' 1
sed -i 's/^classes=9/classes=10/' "$tmp/digits.data"
run 0 classifier train "$tmp/digits.data" "$tmp/twelve.cfg" -backup "$tmp/b4"
has err '^warning: .*digits.data:[0-9]+: classes=10, but the net has 12 outputs$' 1
has err '^warning: .*two.list: 2 names, but the net has 12 outputs$' 1
verb=valid refuse 'the best 4 classes are asked for, the net has 3' top=4
verb=predict refuse 'the best 4 classes are asked for, the net has 3' top=4
verb=predict refuse 'classes=2, but the net has 3 outputs' classes=2
verb=predict refuse 'two.list: 2 names, but the net has 3 outputs' "names=$tmp/two.list"
run 0 classifier train "$tmp/x.data" "$cfg" -threads 1 -backup "$tmp/b4" -batch 9
has err '^warning: batch=9 is no multiple of subdivisions=2: an update takes 2 x 4 = 8 images$' 1
sed 's/^channels=3/channels=2/' "$cfg" > "$tmp/two.cfg"
run 1 classifier train "$tmp/x.data" "$tmp/two.cfg"
has err 'takes 2 channels' 1
sed 's/^learning_rate/policy=steps\nsteps=5,9\nscales=.1\nlearning_rate/' "$cfg" > "$tmp/steps.cfg"
run 1 classifier train "$tmp/x.data" "$tmp/steps.cfg"
has err 'scales has 1 entries, steps has 2' 1

# --- text where another thing is due ---
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 123456\n' > "$tmp/pointer"
printf '<!DOCTYPE html>\n<html><head><title>Not Found</title></head></html>\n' > "$tmp/page"
wrong() { # wrong FILE TEXT: as cfg, data file, weights, image, list, labels
	cp "$tmp/$1" "$tmp/wrong.jpg"
	echo "$tmp/wrong.jpg" > "$tmp/wrong.list"
	data wrong.data "train=$tmp/wrong.list"
	run 1 classifier train "$tmp/x.data" "$tmp/$1" && has err "^darknet: .*$1.*$2" 1
	run 1 classifier train "$tmp/$1" "$cfg" && has err "^darknet: .*$1.*$2" 1
	run 1 classifier valid "$tmp/x.data" "$cfg" "$tmp/$1" && has err "^darknet: .*$1.*$2" 1
	run 1 "${p[@]}" "$tmp/wrong.jpg" && has err "^darknet: .*wrong.jpg.*$2" 1
	run 1 classifier train "$tmp/wrong.data" "$cfg" -backup "$tmp/b5" && has err "^darknet: .*wrong.jpg.*$2" 1
	data wrong.data "train=$tmp/$1"
	run 1 classifier train "$tmp/wrong.data" "$cfg" && has err "^darknet: .*$1.*$2" 1
	data wrong.data "labels=$tmp/$1"
	run 1 classifier train "$tmp/wrong.data" "$cfg" && has err "^darknet: .*$1.*$2" 1
}
wrong pointer 'git-lfs pointer'
wrong page 'HTML page'
for f in "$tmp" "$tmp/empty.jpg" /dev/null; do
	: > "$tmp/empty.jpg"
	run 1 "${p[@]}" "$f"
	has err '^darknet: ' 1
done
head -c 300 "${pictures[0]}" > "$tmp/short.jpg"
run 1 "${p[@]}" "$tmp/short.jpg"
has err '^darknet: .*short.jpg": ' 1

# --- samples as the net gets them ---
run 0 look "$tmp/x.data" "$cfg" "$tmp/sheet.png" -n 12 -columns 4
has out "^[0-9]+: $tmp/pictures of things/c[0-2]_[0-9]+.jpg:[0-9]+, [0-2]\$" 12
run 0 imtest "$tmp/x.data" "$cfg" "$tmp/again.png" -n 12 -columns 4
cmp -s "$tmp/sheet.png" "$tmp/again.png" || fail 'one seed, one sheet'
run 0 look "$tmp/x.data" "$cfg" "$tmp/other.png" -n 12 -columns 4 -seed 1
cmp -s "$tmp/sheet.png" "$tmp/other.png" && fail 'another seed draws other samples'
python3 - "$tmp/sheet.png" << 'EOF' || fail 'the sheet: a PNG of 4 by 3 samples'
import struct, sys, zlib
b = open(sys.argv[1], 'rb').read()
assert b[:8] == b'\x89PNG\r\n\x1a\n'
w, h = struct.unpack('>II', b[16:24])
assert 4 * 16 <= w <= 4 * 16 + 5 and 3 * 16 <= h <= 3 * 16 + 4, (w, h)
at, data = 8, b''
while at < len(b):
    n, kind = struct.unpack('>I4s', b[at:at + 8])
    assert zlib.crc32(b[at + 4:at + 8 + n]) == struct.unpack('>I', b[at + 8 + n:at + 12 + n])[0]
    data += b[at + 8:at + 8 + n] if kind == b'IDAT' else b''
    at += 12 + n
pixels = zlib.decompress(data)
assert len(pixels) == h * (3 * w + 1) and len(set(pixels)) > 50
EOF
run 0 look cfg/digits.data cfg/digits.cfg "$tmp/digits.png"
run 1 look "$tmp/x.data" "$cfg" "$tmp/no-such-folder/x.png"
run 1 look "$tmp/x.data" "$tmp/two.cfg" "$tmp/x.png"

# --- sizes that change: 128 to 448, one plan for all ---
cat > "$tmp/sizes.cfg" << 'EOF'
[net]
batch=2
width=64
height=64
channels=3
learning_rate=0.001
max_batches=130
random=1
[convolutional]
filters=4
size=3
stride=4
pad=1
activation=leaky
[convolutional]
filters=3
size=3
stride=4
pad=1
activation=linear
[avgpool]
[softmax]
EOF
run 0 classifier train "$tmp/x.data" "$tmp/sizes.cfg" -threads 1 -backup "$tmp/b6" -log "$tmp/log" -valid 50
python3 - "$tmp/log" << 'EOF' || fail 'sizes: no allocation after the first step, planned is measured'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
end = lines[-1]
assert end['steps'] == 130 and end['allocs_after_first_step'] == 0, end
regions = end['ranks'][0]['regions']
assert all(r['planned_bytes'] == r['measured_bytes'] for r in regions), regions
ring = 3 * 2 * 3 * 448 * 448 * 4
assert [r for r in regions if r['name'] == 'activations'][0]['planned_bytes'] > ring, regions
EOF
run 1 classifier train cfg/digits.data "$tmp/sizes.cfg"
sed 's/^random=.*/random=1\n/; s/^\[avgpool\]/[connected]\noutput=3/' "$tmp/sizes.cfg" > "$tmp/fixed.cfg"
run 1 classifier train "$tmp/x.data" "$tmp/fixed.cfg"
has err '^darknet: .*fixed.cfg:' 1
sed 's/^random=.*/&\ninputs=64/; /^width\|^height\|^channels/d; /^\[convolutional\]/,$d' "$tmp/sizes.cfg" > "$tmp/flat.cfg"
printf '[connected]\noutput=3\nactivation=linear\n[softmax]\n' >> "$tmp/flat.cfg"
run 1 classifier train cfg/digits.data "$tmp/flat.cfg"
has err 'random=1' 1
run 0 classifier valid "$tmp/x.data" "$tmp/sizes.cfg" "$tmp/b6/sizes_final.weights"

# --- ops and speed ---
run 0 ops "$cfg"
# 2 * (6 * 27 * 8 * 8 + 384 * 3)
[ "$(cat "$tmp/out")" = $'Floating Point Operations: 23040\nFloating Point Operations: 0.00 Bn' ] || fail "ops: $(cat "$tmp/out")"
run 0 speed "$cfg" 3
has out '^3 evals, [0-9]+\.[0-9]{6} Seconds$' 1
has out '^Floating Point Operations: 0\.00 Bn$' 1
has out '^FLOPS: [0-9]+\.[0-9]{2} Bn$' 1
has out '^Speed: [0-9]+\.[0-9]{6} sec/eval$' 1
has out '^Speed: [0-9]+\.[0-9]{6} Hz$' 1
for n in 0 -1 x 1.5; do
	run 1 speed "$cfg" $n
	has err 'must be a whole number of at least 1' 1
done

# --- CIFAR-10 ---
cifar=$tmp/w/data/cifar/cifar-10-batches-bin
mkdir -p "$cifar"
python3 - "$cifar" << 'EOF'
import random, sys
random.seed(7)
for name in ['data_batch_%d' % i for i in range(1, 6)] + ['test_batch']:
    with open('%s/%s.bin' % (sys.argv[1], name), 'wb') as f:
        for i in range(50):
            f.write(bytes([i % 10]) + bytes(25 * (i % 10) + random.randrange(20) for _ in range(3072)))
EOF
sed -e 's/^width=.*/width=32/; s/^height=.*/height=32/; s/^output=.*/output=10/; s/^max_batches=.*/max_batches=40/' "$cfg" > "$tmp/w/c.cfg"
here=$PWD
cd "$tmp/w" || exit 1
run 0 cifar train c.cfg -threads 1
has out '^[0-9]+, [0-9]\.[0-9]{3}: [0-9.]+, [0-9.]+ avg, ' 40
has out '^250$' 1
run 0 cifar test c.cfg backup/c_final.weights
has out '^top1: [01]\.[0-9]{6}, [0-9.]+ seconds, 50 images$' 1
printf 'format=cifar\ntrain=data/cifar/cifar-10-batches-bin/data_batch_1.bin\nvalid=data/cifar/cifar-10-batches-bin/test_batch.bin\n' > my.data
run 0 cifar train my.data c.cfg backup/c_final.weights -threads 1 -backup b2 -clear
has out '^50$' 1
run 0 cifar test my.data c.cfg backup/c_final.weights
run 2 cifar train my.data
run 2 cifar test c.cfg
run 2 cifar test my.data c.cfg
rm "$cifar/test_batch.bin"
run 1 cifar test c.cfg backup/c_final.weights
has err '^darknet: .*test_batch.bin: ' 1
cd "$here" || exit 1

finish images
