#!/usr/bin/env bash
# Every flag does something: for each one that `darknet options` prints below a heading, a command ends, writes or says something
# else with it than without. A flag without a case here fails. (Keys of a plugin: tests/mpi/test_options.sh.)
. "$(dirname "$0")/lib.bash"

run 0 options
cp "$tmp/out" "$tmp/options"
cat > "$tmp/t.cfg" << 'EOF'
[net]
batch=8
width=8
height=8
channels=1
learning_rate=.02
max_batches=4

[convolutional]
batch_normalize=1
filters=2
size=3
activation=leaky

[connected]
output=10
activation=linear

[softmax]
EOF
sed "s|^backup.*|backup=$tmp/b|; s|data/|$PWD/data/|" cfg/digits.data > "$tmp/t.data"
python3 - "$tmp" "$bin" << 'PY' > "$tmp/cases"
import glob, json, os, re, shutil, subprocess, sys
tmp, bin = sys.argv[1:]
tables, now = {}, None      # heading: flags
for line in open(tmp + '/options'):
    head = re.match(r'(Verbs that run a net|Training|darknet .*):$', line)
    if head:
        names = head.group(1).replace('darknet ', '').split(', ')
        now = [tables.setdefault(name, set()) for name in names]
    elif re.match(r'\S', line):
        now = None          # a section of a cfg, or a plugin's keys
    elif now is not None and line.startswith('  -'):
        for flags in now:
            flags.add(line.split()[0][1:])

bad = done = 0

def check(ok, *what):
    global bad, done
    done += 1
    if not ok:
        bad += 1
        print('FAIL:', *what)

