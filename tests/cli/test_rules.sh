#!/usr/bin/env bash
# scripts/check-includes.sh and check-symbols.sh find each kind of thing that they forbid: a copy of the sources with some lines more,
# a copy of the objects with one more.
set -u
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-rules.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
cases=0
failed=0

fresh() {
	rm -rf "$tmp/tree"
	mkdir -p "$tmp/tree"
	cp -r src plugins "$tmp/tree"
}

clean() {
	cases=$((cases + 1))
	fresh
	scripts/check-includes.sh "$tmp/tree" > "$tmp/out" 2>&1 && return
	failed=$((failed + 1))
	echo "FAILED the tree itself is not clean:"
	cat "$tmp/out"
}

# Faults are collected in one copy, each in lines of its own, and sought in what one run says.
want=() # "FILE FIRST LAST|MESSAGE|LINES"; lines 0: the message is of the file

trips() { # trips FILE LINES MESSAGE: FILE gets LINES as its last ones
	local n
	cases=$((cases + 1))
	n=$(wc -l < "$tmp/tree/$1")
	printf '%s\n' "$2" >> "$tmp/tree/$1"
	want+=("$1 $((n + 1)) $(wc -l < "$tmp/tree/$1")|$3|$2")
}

found() { # found SCRIPT ARGUMENT...: it fails, and says all that is wanted
	local one file first last text lines
	if "$@" > "$tmp/out" 2>&1; then
		failed=$((failed + 1))
		echo "FAILED $1: nothing found"
	fi
	for one in "${want[@]}"; do
		IFS='|' read -r -d '' file text lines <<< "$one"
		read -r file first last <<< "$file"
		awk -v file="$file:" -v first="$first" -v last="$last" -v text="$text" '
			index($2, file) == 1 && index($0, text) {
				line = substr($2, length(file) + 1) + 0
				ok = ok || (line >= first && line <= last)
			}
			END { exit !ok }' "$tmp/out" && continue
		failed=$((failed + 1))
		echo "FAILED $file: wanted \"$text\" of: $lines"
		grep -F "$file" "$tmp/out"
	done
	want=()
}

clean
fresh
trips src/base/mem.c '#include "graph/net.h"' 'base sees only'
trips src/data/loader.c '#include "backend/backend.h"' 'data sees only'
trips src/graph/layers/conv.c '#include "backend/cpu/cpu_priv.h"' 'layers see backend/backend.h only'
trips src/train/loop.c '#include "graph/graph_priv.h"' 'private to graph'
trips plugins/fsdp/plan/plan.c '#include "comm/mesh.h"' 'sees only'
trips plugins/fsdp/comm/collective.c '#include "plan/plan.h"' 'sees only'
trips plugins/fsdp/run/runtime.c '#include "plan/plan_priv.h"' 'private to plan'
trips plugins/fsdp/plan/plan.c '#include <mpi.h>' 'call MPI'
trips plugins/fsdp/comm/coll_shm.c '#include <mpi.h>' 'call MPI'
trips plugins/fsdp/run/runtime.c '#include <nccl.h>' 'calls NCCL'
trips plugins/fsdp/comm/collective.c '#include <nccl.h>' 'calls NCCL'
trips src/base/mem.c '#include <graph/net.h>' 'named in quotes'
trips plugins/fsdp/plan/plan.c '#include <comm/mesh.h>' 'named in quotes'
trips src/base/mem.c '#include "../graph/net.h"' 'base sees only'
trips plugins/fsdp/plan/plan.c '#include "../comm/mesh.h"' 'named from their root'
trips src/base/mem.c $'#define NET "graph/net.h"\n#include NET' 'not made by a macro'
trips src/backend/cpu/ops.c '#include <oneapi/dnnl/dnnl.h>' 'know the library'
trips src/graph/layers/conv.c 'static void f(float *a, float *b) { memcpy(a, b, 4); }' 'be->copy and be->zero'
trips src/train/whole_store.c 'static void f(float *a, float *b) { memset(a, 0, 4 * n); }' 'be->copy and be->zero'
trips plugins/fsdp/run/runtime.c 'static void f(float *a, float *b) { memmove(a, b, 4); }' 'be->copy and be->zero'
trips src/io/ckpt_save.c 'static void f(struct dn_param *p, float *b) { memcpy(b, p->value, 4); }' 'outside the back ends'
trips src/cli/verb_valid.c 'static int f(void) { return dn_options_int(s->plugin_options, "limit"); }' "asks a plugin's options for a key"
trips src/train/optim.c 'static int f(struct dn_section *s) { return dn_section_int(s, "x", 0, 0, 1, &v); }' 'its getters are for keyrule.c'
trips src/train/run.c 'static int f(void) { return dn_options_int(o, "grad_slots"); }' 'a key of a plugin'
trips src/io/weights.c 'static int f(struct dn_layer *l) { return !strcmp(l->ops->name, "convolutional"); }' 'outside the table of layers'
trips src/graph/block.c 'static int f(struct dn_layer *l) { return l->ops == &dropout_layer; }' 'by its table entry'
# over several lines, with brackets in texts and comments on the way
trips src/io/ckpt_save.c $'static void f(struct dn_param *p, float *b)\n{\n\tmemcpy(b, /* ) */\n\t       p->value, 4);\n}' 'outside the back ends'
trips src/cli/verb_valid.c $'static int f(void)\n{\n\treturn dn_options_int(\n\t\ts->plugin_options,\n\t\t"limit");\n}' "asks a plugin's options for a key"
trips src/train/run.c $'static int f(void)\n{\n\treturn dn_options_int(g(")"),\n\t\t"grad_slots");\n}' 'a key of a plugin'
trips src/io/weights.c $'static int f(struct dn_layer *l)\n{\n\treturn !strcmp(\n\t\tl->ops->name, "convolutional");\n}' 'outside the table of layers'
trips src/train/optim.c $'static int f(struct dn_section *s)\n{\n\treturn dn_section_int (s, "x", 0, 0, 1, &v);\n}' 'its getters are for keyrule.c'

