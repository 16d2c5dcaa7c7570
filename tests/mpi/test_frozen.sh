#!/usr/bin/env bash
# Frozen batch-normalised layers over ranks: without rolling statistics refused by one line, filled by a weights file or a
# checkpoint trained.
. "$(dirname "$0")/lib.bash"

net "$tmp/free.cfg" 1 4
awk '1; /^activation=leaky/ && ++n == 1 { print "stopbackward=1" }' "$tmp/free.cfg" > "$tmp/net.cfg"
line=$(grep -n '^\[convolutional\]' "$tmp/net.cfg" | cut -d : -f 1)
empty="net.cfg:$line: [convolutional] layer 0: frozen, but its rolling statistics are empty: load weights"

cfg=$tmp/free.cfg
ranks 0 -backup "$tmp/free"
[ "$status" = 0 ] || bad 'weights to start from'
cfg=$tmp/net.cfg
for n in ${NP:-1 2 3}; do
	ranks "$n" -backup "$tmp/b$n"
	wants 1 "$empty" "$n ranks, no weights"
	[ "$(grep -ac 'rolling statistics' "$tmp/err")" = 1 ] || bad "$n ranks: not one line"
	ranks "$n" -backup "$tmp/b$n" -force
	[ "$status" = 0 ] || bad "$n ranks, -force: status $status"
	[ "$(grep -ac '^warning: .*rolling statistics are empty' "$tmp/err")" = 1 ] || bad "$n ranks, -force: not one warning"
	rm -rf "$tmp/b$n"
	for load in each rank0; do
		scripts/run-mpi.sh "$n" "$bin" classifier train "$tmp/x.data" "$cfg" "$tmp/free/free_final.weights" -clear -threads 1 \
			-fsdp.load $load -backup "$tmp/b$n" -save_every 2 > "$tmp/out" 2> "$tmp/err" < /dev/null
		status=$?
		[ "$status" = 0 ] || bad "$n ranks, weights by $load: status $status: $(tail -n 1 "$tmp/err")"
		! grep -aq 'rolling statistics' "$tmp/err" || bad "$n ranks, weights by $load: said to be empty"
	done
	ranks "$n" -backup "$tmp/b$n" -resume "$tmp/b$n/net.ckpt/2"
	[ "$status" = 0 ] || bad "$n ranks, resumed: status $status: $(tail -n 1 "$tmp/err")"
	! grep -aq 'rolling statistics' "$tmp/err" || bad "$n ranks, resumed: said to be empty"
done
finish
