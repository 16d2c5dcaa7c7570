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
# T20: a frozen block between learning ones, statistics and all: the same on every number of ranks, and toggled by a resume
net "$tmp/middle.cfg" 1 4
python3 - "$tmp/middle.cfg" <<-'EOF'
	import sys
	text = open(sys.argv[1]).read()
	a, b = text.index("[block]\nname=stem"), text.index("[block]\nname=pool")
	text = text[:a] + """[block]
	name=first
	[convolutional]
	filters=3
	size=1
	activation=leaky
	[block]
	name=stem
	frozen=1
	[convolutional]
	batch_normalize=1
	filters=9
	size=3
	stride=1
	pad=1
	activation=swish
	""" + text[b:].replace("name=mid", "name=mid\nfrozen=1")
	open(sys.argv[1], "w").write(text)
	EOF
mkdir "$tmp/full"
grep -v '^frozen=' "$tmp/middle.cfg" > "$tmp/full/middle.cfg"
cfg=$tmp/full/middle.cfg
ranks 0 -backup "$tmp/m"
[ "$status" = 0 ] || bad "weights of the whole net: status $status: $(tail -n 1 "$tmp/err")"
mv "$tmp/m/middle_final.weights" "$tmp/middle.weights"
# the params of layers: those of blocks that are frozen as they were, the others moved
cat > "$tmp/same.py" <<-'EOF'
	import json, sys, os, struct
	def read(d):
	    m = json.load(open(d + "/meta.json"))
	    out = {}
	    for t in m["tensors"]:
	        if t["kind"] in ("param", "buffer"):
	            out[t["name"]] = b"".join(open(d + "/" + i["file"], "rb").read()[i["offset"]:i["offset"] + 4 * i["length"]]
	                                      for i in sorted(t["intervals"], key=lambda i: i["start"])), t.get("frozen", False)
	    return out
	a, b = read(sys.argv[1]), read(sys.argv[2])
	frozen = sys.argv[3].split(",")
	for n in a:
	    same, want = a[n][0] == b[n][0], n.split(".")[0] in frozen
	    if same != want:
	        sys.exit("%s: %s" % (n, "as it was" if same else "moved"))
	print("%d tensors" % len(a))
	EOF
cfg=$tmp/middle.cfg
for n in 0 ${NP:-1 2 3}; do
	rm -rf "$tmp/m"
	bin_args=("$bin" classifier train "$tmp/x.data" "$cfg" "$tmp/middle.weights" -clear -threads 1 -backup "$tmp/m" -save_every 2)
	if [ "$n" = 0 ]; then "${bin_args[@]}" -plugin none; else scripts/run-mpi.sh "$n" "${bin_args[@]}"; fi > "$tmp/out" 2> "$tmp/err" < /dev/null ||
		bad "$n ranks, frozen between: $(tail -n 1 "$tmp/err")"
	python3 "$tmp/same.py" "$tmp/m/middle.ckpt/2" "$tmp/m/middle.ckpt/4" 1,3 || bad "$n ranks: what is frozen"
	cp "$tmp/m/middle_final.weights" "$tmp/middle$n.weights"
done
if [ -f "$tmp/middle1.weights" ]; then cmp "$tmp/middle0.weights" "$tmp/middle1.weights" || bad "one rank is not the plain run"; fi
# freed: everything learns from zero states on; frozen again
sed -i 's/^max_batches=4/max_batches=6/' "$tmp/full/middle.cfg"
cfg=$tmp/full/middle.cfg
for n in 0 2; do
	rm -rf "$tmp/t" && cp -r "$tmp/m" "$tmp/t"
	ranks $n -backup "$tmp/t" -resume "$tmp/t/middle.ckpt/4" -save_every 2
	[ "$status" = 0 ] || bad "$n ranks, freed: status $status: $(tail -n 1 "$tmp/err")"
	python3 "$tmp/same.py" "$tmp/t/middle.ckpt/4" "$tmp/t/middle.ckpt/6" "" || bad "$n ranks: what is free"
	[ "$(grep -ac '^warning: .*/4: 1.biases and 4 more were frozen and learn now: their optimizer state begins at zero' "$tmp/err")" = 1 ] ||
		bad "$n ranks, freed: nothing said of states"
done
sed -i 's/^max_batches=4/max_batches=8/' "$tmp/middle.cfg"
cfg=$tmp/middle.cfg
ranks 2 -backup "$tmp/t" -resume "$tmp/t/middle.ckpt/6" -save_every 2
[ "$status" = 0 ] || bad "frozen again: status $status: $(tail -n 1 "$tmp/err")"
python3 "$tmp/same.py" "$tmp/t/middle.ckpt/6" "$tmp/t/middle.ckpt/8" 1,3 || bad "what is frozen again"
! grep -aq 'begins at zero' "$tmp/err" || bad "frozen again: states are said to begin"
# the same with all in one block, from a checkpoint of several
cp -r "$tmp/t" "$tmp/t1" && rm -rf "$tmp/t1/middle.ckpt/8"
ranks 2 -backup "$tmp/t1" -resume "$tmp/t1/middle.ckpt/6" -save_every 2 -fsdp.blocks whole -fsdp.layout planned:row
[ "$status" = 0 ] || bad "frozen again, in one block: status $status: $(tail -n 1 "$tmp/err")"
cmp "$tmp/t/middle_final.weights" "$tmp/t1/middle_final.weights" || bad "frozen again, in one block: other bits"
finish
