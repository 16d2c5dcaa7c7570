#!/usr/bin/env bash
# -fsdp.trace and -log with %r: files of all ranks, what stands in them, and that a run with them has the bits of one without;
# debugging keys under mpirun (T3): delays and poison change no bit.
. "$(dirname "$0")/lib.bash"
cfg=$tmp/net.cfg
net "$cfg" 1 12
sed -i 's/^subdivisions=.*/subdivisions=2/' "$cfg"

sum_of() {
	cat "$tmp/backup"/*_final.weights | sha256sum
}

for n in ${NP:-1 2 3}; do
	rm -f "$tmp"/trace* "$tmp"/log*
	ranks "$n" -clear
	[ "$status" = 0 ] || bad "$n ranks: status $status"
	want=$(sum_of)
	ranks "$n" -clear -log "$tmp/log.%r" -valid 6 -fsdp.trace "$tmp/trace-%r.json" -fsdp.trace_steps 4
	[ "$status" = 0 ] || { bad "$n ranks with a trace: status $status"; tail -n 5 "$tmp/err"; }
	[ "$(sum_of)" = "$want" ] || bad "$n ranks: other bits with a trace"
	python3 - "$tmp" "$n" "$bin" "$cfg" <<-'PY' || bad "$n ranks: trace or log"
	import collections, json, subprocess, sys
	tmp, n, bin, cfg = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
	plan = json.loads(subprocess.run([bin, 'fsdp', 'plan', cfg, '-world', str(n), '-json', '-threads', '1'], capture_output=True, text=True).stdout)
	planned = collections.Counter((o['op'], o['block']) for o in plan['schedule'])
	blocks = [b['name'] for b in plan['blocks']]
	for r in range(n):
	    with open('%s/trace-%d.json' % (tmp, r)) as f:
	        t = json.load(f)
	    assert t['otherData'] == {'rank': r, 'world': n, 'steps_kept': 4, 'last_step': 12}, t['otherData']
	    events = [e for e in t['traceEvents'] if e['ph'] == 'X']
	    queues = {e['tid']: e['args']['name'] for e in t['traceEvents'] if e['name'] == 'thread_name'}
	    assert list(queues.values()) == ['compute', 'gather', 'reduce', 'replica', 'exchange'], queues
	    assert {e['args']['step'] for e in events} == {9, 10, 11, 12} and {e['pid'] for e in events} == {r}
	    assert not any('unfinished' in e['args'] for e in events)
	    for step in (9, 10, 11):
	        seen = collections.Counter(tuple(e['name'].split(' ')) for e in events if e['args']['step'] == step
	                                   and e['cat'] != 'wait' and 'evaluation' not in e['args'])
	        assert seen == planned, (seen, planned)
	    assert any('evaluation' in e['args'] for e in events)
	    # a queue does one thing at a time, in order: to the rounding of microseconds
	    for q in queues:
	        mine = sorted((e for e in events if e['tid'] == q), key=lambda e: e['ts'])
	        for a, b in zip(mine, mine[1:]):
	            assert a['dur'] >= 0 and b['ts'] >= a['ts'] + a['dur'] - .01, (a, b)
	    gathers = [e for e in events if e['cat'] == 'gather']
	    assert all(e['args']['bytes'] * n == (n - 1) * next(b['gathered_bytes'] for b in plan['blocks'] if b['name'] == e['args']['block'])
	               for e in gathers) and gathers

	    log = [json.loads(l) for l in open('%s/log.%d' % (tmp, r))]
	    assert log[0]['rank'] == r and log[0]['world'] == n
	    steps = [e for e in log if e['event'] == 'step']
	    assert len(steps) == 12
	    phases = ['forward_ms', 'gather_wait_ms', 'backward_ms', 'reduce_wait_ms', 'exchange_wait_ms', 'optimizer_ms']
	    for e in steps:
	        assert list(e['phases']) == phases and sum(e['phases'].values()) <= e['seconds'] * 1e3 + 1e3 * e['load_seconds'], e
	        assert e['flops_per_second'] > 0
	    end = log[-1]
	    assert [x['rank'] for x in end['ranks']] == (list(range(n)) if r == 0 else [r]), end
	    assert end['allocs_after_first_step'] == 0
	    for x in end['ranks']:
	        assert [b['name'] for b in x['blocks']] == blocks
	        total = {p: sum(e['phases'][p] for e in steps) for p in phases}
	        if x['rank'] == r:
	            assert all(abs(total[p] - x['phases'][p]) < 1e-3 for p in phases), (total, x['phases'])
	        for b, p in zip(x['blocks'], plan['blocks']):
	            assert b['slot'] == p['slot']
	            assert b['gather_bytes'] == b['gather_calls'] * p['gathered_bytes'] * (n - 1) // n, (b, p)
	            assert b['reduce_calls'] == (12 * 2 if p['params'] else 0), b
	            assert (b['held_ms'] > 0) == (p['slot'] >= 0)
	PY
	for how in "delay gather:2:$n" "delay compute:1:7,reduce:2:8" "poison 1"; do
		# shellcheck disable=SC2086
		ranks "$n" -clear -fsdp.$how
		[ "$status" = 0 ] || { bad "T3 $n ranks, $how: status $status"; tail -n 5 "$tmp/err"; }
		[ "$(sum_of)" = "$want" ] || bad "T3 $n ranks, $how: other bits"
		grep -aq "debugging: ${how%% *}" "$tmp/err" || bad "$how: is not warned of"
	done
done

# one file: rank 0's; one that cannot be made ends the run before its first step
ranks 2 -clear -log "$tmp/one" -fsdp.trace "$tmp/one.json"
[ "$(grep -c '"pid":0' "$tmp/one.json")" -gt 10 ] && ! grep -q '"pid":1' "$tmp/one.json" || bad 'a trace without %r is not that of rank 0'
[ "$(tail -n 1 "$tmp/one" | grep -o '"rank":' | wc -l)" = 2 ] || bad 'a log without %r has not all ranks'
ranks 2 -clear -fsdp.trace "$tmp/no/%r"
wants 1 "-fsdp.trace $tmp/no/" 'a trace in no folder'
ranks 0 -clear -log "$tmp/plain.%r"
[ "$status" = 0 ] && grep -q '"flops_per_second"' "$tmp/plain.0" || bad 'a log of a plain run with %r'
finish
