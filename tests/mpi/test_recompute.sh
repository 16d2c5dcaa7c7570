#!/usr/bin/env bash
# T22: blocks that are recomputed in backward, by [block] recompute=1 without a plugin and by -fsdp.recompute at 1 to 4 ranks: the
# same losses and weights to the bit, planned activations as measured and fewer.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 1 12 400
sed -i 's/^subdivisions=1/subdivisions=2/' "$cfg"
sed 's/^name=\(stem\|mid\)$/&\nrecompute=1/' "$cfg" > "$tmp/again.cfg"
[ "$(grep -c '^recompute=1' "$tmp/again.cfg")" = 2 ] || bad "the cfg has not two keys"

# run NAME N FLAGS...: weights and losses under NAME
run() {
	local name=$1 n=$2
	shift 2
	rm -rf "$tmp/backup"
	ranks "$n" -log "$tmp/$name.log" "$@"
	[ "$status" = 0 ] || { bad "$name: status $status"; tail -n 5 "$tmp/err"; }
	cp "$tmp"/backup/*_final.weights "$tmp/$name.weights"
	losses "$tmp/$name.log" > "$tmp/$name.losses"
	[ "$(wc -l < "$tmp/$name.losses")" = 12 ] || bad "$name: not 12 updates"
}

# same A B
same() {
	cmp -s "$tmp/$1.weights" "$tmp/$2.weights" || bad "$1 and $2: other weights"
	cmp -s "$tmp/$1.losses" "$tmp/$2.losses" || bad "$1 and $2: other losses"
}

# activations NAME: planned and measured bytes of rank 0
activations() {
	grep -o '"name":"activations","planned_bytes":[0-9]*,"measured_bytes":[0-9]*' "$tmp/$1.log" | head -n 1 | grep -o '[0-9]*' | tr '\n' ' '
}

# less A B: A's activations are as planned, and fewer than B's
less() {
	local a b
	read -ra a < <(activations "$1")
	read -ra b < <(activations "$2")
	echo "$1: ${a[*]}, $2: ${b[*]}"
	[ "${#a[@]}" = 2 ] && [ "${a[0]}" = "${a[1]}" ] || bad "$1: planned and measured activations differ"
	[ "${#b[@]}" = 2 ] && [ "${a[0]}" -lt "${b[0]}" ] || bad "$1: not fewer activations than $2"
}

run keep 0
plain=$cfg
cfg=$tmp/again.cfg
run again 0
same again keep
less again keep
cfg=$plain
for n in ${NP:-1 2 3 4}; do
	run "keep$n" "$n"
	run "some$n" "$n" -fsdp.recompute stem,mid
	same "some$n" "keep$n"
	less "some$n" "keep$n"
	run "sync$n" "$n" -fsdp.batch_norm sync
	run "both$n" "$n" -fsdp.batch_norm sync -fsdp.recompute all
	same "both$n" "sync$n"
	[ "$n" -gt 1 ] && cmp -s "$tmp/sync$n.losses" "$tmp/keep$n.losses" && bad "sync is local"
done
ranks 1 -fsdp.recompute stem,bottom
wants 1 "there is no block bottom; the net has stem, pool, mid, tail" "an unknown block"
finish
