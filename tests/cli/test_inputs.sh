#!/usr/bin/env bash
# Inputs that look right and are not: each is refused, or used with a word that says how, by every verb that reads it.
. "$(dirname "$0")/lib.bash"

python3 - "$tmp" << 'PY' || exit 1
import random, struct, sys
random.seed(1)
def npy(name, shape, values, descr='<f4'):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (descr, ', '.join(map(str, shape)))
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    kind = {'<f4': 'f', '<i8': 'q'}[descr]
    with open(sys.argv[1] + '/' + name, 'wb') as f:
        f.write(b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head.encode() + struct.pack('<%d%s' % (len(values), kind), *values))
x = [random.random() for _ in range(6 * 3 * 4 * 4)]
npy('chw.npy', (6, 3, 4, 4), x)
npy('hwc.npy', (6, 4, 4, 3), x)
npy('flat.npy', (6, 48), x)
npy('y.npy', (6,), [0, 1, 2, 0, 1, 2], '<i8')
npy('two.npy', (6, 3), [random.random() for _ in range(18)])
bmp = struct.pack('<2sIHHIIiiHHIIiiII', b'BM', 102, 0, 0, 54, 40, 4, -4, 1, 24, 0, 48, 0, 0, 0, 0) + b'\0\0\377' * 16
open(sys.argv[1] + '/top-down.bmp', 'wb').write(bmp)
PY
cat > "$tmp/t.cfg" << 'EOF2'
[net]
batch=6
width=4
height=4
channels=3
learning_rate=0.01
max_batches=3
[convolutional]
batch_normalize=1
filters=4
size=3
pad=1
activation=leaky
[connected]
output=3
activation=linear
[softmax]
EOF2
cfg=$tmp/t.cfg
printf 'a\nb\nc\n' > "$tmp/names"
data() { # data FILE X [LINE...]: arrays X for training and validation
	local f=$tmp/$1 x=$tmp/$2
	shift 2
	printf '%s\n' format=npy "train=$x" "train_truth=$tmp/y.npy" "valid=$x" "valid_truth=$tmp/y.npy" "backup=$tmp/b" \
		"names=$tmp/names" "$@" > "$f"
}
data chw.data chw.npy
data hwc.data hwc.npy
data flat.data flat.npy

# --- arrays of another arrangement ---
run 0 train "$tmp/chw.data" "$cfg" -threads 1
has err 'warning' 0
mv "$tmp/b/t_final.weights" "$tmp/w"
for verb in train 'classifier train' 'classifier valid' look; do
	with=()
	[ "$verb" != 'classifier valid' ] || with=("$tmp/w")
	# shellcheck disable=SC2086 # one word or two
	run 1 $verb "$tmp/hwc.data" "$cfg" "${with[@]}"
	has err '^darknet: .*hwc.npy: images of \[c,h,w\] = \[4,4,3\] found .*, the net takes \[3,4,4\]; channels last: .*\(0, 3, 1, 2\)' 1
done
run 1 forward "$cfg" "$tmp/w" "$tmp/hwc.npy" "$tmp/o.npy"
has err '^darknet: .*hwc.npy: images of \[c,h,w\] = \[4,4,3\] found .*, the net takes \[3,4,4\]; channels last' 1
run 0 forward "$cfg" "$tmp/w" "$tmp/chw.npy" "$tmp/o.npy" -threads 1
run 0 forward "$cfg" "$tmp/w" "$tmp/flat.npy" "$tmp/p.npy" -threads 1
cmp -s "$tmp/o.npy" "$tmp/p.npy" || fail 'the same values with and without a shape'
run 0 train "$tmp/flat.data" "$cfg" -threads 1
cmp -s "$tmp/b/t_final.weights" "$tmp/w" || fail 'the same training with and without a shape'

