#!/usr/bin/env bash
# Runs suites over tests/far, a device that the host cannot touch and whose work is late, and prints a table; status 1 when
# one fails. Orders of work follow from a seed: the suites of one process run once for each.
# usage: FAR_SEEDS="1 2 3" NP="1 2" scripts/test-far.sh BUILD [WORD]    WORD: only suites with it in their name
#   BUILD/tests/test_*, BUILD/tests/fsdp/test_* that train   but those of rooms that have no device
#   tests/cli/test_train.sh, test_cli.sh, tests/mpi/test_train.sh, test_frozen.sh   over BUILD/far/bin/darknet; the last two at NP ranks
#   BUILD/tests/far/test_*   the back end itself: it must find every fault that is planted
# The same suites then run over ref: what the far back end asks for does no harm where it is not needed.
# LIMIT: seconds that a suite may take (600).
set -u
cd "$(dirname "$0")/.." || exit 1

build=$1
word=${2:-}
seeds=${FAR_SEEDS:-1 2 3}
limit=${LIMIT:-600}
export NP=${NP-1 2 3 4}
case $build in
/*) export B=$build ;;
*) export B=$PWD/$build ;;
esac
export DARKNET=$B/far/bin/darknet
out=$(mktemp "${TMPDIR:-/tmp}/dn-far.XXXXXX") || exit 1
trap 'rm -f "$out"' EXIT
failed=0
ran=0
table=()

suite() { # suite NAME OVER COMMAND...
	local name="$1 over $2" begin end status verdict=ok
	case $1 in
	*"$word"*) ;;
	*) return ;;
	esac
	shift 2
	ran=$((ran + 1))
	begin=$(date +%s)
	timeout -k 10 "$limit" "$@" > "$out" 2>&1 < /dev/null
	status=$?
	end=$(date +%s)
	if [ $status -ne 0 ]; then
		verdict="FAILED (status $status)"
		[ $status -eq 124 ] && verdict="FAILED (over $limit s)"
		failed=$((failed + 1))
		echo "== $name"
		tail -n 60 "$out"
	fi
	table+=("$(printf '%-48s %6d s  %s' "$name" $((end - begin)) "$verdict")")
	echo "${table[-1]}"
}

# suites of one process that open a device for nets; backend_* call ops on host memory, the others have no device
programs=()
for t in "$B"/tests/test_* "$B"/tests/fsdp/test_{runtime,exchange,sync_bn,recompute,wire,parity,infer}; do
	[ -x "$t" ] && [ -f "tests/${t#"$B"/tests/}.c" ] || continue
	case ${t##*/} in
	test_backend* | test_base_* | test_data* | test_image* | test_list* | test_loader | test_samples | test_tree | test_keys) continue ;;
	esac
	programs+=("$t")
done
for t in "${programs[@]}"; do
	for seed in $seeds; do
		suite "${t#"$B"/tests/}" "far, seed $seed" env DARKNET_TEST_BACKEND=far FAR_SEED="$seed" "$t"
	done
	suite "${t#"$B"/tests/}" ref env DARKNET_TEST_BACKEND=ref "$t"
done
for t in cli/test_train cli/test_cli ${NP:+mpi/test_train mpi/test_frozen}; do
	suite $t far env DARKNET_TEST_BACKEND=far FAR_SEED="${seeds%% *}" bash tests/$t.sh
done
for n in $NP; do
	suite "far/train $n ranks" far env FAR_SEED="${seeds%% *}" bash tests/far/train.sh "$n"
done
for t in "$B"/tests/far/test_*; do
	[ -x "$t" ] && [ -f "tests/${t#"$B"/tests/}.c" ] && suite "${t#"$B"/tests/}" itself "$t"
done

if [ $ran -eq 0 ]; then
	echo "test-far: no suite has \"$word\" in its name" >&2
	exit 1
fi
echo "test-far: $ran run, $failed failed"
[ $failed -eq 0 ]
