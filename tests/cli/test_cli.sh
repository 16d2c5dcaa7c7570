#!/usr/bin/env bash
# The command line from outside: statuses, messages, tables, and plugins that do not load.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${DARKNET:-$PWD/build/release/bin/darknet}
[ -x "$bin" ] || { echo "cli: $bin is not built"; exit 1; }
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-cli.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
cases=0
failed=0

fail() {
	echo "FAIL: $*"
	failed=$((failed + 1))
}

# expect STATUS TEXT ARGUMENT...: the program's status, and text somewhere in its output (both streams)
expect() {
	local want=$1 text=$2 got
	shift 2
	cases=$((cases + 1))
	timeout 60 "$bin" "$@" > "$tmp/both" 2>&1 < /dev/null
	got=$?
	[ $got -eq "$want" ] || { fail "darknet $*: status $got, wanted $want"; head -5 "$tmp/both"; }
	grep -qF -- "$text" "$tmp/both" || { fail "darknet $*: no \"$text\" in:"; head -5 "$tmp/both"; }
}

cat > "$tmp/ok.cfg" << 'EOF'
[net]
batch=4
width=8
height=8
channels=1
[block]
name=first
[convolutional]
batch_normalize=1
filters=3
size=3
stride=1
pad=1
activation=leaky
[connected]
output=10
activation=linear
[softmax]
EOF

# --- usage ---
expect 2 'usage: darknet VERB'
expect 2 'unknown verb nonsense' nonsense
expect 2 'a second word is missing' classifier
expect 2 '  classifier valid DATA CFG WEIGHTS  ' classifier
expect 2 '  classifier train DATA CFG ' classifier nosuch
expect 2 'fsdp: a second word is missing' fsdp
expect 2 '  fsdp consolidate DIR OUT.weights  ' fsdp
expect 2 '  fsdp plan CFG  ' fsdp nosuch
expect 2 'unknown verb classifier nonsense' classifier nonsense
expect 2 '0 arguments found' net
expect 2 'surplus argument b' net "$tmp/ok.cfg" b
expect 2 'unknown flag -nonsense' net "$tmp/ok.cfg" -nonsense
expect 2 'unknown flag --nonsense' net "$tmp/ok.cfg" --nonsense
expect 2 'a value is missing' train a b -threads
expect 2 'unknown flag -nosuch.key' train a b -nosuch.key 1
expect 2 'a value is missing' train a b -nosuch.key
expect 2 'unknown flag -log' net "$tmp/ok.cfg" -log x
expect 0 'usage: darknet VERB' --help
expect 0 'usage: darknet VERB' help
expect 0 'Activations of a cfg: ' help
expect 0 '-save_every N|Nm' help train
expect 0 'usage: darknet classifier valid' help classifier
expect 0 'usage: darknet net CFG' net --help
expect 2 'no verb or section nonsense' help nonsense
expect 0 'darknet-fsdp ' --version

# --- flags stand anywhere, and before the verb ---
expect 0 '"layers":' -json net "$tmp/ok.cfg"
expect 0 '"layers":' -threads 1 net -json "$tmp/ok.cfg"

# --- bad values are status 1 ---
expect 1 '-threads 0' train a b -threads 0
expect 1 '-threads x' train a b -threads x
expect 1 '-seed -1' train a b -seed -1
expect 1 '-shuffle 2' train a b -shuffle 2
expect 1 '-save_every 10q' train a b -save_every 10q
expect 1 '-async 1' train a b -async 1
expect 1 '-device tpu' train a b -device tpu
expect 1 '-gpus 0,x' train a b -gpus 0,x
expect 1 '-backend gpu' net "$tmp/ok.cfg" -backend gpu

# --- cfgs that are wrong ---
expect 1 'missing.cfg' net "$tmp/missing.cfg"
expect 1 "$tmp" net "$tmp"
n=0
while IFS= read -r line; do
	n=$((n + 1))
	printf '%b' "$line" > "$tmp/bad.cfg"
	expect 1 'bad.cfg' net "$tmp/bad.cfg"
done << 'EOF'

