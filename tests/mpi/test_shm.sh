#!/usr/bin/env bash
# Collectives over shared memory: the same bits, traffic and exact memory as over MPI, chosen where all ranks share a host and there
# is room, refused where they cannot be and somebody wants them; nothing is left in /dev/shm.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 1 12 900
sed -i 's/^subdivisions=.*/subdivisions=2/' "$cfg"

left() { # files of this program in /dev/shm; those of MPI are its own
	find /dev/shm -name '*darknet*' 2> /dev/null | wc -l
}

# train NAME N FLAGS...
train() {
	local name=$1 n=$2
	shift 2
	ranks "$n" -backup "$tmp/b.$name" -log "$tmp/$name.log" -valid 5 "$@"
	[ $status = 0 ] || { bad "$name: status $status"; tail -n 20 "$tmp/err"; }
}

# over NAME WHAT: the run's collectives; planned and measured bytes and traffic of all ranks agree
over() {
	python3 - "$tmp/$1.log" "$2" <<-'EOF' || bad "$1: not over $2, or not as planned"
	import json, sys
	log = [json.loads(l) for l in open(sys.argv[1])]
	start, end = [[e for e in log if e["event"] == k][0] for k in ("start", "end")]
	name = start["options"]["fsdp.collectives"]
	off = [(r["rank"], x) for r in end["ranks"] for x in r["regions"] if x["planned_bytes"] != x["measured_bytes"]]
	off += [(r["rank"], r[k]) for r in end["ranks"] for k in ("gather", "reduce")
	        if r[k]["planned_bytes"] != r[k]["counted_bytes"] or r[k]["planned_calls"] != r[k]["counted_calls"]]
	print("%s: %s, %d ranks, %d differences" % (sys.argv[1].split("/")[-1], name, len(end["ranks"]), len(off)), *off[:3])
	sys.exit(name != sys.argv[2] or bool(off) or end["allocs_after_first_step"] != 0)
	EOF
}

same() { # same NAME NAME: losses, weights files
	cmp -s <(losses "$tmp/$1.log") <(losses "$tmp/$2.log") || bad "$1 and $2: losses differ"
	cmp -s "$tmp/b.$1/net_final.weights" "$tmp/b.$2/net_final.weights" || bad "$1 and $2: weights differ"
	[ "$(losses "$tmp/$1.log" | wc -l)" = 12 ] || bad "$1: $(losses "$tmp/$1.log" | wc -l) steps"
}

for n in ${NP:-1 2 3 4}; do
	train "mpi$n" "$n" -fsdp.collectives mpi
	train "shm$n" "$n" -fsdp.collectives shm -fsdp.limit 3
	train "auto$n" "$n" -fsdp.prefetch none
	over "mpi$n" mpi
	over "shm$n" shm
	if [ "$n" = 1 ]; then # nobody to share with
		grep -q '"fsdp.collectives":"\(mpi\|local\)"' "$tmp/auto1.log" || bad "auto alone"
	else
		over "auto$n" shm
	fi
	same "shm$n" "mpi$n"
	same "auto$n" "mpi$n"
	# what is printed before and what is planned offline says the same
	grep -aq "fsdp.collectives=shm" "$tmp/err" || [ "$n" = 1 ] || bad "auto$n: printed as something else"
	hash=$("$bin" fsdp plan "$cfg" -world "$n" -json -threads 1 -fsdp.prefetch none | grep -o '"hash":"[0-9a-f]*"' | cut -d'"' -f4)
	grep -q "\"plan_hash\":\"$hash\"" "$tmp/auto$n.log" || bad "auto$n: another plan than offline ($hash)"
done
[ "$(left)" = 0 ] || bad "$(left) files are left in /dev/shm"

# no launcher: a window of one's own
"$bin" classifier train "$tmp/x.data" "$cfg" -threads 1 -fsdp.collectives shm -backup "$tmp/b.own" -log "$tmp/own.log" -valid 5 \
	> "$tmp/out" 2> "$tmp/err" < /dev/null || { bad "shm without a launcher"; tail -n 5 "$tmp/err"; }
over own shm

# a file system that is too small for the windows, with or without MPI's own files there
small() { # small SIZE NAME FLAGS...
	local size=$1 name=$2
	shift 2
	unshare -m bash -c 'mount -t tmpfs -o size="$0" tmpfs /dev/shm && exec "$@"' "$size" \
		scripts/run-mpi.sh 2 "$bin" classifier train "$tmp/x.data" "$cfg" -threads 1 -valid 5 \
		-backup "$tmp/b.$name" -log "$tmp/$name.log" "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null
	status=$?
}
if unshare -m true 2> /dev/null; then
	[ -e "$tmp/mpi2.log" ] || train mpi2 2 -fsdp.collectives mpi
	export MPIRUN_FLAGS="${MPIRUN_FLAGS:-} --mca btl_vader_backing_directory $tmp"
	small 128k small
	wants 0 "collectives=auto: mpi, not shm: rank 0: windows: /dev/shm has 128 KiB free, the windows of 2 ranks take" "too small"
	over small mpi
	same small mpi2
	small 128k forced -fsdp.collectives shm
	wants 1 "-fsdp.collectives shm: rank 0: windows: /dev/shm has 128 KiB free" "too small, and wanted"
	small 64m large
	over large shm
	same large mpi2
else
	echo "SKIP /dev/shm of another size: unshare -m is not permitted"
fi

# memory that the host cannot reach
far=${B:-build/release}/far/bin/darknet
if [ -x "$far" ]; then
	bin=$far
	export DARKNET_TEST_BACKEND=far
	ranks 2 -backend far -backup "$tmp/b.far" -fsdp.collectives shm
	wants 1 "-fsdp.collectives shm: other ranks cannot reach this back end's memory" "a far device, and wanted"
	train far 2 -backend far
	grep -aqF "collectives=auto: mpi, not shm: other ranks cannot reach" "$tmp/err" || bad "a far device: no line"
	over far mpi
fi
finish
