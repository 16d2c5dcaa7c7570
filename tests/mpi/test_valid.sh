#!/usr/bin/env bash
# valid, forward and predict under every strategy: the text and the bits of the plain program at as many images a pass as a rank has;
# lists of images, which each rank's loader threads decode, and one that cannot be.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
gcc -O1 -o "$tmp/make_images" tests/cli/make_images.c -lm || exit 1
mkdir "$tmp/pictures"
"$tmp/make_images" "$tmp/pictures" 50 10 24 || exit 1
printf '%s\n' "$tmp"/pictures/*.jpg > "$tmp/list"
for i in 0 1 2 3 4 5 6 7 8 9; do echo "c${i}_"; done > "$tmp/labels"
printf 'classes=10\ntop=3\ntrain=%s\nvalid=%s\nlabels=%s\nbackup=%s\n' "$tmp/list" "$tmp/list" "$tmp/labels" "$tmp/backup" > "$tmp/x.data"
python3 - "$tmp/in.npy" <<-'EOF'
	import random, struct, sys
	n = 11
	head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 3, 8, 8), }" % n
	head += " " * (63 - (10 + len(head)) % 64) + "\n"
	random.seed(1)
	with open(sys.argv[1], "wb") as f:
	    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
	    f.write(struct.pack("<%df" % (n * 192), *[random.random() for _ in range(n * 192)]))
	EOF
net "$cfg" 1 8
sed -i 's/^channels=1/channels=3/' "$cfg"
ranks 0
[ "$status" = 0 ] || { bad "training: status $status"; exit 1; }
cp "$tmp"/backup/net_final.weights "$tmp/w"

# of N ranks what runs on them
ways() {
	printf '%s\n' full grad_op opt replicate
	[ "$1" = 4 ] && printf '%s\n' "hybrid_full -fsdp.shard 2" "hybrid_grad_op -fsdp.shard 2" "hybrid_full_opt -fsdp.shard 2"
}

said() { # said FILE: the lines of $tmp/out, without times
	grep -v 'Predicted in' "$tmp/out" > "$1"
}

# verb N OUT ARGUMENT...: $tmp/out's lines in OUT
verb() {
	local n=$1 out=$2 over=()
	shift 2
	[ "$n" = 0 ] || over=(scripts/run-mpi.sh "$n")
	[ "$n" != 0 ] || set -- "$@" -plugin none
	"${over[@]}" "$bin" "$@" -threads "${threads:-1}" > "$tmp/out" 2> "$tmp/err" < "${input:-/dev/null}"
	status=$?
	said "$out"
}

local=5 # images of a pass on a rank; 50 of the list and 11 of the array leave the last one incomplete
verb 0 "$tmp/valid" classifier valid "$tmp/x.data" "$cfg" "$tmp/w" -batch $local
verb 0 "$tmp/none" forward "$cfg" "$tmp/w" "$tmp/in.npy" "$tmp/plain.npy" -batch $local
head -n 6 "$tmp/list" > "$tmp/paths"
input=$tmp/paths verb 0 "$tmp/predict" classifier predict "$tmp/x.data" "$cfg" "$tmp/w"
tail -n 1 "$tmp/valid"
[ "$(grep -c '^50 images: top 1: ' "$tmp/valid")$(grep -c '%: ' "$tmp/predict")" = 118 ] || bad "the plain program"
for n in ${NP:-1 2 3 4}; do
	while read -r way; do
		# shellcheck disable=SC2086
		threads=$((1 + n % 2)) verb "$n" "$tmp/valid$n" classifier valid "$tmp/x.data" "$cfg" "$tmp/w" -batch $((local * n)) -fsdp.strategy $way
		cmp "$tmp/valid" "$tmp/valid$n" || { bad "$n ranks, $way: valid, status $status"; tail -n 3 "$tmp/err"; }
		# shellcheck disable=SC2086
		verb "$n" "$tmp/none" forward "$cfg" "$tmp/w" "$tmp/in.npy" "$tmp/ranks.npy" -batch $((local * n)) -fsdp.strategy $way
		cmp "$tmp/plain.npy" "$tmp/ranks.npy" || { bad "$n ranks, $way: forward, status $status"; tail -n 3 "$tmp/err"; }
		rm -f "$tmp/ranks.npy"
		# shellcheck disable=SC2086
		input=$tmp/paths verb "$n" "$tmp/predict$n" classifier predict "$tmp/x.data" "$cfg" "$tmp/w" -fsdp.strategy $way
		cmp "$tmp/predict" "$tmp/predict$n" || { bad "$n ranks, $way: predict, status $status"; tail -n 3 "$tmp/err"; }
	done < <(ways "$n")
	echo "$n ranks: compared"
done

# an image of another rank that cannot be decoded: everybody ends, one line says which of the list it is, and what came before it
# was told
head -c 300 "$(sed -n 27p "$tmp/list")" > "$tmp/short.jpg"
sed "27s#.*#$tmp/short.jpg#" "$tmp/list" > "$tmp/bad.list"
sed "s#^valid=.*#valid=$tmp/bad.list#" "$tmp/x.data" > "$tmp/bad.data"
for n in 0 ${NP:-1 2 3 4}; do
	verb "$n" "$tmp/out$n" classifier valid "$tmp/bad.data" "$cfg" "$tmp/w" -batch $((local * (n ? n : 1)))
	wants 1 "$tmp/bad.list:27: \"$tmp/short.jpg\"" "$n ranks, an image that cannot be decoded"
	[ "$(grep -c '^darknet: ' "$tmp/err")" = 1 ] || bad "$n ranks: said $(grep -c '^darknet: ' "$tmp/err") times"
	[ "$(grep -c ': top 1: ' "$tmp/out$n")" = $((26 / (local * (n ? n : 1)) * local * (n ? n : 1))) ] ||
		bad "$n ranks: $(grep -c ': top 1: ' "$tmp/out$n") images told"
done

# in training, too
if [ "${NP:-2}" != 1 ]; then
	ranks 2 -valid 4 -clear -log "$tmp/log"
	[ "$(grep -c '"event":"valid"' "$tmp/log")" = 2 ] || bad "evaluations in training"
fi
finish