hello\n
batch=1\n
[convolutional]\nfilters=1\n
[net]\n
[net]\nwidth=8\nheight=8\nchannels=1\n[nosuchlayer]\na=1\n
[net]\nwidth=8\nheight=8\nchannels=1\n[net]\n
[net]\nwidth=8\nheight=8\nchannels=1\n[softmax]\n[block]\n
[net]\nwidth=8\nheight=8\nchannels=1\n[block]\n[block]\n[softmax]\n
[net]\nwidth=8\nheight=8\nchannels=1\n[convolutional]\nfilters=abc\n
[net]\nwidth=8\nheight=8\nchannels=1\n[convolutional]\nfilters=0\n
[net]\nwidth=8\nheight=8\nchannels=1\n[convolutional]\nfilters=99999999999999999999\n
[net]\nwidth=8\nheight=8\nchannels=1\n[convolutional]\nactivation=nosuch\n
[net]\nwidth=-8\nheight=8\nchannels=1\n[softmax]\n
[net]\nwidth=8\nheight=8\nchannels=1\n[route]\nlayers=5\n
[net]\nwidth=8\nheight=8\nchannels=1\nlearning_rate=nan\n[softmax]\n
[net]\nwidth=8\nheight=8\nchannels=1\npolicy=nosuch\n[softmax]\n
[net]\0\nwidth=8\n
EOF
printf '[net]\nwidth=8\nheight=8\nchannels=1\nnosuchkey=1\n[softmax]\n' > "$tmp/unknown.cfg"
expect 0 'unknown.cfg:5' net "$tmp/unknown.cfg"
expect 1 'unknown.cfg:5' net "$tmp/unknown.cfg" -strict

# --- net ---
expect 0 'layer     filters    size' net "$tmp/ok.cfg"
cases=$((cases + 1))
"$bin" net "$tmp/ok.cfg" -json | python3 -c '
import json, sys
n = json.load(sys.stdin)
assert n["v"] == 1 and n["input"] == [8, 8, 1] and n["batch"] == 4, n
assert [l["type"] for l in n["layers"]] == ["convolutional", "connected", "softmax"], n
assert n["layers"][0]["params"] == 3 + 3 + 27 and n["layers"][0]["buffers"] == 6, n
assert n["layers"][0]["out"] == [8, 8, 3] and n["layers"][0]["block"] == "first", n
assert n["layers"][0]["flops"] == 2 * 27 * 64, n
assert n["params"] == 33 + 1930 and n["buffers"] == 6 and n["weights_bytes"] == 20 + 4 * (39 + 1930), n
assert n["blocks"] == [{"name": "first", "first": 0, "last": 2, "params": 1963, "buffers": 6}], n
' || fail 'net -json'
cases=$((cases + 1))
"$bin" net "$tmp/ok.cfg" -plain "$tmp/plain.cfg" && grep -vE '^\[block\]|^name=' "$tmp/ok.cfg" | cmp - "$tmp/plain.cfg" ||
	fail 'net -plain drops the markers and nothing else'
expect 1 'no-such-folder' net "$tmp/ok.cfg" -plain "$tmp/no-such-folder/x.cfg"

# --- weights, forward, partial ---
python3 - "$tmp" << 'EOF'
import struct, sys
d = sys.argv[1]
v = [0.] * 3 + [1.] * 3 + [0.] * 3 + [1.] * 3 + [.01 * i for i in range(27)] + [0.] * 10 + [.001 * (i % 7) for i in range(1920)]
def w(name, v): open(d + name, 'wb').write(struct.pack('<iiiQ', 0, 2, 0, 8) + struct.pack('<%df' % len(v), *v))
w('/a.weights', v)
v[40] += .5
w('/b.weights', v)
w('/short.weights', v[:50])
def npy(name, shape, typ, data):
    h = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % (typ, shape)
    h += ' ' * (63 - (10 + len(h)) % 64) + '\n'
    open(d + name, 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(h)) + h.encode() + data)
