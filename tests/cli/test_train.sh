#!/usr/bin/env bash
# Training and evaluation from outside, one process: Darknet's lines, the log, files, resume, and refusals.
. "$(dirname "$0")/lib.bash"

cat > "$tmp/small.net.cfg" << 'EOF'
[net]
batch=16
subdivisions=2
width=8
height=8
channels=1
learning_rate=0.02
momentum=0.9
decay=0.0005
max_batches=12

[convolutional]
batch_normalize=1
filters=4
size=3
stride=1
pad=1
activation=leaky

[connected]
output=10
activation=linear

[softmax]
EOF
data=cfg/digits.data
common=(-threads 1 -backup "$tmp/b")

run 0 classifier train $data "$tmp/small.net.cfg" "${common[@]}" -log "$tmp/log" -save_every 5 -keep 1 -valid 6 -seed 3
[ "$(head -n 5 "$tmp/out")" = $'small\n1\nLearning Rate: 0.02, Momentum: 0.9, Decay: 0.0005\n1437\nSeed: 3' ] || fail 'head lines'
has out '^Loaded: [0-9]+\.[0-9]{6} seconds$' 12
has out '^[0-9]+, [0-9]+\.[0-9]{3}: [0-9.]+, [0-9.]+ avg, [0-9.]+ rate, [0-9.]+ seconds, [0-9]+ images$' 12
has out '^12, 0\.134: .* 192 images$' 1
has out '^Validation after (6|12): 360 images, top 1: ' 2
has err '^layer     filters    size' 1
has err '^Saving weights to .*/small_final\.weights$' 1
has err '^options: .* seed=3' 1
cases=$((cases + 1))
[ "$(ls "$tmp/b/small.ckpt")" = 12 ] || fail "-keep 1 keeps the newest, the end: $(ls "$tmp/b/small.ckpt")"
for f in small.weights small_final.weights small_last.weights small_best.weights; do
	[ -s "$tmp/b/$f" ] || fail "$f is missing"
done
cases=$((cases + 1))
python3 - "$tmp/log" << 'EOF' || fail 'the log'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
assert all(l['v'] == 1 for l in lines)
start, end = lines[0], lines[-1]
assert start['event'] == 'start' and start['seed'] == 3 and start['world'] == 1 and start['params'] == 4 * (9 + 2) + 2570, start
o = start['options']
assert o['batch'] == 16 and o['subdivisions'] == 2 and o['shuffle'] == '1' and o['threads'] == 1, o
steps = [l for l in lines if l['event'] == 'step']
assert [s['step'] for s in steps] == list(range(1, 13)) and steps[-1]['images'] == 192
assert len([l for l in lines if l['event'] == 'valid']) == 2 and any(l['event'] == 'save' for l in lines)
assert end['event'] == 'end' and end['steps'] == 12 and end['allocs_after_first_step'] == 0, end
for r in end['ranks'][0]['regions']:
    assert r['planned_bytes'] == r['measured_bytes'], r
EOF

# --- the same command gives the same bytes; resuming gives those of the run that went through ---
cp "$tmp/b/small_final.weights" "$tmp/first.weights"
rm -rf "$tmp/b"
run 0 train $data "$tmp/small.net.cfg" "${common[@]}" -seed 3 -save_every 5 -keep 0
cmp -s "$tmp/b/small_final.weights" "$tmp/first.weights" || fail 'two runs with one seed give the same file'
run 0 train $data "$tmp/small.net.cfg" -threads 1 -backup "$tmp/b2" -seed 3 -resume "$tmp/b/small.ckpt/5"
has err '^Resumed after batch 5$' 1
has out '^6, ' 1
cmp -s "$tmp/b2/small_final.weights" "$tmp/first.weights" || fail 'a resumed run gives the file of the whole run'
run 1 train $data "$tmp/small.net.cfg" -threads 1 -backup "$tmp/b2" -seed 4 -resume "$tmp/b/small.ckpt/5"
has err '^darknet: .*seed 3, this run has 4' 1

