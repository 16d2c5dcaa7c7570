#!/usr/bin/env bash
# Who may include whom, by the table in rooms.sh; what objects import is check-symbols.sh's.
# Plugins include plugin/plugin.h (and headers that it includes) and their own headers; mpi.h has two files;
# NAME_priv.h stays in its room; layers never see a backend's folder.
#   and what no file may do: see "rules of content" below.
# usage: scripts/check-includes.sh [TREE]    TREE: another copy of the sources, for the test of these rules
set -u
. "$(dirname "$0")/rooms.sh"
cd "${1:-$(dirname "$0")/..}" || exit 1
bad=0

say() {
	echo "check-includes: $1:$2: includes $3: $4" >&2
	bad=1
}

declare -A sees # ROOM: what allowed() says
for room in $rooms; do
	sees[$room]=$(allowed "$room")
done

check_room() { # FILE ROOM
	local file=$1 room=$2 line header other
	while IFS=: read -r line header; do
		header=${header#*\"}
		header=${header%%\"*}
		case $header in
		*..*) other=$header ;;  # a way around the table
		*/*) other=${header%%/*} ;;
		*) other=$room ;;       # a header beside the file
		esac
		case " ${sees[$room]} " in
		*" $other "*) ;;
		*) say "$file" "$line" "$header" "$room sees only: ${sees[$room]}" ;;
		esac
		case $header in
		*_priv.h) [ "$other" = "$room" ] || say "$file" "$line" "$header" "private to $other" ;;
		esac
		case $file:$header in
		src/graph/layers/*:backend/*/*) say "$file" "$line" "$header" "layers see backend/backend.h only" ;;
		esac
	done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file")
}

for file in $(find src -name '*.[ch]' | sort); do
	room=${file#src/}
	room=${room%%/*}
	if [ -z "${sees[$room]-}" ]; then
		say "$file" 1 "" "the room $room is not in the table"
		continue
	fi
	check_room "$file" "$room"
done

public=$'\n'$(grep -oE '^#include "[^"]*"' src/plugin/plugin.h | sed 's/.*"\(.*\)"/\1/')$'\n'
for file in $(find plugins -name '*.[ch]' | sort); do
	dir=${file%/*}
	root=${file#plugins/}
	root=plugins/${root%%/*}
	while IFS=: read -r line header; do
		header=${header#*\"}
		header=${header%%\"*}
		case $header in
		*..*) say "$file" "$line" "$header" "headers are named from their root" ;;
		esac
		[ "$header" = plugin/plugin.h ] || [ -f "$dir/$header" ] && continue
		case $public in
		*$'\n'"$header"$'\n'*) continue ;;
		esac
		if [ -f "$root/$header" ]; then
			case " $(plugin_rooms "$dir") " in
			*" ${header%%/*} "*) ;;
			*) say "$file" "$line" "$header" "$dir sees only: $(plugin_rooms "$dir")" ;;
			esac
			case $header in
			*_priv.h) [ "$dir" = "$root/${header%%/*}" ] || say "$file" "$line" "$header" "private to ${header%%/*}" ;;
			esac
			continue
		fi
		say "$file" "$line" "$header" "a plugin includes plugin/plugin.h, what that includes, and its own headers"
	done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file")
done

# The compiler finds our headers in angle brackets, too, and what a macro names; the rules above do not.
while IFS=: read -r file line header; do
	header=${header#*<}
	header=${header%%>*}
	for root in src plugins/*; do
		[ ! -f "$root/$header" ] || say "$file" "$line" "$header" "a header of ours is named in quotes"
	done
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<' -r src plugins --include='*.[ch]')
while IFS=: read -r file line text; do
	say "$file" "$line" "${text#*include}" "a header is named, not made by a macro"
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[^[:space:]<"]' -r src plugins --include='*.[ch]')

for file in $mpi_files $dnnl_files $memory_files; do
	[ -f "$file" ] || say "$file" 1 "" "is exempted from a rule, but there is no such file"
done
while IFS=: read -r file line _; do
	case " $mpi_files " in
	*" $file "*) ;;
	*) say "$file" "$line" mpi.h "only $mpi_files call MPI" ;;
	esac
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]mpi\.h' -r src plugins --include='*.[ch]')

while IFS=: read -r file line _; do
	say "$file" "$line" nccl.h "nobody calls NCCL: a transport over it has its file in the table"
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]nccl\.h' -r src plugins --include='*.[ch]')

while IFS=: read -r file line _; do
	case $file in
	src/backend/cpu/dnn.c | src/backend/cpu/dnn_api.h) ;;
	*) say "$file" "$line" "oneDNN" "only src/backend/cpu/dnn.c and its dnn_api.h know the library" ;;
	esac
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"](oneapi/dnnl|dnnl)' -r src plugins --include='*.[ch]')

# --- rules of content ---

# FILE:LINE:TEXT of every line; what parentheses hold together over several lines is one, so that a call reads as one, however it is
# broken. Parentheses in texts, characters and comments do not count.
joined=$(mktemp "${TMPDIR:-/tmp}/dn-joined.XXXXXX") || exit 1
trap 'rm -f "$joined"' EXIT
find src plugins -name '*.[ch]' | sort | xargs awk '
	function put() { if (whole != "") print file ":" first ":" whole; whole = ""; depth = lines = 0 }
	FNR == 1 { put(); file = FILENAME; comment = 0 }
	{
		bare = $0
		if (comment && !sub(/^.*\*\//, "", bare))
			bare = ""
		else
			comment = 0
		gsub(/\\./, "", bare)
		gsub(/"[^"]*"/, "", bare)
		gsub(/\047[^\047]*\047/, "", bare)
		gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", bare)
		sub(/\/\/.*/, "", bare)
		if (!comment && sub(/\/\*.*/, "", bare))
			comment = 1
		depth += gsub(/\(/, "", bare) - gsub(/\)/, "", bare)
		if (whole == "")
			first = FNR
		text = $0
		if (whole != "")
			sub(/^[ \t]+/, " ", text)
		whole = whole text
		if (depth <= 0 || ++lines >= 20)
			put()
	}
	END { put() }' > "$joined"