found scripts/check-includes.sh "$tmp/tree"

# an exemption without its file
cases=$((cases + 1))
fresh
mv "$tmp/tree/plugins/fsdp/comm/coll_mpi.c" "$tmp/tree/plugins/fsdp/comm/coll_other.c"
scripts/check-includes.sh "$tmp/tree" > "$tmp/out" 2>&1
for text in 'coll_mpi.c:1: .*no such file' 'coll_other.c:[0-9]*: .*call MPI'; do
	grep -q "$text" "$tmp/out" || { failed=$((failed + 1)); echo "FAILED no \"$text\" when coll_mpi.c has another name"; }
done

# --- what objects import ---
obj=${B:-$PWD/build/release}/obj
cases=$((cases + 1))
scripts/check-symbols.sh "$obj" > "$tmp/out" 2>&1 || { failed=$((failed + 1)); echo "FAILED the objects are not clean:"; cat "$tmp/out"; }

fresh
cp -rs "$obj" "$tmp/obj"
n=0
imports() { # imports FOLDER CODE MESSAGE: a source in FOLDER more, with CODE
	local file
	cases=$((cases + 1))
	n=$((n + 1))
	file=$1/more$n.c
	want+=("$file 0 0|$3|$2")
	printf '%s\n' "$2" > "$tmp/tree/$file"
	gcc -std=gnu11 -c "$tmp/tree/$file" -o "$tmp/obj/${file%.c}.o" || failed=$((failed + 1))
}

imports src/base 'int dn_net_build(void); int f(void); int f(void) { return dn_net_build(); }' 'imports dn_net_build of src/graph/net.c: src/base does not see src/graph'
imports src/data 'extern char dn_layer_table[]; char *f(void); char *f(void) { return dn_layer_table; }' 'imports dn_layer_table of src/graph/layer.c: src/data does not see'
imports src/train 'int session_agree(void); int f(void) { return session_agree(); }' 'imports session_agree of src/cli/session.c: src/train does not see src/cli'
imports src/graph/layers 'extern const char dn_backend_cpu[]; const char *f(void); const char *f(void) { return dn_backend_cpu; }' 'imports dn_backend_cpu of src/backend/cpu/cpu.c: back ends are called through their tables'
imports plugins/fsdp/plan 'int fsdp_mesh_create(void); int f(void) { return fsdp_mesh_create(); }' 'imports fsdp_mesh_create of plugins/fsdp/comm/mesh.c: plugins/fsdp/plan does not see plugins/fsdp/comm'
imports plugins/fsdp/comm 'int fsdp_plan_build(void); int f(void) { return fsdp_plan_build(); }' 'imports fsdp_plan_build of plugins/fsdp/plan/plan.c: plugins/fsdp/comm does not see'
imports plugins/fsdp/plan 'int MPI_Barrier(void); int f(void) { return MPI_Barrier(); }' 'imports MPI_Barrier: only plugins/fsdp/comm/mesh.c'
imports plugins/fsdp/plan 'void *malloc(unsigned long); void *f(void) { return malloc(4); }' 'imports malloc: all memory comes from base/mem.h'
imports plugins/fsdp/plan 'void *dn_alloc_region(int, long); void *f(void) { return dn_alloc_region(0, 4); }' 'imports dn_alloc_region: plan is pure'
imports plugins/fsdp/plan 'int pthread_self(void); int f(void) { return pthread_self(); }' 'imports pthread_self: plan is pure'
imports src/io 'char *strdup(const char *); char *f(void) { return strdup("x"); }' 'imports strdup: all memory comes from base/mem.h'
imports src/graph 'int puts(const char *); int f(void) { return puts("x"); }' 'imports puts: only cli ends the program or prints'
imports src/backend/ref 'int dnnl_memory_create(void); int f(void) { return dnnl_memory_create(); }' 'imports dnnl_memory_create: only src/backend/cpu/dnn.c'
found scripts/check-symbols.sh "$tmp/obj" "$tmp/tree"

cases=$((cases + 1))
fresh
echo 'int x;' > "$tmp/tree/src/base/unbuilt.c"
scripts/check-symbols.sh "$obj" "$tmp/tree" > "$tmp/out" 2>&1
grep -q '^check-symbols: src/base/unbuilt.c: .*build first$' "$tmp/out" || { failed=$((failed + 1)); echo "FAILED a source without its object passes"; }

echo "rules: $cases cases, $failed failed"
[ $failed -eq 0 ]
