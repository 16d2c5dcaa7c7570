#!/usr/bin/env bash
# Runs that follow one another or meet in a backup folder, from outside, one process.
. "$(dirname "$0")/lib.bash"
data=cfg/digits.data
net() { # net FILE MAX [SED]
	cat > "$1" << EOF
[net]
batch=16
subdivisions=2
width=8
height=8
channels=1
learning_rate=0.02
momentum=0.9
decay=0.0005
$2
[convolutional]
batch_normalize=1
filters=4
size=3
pad=1
activation=leaky
[maxpool]
size=2
stride=2
[dropout]
probability=.2
[connected]
output=10
activation=linear
[softmax]
EOF
	[ $# -lt 3 ] || sed -i "$3" "$1"
}
mkdir "$tmp/a" "$tmp/later"
cfg=$tmp/a/net.cfg later=$tmp/later/net.cfg
net "$cfg" max_batches=6
common=(-threads 1 -backup "$tmp/b")
ckpt=$tmp/b/net.ckpt
run 0 train $data "$cfg" "${common[@]}" -save_every 2 -log "$tmp/log"
has err '^warning' 0

# --- another net that no tensor tells from the first ---
refused() { # refused SED LINE-AND-VALUES
	net "$later" max_batches=9 "$1"
	run 1 train $data "$later" "${common[@]}" -resume "$ckpt"
	has err "^darknet: .*net\.ckpt/6: another net: $later:$2 \(-force resumes all the same\)$" 1
	run 0 train $data "$later" -threads 1 -backup "$tmp/forced" -resume "$ckpt" -force
	has err "^warning: another net was saved: $later:$2$" 1
	rm -rf "$tmp/forced"
}
cp "$tmp/log" "$tmp/log.before"
refused 's/activation=leaky/activation=relu/' '16: \[convolutional\] activation=relu; was saved with leaky'
refused '/activation=leaky/d' '11: \[convolutional\] has no activation, so logistic; was saved with activation=leaky'
refused 's/^size=2/size=1/' '18: \[maxpool\] size=1; was saved with 2'
refused 's/probability=.*/probability=.3/' '21: \[dropout\] probability=.3; was saved with .2'
refused 's/\[softmax\]/[softmax]\ngroups=2/' '26: \[softmax\] groups=2; was saved without it, so 1'
refused 's/\[softmax\]/[softmax]\ntemperature=2/' '26: \[softmax\] temperature=2; was saved without it, so 1'
refused '$a[cost]\ntype=L1' '26: layer 5 is \[cost\]; the net was saved with 5 layers'
refused 's/\[maxpool\]/[local_avgpool]/' '17: layer 1 is \[local_avgpool\]; was saved as \[maxpool\]'
refused 's/^channels/legacy_bn=1\nchannels/' '6: \[net\] legacy_bn=1; was saved with 0'
net "$later" max_batches=9
run 1 train $data "$later" "${common[@]}" -resume "$ckpt" -legacy-bn -log "$tmp/log"
has err ':1: \[net\] legacy_bn=1 by -legacy-bn; was saved with 0 \(-force' 1
cases=$((cases + 1))
cmp -s "$tmp/log" "$tmp/log.before" || fail 'a refused start leaves the log as it is'

# another optimizer: refused, or with a state of its own
net "$later" max_batches=8 's/^momentum.*/optimizer=adam/'
run 1 train $data "$later" "${common[@]}" -resume "$ckpt"
has err '^darknet: .*net\.ckpt/6: has the state of optimizer sgd, this run uses adam \(-force resumes all the same' 1
run 0 train $data "$later" -threads 1 -backup "$tmp/forced" -resume "$ckpt" -force -save_every 1
has err '^warning: .*net\.ckpt/6: has the state of optimizer sgd, this run uses adam, whose state starts at zero$' 1
has err '^Resumed after batch 6$' 1
run 0 fsdp inspect "$tmp/forced/net.ckpt"
has out '^[^ ]*:v ' 5
has out ':momentum ' 0
net "$later" max_batches=9
run 1 train $data "$later" -threads 1 -backup "$tmp/forced" -resume "$tmp/forced/net.ckpt"
has err '^darknet: .*net\.ckpt/8: has the state of optimizer adam, this run uses sgd' 1
run 0 train $data "$later" -threads 1 -backup "$tmp/forced" -resume "$tmp/forced/net.ckpt" -force
rm -rf "$tmp/forced"

# the count of images is the checkpoint's
net "$later" max_batches=7
run 0 train $data "$later" -threads 1 -backup "$tmp/forced" -resume "$ckpt" -clear
has err "^notice: -clear is for weights files: -resume goes on with the checkpoint's count of images\$" 1
has err '^Resumed after batch 6$' 1
rm -rf "$tmp/forced"

# what may change, and writing that changes nothing
net "$later" max_batches=8 's/=/ = /; s/\[convolutional\]/# more\n[conv]\nstride=1\ngroups=1/; s/^momentum.*/momentum=.8/'
sed -i 's/^learning_rate.*/learning_rate=.3\npolicy=steps\nsteps=7\nscales=.5\nburn_in=2/; s/^decay.*/decay=0/; s/^probability.*/probability=0.20/' "$later"
run 0 train $data "$later" "${common[@]}" -resume "$ckpt" -save_every 1 -keep 2 -log "$tmp/log" -strict
has err 'another' 0
cases=$((cases + 1))
[ "$(ls "$ckpt" | sort -n | tr '\n' ' ')" = '7 8 ' ] || fail "a resumed run prunes what it saved before: $(ls "$ckpt")"
python3 - "$tmp/log" "$ckpt" << 'EOF' || fail 'the log of a resumed run'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
starts = [i for i, l in enumerate(lines) if l['event'] == 'start']
assert len(starts) == 2 and starts[0] == 0, starts
first, second = (lines[i] for i in starts)
assert first['batches_done'] == 0 and 'resume' not in first and second['batches_done'] == 6 and second['resume'] == sys.argv[2]
assert first['run'] == second['run'] and len(first['run']) == 16
assert [l['step'] for l in lines if l['event'] == 'step'] == list(range(1, 9))
meta = json.load(open(sys.argv[2] + '/8/meta.json'))
assert meta['run'] == first['run'], (meta['run'], first['run'])
EOF

# a new run that is refused for its values, too
net "$later" max_batches=8 's/^\[dropout\]/stopbackward=1\n[dropout]/'
cp "$tmp/log" "$tmp/log.before"
run 1 train $data "$later" -threads 1 -backup "$tmp/b0" -log "$tmp/log"
has err 'rolling statistics are empty' 1
cases=$((cases + 1))
cmp -s "$tmp/log" "$tmp/log.before" || fail 'a start that is refused for its values leaves the log as it is'

# --- a new run in that folder ---
net "$cfg" max_batches=7
run 0 train $data "$cfg" "${common[@]}" -save_every 1 -keep 1 -log "$tmp/log"
has err "^warning: $ckpt: holds 2 finished checkpoints of another run \(steps 7 to 8\); this run starts anew beside them" 1
cases=$((cases + 2))
old=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["run"])' "$ckpt/8/meta.json")
[ "$(ls "$ckpt" | sort | tr '\n' ' ')" = "7 7.$old 8 " ] || fail "the other run's checkpoints stay: $(ls "$ckpt")"
grep -c '"event":"start"' "$tmp/log" | grep -qx 1 || fail 'a new run begins its log'
net "$cfg" max_batches=8
run 0 train $data "$cfg" "${common[@]}" -resume "$ckpt"
has err "^warning: $ckpt: holds checkpoints of several runs: resumed is step 7" 1
has err '^Resumed after batch 7$' 1
run 0 train $data "$later" "${common[@]}" -resume "$ckpt/7.$old"
has err '^Resumed after batch 7$' 1

