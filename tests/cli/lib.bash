# For the scripts of this folder: the program, a folder of its own, checks that count. Sourced.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bin=${DARKNET:-$PWD/build/release/bin/darknet}
[ -x "$bin" ] || { echo "$bin is not built"; exit 1; }
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-cli.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
cases=0
failed=0

fail() {
	echo "FAIL: $*"
	tail -n 3 "$tmp/err" 2> /dev/null
	failed=$((failed + 1))
}

# run STATUS ARGUMENT...: streams in $tmp/out and $tmp/err
run() {
	local want=$1 got
	shift
	cases=$((cases + 1))
	timeout 120 "$bin" "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null
	got=$?
	[ $got -eq "$want" ] || fail "darknet $*: status $got, wanted $want"
}

# has FILE EXTENDED-REGEX [COUNT]
has() {
	local n
	n=$(grep -cE "$2" "$tmp/$1")
	[ "$n" -eq "${3:-$n}" ] && [ "$n$#" != 02 ] || fail "$n lines match $2 in $1, wanted ${3:-some}"
}

# finish NAME: the summary and the status
finish() {
	echo "$1: $cases cases, $failed failed"
	exit $((failed > 0))
}
