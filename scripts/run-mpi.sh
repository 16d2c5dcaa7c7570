#!/usr/bin/env bash
# Starts N ranks of a command on this host.   usage: scripts/run-mpi.sh N COMMAND [ARGUMENT...]
# Each rank gets its part of the cores: threads (OMP_NUM_THREADS, unless it or -threads is given), and where the cores suffice it is
# bound to them, within one NUMA domain if it fits there. With more ranks than cores those that wait give their core away; with more
# threads than cores theirs spin for some 50 us only (GOMP_SPINCOUNT).
#   BIND=none       do not bind; for several jobs at a time on this host
#   MPIRUN_FLAGS    more flags of mpirun; with --bind-to or --map-by among them nothing is bound here
#   SHOW=1          print the command and do not start it
set -u

if [ $# -lt 2 ] || ! [ "$1" -ge 1 ] 2> /dev/null; then
	echo "usage: $0 N COMMAND [ARGUMENT...]" >&2
	exit 2
fi
n=$1
shift
if ! command -v mpirun > /dev/null; then
	echo "run-mpi: mpirun is missing: install the Debian package openmpi-bin, or run scripts/setup.sh" >&2
	exit 1
fi

# nproc would say OMP_NUM_THREADS
cpus=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)

# the program knows quotas better: with one, its threads are its own matter, and it may run on any core
has_quota() {
	local max=
	read -r max _ 2> /dev/null < /sys/fs/cgroup/cpu.max && [ "$max" != max ] && return 0
	read -r max 2> /dev/null < /sys/fs/cgroup/cpu/cpu.cfs_quota_us && [ "$max" -gt 0 ]
}

threads=${OMP_NUM_THREADS:-}
prev=
for word in "$@"; do
	[ "$prev" = -threads ] && threads=$word
	prev=$word
done
if [ -z "$threads" ] && ! has_quota; then
	threads=$((cpus / n))
	[ "$threads" -ge 1 ] || threads=1
	export OMP_NUM_THREADS=$threads
fi
case $threads in '' | *[!0-9]*) threads=1 ;; esac # what the program will refuse, or read otherwise

flags=(-n "$n")
[ "$(id -u)" -eq 0 ] && flags+=(--allow-run-as-root)

# place: --map-by for cores of one rank, or nothing: whole cores that this process may use, by NUMA domain
place() {
	local allowed
	allowed=$(taskset -cp $$ 2> /dev/null | sed 's/.*: //') || return
	lscpu -p=CPU,CORE,NODE 2> /dev/null | awk -F, -v n="$n" -v allowed="$allowed" '
	BEGIN {
		k = split(allowed, part, ",")
		for (i = 1; i <= k; i++) {
			two = split(part[i], end, "-")
			for (c = end[1] + 0; c <= end[two] + 0; c++)
				may[c] = 1
		}
	}
	/^#/ || !($1 in may) { next }
	!seen[$2]++ { cores++; if (!domain[$3]++) domains++ }
	END {
		each = int(cores / n)
		if (each < 1)
			exit
		for (d in domain)
			fit += int(domain[d] / each)
		print (domains > 1 && fit >= n ? "numa" : "slot") ":PE=" each
	}'
}

by=
case ${BIND:-auto}:${MPIRUN_FLAGS:-} in
none:* | *--bind-to* | *-map-by*) ;;
*) [ $((n * threads)) -le "$cpus" ] && ! has_quota && by=$(place) ;;
esac
if [ -n "$by" ]; then
	flags+=(--map-by "$by" --bind-to core)
else
	case ${MPIRUN_FLAGS:-} in *--bind-to*) ;; *) flags+=(--bind-to none) ;; esac
fi
if [ "$n" -gt "$cpus" ]; then
	flags+=(--oversubscribe --mca mpi_yield_when_idle 1)
fi
if [ $((n * threads)) -gt "$cpus" ] && [ -z "${OMP_WAIT_POLICY:-}${GOMP_SPINCOUNT:-}" ]; then
	export GOMP_SPINCOUNT=2000
fi
for name in OMP_NUM_THREADS GOMP_SPINCOUNT OMP_WAIT_POLICY; do
	[ -n "${!name:-}" ] && flags+=(-x "$name")
done
if [ "${SHOW:-0}" = 1 ]; then
	echo "OMP_NUM_THREADS=${OMP_NUM_THREADS:-} GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-} mpirun ${flags[*]} ${MPIRUN_FLAGS:-} $*"
	exit
fi
# shellcheck disable=SC2086
exec mpirun "${flags[@]}" ${MPIRUN_FLAGS:-} "$@"
