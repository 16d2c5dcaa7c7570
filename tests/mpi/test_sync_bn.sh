#!/usr/bin/env bash
# T34: batch_norm=sync at 1 to 4 ranks trains as one process with the whole microbatch; local does not. Rank 0 says which it was,
# and the plan shows the exchanges.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 1 30
sed -i 's/^subdivisions=1/subdivisions=2/' "$cfg"

# apart A B: the largest relative difference of two runs' losses, and how many there are
apart() {
	paste -d ' ' <(losses "$1") <(losses "$2") | awk 'function d(a, b) { a -= b; return (a < 0 ? -a : a) / b }
		{ x = d($1, $2); if (!(x <= m)) m = x; n++ } END { printf "%.3g %d\n", m, n }'
}

# near NAME A B TOLERANCE: all losses of A within TOLERANCE of B's
near() {
	local d n
	read -r d n < <(apart "$2" "$3")
	echo "$1: losses differ by $d in $n updates"
	awk -v d="$d" -v n="$n" -v t="$4" 'BEGIN { exit !(n == 30 && d <= t) }' || bad "$1: losses differ by more than $4"
}

ranks 0 -log "$tmp/one"
[ "$status" = 0 ] || { bad "one process: status $status"; tail -n 5 "$tmp/err"; }
for n in ${NP:-1 2 3 4}; do
	ranks "$n" -fsdp.batch_norm sync -log "$tmp/sync$n"
	[ "$status" = 0 ] || { bad "$n ranks: status $status"; tail -n 5 "$tmp/err"; }
	grep -q '"fsdp.batch_norm":"sync"' "$tmp/sync$n" || bad "$n ranks: the log does not say sync"
	# a step's roundings are about 1e-7; 30 steps multiply them by what the net does
	near "$n ranks, sync" "$tmp/sync$n" "$tmp/one" 1e-5
	[ "$n" -gt 1 ] || { cmp -s <(losses "$tmp/sync$n") <(losses "$tmp/one") || bad "alone: other bits"; continue; }
	ranks "$n" -log "$tmp/local$n"
	read -r d _ < <(apart "$tmp/local$n" "$tmp/one")
	awk -v d="$d" 'BEGIN { exit !(d > 1e-3) }' || bad "$n ranks: local differs by $d only, so this test sees nothing"
	ops=$("$bin" fsdp plan "$cfg" -world "$n" -threads 1 -fsdp.batch_norm sync | grep -c '^ *exchange .*exchange')
	[ "$ops" -gt 0 ] || bad "$n ranks: the printed plan has no exchange"
done
"$bin" fsdp plan "$cfg" -world 2 -threads 1 | grep -q '^ *exchange' && bad "the plan of local has exchanges"
finish