# --- an image with its first row on top, by each verb that reads one ---
run 0 classifier predict "$tmp/chw.data" "$cfg" "$tmp/w" "$tmp/top-down.bmp"
has out '^[ 0-9.]+%: [abc]$' 1
run 0 forward "$cfg" "$tmp/w" "$tmp/top-down.bmp" "$tmp/o.npy"

# --- a count of images of 32 bits under a version of 64: one rule, and one word ---
{ head -c 12 "$tmp/w"; printf '\200\2\0\0'; tail -c +21 "$tmp/w"; } > "$tmp/w32"
once='^warning: .*w32: version 0\.2 means that images are counted in 64 bits, but .*: 32 bits are read, 640 images seen$'
run 0 weights info "$tmp/w32" "$cfg"
has out '^seen 640 images \(32-bit\)$' 1
has out '^holds 3 of 3 layers$' 1
has err "$once" 1
run 0 weights info "$tmp/w32"
has out '^seen 640 images \(32-bit\)$' 1
has err "$once" 1
run 0 weights info "$tmp/w" "$cfg"
has out '^seen 18 images$' 1
has err . 0
run 0 weights diff "$tmp/w32" "$tmp/w" "$cfg"
has err "$once" 1
run 0 partial "$cfg" "$tmp/w32" "$tmp/x" 3
has err "$once" 1
run 0 classifier predict "$tmp/chw.data" "$cfg" "$tmp/w32" "$tmp/top-down.bmp"
has err "$once" 1
run 0 classifier valid "$tmp/chw.data" "$cfg" "$tmp/w32"
has err "$once" 1
run 0 forward "$cfg" "$tmp/w32" "$tmp/chw.npy" "$tmp/o.npy"
has err "$once" 1
sed 's/^max_batches=.*/max_batches=110/' "$cfg" > "$tmp/more.cfg"
run 0 train "$tmp/chw.data" "$tmp/more.cfg" "$tmp/w32" -threads 1
has err "$once" 1
has out '^108, .* 652 images$' 1

# --- frozen layers whose rolling statistics nobody has filled ---
awk '1; /^activation=leaky/ && ++n == 1 { print "stopbackward=1" }' "$cfg" > "$tmp/f.cfg"
empty="^darknet: $tmp/f.cfg:8: \[convolutional\] layer 0: frozen, but its rolling statistics are empty: load weights"
run 1 train "$tmp/chw.data" "$tmp/f.cfg"
has err "$empty" 1
has out 'avg' 0
run 0 train "$tmp/chw.data" "$tmp/f.cfg" -force
has err '^warning: .*f.cfg:8: .* layer 0: frozen, but its rolling statistics are empty' 1
run 0 train "$tmp/chw.data" "$tmp/f.cfg" "$tmp/w" -backup "$tmp/fb" -save_every 1 -clear
has err 'rolling statistics' 0
run 0 train "$tmp/chw.data" "$tmp/f.cfg" -backup "$tmp/fb" -resume "$tmp/fb/f.ckpt/2"
has err 'rolling statistics' 0
run 0 partial "$cfg" "$tmp/w" "$tmp/first" 1
run 0 train "$tmp/chw.data" "$tmp/f.cfg" "$tmp/first"
has err 'rolling statistics' 0
run 0 partial "$cfg" "$tmp/w" "$tmp/none" 0
run 1 train "$tmp/chw.data" "$tmp/f.cfg" "$tmp/none"
has err "$empty" 1
for key in dontload dontloadscales; do
	sed "s/^stopbackward=1/&\n$key=1/" "$tmp/f.cfg" > "$tmp/d.cfg"
	run 1 train "$tmp/chw.data" "$tmp/d.cfg" "$tmp/none"
	has err '^darknet: .*d.cfg:8: .* layer 0: frozen, but its rolling statistics are empty' 1
