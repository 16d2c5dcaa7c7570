#!/usr/bin/env bash
# What scripts/run-mpi.sh sets: threads, cores, a short spin; and what a start without it is told.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 0 2
cpus=$(env -u OMP_NUM_THREADS nproc)
unset OMP_NUM_THREADS OMP_WAIT_POLICY GOMP_SPINCOUNT MPIRUN_FLAGS BIND

# says TEXT NAME COMMAND...: the command that the script would start contains TEXT (not: with ! before it)
says() {
	local want=$1 name=$2 got
	shift 2
	got=$(SHOW=1 "$@") || bad "$name: status $?"
	case $want in
	!*) [[ $got != *"${want#!}"* ]] || bad "$name: $got" ;;
	*) [[ $got == *"$want"* ]] || bad "$name: wanted $want: $got" ;;
	esac
}

run=scripts/run-mpi.sh
says 'GOMP_SPINCOUNT=2000' 'more ranks than cores' $run $((cpus + 1)) x
says ' -x GOMP_SPINCOUNT' 'more ranks than cores' $run $((cpus + 1)) x
says '--bind-to none' 'more ranks than cores' $run $((cpus + 1)) x
says 'OMP_NUM_THREADS=1 ' 'more ranks than cores' $run $((cpus + 1)) x
says 'GOMP_SPINCOUNT=2000' 'more threads than cores' $run 2 x -threads "$cpus"
says '--bind-to none' 'more threads than cores' $run 2 x -threads "$cpus"
says '!GOMP_SPINCOUNT=2' 'as many threads as cores' $run 1 x -threads "$cpus"
says 'OMP_NUM_THREADS=1 ' 'threads that are given' env OMP_NUM_THREADS=1 $run 1 x
says 'GOMP_SPINCOUNT=7 ' 'a spin that is given' env GOMP_SPINCOUNT=7 $run $((cpus + 1)) x
says '!GOMP_SPINCOUNT=2000' 'a policy that is given' env OMP_WAIT_POLICY=active $run $((cpus + 1)) x
says '--bind-to none' 'BIND=none' env BIND=none $run 1 x
says '!--bind-to core' 'binding by MPIRUN_FLAGS' env MPIRUN_FLAGS='--bind-to socket' $run 1 x
if ! SHOW=1 $run 1 x | grep -q 'OMP_NUM_THREADS= '; then # no quota
	says "OMP_NUM_THREADS=$cpus " 'one rank has all cores' $run 1 x
	says "--bind-to core" 'one rank has all cores' $run 1 x
	if [ "$cpus" -ge 2 ]; then
		$run 2 grep Cpus_allowed_list /proc/self/status > "$tmp/at"
		[ "$(sort -u "$tmp/at" | wc -l)" = 2 ] || bad "two ranks are not on cores of their own: $(cat "$tmp/at")"
		# shellcheck disable=SC2016
		[ "$($run 2 sh -c 'echo $OMP_NUM_THREADS' | sort -u)" = $((cpus / 2)) ] || bad 'threads of two ranks'
	fi
fi

root=()
[ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
by_hand() {
	mpirun "${root[@]}" -n 2 --oversubscribe "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null
	status=$?
}
train=("$bin" classifier train "$tmp/x.data" "$cfg" -clear)
if [ "$(env -u OMP_NUM_THREADS taskset -c 0 nproc)" = 1 ] && [ "$cpus" -ge 2 ]; then
	by_hand --bind-to none "${train[@]}" -threads "$cpus"
	wants 0 "notice: 2 ranks of $cpus threads on $cpus cores wait for one another: set -threads $((cpus / 2)) or OMP_NUM_THREADS=$((cpus / 2))" \
		'more threads than cores by hand'
	by_hand --bind-to none "${train[@]}" -threads 1
	grep -q '^notice: .*\(bound\|wait for\)' "$tmp/err" && bad "a launch in order is told: $(grep '^notice' "$tmp/err")"
fi
if [ "$cpus" -ge 4 ]; then
	by_hand --bind-to none taskset -c 0,1 "${train[@]}"
	wants 0 "notice: this rank is bound to 2 of $cpus cores" 'idle cores'
	by_hand --bind-to none taskset -c 0 "${train[@]}" -threads 2
	wants 0 "notice: 2 threads on the 1 of $cpus cores that this rank is bound to wait for one another" 'threads on one core'
fi
ranks 2 -clear
grep -q '^notice: .*\(bound\|wait for\)' "$tmp/err" && bad "the script's launch is told: $(grep '^notice' "$tmp/err")"
finish
