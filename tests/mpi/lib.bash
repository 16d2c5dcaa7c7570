# For the scripts of this folder: a small net, ranks as wanted, and checks that say what they saw. Sourced.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bin=${DARKNET:-$PWD/darknet}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-mpi.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
fail=0
d=$PWD/data/digits
printf 'classes=10\nformat=idx\ntrain=%s\ntrain_truth=%s\nvalid=%s\nvalid_truth=%s\nbackup=%s\n' \
	"$d/train-images.idx" "$d/train-labels.idx" "$d/valid-images.idx" "$d/valid-labels.idx" "$tmp/backup" > "$tmp/x.data"

# net FILE BN STEPS [HIDDEN]: four uneven blocks, one without params
net() {
	cat > "$1" <<-EOF
	[net]
	batch=48
	subdivisions=1
	width=8
	height=8
	channels=1
	learning_rate=0.05
	momentum=0.9
	decay=0.0005
	policy=constant
	max_batches=$3
	[fsdp]
	timeout=20
	[block]
	name=stem
	[convolutional]
	batch_normalize=$2
	filters=9
	size=3
	stride=1
	pad=1
	activation=leaky
	[block]
	name=pool
	[maxpool]
	size=2
	stride=2
	[block]
	name=mid
	[connected]
	output=${4:-37}
	activation=leaky
	[block]
	name=tail
	[connected]
	output=10
	activation=linear
	[softmax]
	EOF
}

bad() {
	echo "FAIL: $*"
	fail=1
}

# ranks N FLAGS...: $verb (classifier train) $tmp/x.data with $cfg on N ranks (0: no launcher, no plugin); output in $tmp/err,
# status in $status
ranks() {
	local n=$1 cmd
	shift
	cmd=("$bin" ${verb:-classifier train} "$tmp/x.data" "$cfg" -threads 1 "$@")
	if [ "$n" = 0 ]; then
		"${cmd[@]}" -plugin none > "$tmp/out" 2> "$tmp/err" < /dev/null
	else
		scripts/run-mpi.sh "$n" "${wrap[@]}" "${cmd[@]}" > "$tmp/out" 2> "$tmp/err" < /dev/null
	fi
	status=$?
}
wrap=()

# wants STATUS TEXT NAME: the last run ended with STATUS, and its messages contain TEXT
wants() {
	local said
	said=$(grep -a '^darknet:' "$tmp/err" | head -n 5)
	echo "$3: status $status: $said"
	[ "$status" = "$1" ] || bad "$3: status $status, wanted $1"
	grep -aqF -e "$2" "$tmp/err" || { bad "$3: no message with \"$2\""; tail -n 20 "$tmp/err"; }
}

# only_rank R SCRIPT: a wrapper that runs SCRIPT (sourced) in rank R before the program
only_rank() {
	printf '#!/usr/bin/env bash\nif [ "$OMPI_COMM_WORLD_RANK" = %s ]; then\n%s\nfi\nexec "$@"\n' "$1" "$2" > "$tmp/wrap.sh"
	chmod +x "$tmp/wrap.sh"
	wrap=("$tmp/wrap.sh")
}

losses() {
	grep '"event":"step"' "$1" | sed 's/.*"loss":\([^,}]*\).*/\1/'
}

# counted TEXT: what the log says of the last run: traffic and, at its end, memory are as planned
counted() {
	python3 - "$tmp/log" <<-'EOF' || bad "$1: planned and counted differ"
	import json, sys
	events = [json.loads(x) for x in open(sys.argv[1])]
	n = 0
	for rank in [r for e in events for r in e.get("ranks", [])]:
	    n += 1
	    for k in ("gather", "reduce"):
	        t = rank[k]
	        assert t["counted_bytes"] == t["planned_bytes"] and t["counted_calls"] == t["planned_calls"], (k, t)
	    for r in rank["regions"]:
	        assert r["measured_bytes"] == r["planned_bytes"], r
	assert n > 0, "no rank is in the log"
	EOF
}

finish() {
	[ $fail = 0 ] && echo "all as wanted"
	exit $fail
}
