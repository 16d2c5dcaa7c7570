#!/usr/bin/env bash
# Debian's pictures through stock cfgs with random weights: classifier predict, ours against the package's program, decoding and
# resizing included. The same five names in the same order; each percentage, two digits printed, within 0.01: a rounding step, and
# 1e-4 of a probability. Both decoders compute JPEG in integers and differ by a level or two in 1 % of the values.
#   tests/golden/pictures.sh [CFG ...]      tiny and darknet19 otherwise, at 128 x 128
cd "$(dirname "$0")/../.." || exit 1
. tests/golden/lib.bash
pictures=${PEER_PICTURES:-/usr/share/darknet/data}
program=${PEER_PROGRAM:-darknet}

if [ -z "$peer" ] || ! command -v "$program" > /dev/null || ! [ -f "$pictures/dog.jpg" ]; then
	echo "SKIP golden pictures: the package darknet is not installed (apt-get install darknet)"
	exit 0
fi
printf 'classes=1000\nnames=%s/imagenet.shortnames.list\nlabels=%s/imagenet.labels.list\ntop=5\n' "$pictures" "$pictures" > "$tmp/p.data"

lines() { sed -n 's/^ *\([0-9.]*\)%: \(.*\)/\1 \2/p' "$1"; }

close_lines() { # OURS THEIRS
	paste -d '|' <(lines "$1") <(lines "$2") | awk -F '|' '
		{ split($1, a, " "); split($2, b, " "); d = a[1] - b[1]; d = d < 0 ? -d : d; worst = d > worst ? d : worst
		  if (substr($1, index($1, " ")) != substr($2, index($2, " ")) || d > .0101) { print $1 ", wanted " $2; bad = 1; exit } }
		END { if (!bad && NR != 5) print NR " lines, not 5"; else if (!bad) printf "%.2f %% at most\n", worst; exit bad || NR != 5 }'
}

for name in "${@:-tiny}" $([ $# -gt 0 ] || echo darknet19); do
	cfg=$tmp/$name.cfg
	sed -e 's/^batch *=.*/batch=4/; s/^subdivisions *=.*/subdivisions=1/; s/^width *=.*/width=128/; s/^height *=.*/height=128/' \
		"$peer_cfg/$name.cfg" > "$cfg"
	oracle init "$cfg" 5 "$tmp/w" || { fail "$name: init"; continue; }
	for picture in "$pictures"/*.jpg; do
		"$program" classifier predict "$tmp/p.data" "$cfg" "$tmp/w" "$picture" -t 5 > "$tmp/theirs" 2> /dev/null < /dev/null
		ours classifier predict "$tmp/p.data" "$cfg" "$tmp/w" "$picture" -t 5 -legacy-bn || { fail "$name: predict"; continue; }
		check "$name, $(basename "$picture")" close_lines "$tmp/ours.out" "$tmp/theirs"
	done
done
verdict pictures
