#!/usr/bin/env bash
# Ranks whose math has another instruction set: a warning with both hosts, refused with -strict; the log says which it is.
. "$(dirname "$0")/lib.bash"

cfg=$tmp/net.cfg
net "$cfg" 0 2
host=$(hostname | cut -c 1-63)

ranks 2 -clear -log "$tmp/log"
[ "$status" = 0 ] || bad "alike: status $status"
! grep -aq 'instruction set' "$tmp/err" || bad 'alike, but said to differ'
isa=$(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["isa"])' "$tmp/log") || bad 'no isa in the log'
[ "$isa" != sse41 ] && [ -n "$isa" ] || bad "this host has $isa: nothing can differ from it"

only_rank 1 'export ONEDNN_MAX_CPU_ISA=SSE41'
differ="rank 0 on $host has $isa, rank 1 on $host has sse41"
ranks 3 -clear
[ "$status" = 0 ] || bad "different: status $status: $(tail -n 1 "$tmp/err")"
[ "$(grep -ac "^warning: ranks differ in the instruction set of the math: $differ" "$tmp/err")" = 1 ] || {
	bad 'different, but not one warning'
	cat "$tmp/err"
}
ranks 3 -clear -strict
wants 1 "$differ" 'different, strict'
[ "$(grep -ac '^darknet:' "$tmp/err")" = 1 ] || bad 'refused by more than one line'
wrap=(env ONEDNN_MAX_CPU_ISA=SSE41)
ranks 2 -clear -strict
[ "$status" = 0 ] || bad "all of them sse41: status $status: $(tail -n 1 "$tmp/err")"
finish
