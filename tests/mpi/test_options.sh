#!/usr/bin/env bash
# Every key of [fsdp] does something: for each entry of the table, as `darknet help fsdp` prints it, another value than the
# default changes the plan or a run, or is refused in words that name the key, both from the cfg and as a flag, which wins. A
# key that is not in one of the lists below fails.
. "$(dirname "$0")/lib.bash"

"$bin" help fsdp > "$tmp/keys" || bad 'help fsdp'
net "$tmp/marked.cfg" 1 4
awk '/^\[block\]/ { getline; next } 1' "$tmp/marked.cfg" > "$tmp/net.cfg"

python3 - "$tmp" "$bin" << 'PY' || bad 'keys of [fsdp]'
import json, os, re, shutil, subprocess, sys
tmp, bin = sys.argv[1:]
keys = dict(re.findall(r'^  -fsdp\.(\w+) .*?(?:\(default ([^()]*)\))?$', open(tmp + '/keys').read(), re.M))

# another plan: the value, and what else the net is cut by
plans = {
    'blocks': ('each', {}),
    'limit': ('3', {'blocks': 'each'}),
    'grad_slots': ('1', {'blocks': 'each'}),
    'prefetch': ('none', {'blocks': 'each'}),
    'depth': ('0', {'blocks': 'each'}),
    'batch_norm': ('sync', {}),
    'recompute': ('all', {}),
    'strategy': ('grad_op', {'blocks': 'each'}),
    'shard': ('2', {'strategy': 'hybrid_full', 'shard': '1'}),
    'release': ('0', {'blocks': 'each'}),
    'accumulate': ('no_sync', {}),
    'layout': ('planned:row', {}),
    'persistent': ('50', {}),
    'wire': ('bf16', {}),
    'reduce': ('fp16', {}),
    'clip_norm': ('.5', {}),
    'clip_value': ('.5', {}),
    'nan': ('skip', {}),
    'ema': ('.9', {}),
}
# values that this version knows by name only
refused = {
    'reduction': 'library',
}
# another run of one process: the value, what else is set, what is looked at, and what it is without the key and with it
saves = lambda log, at, err: sorted(int(s) for s in os.listdir(at + '/net.ckpt') if s.isdigit()) if os.path.isdir(at + '/net.ckpt') else []
def traced(log, at, err):
    if not os.path.exists(tmp + '/trace'):
        return None
    with open(tmp + '/trace') as f:
        events = json.load(f)['traceEvents']
    os.remove(tmp + '/trace')
    return sorted({e['args']['step'] for e in events if e['ph'] == 'X'})

later = lambda log: [e for e in log if e['event'] == 'step'][1:]
runs = {
    'trace': (tmp + '/trace', {}, traced, None, [1, 2, 3, 4]),
    'trace_steps': ('2', {'trace': tmp + '/trace'}, traced, [1, 2, 3, 4], [3, 4]),
    'delay': ('compute:20:1', {}, lambda log, at, err: sum(e['seconds'] for e in later(log)) > .1, False, True),
    'poison': ('1', {}, lambda log, at, err: ('debugging: poison=1' in err, log[-1]['steps']), (False, 4), (True, 4)),
    'fake_comm': ('2', {}, lambda log, at, err: (len(log[-1]['ranks']), os.path.exists(at + '/net_final.weights')), (1, True), (2, False)),
    'no_comm': ('1', {}, lambda log, at, err: [r['gather']['counted_calls'] for r in log[-1]['ranks']], [1], [0]),
    'no_compute': ('1', {}, lambda log, at, err: {e['loss'] for e in later(log)} == {0}, False, True),
    'collectives': ('mpi', {}, lambda log, at, err: log[0]['options']['fsdp.collectives'], 'local', 'mpi'),
    'save_every': ('3', {}, saves, [], [3, 4]),     # and where training ends
    'keep': ('1', {'save_every': '1'}, saves, [2, 3, 4], [4]),
    'clip_p': ('1', {'clip_norm': '1e6'}, lambda log, at, err: any(e.get('grad_norm', 0) > 5 for e in log), False, True),
    'loss_scale': ('8', {}, lambda log, at, err: {e.get('loss_scale') for e in log if e['event'] == 'step'}, {None}, {8}),
}
ranks = {'load', 'timeout', 'verify'}     # below