done
# a layer that shares them, and one behind the frozen ones that fills its own
sed 's/^\[connected\]/[convolutional]\nbatch_normalize=1\nfilters=4\nsize=3\npad=1\nactivation=leaky\n&/' "$tmp/f.cfg" > "$tmp/two.cfg"
run 1 train "$tmp/chw.data" "$tmp/two.cfg"
has err '^darknet: .*two.cfg:8: \[convolutional\] layer 0: frozen' 1
sed 's/^stopbackward=1//; s/^channels=3/channels=4/; s/^\[connected\]/share_index=0\nstopbackward=1\n&/' "$tmp/two.cfg" > "$tmp/shared.cfg"
sed -i '/^channels/s/4/3/; 0,/^filters=4/s//filters=3/; s/^filters=4/filters=3/' "$tmp/shared.cfg"
run 1 train "$tmp/chw.data" "$tmp/shared.cfg"
has err '^darknet: .*shared.cfg:8: \[convolutional\] layer 0 \(and 1 more\): frozen' 1

# --- evaluating them is warned of ---
run 0 partial "$cfg" "$tmp/w" "$tmp/x" 3
python3 - "$tmp/w" "$tmp/zero" "$tmp/nan" "$tmp/flat0" << 'PY'
import struct, sys
p = bytearray(open(sys.argv[1], 'rb').read())
z = bytearray(p)
z[20 + 4 * 8:20 + 4 * 16] = bytes(32)      # 4 biases, 4 scales, then the statistics
open(sys.argv[2], 'wb').write(z)
v = bytearray(p)
v[20 + 4 * 12:20 + 4 * 16] = bytes(16)     # the variances alone
open(sys.argv[4], 'wb').write(v)
p[20 + 4 * 16:24 + 4 * 16] = struct.pack('<f', float('nan'))
open(sys.argv[3], 'wb').write(p)
PY
warned="^warning: $tmp/t.cfg:8: \[convolutional\] layer 0: its rolling statistics are empty, also in $tmp/zero: "
run 0 classifier valid "$tmp/chw.data" "$cfg" "$tmp/zero"
has err "$warned" 1
run 0 classifier predict "$tmp/chw.data" "$cfg" "$tmp/zero" "$tmp/top-down.bmp"
has err "$warned" 1
run 0 forward "$cfg" "$tmp/zero" "$tmp/chw.npy" "$tmp/o.npy"
has err "$warned" 1
# means alone are not enough
for verb in 'classifier valid' 'classifier predict' forward; do
	case $verb in
	forward) set -- "$cfg" "$tmp/flat0" "$tmp/chw.npy" "$tmp/o.npy" ;;
	*predict) set -- "$tmp/chw.data" "$cfg" "$tmp/flat0" "$tmp/top-down.bmp" ;;
	*) set -- "$tmp/chw.data" "$cfg" "$tmp/flat0" ;;
	esac
	# shellcheck disable=SC2086 # one word or two
	run 0 $verb "$@"
	has err '^warning: .*t.cfg:8: \[convolutional\] layer 0: its rolling statistics are empty, also in .*flat0: ' 1
done
run 1 train "$tmp/chw.data" "$tmp/f.cfg" "$tmp/flat0"
has err "$empty" 1

