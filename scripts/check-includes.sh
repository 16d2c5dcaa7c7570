#!/usr/bin/env bash
# Who may include whom. Left never includes right:
#   base < backend < graph < io < train < plugin < cli;   data sees base only, train and what is right of it see data
# Plugins include plugin/plugin.h (and headers that it includes) and their own headers; mpi.h has three files;
# NAME_priv.h stays in its room; layers never see a backend's folder.
#   and what no file may do: see "rules of content" below.
# usage: scripts/check-includes.sh [TREE]    TREE: another copy of the sources, for the test of these rules
set -u
cd "${1:-$(dirname "$0")/..}" || exit 1
bad=0

say() {
	echo "check-includes: $1:$2: includes $3: $4" >&2
	bad=1
}

allowed() { # rooms that a file of room $1 may include
	case $1 in
	base) echo base ;;
	backend) echo base backend ;;
	data) echo base data ;;
	graph) echo base backend graph ;;
	io) echo base backend graph io ;;
	train) echo base backend graph io data train ;;
	plugin) echo base backend graph io data train plugin ;;
	cli) echo base backend graph io data train plugin cli ;;
	esac
}

check_room() { # FILE ROOM
	local file=$1 room=$2 line header other
	while IFS=: read -r line header; do
		header=${header#*\"}
		header=${header%%\"*}
		case $header in
		*/*) other=${header%%/*} ;;
		*) other=$room ;;       # a header beside the file
		esac
		case " $(allowed "$room") " in
		*" $other "*) ;;
		*) say "$file" "$line" "$header" "$room sees only: $(allowed "$room")" ;;
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
	if [ -z "$(allowed "$room")" ]; then
		say "$file" 1 "" "the room $room is not in the table"
		continue
	fi
	check_room "$file" "$room"
done

# Rooms of the fsdp plugin: plan is pure (no MPI, no memory of tensors), comm moves bytes and knows no plan, run executes; wire.h
# holds the words that both plan and comm use.
plugin_rooms() { # headers that a file of folder $1 may include beside plugin.h and its own
	case $1 in
	plugins/fsdp/plan) echo plan wire.h ;;
	plugins/fsdp/comm) echo comm wire.h ;;
	plugins/fsdp/run) echo plan comm run wire.h ;;
	plugins/fsdp) echo plan comm run ;;
	esac
}

public=$(grep -oE '^#include "[^"]*"' src/plugin/plugin.h | sed 's/.*"\(.*\)"/\1/')
for file in $(find plugins -name '*.[ch]' | sort); do
	dir=$(dirname "$file")
	root=plugins/$(echo "$file" | cut -d/ -f2)
	while IFS=: read -r line header; do
		header=${header#*\"}
		header=${header%%\"*}
		[ "$header" = plugin/plugin.h ] || [ -f "$dir/$header" ] && continue
		printf '%s\n' "$public" | grep -qxF "$header" && continue
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

while IFS=: read -r file line _; do
	case ${file##*/} in
	mesh.c | coll_mpi.c | coll_shm.c) ;;
	*) say "$file" "$line" mpi.h "only mesh.c, coll_mpi.c and coll_shm.c call MPI" ;;
	esac
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]mpi\.h' -r src plugins --include='*.[ch]')

while IFS=: read -r file line _; do
	case $file in
	*/coll_nccl.c) ;;
	*) say "$file" "$line" nccl.h "only coll_nccl.c calls NCCL" ;;
	esac
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]nccl\.h' -r src plugins --include='*.[ch]')

while IFS=: read -r file line _; do
	case $file in
	src/backend/cpu/dnn.c | src/backend/cpu/dnn_api.h) ;;
	*) say "$file" "$line" "oneDNN" "only src/backend/cpu/dnn.c and its dnn_api.h know the library" ;;
	esac
done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"](oneapi/dnnl|dnnl)' -r src plugins --include='*.[ch]')

# Keys are read by table (base/keyrule.h), so that help and unknown keys follow from the same entry.
while IFS=: read -r file line _; do
	case $file in
	src/base/keyfile.[ch] | src/base/keyrule.c) ;;
	*) say "$file" "$line" "base/keyfile.h" "its getters are for keyrule.c; others call dn_key_*()" ;;
	esac
done < <(grep -nE 'dn_section_(int|float|text)s?\(' -r src plugins --include='*.[ch]')

# The core takes a plugin's settings from struct dn_run, which its init fills, and asks for none by its key.
while IFS=: read -r file line _; do
	echo "check-includes: $file:$line: asks a plugin's options for a key: a field of struct dn_run says what the core may know" >&2
	bad=1
done < <(grep -nE 'dn_options_(text|int|float|on|find|given)\([^,]*plugin_options, *"' -r src --include='*.[ch]')

# --- rules of content ---

rule() { # PATTERN FOLDERS EXCEPT MESSAGE: lines of C sources that match; EXCEPT (a pattern over FILE:LINE:TEXT) is allowed
	local pattern=$1 folders=$2 except=$3 message=$4 file line text
	while IFS=: read -r file line text; do
		printf '%s:%s:%s' "$file" "$line" "$text" | grep -qE "$except" && continue
		echo "check-includes: $file:$line: $message" >&2
		bad=1
	# shellcheck disable=SC2086
	done < <(grep -nE "$pattern" -r $folders --include='*.[ch]')
}

# Tensors, shards and slots are device memory: only back ends copy or fill them. Rooms that hold pointers to them say of each
# memcpy what it copies: host memory.
rule '\b(memcpy|memmove|memset|bcopy)[[:space:]]*\(' \
	'src/graph/layers src/graph/pass.c src/graph/memory.c src/graph/carry.c src/train plugins/fsdp/run' \
	'host memory|memset\([^,]*, 0, sizeof\(' \
	'memcpy in a room of tensors: be->copy and be->zero touch device memory; otherwise say "host memory" on the line'
rule '\b(memcpy|memmove|memset|memcmp)[[:space:]]*\(.*(->|\.)(value|grad|stat|output|delta|acc|cost)\b' 'src plugins' \
	'^src/backend/' 'tensor memory is touched outside the back ends'
# Nor by its name alone.
for key in $(grep -ohE '\.key = "[a-z_]+"' plugins/*/*.c plugins/*/*/*.c 2> /dev/null | sed 's/.*"\(.*\)"/\1/' | sort -u); do
	grep -qE "\.key = \"$key\"" -r src && continue # the core has a flag of this name, too
	rule "dn_options_[a-z]+\([^;]*\"$key\"" 'src' '^$' "a key of a plugin ($key) is asked for in the core"
done
# Types of layers differ by what their row in the table says, never by name.
rule '(strcmp|strncmp|strcasecmp)[[:space:]]*\(.*ops->(name|alias)' 'src plugins' '^src/graph/layer\.c:' \
	'the name of a layer is compared outside the table of layers: let the row in the table say what differs'
rule '(==|!=)[[:space:]]*&[a-z_0-9]+_layer\b' 'src plugins' '^$' \
	'a layer is told by its table entry: let the row in the table say what differs'

[ $bad -eq 0 ] && echo "check-includes: clean"
exit $bad