# --- a live run's folder ---
net "$cfg" max_batches=100000000
rm -rf "$tmp/b"
start() {
	"$bin" train $data "$cfg" "${common[@]}" -log "$tmp/live" > /dev/null 2> "$tmp/err.live" < /dev/null &
	pid=$!
	for _ in $(seq 200); do
		grep -q '"event":"step"' "$tmp/live" 2> /dev/null && return
		sleep .1
	done
	fail 'no training after 20 s'
}
start
run 1 train $data "$cfg" "${common[@]}" -log "$tmp/live"
has err "^darknet: $tmp/b/net\.lock: another run has this folder: its rank 0 is pid $pid on host $(hostname), since 20.* UTC; give" 1
run 1 train $data "$cfg" "${common[@]}" -force -save_every 1 # nothing forces it
has err 'another run has this folder' 1
[ "$(head -n 1 "$tmp/live" | grep -c '"event":"start"')" = 1 ] || fail 'the log of the live run was cut'
kill -KILL $pid
wait $pid 2> /dev/null
[ -e "$tmp/b/net.lock" ] || fail 'no lock file of the killed run'
net "$cfg" max_batches=2
run 0 train $data "$cfg" "${common[@]}"
[ ! -e "$tmp/b/net.lock" ] || fail 'a run that ended left its lock'
net "$cfg" max_batches=100000000
start
kill -TERM $pid
wait $pid 2> /dev/null
net "$cfg" max_batches=2
run 0 train $data "$cfg" "${common[@]}"