# --- and what is not finite is not a result ---
run 1 classifier valid "$tmp/chw.data" "$cfg" "$tmp/nan"
has err '^warning: .*nan: 1 values are not finite$' 1
has err '^darknet: .*nan: 6 of 6 images have a NaN or infinite output$' 1
has out '^6 images: ' 1
run 1 classifier predict "$tmp/chw.data" "$cfg" "$tmp/nan" "$tmp/top-down.bmp"
has err '^darknet: ".*top-down.bmp": 3 of 3 outputs are NaN or infinite$' 1
has out '%' 0
cases=$((cases + 1))
printf '%s\n' "$tmp/top-down.bmp" "$tmp/top-down.bmp" | "$bin" classifier predict "$tmp/chw.data" "$cfg" "$tmp/nan" > "$tmp/out" 2> "$tmp/err"
[ $? -eq 1 ] || fail 'a prompt with results that are none: status'
has err '^darknet: ".*top-down.bmp": 3 of 3 outputs are NaN or infinite$' 2
once='^warning: .*nan: 1 values are not finite$'
run 1 train "$tmp/chw.data" "$tmp/more.cfg" "$tmp/nan" -threads 1
has err "$once" 1
run 0 partial "$cfg" "$tmp/nan" "$tmp/x" 3
has err "$once" 1
run 1 weights diff "$tmp/nan" "$tmp/w" "$cfg"
has err "$once" 1
run 0 weights info "$tmp/nan" "$cfg"
has err "$once" 1
run 0 weights info "$tmp/nan"
has err "$once" 1
# also when it comes out of a checkpoint
sed 's/^max_batches=.*/max_batches=5/' "$cfg" > "$tmp/five.cfg"
run 0 train "$tmp/chw.data" "$tmp/five.cfg" "$tmp/nan" -threads 1 -nan continue -save_every 4 -clear -backup "$tmp/nb"
run 1 train "$tmp/chw.data" "$tmp/five.cfg" -threads 1 -backup "$tmp/nb" -resume "$tmp/nb/five.ckpt/4"
has err '^warning: .*five.ckpt/4: [0-9]+ values are not finite$' 1
run 0 fsdp consolidate "$tmp/nb/five.ckpt" "$tmp/x.weights"
has err '^warning: .*five.ckpt/5: [0-9]+ values are not finite$' 1
run 0 fsdp verify "$tmp/nb/five.ckpt"
has err '^warning: .*five.ckpt/5: [0-9]+ values are not finite$' 1
run 0 forward "$cfg" "$tmp/nan" "$tmp/chw.npy" "$tmp/o.npy"
has err '^warning: .*o.npy: 18 of its 18 values are NaN or infinite$' 1
# data that are not finite are named when they are loaded: the file, the sample, once, wherever it stands
python3 - "$tmp" << 'PY'
import struct, sys
for name, at in ('chw', -48 * 2 + 5), ('two', -3 * 2 + 1):
    p = bytearray(open('%s/%s.npy' % (sys.argv[1], name), 'rb').read())
    n = len(p) + 4 * at
    p[n:n + 4] = struct.pack('<f', float('nan' if name == 'chw' else '-inf'))
    open('%s/bad-%s.npy' % (sys.argv[1], name), 'wb').write(p)
PY
data bad.data bad-chw.npy
run 0 train "$tmp/bad.data" "$cfg" -threads 2 -nan continue
has err '^warning: .*bad-chw.npy: sample 4: value 5 is NaN$' 1
run 1 train "$tmp/bad.data" "$cfg" -threads 1
has err '^warning: .*bad-chw.npy: sample 4: value 5 is NaN$' 1
has err '^darknet: step 1: ' 1
run 1 classifier valid "$tmp/bad.data" "$cfg" "$tmp/w"
has err '^warning: .*bad-chw.npy: sample 4: value 5 is NaN$' 1
printf '%s\n' '[net]' batch=6 inputs=48 max_batches=2 '[connected]' output=3 '[cost]' > "$tmp/dense.cfg"
printf '%s\n' format=npy "train=$tmp/chw.npy" "train_truth=$tmp/bad-two.npy" "backup=$tmp/b" > "$tmp/dense.data"
run 1 train "$tmp/dense.data" "$tmp/dense.cfg" -threads 1
has err '^warning: .*bad-two.npy: sample 4: value 1 of its target is infinite$' 1

# found in the outputs, though every weight is finite
python3 - "$tmp/w" "$tmp/large" << 'PY'
import struct, sys
p = bytearray(open(sys.argv[1], 'rb').read())
p[20:24] = p[-4:] = struct.pack('<f', 3e38)
open(sys.argv[2], 'wb').write(p)
PY
sed 's/^\[softmax\]//' "$cfg" > "$tmp/l.cfg"
run 1 classifier predict "$tmp/chw.data" "$tmp/l.cfg" "$tmp/large" "$tmp/top-down.bmp"
has err 'not finite' 0
has err 'outputs are NaN or infinite$' 1

