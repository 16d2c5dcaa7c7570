#!/usr/bin/env bash
# A rank that is stopped or killed inside an MPI call of start-up, of a step's messages, or of the end: those that are left name it.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 1 12
mpicc -std=gnu11 -O1 -Wall -Wextra -shared -fPIC -o "$tmp/at_call.so" tests/mpi/at_call.c || exit 1

# Over MPI, so that steps send messages.
# at CALL:NUMBER:SIGNAL RANK N STATUS REGEX: a line of a rank that is left; no other line but of the rank itself
at() {
	local said
	only_rank "$2" "export LD_PRELOAD=$tmp/at_call.so AT_CALL=$1 ASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0"
	ranks "$3" -fsdp.collectives mpi -fsdp.timeout 3 -backup "$tmp/b" -save_every 5
	said=$(grep -a '^darknet:' "$tmp/err")
	echo "$1 of rank $2 of $3: status $status: $(echo "$said" | head -n 1)"
	[ "$status" = "$4" ] || bad "$1: status $status, wanted $4"
	echo "$said" | grep -qE "$5" || { bad "$1: no line matches $5"; tail -n 20 "$tmp/err"; }
	[ "$(echo "$said" | grep -vcE "$5|^darknet: rank $2:")" = 0 ] || { bad "$1: other lines"; echo "$said"; }
}

for n in ${NP:-2 3}; do
	[ "$n" = 2 ] || [ "$n" = 3 ] || continue
	for call in MPI_Comm_split_type:1 MPI_Allgather:1 MPI_Barrier:1; do
		at "$call:STOP" 1 "$n" 3 ': start-up: waited [0-9.]+ s: waiting for rank 1 \(stopped\)$'
		at "$call:KILL" 1 "$n" 137 ': start-up: the launcher ends the job: waiting for rank 1 \(gone\)$'
	done
	at MPI_Isend:100:STOP 1 "$n" 3 'block (stem|mid|tail): waited [0-9.]+ s: waiting for rank 1 \(stopped\); rank 1 is in .*block (stem|pool|mid|tail)$'
	at MPI_Isend:100:KILL 0 "$n" 137 'block (stem|pool|mid|tail): rank 0 is gone; it was in .*block (stem|pool|mid|tail)$'
	at MPI_Finalize:1:STOP 0 "$n" 3 'end: MPI_Finalize: waited [0-9.]+ s: waiting for rank 0 \(stopped\); rank 0 is in end: MPI_Finalize after .*$'
	at MPI_Finalize:1:KILL 1 "$n" 137 'end: MPI_Finalize after .*: rank 1 is gone; it was in end: MPI_Finalize after'
done
finish
