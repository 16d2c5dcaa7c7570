#!/usr/bin/env bash
# What one rank has otherwise, or cannot do, ends all ranks with status 1, at once and with the reason.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 0 6

ranks 0 -backup "$tmp/first"
mv "$tmp/first/net_final.weights" "$tmp/w.weights" || bad "no weights of the first run"

# settings of one rank
differs() { # differs NAME TEXT ARGUMENTS: rank 1 has ARGUMENTS more
	printf '#!/usr/bin/env bash\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec "$@" %s\nexec "$@"\n' "$3" > "$tmp/wrap.sh"
	chmod +x "$tmp/wrap.sh"
	wrap=("$tmp/wrap.sh")
	ranks 3 -backup "$tmp/b"
	wants 1 "$2" "$1"
	wrap=()
}
differs "another seed" "rank 1: -seed is 7, rank 0 has 0" "-seed 7"
differs "another limit" "rank 1: fsdp.limit is 3, rank 0 has 2" "-fsdp.limit 3"
differs "weights that the others lack" "rank 1: weights file is $tmp/w.weights" "$tmp/w.weights"
only_rank 1 'set -- "$@" -nonsense'
ranks 2 -backup "$tmp/b"
wants 2 "rank 1: unknown flag -nonsense" "a faulty command line of one rank"
wrap=()
ranks 2 -nonsense
wants 2 "rank 0: unknown flag -nonsense" "a faulty command line"
[ "$(grep -ac 'unknown flag' "$tmp/err")" = 1 ] || bad "a faulty command line: said more than once"
net "$tmp/other.cfg" 0 6 38
printf '#!/usr/bin/env bash\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && set -- "${@/net.cfg/other.cfg}"\nexec "$@"\n' > "$tmp/wrap.sh"
wrap=("$tmp/wrap.sh")
ranks 3 -backup "$tmp/b"
wants 1 "rank 1: $tmp/other.cfg:31: [connected] output=38, rank 0 has 37 ($tmp/net.cfg:31)" "another cfg"
sed 's/^limit=.*//; s/^timeout=20/&\nlimit=3/' "$tmp/net.cfg" > "$tmp/other.cfg"
ranks 3 -backup "$tmp/b"
wants 1 "rank 1: $tmp/other.cfg:14: [fsdp] limit=3, rank 0 has no such key ($tmp/net.cfg:12)" "a key of the plugin more"
sed 's/^pad=1/& # a word/' "$tmp/net.cfg" > "$tmp/other.cfg"
ranks 3 -backup "$tmp/b"
wants 1 "rank 1: $tmp/other.cfg:21: not as rank 0 has it ($tmp/net.cfg), though" "a comment more"

# another data file
printf '#!/usr/bin/env bash\n[ "$OMPI_COMM_WORLD_RANK" = 2 ] && set -- "${@/x.data/y.data}"\nexec "$@"\n' > "$tmp/wrap.sh"
sed "s#^train=.*#train=$d/valid-images.idx#; s#^train_truth=.*#train_truth=$d/valid-labels.idx#" "$tmp/x.data" > "$tmp/y.data"
ranks 3 -backup "$tmp/b"
wants 1 "rank 2: $tmp/y.data:3: train=$d/valid-images.idx, rank 0 has $d/train-images.idx ($tmp/x.data:3)" "other data"
sed "s#^backup=.*#backup=$tmp/elsewhere#" "$tmp/x.data" > "$tmp/y.data"
ranks 3
wants 1 "rank 2: $tmp/y.data:7: backup=$tmp/elsewhere, rank 0 has $tmp/backup ($tmp/x.data:7)" "another backup folder"
# one text, but other bytes in the file that it names
mkdir "$tmp/at0" "$tmp/at2"
cp "$d/train-images.idx" "$tmp/at0/i.idx"
{ head -c 100 "$tmp/at0/i.idx"; printf '\1'; tail -c +102 "$tmp/at0/i.idx"; } > "$tmp/at2/i.idx"
cp "$tmp/x.data" "$tmp/keep.data"
sed -i 's#^train=.*#train=i.idx#' "$tmp/x.data"
printf '#!/usr/bin/env bash\ncd "%s/at$(( OMPI_COMM_WORLD_RANK == 2 ? 2 : 0 ))" && exec "$@"\n' "$tmp" > "$tmp/wrap.sh"
ranks 3 -backup "$tmp/b"
wants 1 "rank 2: data is " "a file of other bytes"
mv "$tmp/keep.data" "$tmp/x.data"

# a file that one rank cannot read
sed "s#^train=.*#train=$tmp/none.idx#" "$tmp/x.data" > "$tmp/y.data"
printf '#!/usr/bin/env bash\n[ "$OMPI_COMM_WORLD_RANK" = 2 ] && set -- "${@/x.data/y.data}"\nexec "$@"\n' > "$tmp/wrap.sh"
ranks 3 -backup "$tmp/b"
wants 1 "rank 2: $tmp/y.data:3: $tmp/none.idx: cannot read" "no data on rank 2"
wrap=()

# a full disk on one rank: its part of the checkpoint is larger than it may write (MPI's own files are below 16 MiB)
net "$tmp/large.cfg" 0 4 40000
cfg=$tmp/large.cfg
only_rank 1 'ulimit -f 16384'
ranks 2 -backup "$tmp/full" -save_every 2
wants 1 "rank 1: " "full disk on rank 1"
grep -aq 'File too large' "$tmp/err" || bad "full disk on rank 1: the reason is missing"
[ "$(grep -ac '^darknet: rank 1: ' "$tmp/err")" = 1 ] || bad "full disk on rank 1: said more than once"
[ -z "$(find "$tmp/full" -name meta.json)" ] || bad "full disk on rank 1: a checkpoint was published"
wrap=()
only_rank 0 'ulimit -f 16384'
ranks 2 -backup "$tmp/full0"
wants 1 "rank 0: " "full disk on rank 0"
wrap=()

# T38: memory that a rank was planned and has not got: all end, the message has what the plan wants most
net "$tmp/large.cfg" 0 6 400000
cfg=$tmp/large.cfg
only_rank 1 'ulimit -v 900000'
ranks 2 -backup "$tmp/b" -fsdp.collectives mpi
wants 1 "rank 1: out of memory: " "T38 rank 1 without memory"
grep -aqE 'the plan takes [0-9]+ bytes on each rank, the most param_slots [0-9]+, grad_slots [0-9]+, params [0-9]+, grads [0-9]+; [0-9]+ were taken' \
	"$tmp/err" || bad "T38: the largest regions are not told: $(grep -a '^darknet' "$tmp/err")"
[ "$(grep -ac '^darknet: ' "$tmp/err")" = 1 ] || bad "T38: said more than once"
wrap=()

# launches that cannot be right
cfg=$tmp/net.cfg
ranks 2 -plugin none -backup "$tmp/b"
wants 1 "2 processes were launched" "several processes without the plugin"
ranks 2 -fsdp.collectives local -backup "$tmp/b"
wants 1 "collectives=local is for one rank" "local collectives for two processes"
printf '#!/usr/bin/env bash\nr=$OMPI_COMM_WORLD_RANK\nfor v in $(env | sed -n "s/^\\(OMPI_[^=]*\\|PMIX_[^=]*\\|ORTE_[^=]*\\)=.*/\\1/p"); do unset $v; done\nPMI_SIZE=2 PMI_RANK=$r exec "$@"\n' > "$tmp/wrap.sh"
wrap=("$tmp/wrap.sh")
ranks 2 -backup "$tmp/b"
wants 1 "but MPI's world has 1" "a launcher of another MPI"
wrap=()
finish
