#!/usr/bin/env bash
# Figures, one line each, medians of 5 interleaved runs:
#   darknet19, one image of 256 x 256 on one thread: ours, the rate of oneDNN's square product, Debian's library where it is installed
#   a training step of it (forward, backward, update), four images of 128 x 128 on two threads
#   a step of the digits net without the plugin, and with it on 1 and 2 ranks; ratio = without / with, so higher is better
# of_sgemm: share of the product's rate; of_peer: how many times as fast as Debian's library.
# The machine should be idle: a second program on its cores halves two threads' figures.
#   gathers and reductions of a block of 64 MiB between 2 and 4 ranks, over shared memory and channels; ratio = MPI's own / ours
#   STEPS (40, of a run), NP ("1 2"), B (build/release): as elsewhere; PROFILE=1: the time of each layer and op of darknet19 instead
set -eu -o pipefail
cd "$(dirname "$0")/.."
B=${B:-build/release}
bin=$B/bin/darknet
out=$B/bench
programs=$B/tests/bench # by make
steps=${STEPS:-40}
net=tests/bench/darknet19.cfg
peer=${PEER_LIB:-/usr/lib/darknet/libdarknet.so}
rm -rf "$out"
mkdir -p "$out"
sed "s/^max_batches=.*/max_batches=$steps/" cfg/digits-fsdp.cfg > "$out/bench.cfg"

# --- one net through the library ---
if [ "${PROFILE:-0}" = 1 ]; then
	"$programs/bench" forward $net 1 size=256 profile=1 runs=10
	"$programs/bench" train $net 1 size=128 batch=4 profile=1
	"$programs/bench" train $net 2 size=128 batch=4 profile=1
	exit
fi
if [ -e "$peer" ]; then
	"$programs/bench" forward $net 1 size=256 peer="$peer"
else
	echo "SKIP bench peer: the package darknet is not installed (apt-get install darknet)" >&2
	"$programs/bench" forward $net 1 size=256
fi
"$programs/bench" train $net 1 size=128 batch=4
"$programs/bench" train $net 2 size=128 batch=4

# --- collectives of one host ---
for n in 2 4; do
	scripts/run-mpi.sh $n "$programs/collectives" < /dev/null
done

# --- the plugin ---
one() { # NAME RUN COMMAND...
	local name=$1 log=$out/$1-$2.jsonl
	shift 2
	"$@" train cfg/digits.data "$out/bench.cfg" -threads 1 -backup "$out/$name" -log "$log" ${plugin:+-plugin $plugin} \
		> /dev/null 2> "$out/$name.err" < /dev/null || { cat "$out/$name.err" >&2; exit 1; }
}

for run in 1 2 3 4 5; do
	plugin=none
	one plain $run "$bin"
	plugin=
	for n in ${NP:-1 2}; do
		one "fsdp$n" $run scripts/run-mpi.sh "$n" "$bin"
	done
done
# the median of each run's steps but the first ten, then that of the runs
python3 - "$out" ${NP:-1 2} << 'PY'
import json, statistics, sys
out, ranks = sys.argv[1], sys.argv[2:]

def seconds(name):
    runs = []
    for run in range(1, 6):
        with open('%s/%s-%d.jsonl' % (out, name, run)) as f:
            steps = [json.loads(l) for l in f]
        runs.append(statistics.median(s['seconds'] for s in steps if s['event'] == 'step' and s['step'] > 10))
    return statistics.median(runs)

base = seconds('plain')
print('bench: step plain ranks=1 threads=1 seconds=%.6f' % base)
for n in ranks:
    t = seconds('fsdp' + n)
    print('bench: step fsdp ranks=%s threads=1 seconds=%.6f ratio=%.3f' % (n, t, base / t))
PY
