#!/usr/bin/env bash
# Values and gradients of 16 bits under mpirun (T16, T37): the same bits over MPI and over shared memory and under strategies that
# round the same, on all ranks; planned and counted bytes; checkpoints hold what was not rounded; ranks of other formats are refused.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg

sum_of() {
	cat "$tmp/backup"/*_final.weights | sha256sum
}

# counted TEXT: traffic and memory of the last run are as planned, on every rank
counted() {
	python3 - "$tmp/log" <<-'EOF' || bad "$1: planned and counted differ"
	import json, sys
	ranks = [r for line in open(sys.argv[1]) for r in json.loads(line).get("ranks", [])]
	assert len(ranks) > 1
	for rank in ranks:
	    for k in ("gather", "reduce"):
	        t = rank[k]
	        assert t["counted_bytes"] == t["planned_bytes"] and t["counted_calls"] == t["planned_calls"], (k, t)
	    for r in rank["regions"]:
	        assert r["measured_bytes"] == r["planned_bytes"], r
	EOF
}

# same N KEYS...: runs of STRATEGY lines on standard input, each over both fabrics, have one set of bits
same() {
	local n=$1 want= way over got
	shift
	while read -r way; do
		for over in mpi shm; do
			rm -rf "$tmp/backup"
			# shellcheck disable=SC2086
			ranks "$n" -log "$tmp/log" -clear "$@" -fsdp.collectives $over -fsdp.strategy $way
			[ "$status" = 0 ] || { bad "$n ranks, $* $way, $over: status $status"; tail -n 5 "$tmp/err"; continue; }
			got=$(sum_of)
			want=${want:-$got}
			echo "$n ranks, $*, $way, $over: ${got:0:16}"
			[ "$got" = "$want" ] || bad "$n ranks, $*, $way, $over: other bits"
			counted "$n ranks, $* $way, $over"
		done
	done
	last=$want
}

for n in ${NP:-2 3 4}; do
	[ "$n" -gt 1 ] || continue
	net "$cfg" 1 12
	sed -i 's/^subdivisions=.*/subdivisions=2/' "$cfg"
	same "$n" -fsdp.wire fp32 <<< 'full'
	plain=$last
	same "$n" -fsdp.wire bf16 -fsdp.reduce fp16 -fsdp.verify replicas:1 <<< "$(printf '%s\n' full opt 'grad_op -fsdp.prefetch none')"
	[ "$last" != "$plain" ] || bad "$n ranks: nothing was rounded"
	[ "$n" = 4 ] || continue
	same 4 -fsdp.wire fp16 <<< "$(printf '%s\n' 'full -fsdp.release 2' 'hybrid_full -fsdp.shard 2' 'hybrid_full_opt -fsdp.shard 2')"
	same 4 -fsdp.wire bf16 -fsdp.reduce bf16 -fsdp.accumulate hybrid_last <<< "$(printf '%s\n' 'hybrid_full -fsdp.shard 2' \
		'hybrid_full_opt -fsdp.shard 2')"
done

# a run that is stopped goes on under another strategy: what was saved is what was updated, not what the others have heard of
net "$cfg" 1 10
ranks 2 -log "$tmp/log" -clear -fsdp.wire bf16
want=$(sum_of)
for way in 'full opt' 'opt full' 'opt grad_op'; do
	rm -rf "$tmp/backup"
	sed -i 's/^max_batches=.*/max_batches=5/' "$cfg"
	ranks 2 -save_every 5 -fsdp.wire bf16 -fsdp.strategy "${way% *}"
	[ "$status" = 0 ] || { bad "save of $way: status $status"; tail -n 5 "$tmp/err"; }
	sed -i 's/^max_batches=.*/max_batches=10/' "$cfg"
	ranks 2 -save_every 5 -resume "$tmp/backup/net.ckpt/5" -fsdp.wire bf16 -fsdp.strategy "${way#* }"
	[ "$status" = 0 ] || { bad "$way: status $status"; tail -n 5 "$tmp/err"; }
	[ "$(sum_of)" = "$want" ] || bad "$way: other bits than without the stop"
	"$bin" fsdp verify "$tmp/backup/net.ckpt/10" > "$tmp/out" 2>&1 || { bad "$way: verify"; cat "$tmp/out"; }
	"$bin" fsdp consolidate "$tmp/backup/net.ckpt/10" "$tmp/all.weights" > /dev/null || bad "$way: consolidate"
	cmp -s "$tmp/all.weights" "$tmp/backup/net_final.weights" || bad "$way: the consolidated file is another"
done

# evaluation of the same file, by ranks that gather rounded values and by ranks that have them whole
for way in full opt; do
	scripts/run-mpi.sh 2 "$bin" classifier valid "$tmp/x.data" "$cfg" "$tmp/backup/net_final.weights" -threads 1 -fsdp.wire bf16 \
		-fsdp.strategy $way > "$tmp/out" 2> "$tmp/err" < /dev/null || { bad "evaluation, $way"; tail -n 5 "$tmp/err"; }
	grep -q '^360 images: top 1: 0\.' "$tmp/out" || bad "evaluation, $way: $(tail -n 1 "$tmp/out")"
done

# formats are agreed on before anything is sent
for key in wire reduce; do
	printf '#!/usr/bin/env bash\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec "$@"\nexec "$@" -fsdp.%s bf16\n' $key > "$tmp/wrap.sh"
	chmod +x "$tmp/wrap.sh"
	wrap=("$tmp/wrap.sh")
	ranks 2 -clear
	wants 1 "fsdp.$key" "another $key on rank 1"
	wrap=()
	ranks 2 -clear -fsdp.$key fp64
	wants 1 "-fsdp.$key fp64: unknown; this version supports fp32, bf16, fp16" "no $key"
done

# said before the first step: what it costs, and where it does nothing
"$bin" fsdp plan "$cfg" -world 4 -fsdp.wire bf16 -fsdp.reduce fp16 > "$tmp/out" || bad 'plan'
grep -q '^values travel as bf16: error of each at most 2^-8 of it$' "$tmp/out" || bad 'plan: error of values'
grep -q '^gradients travel as fp16: error of a sum at most 2^-11 of the sum of |g| over ranks + 2^-25 for each$' "$tmp/out" || bad 'plan: error of sums'
"$bin" fsdp plan "$cfg" -world 4 -fsdp.wire bf16 -fsdp.strategy replicate > "$tmp/out" || bad 'plan of replicate'
grep -q '^wire=bf16 has no effect: no values travel$' "$tmp/out" || bad 'plan: no values travel'
ranks 2 -clear -fsdp.wire bf16 -fsdp.strategy replicate
wants 0 'wire=bf16 has no effect: no values travel' 'replicate'
"$bin" fsdp plan "$cfg" -world 4 -json -fsdp.wire bf16 -fsdp.reduce fp16 -fsdp.strategy opt > "$tmp/plan.json" || bad 'plan -json'
python3 - "$tmp/plan.json" <<-'EOF' || bad 'plan -json'
	import json, sys
	p = json.load(open(sys.argv[1]))
	c = p["collectives"]
	assert (c["wire"], c["reduce"]) == ("bf16", "fp16")
	size = {"fp32": 4, "bf16": 2, "fp16": 2}
	for x in c["calls"]:
	    want = {"values": "bf16", "gradients": "fp16"}.get(x["of"], "fp32")
	    assert x["type"] == want and x["sent_bytes"] == (x["ranks"] - 1) * x["elements"] * size[want], x
	for b in p["blocks"]:
	    assert b["wire"] == "bf16" and b["master_bytes"] == b["state_bytes"], b
	region = {r["name"]: r["planned_bytes"] for r in p["regions"]}
	assert region["params"] == sum(b["shard_bytes"] + b["master_bytes"] for b in p["blocks"]), region
	EOF
finish