bad = done = 0

def check(ok, *what):
    global bad, done
    done += 1
    if not ok:
        bad += 1
        print('FAIL:', *what)

def cfg(values):
    path = tmp + '/net/net.cfg'
    os.makedirs(tmp + '/net', exist_ok=True)
    lines = open(tmp + '/net.cfg').read().split('[fsdp]\n')
    with open(path, 'w') as f:
        f.write(lines[0] + '[fsdp]\n' + ''.join('%s=%s\n' % v for v in values.items()) + lines[1])
    return path

def flags(values):
    return [w for k, v in values.items() for w in ('-fsdp.' + k, v)]

def call(*words):
    p = subprocess.run([bin, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout, p.stderr

def plan(in_cfg, as_flags):
    status, out, err = call('fsdp', 'plan', cfg(in_cfg), '-world', '4', '-threads', '1', '-json', *flags(as_flags))
    check(status == 0, in_cfg, as_flags, err)
    return json.loads(out)['hash'] if status == 0 else err

def train(see, in_cfg, as_flags):
    at = tmp + '/backup'
    shutil.rmtree(at, ignore_errors=True)
    status, out, err = call('classifier', 'train', tmp + '/x.data', cfg(in_cfg), '-threads', '1', '-backup', at, '-log', tmp + '/log',
                            *flags(as_flags))
    check(status == 0, in_cfg, as_flags, err)
    with open(tmp + '/log') as f:
        seen = see([json.loads(line) for line in f], at, err)
    os.remove(tmp + '/log')
    return seen

bounds = {'memory': '1K'}      # a plan is refused
sets = [set(plans), set(refused), set(runs), set(bounds), ranks]
check(len(keys) >= 18 and sum(map(len, sets)) == len(set().union(*sets)), keys)
for key in keys:
    check(key in set().union(*sets), '[fsdp] %s: no case here says what it does' % key)
for key in set().union(*sets):
    check(key in keys, '[fsdp] %s is no key' % key)

# what is nonsense for a key is refused in its name
for key in set(keys) - {'trace'}:      # any name is good for a file
    for got, where in ((call('fsdp', 'plan', cfg({key: 'nonsense'})), 'net.cfg:%d: %s=nonsense: ' % (open(tmp + '/net/net.cfg').read()
                       .split('\n').index(key + '=nonsense') + 1, key)),
                       (call('fsdp', 'plan', cfg({}), '-fsdp.' + key, 'nonsense'), '-fsdp.%s nonsense: ' % key)):
        check(got[0] == 1 and where in got[2], where, got)

for key, (value, others) in plans.items():
    plain, changed = plan(others, {}), plan({**others, key: value}, {})
    check(plain != changed, '[fsdp] %s=%s changes no plan' % (key, value))
    check(plan(others, {key: value}) == changed, '-fsdp.%s %s is not %s=%s' % (key, value, key, value))
    if keys[key]:
        check(plan({**others, key: keys[key]}, {}) == plain, '[fsdp] %s: the default is not %s' % (key, keys[key]))
        check(plan({**others, key: value}, {key: keys[key]}) == plain, '-fsdp.%s does not win' % key)

for key, value in refused.items():
    status, out, err = call('fsdp', 'plan', cfg({key: value}))
    check(status == 1 and '%s=%s: not in this version, which supports %s' % (key, value, keys[key]) in err, key, value, status, err)
    status, out, err = call('fsdp', 'plan', cfg({}), '-fsdp.' + key, value)
    check(status == 1 and '-fsdp.%s %s: not in this version' % (key, value) in err, key, value, status, err)
    check(plan({key: keys[key]}, {}) == plan({}, {}), '[fsdp] %s: the default is not %s' % (key, keys[key]))

for key, value in bounds.items():
    for got, where in ((call('fsdp', 'plan', cfg({key: value})), 'net.cfg:%d: %s is ' % (open(tmp + '/net/net.cfg').read()
                       .split('\n').index('%s=%s' % (key, value)) + 1, key)),
                       (call('fsdp', 'plan', cfg({key: '1G'}), '-fsdp.' + key, value), '-fsdp.%s: %s is ' % (key, key))):
        check(got[0] == 1 and where in got[2], where, got)
    check(plan({key: '1G'}, {}) == plan({}, {}), '[fsdp] %s=1G is another plan' % key)

for key, (value, others, see, plain, changed) in runs.items():
    for in_cfg, as_flags, want in ((others, {}, plain), ({**others, key: value}, {}, changed), (others, {key: value}, changed)):
        got = train(see, in_cfg, as_flags)
        check(got == want, '[fsdp]', in_cfg, as_flags, got, 'wanted', want)
print('%d checks of %d keys' % (done, len(keys)))
sys.exit(bad > 0)
PY

# timeout: a rank that does not begin is waited for that long
cfg=$tmp/net.cfg
only_rank 1 'kill -STOP $$'
ranks 2 -fsdp.timeout 2
wants 3 'start-up: waited 2.' 'timeout as a flag'
sed -i 's/^timeout=.*/timeout=3/' "$cfg"
ranks 2
wants 3 'start-up: waited 3.' 'timeout in the cfg'

# load: with rank0 no other rank has to see the file
wrap=()
mkdir -p "$tmp/here" "$tmp/away"
ranks 0 -backup "$tmp/here"
[ "$status" = 0 ] || bad 'weights to start from'
only_rank 1 "cd $tmp/away"
for how in each rank0; do
	for set in cfg flag; do
		awk -v load="$([ $set = cfg ] && echo "load=$how")" '1; /^\[fsdp\]/ && load { print load }' "$tmp/net.cfg" > "$tmp/l.cfg"
		run_mpi=$PWD/scripts/run-mpi.sh
		(cd "$tmp/here" && "$run_mpi" 2 "${wrap[@]}" "$bin" classifier train "$tmp/x.data" "$tmp/l.cfg" net_final.weights -clear \
			-threads 1 -backup "$tmp/b" $([ $set = flag ] && echo "-fsdp.load $how")) > "$tmp/out" 2> "$tmp/err" < /dev/null
		status=$?
		if [ $how = each ]; then
			wants 1 'net_final.weights' "load=$how by $set"
		else
			wants 0 '' "load=$how by $set"
		fi
	done
done

# verify: a copy that was read from another file of that name
mkdir -p "$tmp/other"
ranks 0 -backup "$tmp/other" -seed 7
only_rank 1 "cd $tmp/other"
for set in cfg flag; do
	cp "$tmp/net.cfg" "$tmp/l.cfg"
	for off in 0 1; do
		[ $set$off = cfg1 ] && sed -i 's/^\[fsdp\]/&\nverify=off/' "$tmp/l.cfg"
		(cd "$tmp/here" && "$run_mpi" 2 "${wrap[@]}" "$bin" classifier train "$tmp/x.data" "$tmp/l.cfg" net_final.weights -clear \
			-threads 1 -backup "$tmp/b" -fsdp.strategy replicate $([ $set$off = flag1 ] && echo "-fsdp.verify off")) \
			> "$tmp/out" 2> "$tmp/err" < /dev/null
		status=$?
		if [ $off = 1 ]; then
			wants 0 '' "verify=off by $set"
		else
			wants 1 'before step 1: block block0: ranks 0, 1 hold copies of the same values' "verify=startup"
		fi
	done
done
finish
