#!/usr/bin/env bash
# Runs the built test suites one after the other and prints a table; status 1 when one fails.
# usage: NP="1 2" scripts/run-suites.sh BUILD [WORD...]    WORD: only suites with one of them in their name
#   BUILD/tests/test_*, BUILD/tests/NAME/test_*   CUnit programs, one process
#   BUILD/tests/mpi/test_*                        CUnit programs, at every number of ranks in NP
#   tests/NAME/test_*.sh, tests/golden/*.sh       scripts over BUILD's program ($DARKNET); those with ranks only when NP is not empty
# LIMIT: seconds that a suite may take (600).
set -u
cd "$(dirname "$0")/.." || exit 1

build=$1
words=("${@:2}")
np=${NP-1 2 3 4}
limit=${LIMIT:-600}
export NP=$np
case $build in
/*) export B=$build ;;
*) export B=$PWD/$build ;;
esac
export DARKNET=$B/bin/darknet
out=$(mktemp "${TMPDIR:-/tmp}/dn-suite.XXXXXX") || exit 1
trap 'rm -f "$out"' EXIT
table=()
failed=0
ran=0

wanted() { # whether a word is part of NAME, or there are none
	local word
	for word in "${words[@]}"; do
		case $1 in
		*"$word"*) return 0 ;;
		esac
	done
	[ ${#words[@]} -eq 0 ]
}

suite() { # suite NAME COMMAND...
	local name=$1 begin end status verdict
	shift
	wanted "$name" || return
	ran=$((ran + 1))
	echo "== $name"
	begin=$(date +%s)
	timeout -k 10 "$limit" "$@" > "$out" 2>&1 < /dev/null
	status=$?
	end=$(date +%s)
	verdict=ok
	if [ $status -ne 0 ]; then
		verdict="FAILED (status $status)"
		[ $status -eq 124 ] && verdict="FAILED (over $limit s)"
		failed=$((failed + 1))
		tail -n 60 "$out"
	else
		grep -E 'SKIP|cases, ' "$out"
	fi
	table+=("$(printf '%-40s %6d s  %s' "$name" $((end - begin)) "$verdict")")
}

for t in "$B"/tests/test_* "$B"/tests/*/test_*; do
	[ -x "$t" ] && [ -f "$t" ] || continue
	src=tests/${t#"$B"/tests/}.c
	[ -f "$src" ] || continue               # an old program whose source is gone
	case $t in
	"$B"/tests/mpi/*)
		for n in $np; do
			suite "${t#"$B"/tests/}-$n" scripts/run-mpi.sh "$n" "$t"
		done
		;;
	*) suite "${t#"$B"/tests/}" "$t" ;;
	esac
done
for t in tests/test_*.sh tests/*/test_*.sh tests/golden/run.sh tests/golden/trained.sh tests/golden/stock.sh tests/golden/pictures.sh; do
	[ -f "$t" ] || continue
	case $t in
	tests/mpi/* | tests/golden/trained.sh) [ -n "$np" ] || continue ;;
	esac
	t=${t#tests/}
	suite "${t%.sh}" bash "tests/$t"
done

echo
printf '%s\n' ${table[@]+"${table[@]}"}
if [ $ran -eq 0 ]; then
	echo "suites: none has one of these in its name: ${words[*]}" >&2
	exit 1
fi
echo "suites: $ran run, $failed failed"
[ $failed -eq 0 ]
