#!/usr/bin/env bash
# Who says why a launch is refused: rank 0 for all where mpirun ends the others; each rank that cannot know of another one itself.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 0 6

said() { # said COUNT TEXT NAME
	local n
	n=$(grep -acF -e "$2" "$tmp/err")
	[ "$n" = "$1" ] || { bad "$3: said $n times, wanted $1"; tail -n 20 "$tmp/err"; }
}

for n in ${NP:-2 3}; do
	[ "$n" -gt 1 ] || continue
	ranks "$n" -plugin none -backup "$tmp/b"
	wants 1 "rank 0: $n processes were launched (OMPI_COMM_WORLD_SIZE), but no plugin joins them" "$n ranks without a plugin"
	said 1 "processes were launched" "$n ranks without a plugin"
	ranks "$n" -fsdp.collectives local -backup "$tmp/b"
	wants 1 "rank 0: start-up: collectives=local is for one rank" "$n ranks with local collectives"
	said 1 "collectives=local is for one rank" "$n ranks with local collectives"
done

# rank 0 runs another program, for longer than anybody would wait for its words
only_rank 0 'exec sleep 20'
ranks 2 -plugin none -backup "$tmp/b"
wants 1 "rank 1: 2 processes were launched" "rank 0 is another program"
said 1 "processes were launched" "rank 0 is another program"
finish