# --- faults of files that a data file names are told with its line ---
named() { # named KEY LINE TEXT FILE [VERB...]: of chw.data with KEY=FILE
	local key=$1 line=$2 text=$3 file=$4
	shift 4
	sed "s#^$key=.*#$key=$file#" "$tmp/chw.data" > "$tmp/named.data"
	grep -q "^$key=$file" "$tmp/named.data" || echo "$key=$file" >> "$tmp/named.data"
	run 1 "${@:-train}" "$tmp/named.data" "$cfg" ${rest[@]+"${rest[@]}"}
	has err "^darknet: $tmp/named.data:$line: $text" 1
}
rest=()
echo 'no array' > "$tmp/text.npy"
head -c 100 "$tmp/chw.npy" > "$tmp/cut.npy"
named train 2 "$tmp/text.npy: not a NumPy file, but a text file" "$tmp/text.npy"
named train 2 "$tmp/cut.npy: damaged|$tmp/cut.npy: truncated" "$tmp/cut.npy"
named train 2 "$tmp/gone.npy: " "$tmp/gone.npy" look
named train_truth 3 "$tmp/cut.npy: " "$tmp/cut.npy"
named train_truth 3 "$tmp/two.npy: a target|$tmp/flat.npy: a target" "$tmp/flat.npy"
rest=("$tmp/w")
named valid 4 "$tmp/text.npy: not a NumPy file" "$tmp/text.npy" classifier valid
named valid_truth 5 "$tmp/gone.npy: " "$tmp/gone.npy" classifier valid
rest=("$tmp/w" "$tmp/top-down.bmp")
named names 7 "$tmp/text.npy: 1 names, but the net has 3 outputs" "$tmp/text.npy" classifier predict
rest=()
echo "$tmp/top-down.bmp" > "$tmp/one.list"
printf '%s\n' "train=$tmp/one.list" "labels=$tmp/names" "names=$tmp/text.npy" "backup=$tmp/b" > "$tmp/list.data"
run 1 train "$tmp/list.data" "$cfg"
has err "^darknet: $tmp/list.data:3: $tmp/text.npy: 1 names, but there are 3 classes" 1
for k in '1 train' '2 labels' '5 tree'; do
	printf '%s\n' "train=$tmp/one.list" "labels=$tmp/names" "names=$tmp/names" "backup=$tmp/b" '#' > "$tmp/list.data"
	sed -i "${k% *}s#.*#${k#* }=$tmp/gone#" "$tmp/list.data"
	run 1 train "$tmp/list.data" "$cfg"
	has err "^darknet: $tmp/list.data:${k% *}: $tmp/gone: " 1
done

# --- a NUL byte in a list is told with its line ---
cp "$tmp/top-down.bmp" "$tmp/a.bmp"
for n in 1 100; do
	for key in train labels names tree; do
		printf '%s\n' "train=$tmp/one.list" "labels=$tmp/names" "names=$tmp/names" "backup=$tmp/b" '#' > "$tmp/list.data"
		sed -i "/^$key=/d" "$tmp/list.data"
		echo "$key=$tmp/nul.list" >> "$tmp/list.data"
		{ yes "$([ $key = tree ] && echo 'x -1' || echo "$tmp/a.bmp")" | head -n "$n"; printf 'x\0y\n%s\n' "$tmp/a.bmp"; } > "$tmp/nul.list"
		run 1 train "$tmp/list.data" "$cfg"
		has err "^darknet: $tmp/list.data:[56]: $tmp/nul.list:$((n + 1)): .*NUL byte" 1
	done
done

