#!/usr/bin/env bash
# Starts N ranks of a command on this host.   usage: scripts/run-mpi.sh N COMMAND [ARGUMENT...]
# Ranks are not bound to cores; with more ranks than cores those that wait give their core away.
# MPIRUN_FLAGS may hold more flags of mpirun.
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
flags=(-n "$n" --bind-to none)
[ "$(id -u)" -eq 0 ] && flags+=(--allow-run-as-root)
if [ "$n" -gt "$(nproc)" ]; then
	flags+=(--oversubscribe --mca mpi_yield_when_idle 1)
fi
# shellcheck disable=SC2086
exec mpirun "${flags[@]}" ${MPIRUN_FLAGS:-} "$@"