# --- said before the first step ---
before() { # before TEXT: a notice or warning stands before the first step's progress or saves
	grep -nE "$1" "$tmp/err" | head -n 1 | cut -d: -f1 > "$tmp/line"
	grep -nE '^(progress|Saving|darknet:)' "$tmp/err" | head -n 1 | cut -d: -f1 > "$tmp/first"
	[ -s "$tmp/line" ] && { [ ! -s "$tmp/first" ] || [ "$(cat "$tmp/line")" -lt "$(cat "$tmp/first")" ]; } || fail "not said in time: $1"
}
cp "$tmp/b/net_final.weights" "$tmp/w.weights"
fresh='^notice: a weights file holds no optimizer state: momentum of sgd starts at zero \(checkpoints hold it'
run 0 train $data "$cfg" "$tmp/w.weights" "${common[@]}" -clear
has err "$fresh" 1
before "$fresh"
run 0 train $data "$cfg" "${common[@]}" -save_every 1
has err 'optimizer state' 0
run 0 train $data "$cfg" "$tmp/w.weights" "${common[@]}" -resume "$ckpt"
has err 'optimizer state' 0
net "$later" max_batches=2 's/^momentum.*/momentum=0/'
run 0 train $data "$later" "$tmp/w.weights" "${common[@]}" -clear
has err 'optimizer state' 0
net "$later" max_batches=2 's/^momentum.*/optimizer=adam/'
run 0 train $data "$later" "$tmp/w.weights" "${common[@]}" -clear
has err '^notice: a weights file holds no optimizer state: m and v of adam start at zero' 1

long=$(printf 'n%.0s' $(seq 240))
net "$tmp/$long.cfg" max_batches=3
run 1 train $data "$tmp/$long.cfg" "${common[@]}"
has err "^darknet: .*/${long}_final\.weights: while it is written .* its name has 2[0-9]* bytes, the file system takes [0-9]*:" 1
has out 'images$' 0
mkdir "$tmp/b2" "$tmp/b2/net_final.weights"
run 1 train $data "$cfg" -threads 1 -backup "$tmp/b2"
has err '^darknet: .*/b2/net_final\.weights: is no file' 1
has out 'images$' 0

# a log that another run is writing is left alone
net "$cfg" max_batches=2
echo '{"line":"of another run"}' > "$tmp/live.log"
python3 -c 'import fcntl, sys, time
f = open(sys.argv[1], "a")
fcntl.lockf(f, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)' "$tmp/live.log" > "$tmp/held" 2>&1 &
holder=$!
until grep -q held "$tmp/held" 2> /dev/null; do sleep .1; done
run 1 train $data "$cfg" -threads 1 -backup "$tmp/b3" -log "$tmp/live.log"
has err "^darknet: -log $tmp/live\.log: another run is writing this file" 1
grep -q 'of another run' "$tmp/live.log" || fail "a live log was cut"
kill $holder
wait $holder 2> /dev/null
run 0 train $data "$cfg" -threads 1 -backup "$tmp/b3" -log "$tmp/live.log"
grep -q 'of another run' "$tmp/live.log" && fail "a log that is begun anew holds the old one"

net "$cfg" 'max_batches=0'
timeout 3 "$bin" train $data "$cfg" "${common[@]}" > "$tmp/out" 2> "$tmp/err" < /dev/null
cases=$((cases + 1))
endless="^warning: $cfg:10: \[net\] max_batches=0: trains until it is stopped, and never writes net_final\.weights\$"
has err "$endless" 1
before "$endless"
has out 'images$'

finish runs