# --- what a list lacks is told once ---
printf '%s\n' "$tmp/a.bmp" "$tmp/top-down.bmp" > "$tmp/two.list"
printf '/a.bmp\nB1\nB2\n' > "$tmp/labels"
printf '%s\n' "train=$tmp/two.list" "valid=$tmp/two.list" "labels=$tmp/labels" "backup=$tmp/b" > "$tmp/list.data"
lacks='^warning: .*/two.list: of 2 images 1 have no label'
for more in '' '-valid 2'; do
	# shellcheck disable=SC2086 # two words or none
	run 0 train "$tmp/list.data" "$cfg" -threads 1 $more
	has err "$lacks" 1
done
run 0 classifier valid "$tmp/list.data" "$cfg" "$tmp/w"
has err "$lacks" 1
cp "$tmp/two.list" "$tmp/other.list"
sed -i "s#^valid=.*#valid=$tmp/other.list#" "$tmp/list.data"
run 0 train "$tmp/list.data" "$cfg" -threads 1
has err "$lacks" 1
has err '^warning: .*/other.list: of 2 images 1 have no label' 1

# --- two heads, two costs; [crop]'s colours ---
cat > "$tmp/heads.cfg" << 'EOF2'
[net]
batch=6
width=4
height=4
channels=3
learning_rate=.01
max_batches=60
[convolutional]
filters=4
size=3
pad=1
activation=leaky
[connected]
output=3
activation=linear
[cost]
type=sse
[route]
layers=0
[connected]
output=3
activation=linear
[cost]
type=L1
EOF2
printf '%s\n' format=npy "train=$tmp/chw.npy" "train_truth=$tmp/two.npy" "backup=$tmp/b" > "$tmp/heads.data"
run 0 net "$tmp/heads.cfg"
has out '^ +3 route  0 ' 1
run 0 train "$tmp/heads.data" "$tmp/heads.cfg" -threads 1
python3 - "$tmp/out" << 'PY' || fail 'two heads learn'
import re, sys
loss = [float(m.group(1)) for m in re.finditer(r'^\d+: ([0-9.]+),', open(sys.argv[1]).read(), re.M)]
assert len(loss) == 60 and loss[-1] < .6 * loss[0], (loss[0], loss[-1])
PY
sed 's/^\[convolutional\]/[crop]\ncrop_width=3\ncrop_height=3\nflip=1\nangle=5\nsaturation=1.5\nexposure=1.5\n&/' "$cfg" > "$tmp/crop.cfg"
for args in "net $tmp/crop.cfg" "train $tmp/chw.data $tmp/crop.cfg -threads 1"; do
	# shellcheck disable=SC2086 # several words
	run 0 $args -strict
	for key in angle=5 saturation=1.5 exposure=1.5; do
		has err "^warning: .*crop.cfg:[0-9]+: \[crop\] $key has no effect$" 1
	done
done
run 0 classifier predict "$tmp/chw.data" "$tmp/crop.cfg" "$tmp/b/crop_final.weights" "$tmp/top-down.bmp"
has err 'no effect' 0