def call(*words):
    p = subprocess.run([bin, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd=tmp)
    return p.returncode, p.stdout, p.stderr

# A fresh folder; what a command leaves in it and says, without times, and without the lines that only repeat what was asked for.
def look(before, words):
    for path in glob.glob(tmp + '/b*') + glob.glob(tmp + '/new*'):
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    for w in before:
        status, _, err = call(*w)
        check(status == 0, w, err)
    status, out, err = call(*words)
    files = {}
    for path in sorted(glob.glob(tmp + '/b*/**', recursive=True) + glob.glob(tmp + '/new*')):
        if os.path.isfile(path) and not path.endswith(('.json', 'log')):
            with open(path, 'rb') as f:
                files[path[len(tmp):]] = hash(f.read())
        elif os.path.isfile(path):
            files[path[len(tmp):]] = None
    quiet = lambda s: re.sub(r'[0-9.e+-]+ ([sS]econds|bytes)|(Loaded|Done|FLOPS|Speed|Predicted|options: |Seed: ).*', '', s)
    return status, quiet(out), quiet(err), files

known = {}

def differs(verb, flag, words, value=None, before=(), status=0, plain=0, says=None):
    name, of = '%s %s' % (verb, flag), repr((before, words))
    if of not in known:     # twice: nothing may differ by itself
        known[of] = look(before, words)
        again = look(before, words)
        check(known[of] == again, words, 'differs from itself', known[of], again)
    without, with_it = known[of], look(before, words + [flag] + ([value] if value is not None else []))
    check(without[0] == plain, name, 'without it', without)
    check(with_it[0] == status, name, with_it)
    check(without != with_it, name, 'changes nothing', with_it)
    check(says is None or re.search(says, with_it[1] + with_it[2]), name, 'does not say', says, with_it)
    return flag[1:]

small = ['-threads', '1']
train = ['train', 't.data', 't.cfg']
cfg = open(tmp + '/t.cfg').read()
with open(tmp + '/odd.cfg', 'w') as f:
    f.write(cfg.replace('size=3', 'size=3\nodd=1'))
with open(tmp + '/own.cfg', 'w') as f:
    f.write(cfg + '[fsdp]\nlimit=0\n')
with open(tmp + '/marked.cfg', 'w') as f:
    f.write(cfg.replace('[conn', '[block]\n[conn'))
with open(tmp + '/frozen.cfg', 'w') as f:
    f.write(cfg.replace('size=3', 'size=3\nstopbackward=1'))
check(call(*train, *small, '-seed', '1', '-backup', 'w')[0] == 0, 'weights to go on from')
weights = 'w/t_final.weights'
with open(tmp + '/i.pgm', 'wb') as f:
    f.write(b'P5 8 8 255\n' + bytes(range(64)))

cases = {}
def case(verb, *rest, **more):
    cases.setdefault(verb, set()).add(differs(verb, *rest, **more))

net = 'Verbs that run a net'
case(net, '-plugin', ['train', 't.data', 'own.cfg', *small], 'none', plain=1)
case(net, '-threads', train + ['-backup', 'b'], str(os.cpu_count() + 1), says='threads: %d a rank' % (os.cpu_count() + 1))
case(net, '-backend', train + small, 'ref')
case(net, '-legacy-bn', train + small)
case(net, '-strict', ['train', 't.data', 'odd.cfg', *small], status=1, says='odd=1')
for flag, value, wrong in (('device', 'cuda:0', 'gpu'), ('i', '1', 'x'), ('gpus', '0,1', 'x')):
    differs(net, '-' + flag, train + small, wrong, status=1, says='-%s %s: ' % (flag, wrong))
case(net, '-device', train + small, 'cuda:0', says='GPU')
case(net, '-i', train + small, '1', says='GPU')
case(net, '-gpus', train + small, '0,1', says='GPU')
# the one flag that asks for what is done anyway
check(call(*train, *small, '-nogpu')[0] == 0, '-nogpu')
cases[net].add('nogpu')
case(net, '-seed', train + small, '5')
case(net, '-batch', train + small, '4')

case('Training', '-subdivisions', train + small, '2')
case('Training', '-shuffle', train + small, '0')
case('Training', '-backup', train + small, 'b2')
case('Training', '-log', train + small, 'new.log')
case('Training', '-valid', train + small, '2', says='Validation after 2')
case('Training', '-save_every', train + small, '2')
case('Training', '-keep', train + small + ['-save_every', '1'], '1')
case('Training', '-clip_norm', train + small, '.01')
case('Training', '-clip_p', train + small + ['-clip_norm', '.01'], '1')
case('Training', '-clip_value', train + small, '.001')
case('Training', '-loss_scale', train + small, '3')
case('Training', '-ema', train + small, '.5')
# what each does is in tests/mpi/test_guards.sh
case('Training', '-nan', train + small, 'off', status=1, says='-nan off: wanted loss, stop, skip or continue')
case('Training', '-async', train + small, '1', status=1, says='-async 1: ')
first = train + small + ['-save_every', '2']
case('Training', '-resume', train + small, 'b/t.ckpt/2', before=[first], says=r'\n3, ')
case('Training', '-force', train + small + ['-batch', '4', '-resume', 'b/t.ckpt/2'], before=[first], plain=1)
case('Training', '-clear', train + [weights] + small)

for flag in ('-t', '-top'):
    case('classifier predict', flag, ['classifier', 'predict', 't.data', 't.cfg', weights, 'i.pgm', *small], '3')
for verb, words in (('net', ['net', 'odd.cfg']), ('ops', ['ops', 'odd.cfg']), ('speed', ['speed', 'odd.cfg', '1']),
                    ('partial', ['partial', 'odd.cfg', weights, 'new.weights', '1']), ('weights info', ['weights', 'info', weights, 'odd.cfg']),
                    ('weights diff', ['weights', 'diff', weights, weights, 'odd.cfg'])):
    case(verb, '-strict', words, status=1, says='odd=1')
case('net', '-json', ['net', 't.cfg'])
case('net', '-plain', ['net', 'marked.cfg'], 'new.cfg')
case('forward', '-layer', ['forward', 't.cfg', weights, 'i.pgm', 'new.npy', *small], '0')
for verb in 'look', 'imtest':
    words = [verb, 't.data', 't.cfg', 'new.png']
    case(verb, '-n', words, '9', says='Saving 9 samples')
    case(verb, '-columns', words, '3')
    case(verb, '-strict', [verb, 't.data', 'odd.cfg', 'new.png'], status=1, says='odd=1')
    differs(verb, '-seed', words, '5')
differs('forward', '-batch', ['forward', 't.cfg', weights, 'i.pgm', 'new.npy', *small], '0', status=1, says='-batch 0: ')
differs('classifier valid', '-strict', ['classifier', 'valid', 't.data', 'odd.cfg', weights, *small], status=1, says='odd=1')
differs('classifier predict', '-strict', ['classifier', 'predict', 't.data', 'odd.cfg', weights, 'i.pgm', *small], status=1,
        says='odd=1')
case('help', '-man', ['help'])
plan = ['fsdp', 'plan', 't.cfg']
case('fsdp plan', '-world', plan, '2')
case('fsdp plan', '-json', plan)
for flag, value in (('threads', '3'), ('batch', '16'), ('subdivisions', '2'), ('backend', 'ref')):
    case('fsdp plan', '-' + flag, plan + ['-json'], value)
case('fsdp plan', '-strict', ['fsdp', 'plan', 'odd.cfg'], status=1, says='odd=1')
case('fsdp consolidate', '-ema', ['fsdp', 'consolidate', 'b/t.ckpt', 'new.weights'], before=[train + small + ['-ema', '.5', '-save_every', '2']])

# where a net is built and nothing of what these change is printed: no more than a bad value shows
for verb, words in (('net', ['net', 't.cfg']), ('ops', ['ops', 't.cfg']), ('speed', ['speed', 't.cfg', '1']),
                    ('look', ['look', 't.data', 't.cfg', 'new.png']), ('imtest', ['imtest', 't.data', 't.cfg', 'new.png']),
                    ('partial', ['partial', 't.cfg', weights, 'new.weights', '1'])):
    case(verb, '-threads', words, '0', status=1, says='-threads 0: ')
    case(verb, '-backend', words, 'none', status=1, says='-backend none: ')
    cases[verb].add('legacy-bn')
    check(look([], words + ['-legacy-bn'])[0] == 0, verb, '-legacy-bn')
cases['fsdp plan'].add('legacy-bn')
check(look([], plan + ['-legacy-bn'])[0] == 0, '-legacy-bn')

check(len(tables) > 12 and sum(map(len, tables.values())) > 55, tables)
for name, flags in tables.items():
    for flag in flags ^ cases.get(name, set()):
        check(False, name, flag, 'has no case' if flag in flags else 'is no flag')
for name in cases:
    check(name in tables, name, 'has no flags')
print('cases', done)
sys.exit(bad > 0)
PY
status=$?
cases=$((cases + $(sed -n 's/^cases //p' "$tmp/cases")))
[ $status -eq 0 ] || { grep FAIL "$tmp/cases" | cut -c 1-600; fail "flags that do nothing, or other things"; }

finish options
