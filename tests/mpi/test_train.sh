#!/usr/bin/env bash
# Training with 1 to 4 ranks of processes against one process.
#
# One rank with the plugin has the bits of none, for every subdivisions and with batch normalisation. Two ranks have the bits of
# two subdivisions: the same sums in the same order. Other worlds add in another order: 1e-5 relative on the losses of
# 20 steps (single precision rounds a loss to 6e-8, and the net is smooth).
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg

same() { # same NAME A B: final weights and losses of runs A and B
	cmp -s "$tmp/$2/net_final.weights" "$tmp/$3/net_final.weights" || bad "$1: final weights differ"
	[ "$(losses "$tmp/$2.log")" = "$(losses "$tmp/$3.log")" ] || bad "$1: losses differ"
	[ "$(losses "$tmp/$2.log" | wc -l)" = 20 ] || bad "$1: not 20 steps"
	echo "$1: compared"
}

run() { # run NAME RANKS FLAGS...
	local name=$1
	shift
	ranks "$@" -backup "$tmp/$name" -log "$tmp/$name.log"
	[ $status = 0 ] || { bad "$name: status $status"; tail -n 20 "$tmp/err"; }
}

for bn in 0 1; do
	net "$cfg" $bn 20
	for sub in 1 3; do
		run p$bn$sub 0 -subdivisions $sub
		run f$bn$sub 1 -subdivisions $sub
		same "batch_normalize=$bn subdivisions=$sub: 1 rank and no plugin" p$bn$sub f$bn$sub
	done
done

net "$cfg" 0 20
run sub2 0 -subdivisions 2
for n in ${NP:-1 2 3 4}; do
	run ranks$n "$n"
	paste <(losses "$tmp/ranks$n.log") <(losses "$tmp/p01.log") | awk -v n="$n" '
		NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; k++ }
		END { printf "%d ranks: %d losses, largest relative difference %.2g\n", n, k, worst; exit !(k == 20 && worst <= 1e-5) }' ||
		bad "$n ranks: losses"
	[ "$n" = 2 ] && same "2 ranks and 2 subdivisions" sub2 ranks2
	python3 - "$tmp/ranks$n.log" "$n" <<-'EOF' || bad "$n ranks: end event"
	import json, sys
	end = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "end"][-1]
	n = int(sys.argv[2])
	assert end["allocs_after_first_step"] == 0, end["allocs_after_first_step"]
	assert len(end["ranks"]) == n
	for r in end["ranks"]:
	    for g in r["regions"]:
	        assert g["planned_bytes"] == g["measured_bytes"], (r["rank"], g)
	    for q in ("gather", "reduce"):
	        assert r[q]["planned_bytes"] == r[q]["counted_bytes"], (r["rank"], q, r[q])
	        assert r[q]["planned_calls"] == r[q]["counted_calls"], (r["rank"], q, r[q])
	EOF
done

# a weights file read by every rank, or by rank 0 and sent; then the same answers for every image as one process gives
net "$cfg" 1 20
for how in each rank0; do
	scripts/run-mpi.sh 3 "$bin" classifier train "$tmp/x.data" "$cfg" "$tmp/f11/net_final.weights" -clear -threads 1 \
		-fsdp.load $how -backup "$tmp/$how" -log "$tmp/$how.log" > "$tmp/out" 2> "$tmp/err" || bad "load=$how"
done
same "load=each and load=rank0" each rank0
scripts/run-mpi.sh 3 "$bin" classifier valid "$tmp/x.data" "$cfg" "$tmp/f11/net_final.weights" -threads 1 > "$tmp/valid3" 2> "$tmp/err" ||
	bad "valid on 3 ranks"
"$bin" classifier valid "$tmp/x.data" "$cfg" "$tmp/f11/net_final.weights" -threads 1 -plugin none > "$tmp/valid1" 2> "$tmp/err" ||
	bad "valid on one process"
cmp "$tmp/valid1" "$tmp/valid3" || bad "valid differs"
echo "valid: $(tail -n 1 "$tmp/valid3")"

# MPI without a launcher is one rank as well
run single 0
"$bin" classifier train "$tmp/x.data" "$cfg" -threads 1 -fsdp.collectives mpi -backup "$tmp/mpi1" -log "$tmp/mpi1.log" \
	> "$tmp/out" 2> "$tmp/err" || { bad "collectives=mpi alone"; tail -n 5 "$tmp/err"; }
same "collectives=mpi alone" single mpi1
finish