# --- what a later verb refuses is told before the training ---
told() { # told TEXT LINE...: a warning before step 1
	local text=$1
	shift
	data later.data chw.npy "$@"
	run 0 train "$tmp/later.data" "$cfg" -threads 1
	has err "^warning: $tmp/later.data:[0-9]+: $text" 1
	has err '^warning' 1
}
head -n 2 "$tmp/names" > "$tmp/short"
told 'top=4, but the net has 3 outputs: valid and predict refuse that$' top=4
run 1 classifier valid "$tmp/later.data" "$cfg" "$tmp/w"
run 1 classifier predict "$tmp/later.data" "$cfg" "$tmp/w" "$tmp/top-down.bmp"
told_alone() { # the same without the good names
	local text=$1
	shift
	data later.data chw.npy "$@"
	sed -i "\\#^names=$tmp/names\$#d" "$tmp/later.data"
	run 0 train "$tmp/later.data" "$cfg" -threads 1
	has err "^warning: $tmp/later.data:[0-9]+: $text" 1
	has err '^warning' 1
}
told_alone "names=$tmp/short: 2 names, but the net has 3 outputs$" "names=$tmp/short"
run 1 classifier predict "$tmp/later.data" "$cfg" "$tmp/w" "$tmp/top-down.bmp"
told_alone "labels=$tmp/short: 2 names, but the net has 3 outputs$" "labels=$tmp/short"
run 1 classifier predict "$tmp/later.data" "$cfg" "$tmp/w" "$tmp/top-down.bmp"
told_alone "names=$tmp/nobody: cannot read: No such file" "names=$tmp/nobody"
run 1 classifier predict "$tmp/later.data" "$cfg" "$tmp/w" "$tmp/top-down.bmp"
data later.data chw.npy
sed -i "s#^valid=.*#valid=$tmp/nobody.npy#" "$tmp/later.data"
run 0 train "$tmp/later.data" "$cfg" -threads 1
has err "^warning: $tmp/later.data:4: valid=$tmp/nobody.npy: cannot read: No such file .*; valid wants it$" 1
run 1 classifier valid "$tmp/later.data" "$cfg" "$tmp/w"

# --- faults of what valid will want are refused before the first step, with file and key ---
data bad.data chw.npy
refused() { # refused SED TEXT
	data bad.data chw.npy
	sed -i "$1" "$tmp/bad.data"
	rm -f "$tmp/b/"*
	run 1 train "$tmp/bad.data" "$cfg" -threads 1
	has err "^darknet: $tmp/bad.data:4: valid=.* cannot be evaluated: .*$2" 1
	cases=$((cases + 1))
	[ -z "$(ls "$tmp/b")" ] || fail "refused too late: $(ls "$tmp/b")"
	run 1 train "$tmp/bad.data" "$cfg" -threads 1 -valid 1
	has err "^darknet: $tmp/bad.data:4: valid=.* cannot be evaluated: .*$2" 1
}
refused '/^valid_truth=/d' "there is no valid_truth= line, which names the classes or targets of valid=$tmp/chw.npy"
refused "s#^valid=.*#valid=$tmp/hwc.npy#" 'hwc\.npy: '
python3 -c 'import sys; d = open(sys.argv[1], "rb").read(); h = 10 + d[8] + 256 * d[9]
n = int(d[10:h].decode().split("(")[1].split(",")[0]); m = b"(%d," % (n - 1)
e = d[:10] + d[10:h].replace(b"(%d," % n, m).rstrip().ljust(h - 11) + b"\n" + d[h:-((len(d) - h) // n)]
open(sys.argv[2], "wb").write(e)' "$tmp/y.npy" "$tmp/fewer.npy"
refused "s#^valid_truth=.*#valid_truth=$tmp/fewer.npy#" 'chw\.npy: [0-9]+ samples, but .*fewer\.npy has truth for [0-9]+$'
data bad.data chw.npy "tree=$tmp/names"
run 1 train "$tmp/bad.data" "$cfg" -threads 1
has err "^darknet: $tmp/bad.data:8: tree=$tmp/names: classes of arrays are taken as they stand" 1
head -c 20 "$tmp/top-down.bmp" > "$tmp/a_cut.bmp"
cp "$tmp/top-down.bmp" "$tmp/a_whole.bmp"
echo "$tmp/a_whole.bmp" > "$tmp/train.list"
echo "$tmp/a_cut.bmp" > "$tmp/valid.list"
printf '%s\n' "train=$tmp/train.list" "labels=$tmp/names" "backup=$tmp/b" "valid=$tmp/valid.list" > "$tmp/bad.data"
run 1 train "$tmp/bad.data" "$cfg" -threads 1
has err "^darknet: $tmp/bad.data:4: valid=$tmp/valid.list cannot be evaluated: .*a_cut\.bmp" 1

finish inputs
