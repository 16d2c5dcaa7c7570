#!/usr/bin/env bash
# The programs of `make bench` still run, and what they measure is right: they compare values themselves.
. "$(dirname "$0")/lib.bash"
for n in ${NP:-2 4}; do
	[ "$n" -gt 1 ] || continue
	scripts/run-mpi.sh "$n" "${B:-build/release}/tests/bench/collectives" bytes=24576 runs=1 > "$tmp/out" 2> "$tmp/err" < /dev/null || bad "collectives on $n ranks: status $?"
	cat "$tmp/out"
	[ "$(grep -cE "^bench: (shm|channels) (gather|reduce) ranks=$n bytes=24576 .* ratio=[0-9]" "$tmp/out")" = 4 ] ||
		{ bad "not every table and collective has a line"; tail -n 5 "$tmp/err"; }
done
"${B:-build/release}/tests/bench/bench" forward tests/bench/darknet19.cfg 1 size=32 > "$tmp/out" 2> "$tmp/err" || bad "forward: status $?"
grep -qE '^bench: forward .* seconds=[0-9.]+' "$tmp/out" || { bad "forward: no figure"; cat "$tmp/err"; }
finish
