#!/usr/bin/env bash
# Suites over the far back end (tests/far): graph, layers, train, io, fsdp in process; the program at 1 to 4 ranks against ref.
# usage: scripts/test-far.sh BUILD [WORD]    WORD: only suites with it in their name
#   FAR_SEEDS="1 2"   orders of late work     NP="1 2 3 4"   numbers of ranks     BACKEND=ref   ref in the place of far
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
word=${2:-}
backend=${BACKEND:-far}
seeds=${FAR_SEEDS:-1 2}
np=${NP:-1 2 3 4}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-far.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
table=()
failed=0

limited() { # COMMAND...: functions of this script bound their own commands
	if [ "$(type -t "$1")" = function ]; then
		"$@"
	else
		timeout -k 10 "${LIMIT:-600}" "$@"
	fi
}

suite() { # NAME COMMAND...
	local name=$1 begin status verdict=ok
	shift
	case $name in
	*"$word"*) ;;
	*) return ;;
	esac
	begin=$(date +%s)
	limited "$@" > "$tmp/out" 2>&1 < /dev/null
	status=$?
	if [ $status -ne 0 ]; then
		verdict="FAILED (status $status)"
		failed=$((failed + 1))
		tail -n 40 "$tmp/out"
	fi
	table+=("$(printf '%-40s %6d s  %s' "$name" $(($(date +%s) - begin)) "$verdict")")
}

tiny() { # OPTIONS OF [fsdp]
	printf '%s\n' '[net]' batch=12 subdivisions=2 width=8 height=8 channels=1 learning_rate=.05 momentum=.9 decay=.0005 max_batches=4 \
		'[fsdp]' $1 '[block]' name=stem '[convolutional]' filters=3 size=3 stride=2 pad=1 batch_normalize=1 activation=leaky '[dropout]' \
		probability=.2 '[block]' name=body '[convolutional]' filters=5 size=3 pad=1 batch_normalize=1 activation=mish '[avgpool]' \
		'[block]' name=head '[connected]' output=10 activation=linear '[softmax]'
}

# The same training over ref and over the back end: losses, weights and checkpoints have the same bits.
ranks() { # N OPTIONS
	local n=$1 cfg=$2 which
	shift 2
	for which in ref "$backend"; do
		rm -rf "$tmp/$which"
		mkdir -p "$tmp/$which"
		tiny "$cfg" > "$tmp/$which/t.cfg"
		sed "s#^backup.*#backup=$tmp/$which/backup#" cfg/digits.data > "$tmp/$which/t.data"
		FAR_PATIENCE_MS=0 DARKNET_TEST_BACKEND=$which timeout -k 10 "${LIMIT:-600}" scripts/run-mpi.sh "$n" "$build/far/bin/darknet" train "$tmp/$which/t.data" \
			"$tmp/$which/t.cfg" -threads 1 -save_every 2 -backend $which -log "$tmp/$which/log" "$@" > "$tmp/$which/out" 2>&1 || {
			tail -n 20 "$tmp/$which/out"
			return 1
		}
		(cd "$tmp/$which/backup" && find . -name '*.weights' -o -name '*.bin' | sort | xargs sha256sum) > "$tmp/$which/sums"
		grep -oE '"event":"step".*"loss":[^,}]*' "$tmp/$which/log" | sed 's/"seconds":[^,]*,//; s/"load_seconds":[^,]*,//' > "$tmp/$which/losses"
		[ -s "$tmp/$which/losses" ] || return 1
	done
	diff "$tmp/ref/losses" "$tmp/$backend/losses" && diff "$tmp/ref/sums" "$tmp/$backend/sums"
}

export DARKNET_TEST_BACKEND=$backend
for seed in $seeds; do
	export FAR_SEED=$seed
	echo "== $backend, seed $seed"
	for t in graph layers layer_rules sources carry keys train_local train_loop train_metric train_optim train_ranks io ckpt_runs \
		fsdp/runtime fsdp/carry fsdp/exchange fsdp/grid far/faults; do
		case $t in
		*/*) t=${t%/*}/test_${t#*/} ;;
		*) t=test_$t ;;
		esac
		suite "$t seed $seed" "$build/tests/$t"
	done
	for n in $np; do
		suite "training $n ranks seed $seed" ranks "$n" limit=2
		suite "training limit 1 $n ranks seed $seed" ranks "$n" limit=1
	done
done

echo
printf '%s\n' ${table[@]+"${table[@]}"}
if [ ${#table[@]} -eq 0 ]; then
	echo "test-far: no suite has \"$word\" in its name" >&2
	exit 1
fi
echo "test-far: ${#table[@]} run over $backend, $failed failed"
[ $failed -eq 0 ]
