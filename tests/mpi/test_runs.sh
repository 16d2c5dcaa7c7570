#!/usr/bin/env bash
# Runs that follow one another or meet in a backup folder, with ranks: one id for all, one refusal, one log.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
id() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["run"])' "$1/meta.json"; }

for n in ${NP:-1 2}; do
	b=$tmp/b$n ckpt=$tmp/b$n/net.ckpt log=$tmp/log$n
	net "$cfg" 0 4
	ranks "$n" -backup "$b" -save_every 2 -log "$log"
	[ $status = 0 ] || { bad "$n ranks: a new run: status $status"; tail -n 5 "$tmp/err"; }
	run=$(id "$ckpt/4")
	[ "$(id "$ckpt/2")" = "$run" ] && [ ${#run} = 16 ] || bad "$n ranks: the id is not one: $(id "$ckpt/2") $run"

	# another function of the same tensors
	net "$cfg" 0 6
	sed -i '0,/activation=leaky/s//activation=relu/' "$cfg"
	ranks "$n" -backup "$b" -resume "$ckpt" -log "$log"
	wants 1 "another net: $cfg:22: [convolutional] activation=relu; was saved with leaky (-force resumes all the same)" "$n ranks: another net"
	[ "$(grep -ac '^darknet: .*another net' "$tmp/err")" = 1 ] || bad "$n ranks: another net: said more than once"
	ranks "$n" -backup "$tmp/forced$n" -resume "$ckpt" -force
	[ $status = 0 ] || bad "$n ranks: -force: status $status"
	[ "$(grep -ac '^warning: another net was saved: ' "$tmp/err")" = 1 ] || bad "$n ranks: -force: not warned of, or more than once"

	# resumed on as many ranks and on another number: the run goes on, with its id and in its log
	net "$cfg" 0 6
	ranks "$n" -backup "$b" -resume "$ckpt" -save_every 1 -keep 1 -log "$log"
	[ $status = 0 ] || bad "$n ranks: resumed: status $status"
	net "$cfg" 0 8
	ranks $((3 - n < 1 ? 1 : 3 - n)) -backup "$b" -resume "$ckpt" -save_every 1 -keep 1 -log "$log"
	[ $status = 0 ] || bad "$n ranks: resumed on others: status $status"
	[ "$(ls "$ckpt")" = 8 ] && [ "$(id "$ckpt/8")" = "$run" ] || bad "$n ranks: resumed: $(ls "$ckpt")"
	python3 - "$log" "$run" <<-'EOF' || bad "$n ranks: log"
	import json, sys
	lines = [json.loads(l) for l in open(sys.argv[1])]
	assert [l["step"] for l in lines if l["event"] == "step"] == list(range(1, 9))
	assert [(l["run"], l["batches_done"]) for l in lines if l["event"] == "start"] == [(sys.argv[2], d) for d in (0, 4, 6)]
	EOF

	# a new run beside them
	net "$cfg" 0 8
	ranks "$n" -backup "$b" -save_every 4 -keep 1 -log "$log"
	[ $status = 0 ] || bad "$n ranks: beside: status $status"
	[ "$(grep -ac 'holds 1 finished checkpoint of another run (step 8); this run starts anew' "$tmp/err")" = 1 ] || bad "$n ranks: beside: not said"
	[ "$(ls "$ckpt" | tr '\n' ' ')" = "8 8.$run " ] || bad "$n ranks: beside: $(ls "$ckpt")"
	[ "$(grep -c '"event":"start"' "$log")" = 1 ] || bad "$n ranks: beside: a new run begins its log"

	# a live run's folder
	net "$cfg" 0 100000000
	rm -f "$log"
	scripts/run-mpi.sh "$n" "$bin" classifier train "$tmp/x.data" "$cfg" -threads 1 -backup "$b" -log "$log" > "$tmp/live" 2>&1 < /dev/null &
	job=$!
	for _ in $(seq 200); do
		grep -q '"event":"step"' "$log" 2> /dev/null && break
		sleep .1
	done
	pid=$(sed 's/^pid=\([0-9]*\) .*/\1/' "$b/net.lock")
	kill -0 "$pid" || bad "$n ranks: the lock names $pid"
	begin=$(date +%s)
	ranks "$n" -backup "$b" -log "$log"
	wants 1 "net.lock: another run has this folder: its rank 0 is pid $pid on host $(hostname), since " "$n ranks: a live run's folder"
	[ "$(grep -ac '^darknet: ' "$tmp/err")" = 1 ] || bad "$n ranks: a live run's folder: said more than once"
	[ $(($(date +%s) - begin)) -lt 12 ] || bad "$n ranks: a live run's folder: refused after $(($(date +%s) - begin)) s"
	kill -KILL "$pid"
	wait "$job" 2> /dev/null
	net "$cfg" 0 9
	ranks "$n" -backup "$b" -resume "$ckpt"
	[ $status = 0 ] || { bad "$n ranks: after a kill: status $status"; tail -n 5 "$tmp/err"; }
	[ ! -e "$b/net.lock" ] || bad "$n ranks: after a kill: the lock stays"
done
finish
