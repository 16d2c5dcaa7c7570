#!/usr/bin/env bash
# What objects import, however the sources spell it (a call over two lines, a prototype of one's own, a macro): no room imports what
# a room to its right defines, libraries are called where the table says, memory comes from base/mem, and plan is pure.
# usage: scripts/check-symbols.sh OBJ [TREE]    OBJ: BUILD/obj; TREE: the sources it was made of
set -u
obj=$(cd "${1:?usage: scripts/check-symbols.sh OBJ [TREE]}" && pwd) || exit 1
. "$(dirname "$0")/rooms.sh"
cd "${2:-$(dirname "$0")/..}" || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/dn-symbols.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
bad=0

say() {
	echo "check-symbols: $*" >&2
	bad=1
}

for file in $mpi_files $dnnl_files $memory_files; do
	[ -f "$file" ] || say "$file: is exempted from a rule, but there is no such file"
done

# "FILE.c SYMBOL", defined and undefined, of every source that is there
objects=()
missing=()
while read -r file; do
	if [ -f "$obj/${file%.c}.o" ]; then
		objects+=("${file%.c}.o")
	else
		missing+=("$file")
	fi
done < <(find src plugins -name '*.c' | sort)
[ ${#missing[@]} -eq 0 ] || say "${missing[0]}: $obj has no object of it (nor of $((${#missing[@]} - 1)) more): build first"
[ ${#objects[@]} -gt 0 ] || exit 1
symbols() { (cd "$obj" && nm -A -g "$@" "${objects[@]}") | sed -n 's/^\([^:]*\)\.o:.* \([^ ]*\)$/\1.c \2/p'; }
symbols --defined-only > "$work/defined"
symbols --undefined-only > "$work/imports"

# "ROOM OTHER": what may be
for room in $rooms; do
	for other in $(allowed "$room"); do
		echo "src/$room src/$other"
	done
done > "$work/may"
for dir in $(find plugins -name '*.c' -exec dirname {} \; | sort -u); do
	root=plugins/$(echo "$dir" | cut -d/ -f2)
	echo "$dir $dir"
	for other in $(plugin_rooms "$dir"); do
		echo "$dir $root/$other"
	done
	for room in $rooms; do
		[ "$room" = cli ] || echo "$dir src/$room"
	done
done >> "$work/may"
# what headers at a plugin's root declare is for all of its folders
cat plugins/*/*.h 2> /dev/null | grep -oE '\b[a-z_0-9]+[(;,]' | tr -d '(;,' | sort -u > "$work/words"

while read -r message; do
	say "$message"
done < <(awk -v root="src/backend" '
	function room(f, a, n) { n = split(f, a, "/"); return a[1] == "src" ? a[1] "/" a[2] : n > 3 ? a[1] "/" a[2] "/" a[3] : a[1] "/" a[2] }
	FILENAME ~ /may$/ { may[$1, $2] = 1; next }
	FILENAME ~ /words$/ { word[$1] = 1; next }
	FILENAME ~ /defined$/ { at[$2] = $1; next }
	{
		here = room($1)
		there = ($2 in at) ? room(at[$2]) : here
		if (here != there && !((here, there) in may) && !($2 in word && here ~ /^plugins/))
			print $1 ": imports " $2 " of " at[$2] ": " here " does not see " there
		if (($2 in at) && at[$2] ~ /^src\/backend\/[a-z]+\// && here != root)
			print $1 ": imports " $2 " of " at[$2] ": back ends are called through their tables"
	}' "$work/may" "$work/words" "$work/defined" "$work/imports")

only() { # only PATTERN FILES MESSAGE [WHERE]: who imports PATTERN (in files that match WHERE) is one of FILES
	local file symbol
	while read -r file symbol; do
		case " $2 " in
		*" $file "*) ;;
		*) say "$file: imports $symbol: $3" ;;
		esac
	done < <(awk -v p="^($1)\$" -v w="${4:-.}" '$2 ~ p && $1 ~ w' "$work/imports")
}

heap='malloc|calloc|realloc|reallocarray|free|posix_memalign|aligned_alloc|memalign|strdup|strndup|v?asprintf|getline|open_memstream'
only 'P?MPI_.*' "$mpi_files" "only $mpi_files call MPI"
only 'dnnl_.*' "$dnnl_files" "only $dnnl_files knows the library"
only "$heap" "$memory_files" 'all memory comes from base/mem.h, which counts it'
only 'exit|abort|v?printf|__v?printf_chk|puts|putchar' '' 'only cli ends the program or prints' '^(src/(base|backend|data|graph|io|train|plugin)|plugins)/'
only 'dn_alloc_region|dn_mem_(take|give)|mmap|mmap64|pthread_.*|sem_.*|f?open|fopen|read|getenv|clock_gettime|dn_now_ns|dn_sleep_us|rand.*|dlopen' '' \
	'plan is pure: no memory of tensors, no files, threads, time or chance' '^plugins/fsdp/plan/'

[ $bad -eq 0 ] && echo "check-symbols: clean"
exit $bad
