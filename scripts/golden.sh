#!/usr/bin/env bash
# All comparisons with Debian's darknet: committed fixtures, the same made again live, stock cfgs, weights that were trained here, pictures.
# Needs the package for all but the first.   ALL=1: every stock cfg and the whole training; B, DARKNET: as in tests/golden/lib.bash
# usage: scripts/golden.sh [make]     make: write the fixtures anew (then say why in the commit)
set -u
cd "$(dirname "$0")/.." || exit 1
if [ "${1:-}" = make ]; then
	exec tests/golden/run.sh make
fi
status=0
for part in run trained stock pictures; do
	echo "== golden/$part"
	"tests/golden/$part.sh" || status=1
done
exit $status
