#!/usr/bin/env bash
# The command line over several ranks: who prints, how errors end the job, and evaluation in list order.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${DARKNET:-$PWD/build/release/bin/darknet}
[ -x "$bin" ] || { echo "cli over ranks: $bin is not built"; exit 1; }
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dn-ranks.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
cases=0
failed=0

fail() {
	echo "FAIL: $*"
	tail -n 5 "$tmp/err"
	failed=$((failed + 1))
}

# run STATUS RANKS ARGUMENT...
run() {
	local want=$1 n=$2 got
	shift 2
	cases=$((cases + 1))
	timeout 120 scripts/run-mpi.sh "$n" "$bin" "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null
	got=$?
	[ $got -eq "$want" ] || fail "$n ranks: darknet $*: status $got, wanted $want"
}

has() { # FILE EXTENDED-REGEX COUNT
	local n
	n=$(grep -cE "$2" "$tmp/$1")
	[ "$n" -eq "$3" ] || fail "$n lines match $2 in $1, wanted $3"
}

sed 's/^max_batches=.*/max_batches=4/; s/^batch=.*/batch=12/' cfg/digits-fsdp.cfg > "$tmp/d.cfg"
data=cfg/digits.data

for n in ${NP:-1 2 3 4}; do
	run 0 "$n" classifier train $data "$tmp/d.cfg" -threads 1 -backup "$tmp/b$n" -log "$tmp/log$n" -save_every 4
	has out '^[0-9]+, [0-9.]+: .* images$' 4
	has out '^Learning Rate: ' 1
	has err '^layer     filters' 1
	# what the cfg leaves open is logged as it was settled; one rank has nobody to share memory with
	over=shm
	[ "$n" = 1 ] && over=mpi
	has "log$n" "\"fsdp.depth\":[0-9]+,.*\"fsdp.collectives\":\"$over\",.*\"fsdp.save_every\":\"4\",\"fsdp.keep\":3" 1
	run 0 "$n" classifier valid $data "$tmp/d.cfg" "$tmp/b$n/d_final.weights" -threads 1
	has out '^data/digits/valid-images.idx:[0-9]+, ' 360
	has out '^360 images: top 1: ' 1
	cases=$((cases + 1))
	grep '^data/' "$tmp/out" | cut -d, -f1 | sed 's/.*://' > "$tmp/order"
	seq 0 359 | cmp -s - "$tmp/order" || fail "$n ranks: images in list order"
	# a checkpoint and the weights file of the same step hold the same values
	run 0 1 fsdp consolidate "$tmp/b$n/d.ckpt" "$tmp/c$n.weights"
	cmp -s "$tmp/c$n.weights" "$tmp/b$n/d_final.weights" || fail "$n ranks: consolidate gives the final weights file"
done

# --- values that are not finite: one warning, of all that the file has, whoever reads them ---
cp "$tmp/c$n.weights" "$tmp/d.weights"
for at in 276 532; do           # the first layer's first rolling mean, which every rank has, and its first weight
	printf '\0\0\300\177' | dd of="$tmp/d.weights" bs=1 seek=$at conv=notrunc 2> "$tmp/err"
done
for n in ${NP:-1 2 3}; do
	for load in each rank0; do
		run 1 "$n" classifier valid $data "$tmp/d.cfg" "$tmp/d.weights" -threads 1 -fsdp.load $load
		has err '^darknet: .*d\.weights: [0-9]+ of [0-9]+ images have a NaN or infinite output$' 1
		has err 'not finite' 1
		has err 'd\.weights: 2 values are not finite' 1
	done
done

# --- errors that all ranks know are printed once; the job ends at once ---
run 1 2 classifier train $data "$tmp/d.cfg" "$tmp/no.weights" -threads 1 -backup "$tmp/b"
has err '^darknet: .*no\.weights' 1
run 1 2 classifier train "$tmp/no.data" "$tmp/d.cfg" -threads 1 -backup "$tmp/b"
has err '^darknet: .*no\.data' 1
run 1 2 classifier train $data "$tmp/d.cfg" -batch 13 -threads 1 -backup "$tmp/b"
has err '^darknet: .*13' 1
run 1 2 classifier train $data "$tmp/d.cfg" -plugin none -threads 1 -backup "$tmp/b"
has err '^darknet: .*overwrite one another' 1
run 1 2 classifier train $data cfg/digits.cfg -threads 1 -backup "$tmp/b"
has err '^darknet: .*overwrite one another' 1
run 1 2 classifier train $data "$tmp/d.cfg" -fsdp.limit 0 -threads 1 -backup "$tmp/b"
run 2 2 classifier train $data "$tmp/d.cfg" -fsdp.nosuch 0 -threads 1 -backup "$tmp/b"

# --- a flag that differs between ranks is found before the first step ---
cat > "$tmp/differ.sh" << 'EOF'
#!/usr/bin/env bash
exec "$@" -seed "$OMPI_COMM_WORLD_RANK"
EOF
chmod +x "$tmp/differ.sh"
cases=$((cases + 1))
timeout 120 scripts/run-mpi.sh 2 "$tmp/differ.sh" "$bin" train $data "$tmp/d.cfg" -threads 1 -backup "$tmp/b" \
	> "$tmp/out" 2> "$tmp/err" < /dev/null
[ $? -eq 1 ] || fail 'a seed that differs: status 1'
has err '^darknet: .*seed' 1

# --- ranks that would load different weights files are found, too ---
python3 - "$tmp/x.npy" << 'EOF'
import sys
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 8, 8), }".ljust(117) + "\n"
open(sys.argv[1], "wb").write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(4 * 128))
EOF
cp "$tmp/d.weights" "$tmp/other.weights"
run 0 2 forward "$tmp/d.cfg" "$tmp/d.weights" "$tmp/x.npy" "$tmp/y.npy" -threads 1
cat > "$tmp/differ.sh" << 'EOF'
#!/usr/bin/env bash
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || set -- "${@/d.weights/other.weights}"
exec "$@"
EOF
cases=$((cases + 1))
timeout 120 scripts/run-mpi.sh 2 "$tmp/differ.sh" "$bin" forward "$tmp/d.cfg" "$tmp/d.weights" "$tmp/x.npy" "$tmp/y.npy" \
	-threads 1 > "$tmp/out" 2> "$tmp/err" < /dev/null
[ $? -eq 1 ] || fail 'another weights file: status 1'
has err '^darknet: rank 1: weights file is ' 1

echo "cli over ranks: $cases cases, $failed failed"
[ $failed -eq 0 ]
