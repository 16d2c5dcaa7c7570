#!/usr/bin/env bash
# usage: tests/far/train.sh N: trainings of N ranks over ref and over far have the same bits. scripts/test-far.sh runs it.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$B
backend=far
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-far.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

tiny() { # OPTIONS OF [fsdp]
	printf '%s\n' '[net]' batch=24 subdivisions=2 width=8 height=8 channels=1 learning_rate=.05 momentum=.9 decay=.0005 max_batches=4 \
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

ranks "$1" limit=2 && ranks "$1" limit=1