rule() { # PATTERN FOLDERS EXCEPT MESSAGE: lines of C sources that match; EXCEPT (a pattern over FILE:LINE:TEXT) is allowed
	local pattern=$1 folders=$2 except=$3 message=$4 file line text
	while IFS=: read -r file line text; do
		printf '%s:%s:%s' "$file" "$line" "$text" | grep -qE "$except" && continue
		echo "check-includes: $file:$line: $message" >&2
		bad=1
	done < <(grep -E "^(${folders// /|})(/|:)" "$joined" | grep -E "$pattern")
}

# Tensors, shards and slots are device memory: only back ends copy or fill them. Rooms that hold pointers to them say of each
# memcpy what it copies: host memory.
rule '\b(memcpy|memmove|memset|bcopy)[[:space:]]*\(' \
	'src/graph/layers src/graph/pass.c src/graph/memory.c src/graph/carry.c src/train plugins/fsdp/run' \
	'host memory|memset\([^,]*, 0, sizeof\(' \
	'memcpy in a room of tensors: be->copy and be->zero touch device memory; otherwise say "host memory" on the line'
rule '\b(memcpy|memmove|memset|memcmp)[[:space:]]*\(.*(->|\.)(value|grad|stat|output|delta|acc|cost)\b' 'src plugins' \
	'^src/backend/' 'tensor memory is touched outside the back ends'
# Keys are read by table (base/keyrule.h), so that help and unknown keys follow from the same entry.
while IFS=: read -r file line _; do
	case $file in
	src/base/keyfile.[ch] | src/base/keyrule.c) ;;
	*) say "$file" "$line" "base/keyfile.h" "its getters are for keyrule.c; others call dn_key_*()" ;;
	esac
done < <(grep -E 'dn_section_(int|float|text)s?[[:space:]]*\(' "$joined")

# The core takes a plugin's settings from struct dn_run, which its init fills, and asks for none by its key.
while IFS=: read -r file line _; do
	echo "check-includes: $file:$line: asks a plugin's options for a key: a field of struct dn_run says what the core may know" >&2
	bad=1
done < <(grep '^src/' "$joined" | grep -E 'dn_options_(text|int|float|on|find|given)[[:space:]]*\([^,]*plugin_options, *"')

# Nor by its name alone.
for key in $(grep -ohE '\.key = "[a-z_]+"' plugins/*/*.c plugins/*/*/*.c 2> /dev/null | sed 's/.*"\(.*\)"/\1/' | sort -u); do
	grep -qE "\.key = \"$key\"|[[:space:]]X\($key, " -r src && continue # the core has a flag of this name, too
	rule "dn_options_[a-z]+\([^;]*\"$key\"" 'src' '^$' "a key of a plugin ($key) is asked for in the core"
done
# Types of layers differ by what their row in the table says, never by name.
rule '(strcmp|strncmp|strcasecmp)[[:space:]]*\(.*ops->(name|alias)' 'src plugins' '^src/graph/layer\.c:' \
	'the name of a layer is compared outside the table of layers: let the row in the table say what differs'
rule '(==|!=)[[:space:]]*&[a-z_0-9]+_layer\b' 'src plugins' '^$' \
	'a layer is told by its table entry: let the row in the table say what differs'

[ $bad -eq 0 ] && echo "check-includes: clean"
exit $bad
