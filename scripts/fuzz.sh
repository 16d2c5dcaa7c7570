#!/usr/bin/env bash
# Runs built fuzzers one after the other, from what they have found before, and prints a table; status 1 when one fails.
# usage: FUZZ_SECONDS=60 scripts/fuzz.sh PROGRAM...    beside PROGRAM: PROGRAM.corpus, its inputs; PROGRAM.log; what failed
# edges: those of the code that the inputs reach.
set -u
seconds=${FUZZ_SECONDS:-60}
# the files under test lie in memory: a disk would set the pace
FUZZ_TMP=$(mktemp -d /dev/shm/dn-fuzz.XXXXXX) || exit 1
export FUZZ_TMP
trap 'rm -rf "$FUZZ_TMP"' EXIT
failed=0

row() { printf '%-10s %10s %8s %8s %10s  %s\n' "$@"; }

row fuzzer inputs edges seconds inputs/s ''
for f; do
	name=$(basename "$f")
	name=${name#fuzz_}
	mkdir -p "$f.corpus"
	verdict=ok
	"$f" -seeds "$f.corpus" > "$f.log" 2>&1 &&
		"$f" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=4096 -max_len=8192 -artifact_prefix="$f-" \
			-print_final_stats=1 "$f.corpus" >> "$f.log" 2>&1 || verdict=FAILED
	inputs=$(sed -n 's/^stat::number_of_executed_units: //p' "$f.log")
	edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$f.log" | tail -n 1)
	took=$(sed -n 's/^Done [0-9]* runs in \([0-9]*\) second.*/\1/p' "$f.log")
	[ -n "$took" ] && [ -n "$inputs" ] || verdict=FAILED
	row "$name" "${inputs:--}" "${edges:--}" "${took:--}" "$([ "${took:-0}" -gt 0 ] && echo $((inputs / took)) || echo -)" $verdict
	if [ $verdict != ok ]; then
		failed=1
		tail -n 40 "$f.log"
	fi
done
exit $failed
