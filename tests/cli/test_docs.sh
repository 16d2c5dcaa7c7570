#!/usr/bin/env bash
# What the documents name is there: links and their headings, paths in the tree, verbs and flags of the program, the version; and
# comments in the sources cite documents that are there.
. "$(dirname "$0")/lib.bash"

run 0 options
cp "$tmp/out" "$tmp/options"
run 0 help
cp "$tmp/out" "$tmp/help"
run 0 --version
cp "$tmp/out" "$tmp/version"
git ls-files '*.md' > "$tmp/files" 2> /dev/null || find . -name '*.md' -not -path './build/*' > "$tmp/files"
python3 - "$tmp" << 'PY' > "$tmp/found"
import glob, os, re, sys
tmp = sys.argv[1]
read = lambda path: open(path, encoding='utf-8').read()
pages = read(tmp + '/files').split()
assert len(pages) > 8, pages
cases = bad = 0

def check(ok, *what):
    global cases, bad
    cases += 1
    if not ok:
        bad += 1
        print('FAIL:', *what)

def anchors(page):
    heads = re.findall(r'^#+ (.*)$', read(page), re.M)
    return [re.sub(r'[^\w\- ]', '', h.lower()).replace(' ', '-') for h in heads]

for page in pages:
    text, here = read(page), os.path.dirname(page)
    for link in re.findall(r'\]\(([^)\s]+)\)', text):
        if '://' in link:
            continue
        path, _, anchor = link.partition('#')
        path = os.path.normpath(os.path.join(here, path)) if path else page
        check(os.path.exists(path), page, 'links to', link)
        if anchor and os.path.exists(path):
            check(anchor in anchors(path), page, 'links to', link, 'a heading that is not there')
    # paths: from the root, from the page's folder, or below src as the README's walk through a step writes them
    for path in re.findall(r'`([\w.\-/*]+/[\w.\-*]*)`', text):
        if not re.match(r'(src|plugins|tests|scripts|docs|cfg|comm|plan|run|cli|graph|io|train|plugin)/', path) or 'foo' in path:
            continue
        places = [path, os.path.join(here, path), 'src/' + path, 'plugins/fsdp/' + path]
        check(any(glob.glob(p) for p in places), page, 'names', path)

readme = read('README.md')
for verb in re.findall(r'^\| `([a-z][a-z ]*?)(?: [A-Z\[…].*?)?`', readme[readme.index('| command | does |'):readme.index('## Outputs')], re.M):
    check(re.search(r'^  %s\b' % re.escape(verb), read(tmp + '/help'), re.M), 'README names the verb', verb)
for key in re.findall(r'^\| `(\w+)`', re.search(r'## Keys\n(.*?)\n## ', read('plugins/fsdp/README.md'), re.S).group(1), re.M):
    check('  -fsdp.%s ' % key in read(tmp + '/options'), 'plugins/fsdp/README.md names the key', key)
for key in re.findall(r'^  -fsdp\.(\w+) ', read(tmp + '/options'), re.M):
    check('`%s`' % key in read('plugins/fsdp/README.md'), 'plugins/fsdp/README.md lacks the key', key)
version = re.search(r'^## (\S+)', read('CHANGELOG.md'), re.M).group(1)
check('darknet-fsdp %s,' % version in read(tmp + '/version'), 'CHANGELOG.md begins with', version, 'but', read(tmp + '/version').strip())

for path in glob.glob('src/**/*.[ch]', recursive=True) + glob.glob('plugins/**/*.[ch]', recursive=True) + glob.glob('tests/**/*.[ch]', recursive=True):
    for cited in re.findall(r'\b(?:docs/\w+|README|CONTRIBUTING|CHANGELOG)\.md\b', read(path)):
        check(os.path.exists(cited), path, 'cites', cited)
    for cited, head in re.findall(r'\b(docs/\w+\.md), ([A-Z]\w+)', read(path)):
        check(head.lower() in ' '.join(anchors(cited)), path, 'cites', cited, head)
print('cases', cases)
sys.exit(bad > 0)
PY
status=$?
cases=$((cases + $(sed -n 's/^cases //p' "$tmp/found")))
[ $status -eq 0 ] || { grep FAIL "$tmp/found"; fail "documents name what is not there"; }

finish docs
