# For the golden tests: programs, verdicts, the peer from Debian's package "darknet". Sourced from the repository's root.
# DARKNET: our program; B: build folder for the tools.
set -u
B=${B:-build/release}
bin=${DARKNET:-$B/bin/darknet}
golden=tests/golden
tools=$B/golden
peer_lib=${PEER_LIB:-/usr/lib/darknet/libdarknet.so}
peer_include=${PEER_INCLUDE:-/usr/lib/darknet/include}
peer_cfg=${PEER_CFG:-/usr/share/darknet/cfg}
cases=0
failed=0

[ -x "$bin" ] || { echo "golden: $bin is not built"; exit 1; }
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-golden.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tools"
flags=(-std=gnu11 -O2 -Wall -Wextra)

gcc "${flags[@]}" $golden/compare.c -lm -o "$tools/compare.$$" && mv "$tools/compare.$$" "$tools/compare" || exit 1

# peer: is the package here? Builds the oracle.
peer=
if [ -e "$peer_lib" ] && [ -e "$peer_include/darknet.h" ]; then
	gcc "${flags[@]}" -isystem "$peer_include" $golden/oracle.c "$peer_lib" -Wl,-rpath,"$(dirname "$peer_lib")" -lm \
		-o "$tools/oracle.$$" && mv "$tools/oracle.$$" "$tools/oracle" || exit 1
	peer=1
fi

fail() {
	echo "FAIL: $*"
	failed=$((failed + 1))
}

# check NAME COMMAND...: a comparison; its line is shown
check() {
	local name=$1 line
	shift
	cases=$((cases + 1))
	if line=$("$@" 2>&1); then
		printf '  %-44s %s\n' "$name" "${line##*$'\n'}"
	else
		fail "$name: $line"
	fi
}

compare() { "$tools/compare" "$@"; }

# oracle ARGUMENT...: its own lines on stdout, without their mark; the library's chatter goes to a file
oracle() {
	if ! "$tools/oracle" "$@" > "$tmp/oracle.out" 2> "$tmp/oracle.err" < /dev/null; then
		grep '^oracle: ' "$tmp/oracle.err" >&2
		echo "golden: oracle $* failed" >&2
		return 1
	fi
	sed -n 's/^oracle: //p' "$tmp/oracle.out"
}

# ours ARGUMENT...: our program, quiet unless it fails
ours() {
	"$bin" "$@" > "$tmp/ours.out" 2> "$tmp/ours.err" < /dev/null && return
	echo "darknet $*: status $?" >&2
	tail -n 5 "$tmp/ours.err" >&2
	return 1
}

# key CFG NAME: a number of the [net] section
key() { sed -n "s/^$2 *= *//p" "$1" | head -n 1; }

verdict() { # NAME
	echo "$1: $cases cases, $failed failed"
	[ $cases -gt 0 ] && [ $failed -eq 0 ]
}
