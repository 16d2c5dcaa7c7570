#!/usr/bin/env bash
# darknet help SECTION and darknet options against what a cfg may hold: every key that they print is known, with the default
# that they print nothing changes, the values that they refuse are refused in their line, and a key that they do not print
# is unknown.
. "$(dirname "$0")/lib.bash"

run 0 options
cp "$tmp/out" "$tmp/options"
# every table stands there once
python3 - "$tmp/options" << 'PY' || fail 'a table is printed twice'
import sys
blocks = open(sys.argv[1]).read().split('\n\n')
flags = [b.split(':\n', 1) for b in blocks if b.startswith('darknet ')]
bodies = [body.strip() for _, body in flags]
twice = [head for head, body in flags if bodies.count(body.strip()) > 1]
print(*twice)
assert len(flags) > 5 and not twice
PY
run 0 help net
has out '^usage: darknet net CFG' 1
has out '^\[net\], also \[network\]: ' 1
run 0 help '[net]'
has out '^usage:' 0
run 0 help conv
has out '^\[convolutional\], also \[conv\]: ' 1
has out '^  filters .*\[1 to 16777216\] \(default 1\)$' 1
has out '^  stride_x .*\(default: stride\)$' 1
has out '^  activation .*: linear, logistic, relu.* \(default logistic\)$' 1
has out '^  any other value is refused: bin_output=0, ' 1
has out '^keys of every layer:$' 1
has out '^  stopbackward ' 1
run 0 help .data
has out '^  format .*\(default list\)$' 1
run 2 help '[conv'
has err 'no verb or section \[conv$' 1
run 2 help yolo
run 0 help -man
cp "$tmp/out" "$tmp/man"

# one section a line: NAME KIND KEY=DEFAULT... as `darknet options` prints them
python3 - "$tmp" "$bin" << 'PY' > "$tmp/cases"
import re, subprocess, sys
tmp, bin = sys.argv[1:]
sections, now = {}, None
for line in open(tmp + '/options'):
    head = re.match(r'\[(\w+)\](?:, also \[\w+\])?: ', line)
    if head or line.startswith('Every layer'):
        now = sections.setdefault(head.group(1) if head else 'layer', {'read': {}, 'only': {}, 'nothing': []})
    elif re.match(r'\S', line):
        now = None
    elif now is not None and line.startswith('  any other value is refused: '):
        now['only'].update(k.split('=') for k in line.split(': ', 1)[1].strip().split(', '))
    elif now is not None and line.startswith('  known, without effect: '):
        now['nothing'] += line.split(': ', 1)[1].strip().split(', ')
    elif now is not None and line.startswith('  '):
        default = re.search(r'\(default ([^)]*)\)$', line.strip())
        now['read'][line.split()[0]] = default.group(1) if default else None

assert len(sections) > 20 and len(sections['net']['read']) > 35, sections.keys()
size = {'width': '8', 'height': '8', 'channels': '4'}
first = '[convolutional]\nfilters=4\nactivation=linear\n'
needs = {'route': 'layers=0\n', 'shortcut': 'from=0\n', 'sam': 'from=0\n', 'scale_channels': 'from=0\n'}
bad = done = 0

def cfg(name, keys):
    text = ''.join('%s=%s\n' % k for k in keys)
    if name == 'net':
        plain = ''.join('%s=%s\n' % k for k in size.items() if k[0] not in dict(keys))
        return '[net]\n' + text + plain + first
    head = '[net]\n' + ''.join('%s=%s\n' % k for k in size.items())
    if name == 'block':
        return head + '[block]\n' + text + first
    head += first + ('[avgpool]\n' if name == 'scale_channels' else '')
    return head + '[%s]\n%s' % ('convolutional' if name == 'layer' else name, text) + needs.get(name, '')

def net(text, *flags):
    global done
    done += 1
    with open(tmp + '/k.cfg', 'w') as f:
        f.write(text)
    p = subprocess.run([bin, 'net', tmp + '/k.cfg', *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return p.returncode, p.stdout, p.stderr

def check(ok, *what):
    global bad
    if not ok:
        bad += 1
        print('FAIL:', *what)

for name, s in sections.items():
    plain = net(cfg(name, []), '-strict')
    check(plain[0] == 0, name, plain)
    keys = [k for k in s['read'].items() if k[1] is not None and k[0] not in size and k[0] != 'inputs']
    got = net(cfg(name, keys + list(s['only'].items()) + [(k, '1') for k in s['nothing']]), '-strict')
    check(got == plain, '[%s] with its defaults' % name, got, 'wanted', plain)
    for key in s['only']:
        text = cfg(name, [(key, '77')])
        line = text.split('\n').index(key + '=77') + 1
        got = net(text)
        check(got[0] == 1 and ':%d: ' % line in got[2] and key + '=77 is not supported' in got[2], name, key, got)
    if name == 'block':     # its other keys wait for a plugin
        continue
    text = cfg(name, [('no_such_key', '1')])
    line = text.split('\n').index('no_such_key=1') + 1
    got = net(text, '-strict')
    check(got[0] == 1 and ':%d: ' % line in got[2] and 'no_such_key=1: unknown key' in got[2], name, got)
# the manual page says of every flag and key what darknet options says
def entries(path, head, entry):
    now, said = '', {}
    for line in open(path):
        if re.match(head, line):
            now = re.match(head, line).group(1)
        elif re.match(entry, line):
            said.setdefault(now if now.startswith(('[', 'Every', '.data')) else 'flags', []).append(line)
    return said

def words(line):
    return ' '.join(line.split())

wanted = entries(tmp + '/options', r'(\S.*?)(?:: |:$)', r'  ')
with open(tmp + '/man') as f:
    page = re.sub(r'\.TP\n\.B (.*)\n(.*\n)', r'  \1 \2', f.read())
page = re.sub(r'\.PP\n(any other value|known, without)', r'  \1', page)
page = re.sub(r'\\f[IR]|\\&', '', page).replace('\\-', '-').replace('\\e', '\\')
with open(tmp + '/page', 'w') as f:
    f.write(page)
found = entries(tmp + '/page', r'\.S[SH] (.*)', r'  ')
for name, lines in wanted.items():
    there = set(map(words, found.get(name, [])))
    for line in map(words, lines):
        done += 1
        check(line in there, 'the manual page lacks in', name, 'the line', line)
check(len(wanted) > 20 and len(wanted['flags']) > 50, wanted.keys())
print('cases', done)
sys.exit(bad > 0)
PY
status=$?
cases=$((cases + $(sed -n 's/^cases //p' "$tmp/cases")))
[ $status -eq 0 ] || { grep FAIL "$tmp/cases" | head -20; fail "keys that are printed and keys that are known differ"; }

finish keys
