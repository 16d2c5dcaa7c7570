#!/usr/bin/env bash
# A rank that is stopped or killed at any moment of a run (start-up, steps, evaluation, saves, the end): those that are left name it.
# MOMENTS: moments of each kind and number of ranks (2). A moment that falls before the rank has started or behind its end does not
# count and is tried again.
. "$(dirname "$0")/lib.bash"
moments=${MOMENTS:-2}
cfg=$tmp/net.cfg
seed=${SEED:-$$}
RANDOM=$seed
echo "SEED=$seed MOMENTS=$moments"
seen=0 named=0 blocks=0

rank_pid() {
	local p
	for p in $(pgrep -P "$job"); do
		{ tr '\0' '\n' < "/proc/$p/environ"; } 2> /dev/null | grep -q "^OMPI_COMM_WORLD_RANK=$1\$" && echo "$p" && return
	done
}

nap() { # milliseconds
	sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"
}

# start N BN STEPS TIMEOUT: $job is mpirun's process; saves, evaluations and weights files come often
start() {
	rm -rf "$tmp/log" "$tmp/backup"
	net "$cfg" "$2" "$3"
	[ $((RANDOM % 2)) = 0 ] && over=mpi || over=shm
	scripts/run-mpi.sh "$1" "$bin" classifier train "$tmp/x.data" "$cfg" -threads 1 -fsdp.timeout "$4" -log "$tmp/log" -fsdp.collectives $over \
		-save_every 7 -valid 11 > "$tmp/out" 2> "$tmp/err" < /dev/null &
	job=$!
}

# moment N SIGNAL STEPS MS: the signal goes to a rank MS milliseconds after the start (STEPS: of a short run) or after some steps
# (STEPS 0: of an endless one). 1: it came too early or too late
moment() {
	local n=$1 r=$((RANDOM % $1)) pid guard= where timeout=2
	[ "$2" = STOP ] || timeout=30
	if [ "$3" = 0 ]; then
		start "$n" $((RANDOM % 2)) 100000000 $timeout
		for _ in $(seq 400); do
			[ "$(grep -c '"event":"step"' "$tmp/log" 2> /dev/null)" -ge 3 ] 2> /dev/null && break
			sleep .05
		done
	else
		start "$n" $((RANDOM % 2)) "$3" $timeout
	fi
	nap "$4"
	pid=$(rank_pid "$r")
	if [ -n "$pid" ]; then
		kill "-$2" "$pid" 2> /dev/null
	else # an endless run would be waited for
		kill "$job" 2> /dev/null
	fi
	where="$(grep -c '"event":"step"' "$tmp/log" 2> /dev/null) steps done"
	if [ "$2" = STOP ] && [ -n "$pid" ]; then # a run in which only the launcher is left is not waited for
		# a shell of its own: a subshell that is killed would run this shell's trap and remove $tmp
		bash -c 'sleep 15 && kill -KILL "$0"' "$pid" 2> /dev/null < /dev/null > /dev/null &
		guard=$!
	fi
	wait "$job"
	status=$?
	[ -n "$guard" ] && kill "$guard" 2> /dev/null
	# MPI_Finalize was over, or the process was not yet there
	[ -z "$pid" ] && return 1
	grep -q '"event":"end"' "$tmp/log" 2> /dev/null && ! grep -aq '^darknet:' "$tmp/err" && return 1
	seen=$((seen + 1))
	say=$(grep -a '^darknet:' "$tmp/err")
	if [ "$2" = STOP ]; then
		ok=$(echo "$say" | grep -cE ": waiting for rank $r( \((stopped|not here)\))?(; rank $r is in .*)?\$")
		[ "$status" = 3 ] || bad "status $status, wanted 3"
	else
		ok=$(echo "$say" | grep -cE ": rank $r is gone; it was in |: start-up: the launcher ends the job: waiting for rank $r \((gone|not here)\)\$")
		[ "$status" = 137 ] || bad "status $status, wanted 137"
		[ "$(echo "$say" | wc -l)" -le 1 ] || bad "more than one line"
	fi
	echo "$n ranks over $over, $2 to rank $r, $where: $(echo "$say" | head -n 1)"
	if [ "$ok" -ge 1 ]; then
		named=$((named + 1))
	else
		bad "rank $r is not named"
		tail -n 20 "$tmp/err"
	fi
	# from the first step on there is a block, too
	if [ "${where%% *}" -gt 0 ] 2> /dev/null; then
		echo "$say" | grep -v 'stood still' | grep -aqE "block (stem|pool|mid|tail)" || bad "no block is named"
	fi
	# nobody else is said to be late
	echo "$say" | grep -E 'waiting for rank|is gone' | grep -vE "waiting for rank $r( |;|\$)|: rank $r is gone" && bad "others are named, too"
	return 0
}

# until_counts N SIGNAL STEPS MS: moments up to MS until one counts
until_counts() {
	local tries
	for ((tries = 0; tries < 20; tries++)); do
		moment "$1" "$2" "$3" $((RANDOM % $4)) && return
	done
	bad "none of $tries moments of $1 ranks counts"
	tail -n 5 "$tmp/err"
}

for n in ${NP:-2 3 4}; do
	[ "$n" -gt 1 ] || continue
	for signal in STOP KILL; do
		for ((i = 0; i < moments; i++)); do
			if [ $((i % 2)) = 0 ]; then
				until_counts "$n" $signal 0 900
			else
				until_counts "$n" $signal 60 1200
			fi
		done
	done
done
echo "moments: $seen, named in $named"
finish
