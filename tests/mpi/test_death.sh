#!/usr/bin/env bash
# T36: ranks that stop or die, over MPI and over shared memory: the others end within 10 seconds with the right status and name them; nobody outlives the launcher.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 0 100000000
worlds=${NP:-1 2 3 4}

# start N TIMEOUT [COLLECTIVES]: $job is mpirun's process
start() {
	scripts/run-mpi.sh "$1" "$bin" classifier train "$tmp/x.data" "$cfg" -threads 1 -fsdp.timeout "$2" -fsdp.collectives "${3:-auto}" -log "$tmp/log" \
		> "$tmp/out" 2> "$tmp/err" < /dev/null &
	job=$!
	for _ in $(seq 200); do
		[ "$(grep -c '"event":"step"' "$tmp/log" 2> /dev/null)" -ge 5 ] 2> /dev/null && return
		sleep .1
	done
	bad "no training after 20 s"
}

rank_pid() {
	local p
	for p in $(pgrep -P "$job"); do
		tr '\0' '\n' < "/proc/$p/environ" 2> /dev/null | grep -q "^OMPI_COMM_WORLD_RANK=$1\$" && echo "$p" && return
	done
}

hurt() { # hurt N SIGNAL RANK STATUS COLLECTIVES
	local begin seconds others
	rm -f "$tmp/log"
	start "$1" 3 "$5"
	begin=$(date +%s%N)
	kill "-$2" "$(rank_pid "$3")"
	wait "$job"
	status=$?
	seconds=$((($(date +%s%N) - begin) / 1000000000))
	echo "$1 ranks over $5, $2 to rank $3: status $status after $seconds s: $(grep -a '^darknet:' "$tmp/err")"
	[ $status = "$4" ] || bad "status $status, wanted $4"
	[ $seconds -lt 10 ] || bad "$seconds s"
	[ "$2" = STOP ] || return
	grep -aqE "waited .*: waiting for rank $3( \\(stopped\\))?(; rank $3 is in .*)?\$" "$tmp/err" || bad "rank $3 is not named"
	grep -aqE '(of block (stem|mid|tail)|sum over ranks|saving weights).*: waited' "$tmp/err" || bad "no operation is named"
	others=$(grep -a 'waiting for rank' "$tmp/err" | grep -acvE "waiting for rank $3( \(stopped\))?(; rank $3 is in .*)?\$")
	[ "$others" = 0 ] || bad "others are named, too"
}

for n in $worlds; do
	[ "$n" -gt 1 ] || continue
	for r in $(seq 0 $((n - 1))); do
		for over in shm mpi; do
			hurt "$n" STOP "$r" 3 $over
		done
	done
	hurt "$n" KILL $((n - 1)) 137 shm
	hurt "$n" KILL $((n - 1)) 137 mpi
done

# a rank that does not begin
only_rank 1 'kill -STOP $$'
ranks 3 -fsdp.timeout 3
wants 3 "start-up: waited 3" "rank 1 does not begin"
grep -aq 'waiting for rank 1' "$tmp/err" || bad "rank 1 is not named"
wrap=()

# the launcher dies, and the timeout is long
rm -f "$tmp/log"
start 2 300
pids="$(rank_pid 0) $(rank_pid 1)"
kill -KILL "$job"
wait "$job" 2> /dev/null
for _ in $(seq 30); do
	alive=0
	for p in $pids; do
		kill -0 "$p" 2> /dev/null && alive=$((alive + 1))
	done
	[ $alive = 0 ] && break
	sleep .1
done
echo "the launcher died: $alive ranks left"
[ $alive = 0 ] || { bad "ranks outlive the launcher"; kill -KILL $pids; }
finish
