#!/usr/bin/env bash
# Threads: how many, as the user's variables and the cores say, and how they wait for one another.
. "$(dirname "$0")/lib.bash"

unset OMP_NUM_THREADS OMP_WAIT_POLICY GOMP_SPINCOUNT
printf '[net]\nbatch=2\nwidth=8\nheight=8\nchannels=3\nmax_batches=2\n[convolutional]\nfilters=3\nsize=3\n[avgpool]\n[softmax]\n' > "$tmp/t.cfg"
printf 'a\nb\nc\n' > "$tmp/names"
printf 'classes=3\nnames=%s\n' "$tmp/names" > "$tmp/t.data"
python3 - "$tmp/w" << 'PY' || exit 1
import struct, sys
open(sys.argv[1], 'wb').write(struct.pack('<iiiQ', 0, 2, 0, 0) + struct.pack('<84f', *[.01 * i for i in range(84)]))
PY
python3 - "$tmp/x.bmp" << 'PY' || exit 1
import struct, sys
open(sys.argv[1], 'wb').write(struct.pack('<2sIHHIIiiHHIIiiII', b'BM', 102, 0, 0, 54, 40, 4, 4, 1, 24, 0, 48, 0, 0, 0, 0) + bytes(48))
PY

# waits WANTED [VARIABLE=VALUE...] -- FLAGS...: GOMP_SPINCOUNT of a program that waits for a path, and its answer to one
waits() {
	local want=$1 set=() got pid
	shift
	while [ "$1" != -- ]; do
		set+=("$1")
		shift
	done
	shift
	cases=$((cases + 1))
	rm -f "$tmp/in"
	mkfifo "$tmp/in"
	env "${set[@]}" "$bin" classifier predict "$tmp/t.data" "$tmp/t.cfg" "$tmp/w" "$@" < "$tmp/in" > "$tmp/out" 2> "$tmp/err" &
	pid=$!
	exec 3> "$tmp/in"
	for _ in $(seq 300); do
		grep -q 'Enter Image Path' "$tmp/out" && break
		sleep .1
	done
	got=$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^GOMP_SPINCOUNT=//p')
	[ "$got" = "$want" ] || fail "${set[*]} $*: GOMP_SPINCOUNT is \"$got\", wanted \"$want\""
	echo "$tmp/x.bmp" >&3
	exec 3>&-
	wait "$pid" || fail "${set[*]} $*: status $?"
	has out '^(Enter Image Path: )? *[0-9.]+%: [abc]$' 1
	has out 'Enter Image Path' 2
	has err '^threads: ' 1
}
waits 2000 -- -threads 2
waits 2000 -- -threads 3
waits '' -- -threads 1
waits '' OMP_WAIT_POLICY=passive -- -threads 2
waits '' OMP_WAIT_POLICY=active -- -threads 2
waits 70 GOMP_SPINCOUNT=70 -- -threads 2
waits 2000 OMP_NUM_THREADS=2 --
waits '' OMP_NUM_THREADS=1 --
has err '^threads: 1 a rank \(OMP_NUM_THREADS\), 1 rank ' 1
waits 2000 OMP_NUM_THREADS=1 -- -threads 2
has err '^threads: 2 a rank, 1 rank ' 1

# an affinity mask counts; so does a quota where this user may set one
cases=$((cases + 1))
first=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
taskset -c "$first" "$bin" forward "$tmp/t.cfg" "$tmp/w" "$tmp/x.bmp" "$tmp/o.npy" > "$tmp/out" 2> "$tmp/err" || fail 'bound to a core'
has err '^threads: 1 a rank, 1 rank \(1 on this host\), 1 of ' 1
group=$(awk '$4 == "/" && $NF ~ /(^|,)cpu(,|$)/ && / - cgroup / { print $5; exit }' /proc/self/mountinfo)
if [ -n "$group" ] && mkdir "$group/darknet-test-$$" 2> /dev/null; then
	group=$group/darknet-test-$$
	if echo 190000 2> /dev/null > "$group/cpu.cfs_quota_us" && [ "$(nproc)" -ge 2 ]; then
		cases=$((cases + 1))
		bash -c 'echo $$ > "$0/tasks" && exec "$@"' "$group" "$bin" forward "$tmp/t.cfg" "$tmp/w" "$tmp/x.bmp" "$tmp/o.npy" \
			> "$tmp/out" 2> "$tmp/err" || fail 'with a quota'
		has err '^threads: 1 a rank, .*, 1 of [0-9]+ cores usable by this rank \(a CPU quota of 1\.90, rounded down to whole cores\)$' 1
	fi
	rmdir "$group"
fi

finish threads