npy('/x.npy', (3, 1, 8, 8), '<f4', struct.pack('<192f', *[i / 192 for i in range(192)]))
npy('/odd.npy', (3, 1, 8, 7), '<f4', struct.pack('<168f', *[0] * 168))
EOF
expect 0 'seen 8 images' weights info "$tmp/a.weights"
expect 0 'holds 3 of 3 layers' weights info "$tmp/a.weights" "$tmp/ok.cfg"
expect 1 'missing.weights' weights info "$tmp/missing.weights"
expect 1 'short.weights' weights info "$tmp/short.weights" "$tmp/ok.cfg"
expect 0 'equal: 0 elements differ' weights diff "$tmp/a.weights" "$tmp/a.weights" "$tmp/ok.cfg"
expect 1 'different: 1 elements differ' weights diff "$tmp/a.weights" "$tmp/b.weights" "$tmp/ok.cfg"
expect 0 'Saving weights to' partial "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/p.weights" 1
expect 0 '39 values' weights info "$tmp/p.weights"
expect 1 'must be from 0 to the 3 layers' partial "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/p.weights" 4
expect 1 'must be from 0 to the 3 layers' partial "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/p.weights" -1
expect 0 'Done!' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y.npy"
expect 0 'Done!' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y1.npy" -batch 1
expect 0 'Done!' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y2.npy" -backend ref -batch 2
expect 0 'Done!' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/l0.npy" -layer 0
cases=$((cases + 1))
# tolerance: sums of some hundred float32 products in another order
python3 - "$tmp" << 'EOF' || fail 'forward: values'
import struct, sys, math
d = sys.argv[1]
def read(name):
    b = open(d + name, 'rb').read()
    n = struct.unpack('<H', b[8:10])[0]
    return eval(b[10:10 + n])['shape'], struct.unpack('<%df' % ((len(b) - 10 - n) // 4), b[10 + n:])
shape, y = read('/y.npy')
assert shape == (3, 10, 1, 1), shape
assert all(abs(sum(y[10 * i:10 * i + 10]) - 1) < 1e-5 for i in range(3)), y
for other in '/y1.npy', '/y2.npy':
    assert max(abs(a - b) for a, b in zip(y, read(other)[1])) < 1e-5, other
shape, l0 = read('/l0.npy')
assert shape == (3, 3, 8, 8), shape
x = [i / 192 for i in range(64)]
def conv(f, r, c):
    s = 0
    for i in range(3):
        for j in range(3):
            u, v = r + i - 1, c + j - 1
            if 0 <= u < 8 and 0 <= v < 8:
                s += x[8 * u + v] * .01 * (9 * f + 3 * i + j)
    return s / math.sqrt(1 + 1e-5)
worst = max(abs(conv(f, r, c) - l0[64 * f + 8 * r + c]) for f in range(3) for r in range(8) for c in range(8))
assert worst < 1e-5, worst
EOF
expect 1 'x.jpg' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.jpg" "$tmp/y.npy"
expect 1 'odd.npy' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/odd.npy" "$tmp/y.npy"
expect 1 'short.weights' forward "$tmp/ok.cfg" "$tmp/short.weights" "$tmp/x.npy" "$tmp/y.npy"
expect 1 'layer 9' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y.npy" -layer 9
expect 0 'the CPU is used' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y.npy" -gpus 0

# --- a launcher without a plugin that joins the processes ---
cases=$((cases + 1))
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$bin" forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y.npy" \
	> "$tmp/both" 2>&1
[ $? -eq 1 ] && grep -q 'overwrite one another' "$tmp/both" || fail 'two processes without a plugin are refused'

# --- streams ---
cases=$((cases + 1))
if [ -e /dev/full ]; then
	"$bin" net "$tmp/ok.cfg" > /dev/full 2> "$tmp/both"
	[ $? -eq 1 ] && grep -q 'standard output' "$tmp/both" || fail 'a full disk on standard output is an error'
fi
cases=$((cases + 1))
"$bin" net "$tmp/ok.cfg" -plain "$tmp/closed.cfg" <&- >&- 2>&- || fail 'closed standard streams'
cmp -s "$tmp/closed.cfg" "$tmp/plain.cfg" || fail 'closed standard streams: the file is right'

# --- plugins that do not load ---
expect 1 'no file nosuch.so' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y.npy" -plugin nosuch
expect 1 'No such file' forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y.npy" -plugin "$tmp/nosuch.so"
mkdir "$tmp/plugins"
export DARKNET_PLUGIN_PATH=$tmp/plugins
build=$("$bin" --version | sed 's/.*, \(.*\) build$/\1/')
make_plugin() { # NAME C-TEXT
	printf '%s\n' "$2" > "$tmp/$1.c"
	gcc -std=gnu11 -shared -fPIC -Isrc -o "$tmp/plugins/$1.so" "$tmp/$1.c" || exit 1
}
head='#include "plugin/plugin.h"
static int start(struct dn_run *r, void **self) { return 0; }
static int ready(void *self, struct dn_run *r) { return 0; }
static void end(void *self, int err) { }
static int hello(struct dn_command *c) { fprintf(c->out, "hello %s %s %d\n", c->args[0], dn_options_text(c->flags, "tone"), c->n_plugin_flags); return 0; }
static const struct dn_option keys[] = { { .key = "level", .type = DN_OPT_INT, .def = "1", .min = 1, .max = 9, .help = "how much" }, { .key = NULL } };
static const struct dn_option flags[] = { { .key = "tone", .type = DN_OPT_STRING, .def = "loud", .help = "how" }, { .key = NULL } };
static const struct dn_option *const tables[] = { flags, NULL };
static const struct dn_verb verbs[] = { { .name = "hello", .args = "WHOM", .summary = "greet", .min_args = 1, .max_args = 1, .flags = tables, .run = hello }, { .name = NULL } };'
body() { # NAME ABI BUILD
	printf '%s\nstatic const struct dn_plugin it = { .abi = %s, .build = %s, .name = "%s", .summary = "a test", .options = keys, .verbs = verbs, .init = start, .net_ready = ready, .exit = end };\nDN_PLUGIN(it);' \
		"$head" "$2" "$3" "$1"
}
make_plugin good "$(body good DN_PLUGIN_ABI "\"$build\"")"
make_plugin newer "$(body newer 99 "\"$build\"")"
make_plugin other "$(body other DN_PLUGIN_ABI '"strange"')"
make_plugin stale "$(body stale DN_PLUGIN_ABI "\"${build% *} 0123456789abcdef\"")" # built from other headers
make_plugin renamed "$(body another DN_PLUGIN_ABI "\"$build\"")"
make_plugin convolutional "$(body convolutional DN_PLUGIN_ABI "\"$build\"")"
make_plugin foreign 'int nothing_of_ours;'
make_plugin hungry "$(body hungry DN_PLUGIN_ABI "\"$build\"")
extern int dn_no_such_function(void); int dn_wants(void); int dn_wants(void) { return dn_no_such_function(); }"
echo 'not a shared object' > "$tmp/plugins/text.so"
run_with() { # STATUS TEXT PLUGIN
	expect "$1" "$2" forward "$tmp/ok.cfg" "$tmp/a.weights" "$tmp/x.npy" "$tmp/y.npy" -plugin "$3"
}
run_with 0 'Done!' good
run_with 0 'Done!' "$tmp/plugins/good.so"
run_with 1 'plugin interface 99 found, 1 wanted' newer
run_with 1 'a "strange" build found' other
run_with 1 "a \"${build% *} 0123456789abcdef\" build found" stale
run_with 1 'calls itself another' renamed
run_with 1 'is taken' convolutional
run_with 1 'dn_plugin_entry is missing' foreign
run_with 1 'dn_no_such_function' hungry
run_with 1 'text.so' text
expect 0 'good         ok  a test' plugins
expect 0 'newer        not usable: ' plugins
expect 0 '-good.level' options
expect 0 '-good.level' help good
expect 0 'hello WHOM' help
expect 0 'hello you soft 0' good hello you -tone soft
expect 0 'hello you loud 1' good hello -good.level 3 you
expect 2 'unknown flag -good.nosuch' good hello you -good.nosuch 3
expect 2 'unknown verb good nosuch' good nosuch
expect 2 'surplus argument' good hello a b
expect 2 'unknown flag -good.nosuch' forward a b c d -good.nosuch 3
printf '[good]\nlevel=3\n' | cat "$tmp/ok.cfg" - > "$tmp/good.cfg"
f=("$tmp/a.weights" "$tmp/x.npy" "$tmp/y.npy")
expect 0 'good.level=3' forward "$tmp/good.cfg" "${f[@]}"
expect 0 'good.level=4' forward "$tmp/good.cfg" "${f[@]}" -good.level 4
expect 0 'good.level=5' forward "$tmp/ok.cfg" "${f[@]}" -good.level 5
expect 0 'Done!' forward "$tmp/good.cfg" "${f[@]}" -plugin none
expect 1 '-plugin none' forward "$tmp/good.cfg" "${f[@]}" -plugin none -good.level 4
expect 1 '-good.level 10' forward "$tmp/ok.cfg" "${f[@]}" -good.level 10
sed -i 's/^level=3/level=x/' "$tmp/good.cfg"
expect 1 'good.cfg:' forward "$tmp/good.cfg" "${f[@]}"
sed -i 's/^level=x/volume=3/' "$tmp/good.cfg"
expect 1 'unknown key volume' forward "$tmp/good.cfg" "${f[@]}"
printf '[good]\n[good]\n' | cat "$tmp/ok.cfg" - > "$tmp/twice.cfg"
expect 1 'twice.cfg:' forward "$tmp/twice.cfg" "${f[@]}"
expect 0 '.TH DARKNET 1' help -man

echo "cli: $cases cases, $failed failed"
[ $failed -eq 0 ]
