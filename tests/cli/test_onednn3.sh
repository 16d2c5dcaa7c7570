#!/usr/bin/env bash
# The program over oneDNN 3: built with ONEDNN=DIR against PyPI's packages, its convolutions compared with the plain loops
# and with finite differences, and a training run. Loudly skipped where the packages cannot be had.
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=build/onednn3
b=build/release-onednn
devel=onednn-devel-cpu-gomp==2023.2.0
lib=onednn-cpu-gomp==2023.2.0

if ! [ -e $dir/lib/libdnnl.so ]; then
	rm -rf $dir.part && mkdir -p $dir.part
	if ! timeout 120 python3 -m pip download --quiet --disable-pip-version-check --no-deps -d $dir.part/wheels $devel $lib \
		> $dir.part/log 2>&1 < /dev/null; then
		echo "SKIP oneDNN 3: pip cannot download $devel and $lib: $(tail -n 1 $dir.part/log)"
		exit 0
	fi
	for w in "$dir".part/wheels/*.whl; do
		python3 -m zipfile -e "$w" $dir.part/x || exit 1
	done
	mv $dir.part/x/onednn_devel_*.data/data/include $dir.part/include && mkdir $dir.part/lib &&
		cp $dir.part/x/onednn_cpu_*.data/data/lib/libdnnl.so* $dir.part/lib/ && rm -rf $dir && mv $dir.part $dir || exit 1
fi
mapfile -t suites < <(basename -s .c tests/test_backend*.c tests/test_layers.c)
# the switches of the make that runs the suites are not for this build
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s B=$b ASAN=0 TSAN=0 WERROR=0 V=0 ONEDNN=$dir all "${suites[@]/#/$b/tests/}" > $dir/build.log 2>&1 || { tail -n 20 $dir/build.log; exit 1; }
ldd $b/bin/darknet | grep -q 'libdnnl.so.3 => .*onednn3' || { echo "FAIL: the program is not linked with oneDNN 3"; exit 1; }
fail=0
for s in "${suites[@]}"; do
	"$b/tests/$s" > $dir/$s.log 2>&1 || fail=1
	echo "oneDNN 3: $(tail -n 1 $dir/$s.log)"
done
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-onednn.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
sed 's/^max_batches=.*/max_batches=40/' cfg/digits-fsdp.cfg > "$tmp/d.cfg"
for bin in $b build/release; do
	[ -x $bin/bin/darknet ] || bin=$(dirname "$(dirname "${DARKNET:-$PWD/darknet}")")
	"$bin/bin/darknet" train cfg/digits.data "$tmp/d.cfg" -threads 1 -backup "$tmp/b" -log "$tmp/log" > "$tmp/out" 2>&1 < /dev/null ||
		{ tail -n 5 "$tmp/out"; exit 1; }
	grep '"event":"step"' "$tmp/log" | sed 's/.*"loss":\([^,}]*\).*/\1/' > "$tmp/$(basename "$bin").loss"
done
# both libraries sum in other orders: ten steps of a batch-normalised net stay within 1e-4 of one another
paste "$tmp"/*.loss | head -n 10 | awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; n++ }
	END { printf "oneDNN 3: %d losses beside oneDNN 2, largest relative difference %.2g\n", n, worst; exit !(n == 10 && worst <= 1e-4) }' || fail=1
exit $fail
