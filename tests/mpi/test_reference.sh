#!/usr/bin/env bash
# Losses of 20 steps against the double-precision model of tests/reference, for one process and for 1 to 4 ranks.
#
# Tolerance 1e-5 relative: single precision rounds each loss to 6e-8, and 20 smooth steps at these rates let
# differences of summation order grow by less than two orders of magnitude. Batch-norm statistics are those of a
# rank's own images, so that cfg is compared for one process only.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${DARKNET:-$PWD/darknet}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-reference.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
fail=0

gcc -std=gnu11 -O2 tests/reference/ref64.c -o "$tmp/ref64" -lm || exit 1
d=data/digits
printf 'classes=10\nformat=idx\ntrain=%s\ntrain_truth=%s\nvalid=%s\nvalid_truth=%s\nbackup=%s\nshuffle=0\n' \
	$d/train-images.idx $d/train-labels.idx $d/valid-images.idx $d/valid-labels.idx "$tmp/backup" > "$tmp/x.data"

# compare NAME LOG: losses of LOG's step lines with $tmp/want
compare() {
	grep '"event":"step"' "$2" | sed 's/.*"loss":\([^,}]*\).*/\1/' > "$tmp/got"
	paste "$tmp/got" "$tmp/want" | awk -v name="$1" '
		NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; n++ }
		END { ok = n == 20 && worst <= 1e-5
		      printf "%-28s %d losses, largest relative difference %.2g%s\n", name, n, worst, ok ? "" : "  FAIL"
		      exit !ok }' || fail=1
}

run() { # run NAME CFG RANKS [FLAG...]; 0 ranks: the program alone, without the plugin
	local name=$1 cfg=$2 launch=() plugin=()
	[ "$3" -gt 0 ] && launch=(scripts/run-mpi.sh "$3") && plugin=(-plugin fsdp)
	shift 3
	rm -rf "$tmp/backup" "$tmp/log"
	if ! "${launch[@]}" "$bin" train "$tmp/x.data" "$cfg" "$tmp/w" -threads 1 -log "$tmp/log" "${plugin[@]}" "$@" \
		> "$tmp/out" 2>&1 < /dev/null; then
		echo "$name: FAIL: the program ended with an error:"
		tail -n 5 "$tmp/out"
		fail=1
		return
	fi
	compare "$name" "$tmp/log"
}

for name in odd residual bn; do
	cfg=tests/reference/$name.cfg
	"$tmp/ref64" init $cfg "$tmp/w" 1 &&
		"$tmp/ref64" train $cfg "$tmp/w" $d/train-images.idx $d/train-labels.idx 20 > "$tmp/want" || exit 1
	run "$name, one process" $cfg 0
	if [ $name = bn ]; then
		run "$name, 1 rank" $cfg 1
		continue
	fi
	for n in ${NP:-1 2 3 4}; do
		run "$name, $n ranks" $cfg "$n"
	done
	for s in 2 3; do
		sed "s/^subdivisions=.*/subdivisions=$s/" $cfg > "$tmp/sub.cfg"
		run "$name, 2 ranks, $s parts" "$tmp/sub.cfg" 2 -fsdp.limit 1
	done
done
exit $fail
