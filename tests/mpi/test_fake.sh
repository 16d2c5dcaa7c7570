#!/usr/bin/env bash
# fake_comm: without a launcher one process trains as rank 0 of N: the memory of the plan of N ranks, to the byte, in every region, the
# traffic of one of N; nothing is saved; what has peers or is no training is refused.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 1 4
sed -i 's/^batch=.*/batch=96/; s/^subdivisions=.*/subdivisions=2/' "$cfg"

# fake FLAGS...: $tmp/err, $status
fake() {
	rm -rf "$tmp/backup" "$tmp/log"
	"$bin" classifier train "$tmp/x.data" "$cfg" -threads 1 -log "$tmp/log" "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null
	status=$?
}

while read -r n way; do
	# shellcheck disable=SC2086
	fake -save_every 2 -valid 2 -fsdp.fake_comm "$n" -fsdp.strategy $way
	[ "$status" = 0 ] || { bad "$n ranks, $way: status $status"; tail -n 5 "$tmp/err"; continue; }
	# shellcheck disable=SC2086
	"$bin" fsdp plan "$cfg" -world "$n" -threads 1 -json -fsdp.collectives mpi -fsdp.strategy $way > "$tmp/plan.json" || bad "plan of $way"
	python3 - "$tmp/log" "$tmp/plan.json" "$n" <<-'EOF' || bad "$n ranks, $way: another memory or traffic than the plan of $n"
	import json, sys
	log, plan, n = [json.loads(l) for l in open(sys.argv[1])], json.load(open(sys.argv[2])), int(sys.argv[3])
	end = log[-1]
	assert log[0]["world"] == n and len(end["ranks"]) == n and end["steps"] == 4, end
	want = {r["name"]: r["planned_bytes"] for r in plan["regions"]}
	for rank in end["ranks"]:
	    assert {r["name"]: r["planned_bytes"] for r in rank["regions"]} == want, (rank["regions"], want)
	    assert all(r["measured_bytes"] == r["planned_bytes"] for r in rank["regions"]), rank["regions"]
	    for k in ("gather", "reduce"):
	        assert rank[k]["counted_bytes"] == plan[k]["planned_bytes"] and rank[k]["counted_calls"] == plan[k]["planned_calls"], rank[k]
	assert end["allocs_after_first_step"] == 0 and sum(e["event"] == "valid" for e in log) == 2
	EOF
	[ -z "$(ls -A "$tmp/backup")" ] || bad "$n ranks, $way: $(ls "$tmp/backup") was written"
	grep -q "^warning: debugging: fake_comm=$n: .* worth nothing, and nothing is saved" "$tmp/err" || bad "$n ranks, $way: no warning"
done <<-EOF
	1 full
	2 full
	8 full
	8 grad_op -fsdp.batch_norm sync
	12 opt
	12 replicate
	16 hybrid_full -fsdp.shard 4 -fsdp.release 2
	16 hybrid_full_opt -fsdp.shard 8 -fsdp.accumulate no_sync
	24 hybrid_grad_op -fsdp.shard 2 -fsdp.clip_norm 1
EOF

fake -fsdp.fake_comm 8 -fsdp.collectives mpi
wants 1 "fake_comm=8 has no peers, but collectives=mpi is for some" "MPI without peers"
fake -fsdp.fake_comm 8 -fsdp.strategy hybrid_full
wants 1 "what fits: 1, 2, 4" "who shares a host is unknown"
fake -fsdp.fake_comm 5
wants 1 "does not split over 5 ranks" "images of five ranks"
ranks 2 -fsdp.fake_comm 8
wants 1 "fake_comm=8 is one process that has no peers, 2 were launched" "two processes"
"$bin" classifier valid "$tmp/x.data" "$cfg" "$tmp/w" -fsdp.fake_comm 8 > "$tmp/out" 2> "$tmp/err"
status=$?
wants 1 "fake_comm=8 is for training" "evaluation"
finish