# --- weights as a start ---
run 0 train $data "$tmp/small.net.cfg" "$tmp/first.weights" "${common[@]}"
has err '^Loading weights from .*Done!$' 1
has out 'images$' 0
run 0 train $data "$tmp/small.net.cfg" "$tmp/first.weights" "${common[@]}" -clear
has out '^1, ' 1
"$bin" partial "$tmp/small.net.cfg" "$tmp/first.weights" "$tmp/part.conv.1" 1 2> /dev/null
run 0 train $data "$tmp/small.net.cfg" "$tmp/part.conv.1" "${common[@]}"
has err 'is partial: 1 of 3 layers' 1

# --- evaluation ---
run 0 classifier valid $data "$tmp/small.net.cfg" "$tmp/first.weights"
has out '^data/digits/valid-images.idx:[0-9]+, [0-9], ([01]\.[0-9]{6}, ){2}$' 360
has out '^[0-9]+: top 1: [0-9.]+, top 2: [0-9.]+$' 360
has out '^360 images: top 1: ' 1
run 0 classifier valid $data "$tmp/small.net.cfg" "$tmp/first.weights" -batch 7
has out '^data/digits/valid-images.idx:[0-9]+, ' 360
run 1 classifier valid $data "$tmp/small.net.cfg" "$tmp/part.conv.1"
run 1 classifier valid $data "$tmp/small.net.cfg" "$tmp/no.weights"

# --- a net without softmax is for `train` alone ---
sed 's/^\[softmax\]/[cost]\ntype=sse/' "$tmp/small.net.cfg" > "$tmp/sse.cfg"
run 0 train $data "$tmp/sse.cfg" "${common[@]}"
has out '^12: [0-9.]+, [0-9.]+ avg, [0-9.]+ rate, [0-9.]+ seconds, 192 images$' 1
run 1 classifier train $data "$tmp/sse.cfg" "${common[@]}"
has err 'ends in \[softmax\]' 1

# --- refusals before the first step ---
run 1 train "$tmp/no.data" "$tmp/small.net.cfg" "${common[@]}"
run 1 train $data "$tmp/small.net.cfg" "$tmp/no.weights" "${common[@]}"
run 1 train $data "$tmp/small.net.cfg" -backup /proc/nowhere
mkfifo "$tmp/unread"
run 1 train $data "$tmp/small.net.cfg" "${common[@]}" -log "$tmp/unread"
has err 'nobody reads this pipe'
run 1 train $data "$tmp/small.net.cfg" "${common[@]}" -log "$tmp/no-such-folder/log"
run 1 train $data "$tmp/small.net.cfg" "${common[@]}" -resume "$tmp/no-such-folder"
run 1 train $data "$tmp/small.net.cfg" "${common[@]}" -batch 1 -subdivisions 2
sed 's/^width=8/width=9/' "$tmp/small.net.cfg" > "$tmp/nine.cfg"
run 1 train $data "$tmp/nine.cfg" "${common[@]}"
printf 'classes=10\nformat=list\ntrain=x\n' > "$tmp/list.data"
run 1 train "$tmp/list.data" "$tmp/small.net.cfg" "${common[@]}"

# --- a quota that is reached is an error with a message, not a signal ---
cases=$((cases + 1))
(ulimit -f 4; exec "$bin" train $data "$tmp/small.net.cfg" -threads 1 -backup "$tmp/q") > /dev/null 2> "$tmp/err" < /dev/null
[ $? -eq 1 ] || fail 'a file size limit ends with status 1'
has err '^darknet: ' 1

# --- a divergent run stops with status 1 and leaves no final file ---
rm -rf "$tmp/b"
sed 's/^learning_rate=.*/learning_rate=1e30/' "$tmp/small.net.cfg" > "$tmp/diverge.cfg"
run 1 train $data "$tmp/diverge.cfg" "${common[@]}"
has err '^darknet: .*step [0-9]+' 1
[ ! -e "$tmp/b/diverge_final.weights" ] || fail 'a run that diverged leaves no final file'

finish train
