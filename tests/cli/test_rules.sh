#!/usr/bin/env bash
# scripts/check-includes.sh finds each kind of thing that it forbids: a copy of the sources with one line more.
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

trips() { # trips FILE LINE MESSAGE: FILE gets LINE as its last one
	cases=$((cases + 1))
	fresh
	printf '%s\n' "$2" >> "$tmp/tree/$1"
	if scripts/check-includes.sh "$tmp/tree" > "$tmp/out" 2>&1; then
		failed=$((failed + 1))
		echo "FAILED $1: not found: $2"
	elif ! grep -qF "$3" "$tmp/out" || ! grep -qF "$1:" "$tmp/out"; then
		failed=$((failed + 1))
		echo "FAILED $1: $2: wanted \"$3\", found:"
		cat "$tmp/out"
	fi
}

clean
trips src/base/mem.c '#include "graph/net.h"' 'base sees only'
trips src/data/loader.c '#include "backend/backend.h"' 'data sees only'
trips src/graph/layers/conv.c '#include "backend/cpu/cpu_priv.h"' 'layers see backend/backend.h only'
trips src/train/loop.c '#include "graph/graph_priv.h"' 'private to graph'
trips plugins/fsdp/plan/plan.c '#include "comm/mesh.h"' 'sees only'
trips plugins/fsdp/comm/collective.c '#include "plan/plan.h"' 'sees only'
trips plugins/fsdp/run/runtime.c '#include "plan/plan_priv.h"' 'private to plan'
trips plugins/fsdp/plan/plan.c '#include <mpi.h>' 'call MPI'
trips plugins/fsdp/run/runtime.c '#include <nccl.h>' 'calls NCCL'
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

echo "rules: $cases cases, $failed failed"
[ $failed -eq 0 ]
