#!/usr/bin/env bash
# A process whose environment says "rank 1 of 2" and that has no launcher above it refuses with its own words, at once.
. "$(dirname "$0")/lib.bash"
d=$PWD/data/digits
printf 'classes=10\nformat=idx\ntrain=%s\ntrain_truth=%s\nbackup=%s\n' "$d/train-images.idx" "$d/train-labels.idx" "$tmp/b" > "$tmp/x.data"
net='[net]\nbatch=2\nsubdivisions=1\nwidth=8\nheight=8\nchannels=1\nlearning_rate=0.01\npolicy=constant\nmax_batches=2\n'
printf "$net"'[connected]\noutput=10\nactivation=linear\n[softmax]\n[cost]\n' > "$tmp/t.cfg"
printf "$net"'[fsdp]\ntimeout=9\n[connected]\noutput=10\nactivation=linear\n[softmax]\n[cost]\n' > "$tmp/f.cfg"
printf "$net"'[connected]\noutput=10\nactivation=nonsense\n[softmax]\n[cost]\n' > "$tmp/faulty.cfg"
# what an outer launcher may have left
for v in $(env | sed -n 's/^\(\(OMPI\|PMIX\|PMI\|MV2\|SLURM\)_[^=]*\)=.*/\1/p'); do unset "$v"; done

# speaks STATUS "VARIABLES" TEXT ARGUMENT...: one line of rank 1 with TEXT, in less time than rank 0 would be waited for
speaks() {
	local want=$1 vars=$2 text=$3 begin ms
	shift 3
	begin=$(date +%s%N)
	# shellcheck disable=SC2086
	export $vars
	run "$want" "$@"
	for v in $vars; do unset "${v%%=*}"; done
	ms=$((($(date +%s%N) - begin) / 1000000))
	has err '^darknet: rank 1: ' 1
	grep -qF -e "$text" "$tmp/err" || fail "$vars: darknet $*: no \"$text\""
	[ $ms -lt 2000 ] || fail "$vars: darknet $*: $ms ms"
}

for vars in "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1" "PMI_SIZE=2 PMI_RANK=1" "MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_RANK=1" \
	"SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1"; do
	speaks 1 "$vars" "2 processes were launched (${vars%%=*}), but no plugin joins them" train "$tmp/x.data" "$tmp/t.cfg"
	speaks 1 "$vars" "2 processes were launched (${vars%%=*}), but no plugin joins them" \
		classifier train "$tmp/x.data" "$tmp/f.cfg" -plugin none
	speaks 1 "$vars" "collectives=local is for one rank" train "$tmp/x.data" "$tmp/f.cfg" -fsdp.collectives local
	speaks 1 "$vars" "but MPI's world has 1" train "$tmp/x.data" "$tmp/f.cfg" -fsdp.collectives mpi
	speaks 1 "$vars" "nonsense" train "$tmp/x.data" "$tmp/faulty.cfg" -plugin fsdp -fsdp.collectives nonsense
	speaks 1 "$vars" "none.cfg" train "$tmp/x.data" "$tmp/none.cfg"
	speaks 2 "$vars" "unknown flag -nonsense" train "$tmp/x.data" "$tmp/t.cfg" -nonsense
	speaks 1 "$vars" "none.weights" weights info "$tmp/none.weights"
done
[ ! -e "$tmp/b" ] || fail "a refused run has made its backup folder"

finish "cli launch"
