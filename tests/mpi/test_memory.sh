#!/usr/bin/env bash
# Memory as the kernel sees it: what planned memory does not cover is small, and does not grow.
#
# Growth: 256 KiB from the second step on, saves and evaluations included. Above planned memory: a rank's high-water mark, less
# that of a net of one neuron, is within 5 % + 16 MiB of the plan (code that the math library generates, MPI's buffers). A page that
# ranks share counts in each that has read it, so with windows it is their parts of it (Pss) that are compared, of all ranks together.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
# a sanitized build keeps freed memory for a while, to tell who uses it: not here, where the kernel's figures are read
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=0:thread_local_quarantine_size_kb=0

cat > "$tmp/peak.py" <<-'EOF'
import os, resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1] + "." + os.environ.get("OMPI_COMM_WORLD_RANK", "0"), "w") as f:
    f.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
sys.exit(status)
EOF

# the largest Pss that is seen, 50 times a second
cat > "$tmp/pss.py" <<-'EOF'
import os, re, subprocess, sys, time
run, most = subprocess.Popen(sys.argv[2:]), 0
while run.poll() is None:
    try:
        text = open("/proc/%d/smaps_rollup" % run.pid).read()
        most = max(most, int(re.search(r"^Pss: *(\d+)", text, re.M).group(1)) * 1024)
    except (OSError, AttributeError):
        pass
    time.sleep(.02)
with open(sys.argv[1] + "." + os.environ.get("OMPI_COMM_WORLD_RANK", "0"), "w") as f:
    f.write(str(most))
sys.exit(run.returncode)
EOF

peak() { # peak NAME RANKS FLAGS...: train, and leave each rank's high-water mark in $tmp/peak.NAME.RANK
	local name=$1
	wrap=(python3 "$tmp/${how:-peak}.py" "$tmp/peak.$name")
	shift
	ranks "$@" -backup "$tmp/b.$name" -log "$tmp/$name.log"
	[ $status = 0 ] || { bad "$name: status $status"; tail -n 20 "$tmp/err"; }
}

# wide layers: buffers of the math library near the size at which the C library changes where it takes memory from
net "$cfg" 1 40 3000
sed -i 's/^filters=9/filters=32/' "$cfg"
for n in 1 2; do
	peak "grow$n" "$n" -valid 11 -save_every 9
	python3 - "$tmp/grow$n.log" "$n" <<-'EOF' || bad "$n ranks: resident memory grows"
	import json, sys
	rss = [e["rss_bytes"] for e in map(json.loads, open(sys.argv[1])) if e["event"] == "step"]
	print("%s ranks: growth from step 2 to %d: %d KiB" % (sys.argv[2], len(rss), (rss[-1] - rss[1]) // 1024))
	sys.exit(rss[-1] - rss[1] > 256 << 10)
	EOF
done

sed -e '/^\[block\]/,$d' -e 's/^max_batches=.*/max_batches=2/' "$cfg" > "$tmp/one.cfg"
printf '[connected]\noutput=1\nactivation=linear\n[connected]\noutput=10\nactivation=linear\n[softmax]\n' >> "$tmp/one.cfg"
cfg=$tmp/one.cfg
peak one 2 -fsdp.collectives mpi
how=pss peak onepss 2 -fsdp.collectives shm
cfg=$tmp/net.cfg
net "$cfg" 0 3 9000
sed -i 's/^filters=9/filters=256/' "$cfg"
peak large 2 -save_every 2 -valid 2 -fsdp.collectives mpi
how=pss peak largepss 2 -save_every 2 -valid 2 -fsdp.collectives shm
for over in mpi shm; do
	"$bin" fsdp plan "$cfg" -world 2 -json -threads 1 -fsdp.collectives $over > "$tmp/plan.$over.json" || bad "plan"
done
python3 - "$tmp" <<-'EOF' || bad "high-water mark"
import json, sys
tmp = sys.argv[1]
def total_of(over):
    total = json.load(open("%s/plan.%s.json" % (tmp, over)))["total_bytes"]
    assert total > 400 << 20, total
    return total
def above_of(r, kind):
    return int(open("%s/peak.large%s.%d" % (tmp, kind, r)).read()) - int(open("%s/peak.one%s.%d" % (tmp, kind, r)).read())
total = total_of("shm")
above = [above_of(r, "pss") for r in (0, 1)]
print("both ranks over shm: planned %.1f MiB, Pss above one neuron" % (2 * total / 2**20), *["%.1f" % (x / 2**20) for x in above])
assert abs(sum(above) - 2 * total) <= 2 * (.05 * total + (16 << 20))
total = total_of("mpi")
for r in (0, 1):
    above = above_of(r, "")
    print("rank %d: planned %.1f MiB, above one neuron %.1f MiB" % (r, total / 2**20, above / 2**20))
    assert abs(above - total) <= .05 * total + (16 << 20)
EOF
finish
