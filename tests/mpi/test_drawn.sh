#!/usr/bin/env bash
# Drawn combinations of keys: what runs has the memory and the traffic of its plan, allocates nothing after the first step, and its
# plan is what fsdp plan prints; what cannot be is refused before anything is allocated, in the name of a key that was drawn.
. "$(dirname "$0")/lib.bash"
net "$tmp/net.cfg" 1 3 53
sed -i 's/^batch=.*/batch=48/; s/^subdivisions=.*/subdivisions=2/' "$tmp/net.cfg"
"$bin" help fsdp > "$tmp/keys" || bad "help fsdp"

python3 - "$tmp" "$bin" ${NP:-1 2 3 4} << 'PY' || bad "drawn combinations"
import json, os, random, re, subprocess, sys
tmp, bin, worlds = sys.argv[1], sys.argv[2], [int(n) for n in sys.argv[3:]]
known = set(re.findall(r'^  -fsdp\.(\w+)', open(tmp + '/keys').read(), re.M))
draws = {
    'strategy': ['full', 'grad_op', 'opt', 'replicate', 'hybrid_full', 'hybrid_grad_op', 'hybrid_full_opt'],
    'shard': ['2', '3', '4'],
    'layout': ['planned:row', 'planned:tensor'],
    'blocks': ['each', 'whole', 'at:0,2', 'size:2K'],
    'limit': ['1', '2', '3'],
    'grad_slots': ['1', '2', '3'],
    'prefetch': ['pre', 'post', 'none'],
    'depth': ['0', '1', '2'],
    'release': ['0', '1', '2', '3'],
    'accumulate': ['hybrid_last', 'no_sync', 'no_sync_keep'],
    'wire': ['bf16', 'fp16'],
    'reduce': ['bf16', 'fp16'],
    'batch_norm': ['sync'],
    'recompute': ['all', 'none'],
    'collectives': ['mpi', 'shm'],
    'clip_norm': ['.5'],
    'clip_value': ['.1'],
    'nan': ['skip', 'continue', 'stop'],
    'loss_scale': ['8', 'dynamic'],
    'ema': ['.9'],
    'virtual_workers': ['2', '4'],
    'persistent': ['40'],
    'verify': ['off', 'replicas:1'],
    'poison': ['1'],
}
draws = {k: v for k, v in draws.items() if k in known}
random.seed(8)
bad = ran = refused = 0
while ran < 30:
    n = random.choice(worlds)
    keys = {k: random.choice(draws[k]) for k in random.sample(sorted(draws), random.randint(2, 9))}
    if keys.get('strategy', '').startswith('hybrid') and n == 4 and random.random() < .8:
        keys['shard'] = '2'
    # most of what cannot be is left out
    if random.random() < .9:
        hybrid = keys.get('strategy', '').startswith('hybrid')
        if hybrid and n != 4:
            continue
        if not hybrid:
            keys.pop('shard', None)
        if int(keys.get('depth', 0)) >= int(keys.get('limit', 2)):
            del keys['depth']
        if keys.get('accumulate', '').startswith('no_sync'):
            keys.pop('grad_slots', None)
        if keys.get('release') in ('2', '3') and (n != 4 or hybrid or keys['release'] == '3'):
            del keys['release']
    flags = [w for k, v in keys.items() for w in ('-fsdp.' + k, v)]
    if os.path.exists(tmp + '/log'):
        os.remove(tmp + '/log')
    p = subprocess.run(['scripts/run-mpi.sh', str(n), bin, 'classifier', 'train', tmp + '/x.data', tmp + '/net.cfg', '-threads', '1',
                        '-backup', tmp + '/b', '-log', tmp + '/log', *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if p.returncode:
        refused += 1
        said = [line for line in p.stderr.split('\n') if line.startswith('darknet: ')]
        told = p.returncode == 1 and said and any('-fsdp.' + k in said[0] or k + '=' in said[0] or k + ':' in said[0] for k in keys)
        if not told or os.path.exists(tmp + '/log'):
            bad += 1
            print('FAIL:', n, 'ranks', flags, p.returncode, said[:3] or p.stderr[-500:])
        if refused > 300:
            print('FAIL: nearly everything is refused')
            bad += 1
            break
        continue
    ran += 1
    events = [json.loads(line) for line in open(tmp + '/log')]
    end, wrong = events[-1], []
    if end['event'] != 'end' or len(end['ranks']) != n or end['allocs_after_first_step']:
        wrong.append(('end', end['event'], len(end['ranks']), end.get('allocs_after_first_step')))
    for r in end['ranks']:
        wrong += [(r['rank'], g) for g in r['regions'] if g['planned_bytes'] != g['measured_bytes']]
        wrong += [(r['rank'], q, r[q]) for q in ('gather', 'reduce')
                  if r[q]['planned_bytes'] != r[q]['counted_bytes'] or r[q]['planned_calls'] != r[q]['counted_calls']]
    # what -json tells beforehand; workspace is the library's on as many threads
    q = subprocess.run([bin, 'fsdp', 'plan', tmp + '/net.cfg', '-world', str(n), '-threads', '1', '-json', *flags], capture_output=True, text=True)
    plan = json.loads(q.stdout) if q.returncode == 0 else {'hash': q.stderr}
    if plan['hash'] != events[0]['plan_hash']:
        wrong.append(('hash', plan['hash'], events[0]['plan_hash']))
    if wrong:
        bad += 1
        print('FAIL:', n, 'ranks', flags, wrong[:3])
print('%d combinations ran, %d were refused' % (ran, refused))
sys.exit(bad > 0)
PY
finish
