#!/usr/bin/env bash
# Debian's stock classifier cfgs, with seeded random weights: our outputs at the layer before [softmax] against Debian's library.
#   tests/golden/stock.sh            a subset that takes half a minute
#   ALL=1 tests/golden/stock.sh      every stock cfg whose sections we support, three minutes
#   tests/golden/stock.sh tiny ...   these
# Images are made small where the net allows it: the same layers, less time.
#
# Tolerances, of the largest magnitude: 1e-4 with -legacy-bn, where only the order of summation differs; 2e-3 with our own rule of
# batch normalisation, whose epsilon stands inside the root. The five largest must be the same, in order, under both.
cd "$(dirname "$0")/../.." || exit 1
. tests/golden/lib.bash
legacy_tol=1e-4
own_tol=2e-3
images=2

if [ -z "$peer" ] || [ ! -d "$peer_cfg" ]; then
	echo "SKIP golden stock: the package darknet is not installed (apt-get install darknet)"
	exit 0
fi

# cfg:width of the image; 0 keeps the cfg's own. Batch norms at 1x1 would normalise a handful of values: 64 is enough for most.
# Not here, since this version has no such section: detectors, rnn.
quick="tiny:64 darknet19:64 resnet18:64 resnet50:64 resnext50:64 densenet201:64 extraction:64 cifar:0"
rest="alexnet:0 cifar.test:0 darknet:64 darknet19_448:96 darknet53:64 darknet53_448:96 extraction.conv:64 extraction22k:64
	jnet-conv:0 resnet34:64 resnet101:64 resnet152:64 resnext101-32x4d:64 resnext152-32x4d:64 vgg-conv:64 writing:64 vgg-16:0 strided:0 darknet9000:64"
list=$quick
[ "${ALL:-0}" = 1 ] && list="$quick $rest"
[ $# -gt 0 ] && list=$*

stock() { # NAME WIDTH
	local name=$1 width=$2 cfg=$tmp/$1.cfg layer inputs top w h c rule tol
	sed -e 's/\r$//' -e "s/^batch *=.*/batch=4/; s/^subdivisions *=.*/subdivisions=1/" "$peer_cfg/$name.cfg" > "$cfg"
	[ "$width" -gt 0 ] && sed -i "s/^width *=.*/width=$width/; s/^height *=.*/height=$width/" "$cfg"
	oracle init "$cfg" 7 "$tmp/w" || { fail "$name: init"; return; }
	oracle layers "$cfg" > "$tmp/layers" || { fail "$name: layers"; return; }
	# 4 is [softmax], 9 [cost]: the layer before the first of them at the end
	layer=$(awk '$1 == "layer" { if ($3 != 4 && $3 != 9) last = $2 } END { print last }' "$tmp/layers")
	top=$(awk -v l="$layer" '$1 == "layer" && $2 == l { print $4 }' "$tmp/layers")
	inputs=$(awk '$1 == "inputs" { print $2 }' "$tmp/layers")
	w=$(key "$cfg" width)
	h=$(key "$cfg" height)
	c=$(key "$cfg" channels)
	compare random 11 $((images * inputs)) "$tmp/in" && compare npy "$tmp/in" "$tmp/in.npy" $images "$c" "$h" "$w" &&
		oracle forward "$cfg" "$tmp/w" "$tmp/in" "$tmp/theirs" "$layer" || { fail "$name: oracle"; return; }
	for rule in -legacy-bn own; do
		tol=$legacy_tol
		[ $rule = own ] && tol=$own_tol
		ours forward "$cfg" "$tmp/w" "$tmp/in.npy" "$tmp/ours.npy" -layer "$layer" $([ $rule = own ] || echo $rule) ||
			{ fail "$name: forward"; return; }
		check "$name, layer $layer, $rule" compare max "$tmp/ours.npy" "$tmp/theirs" $tol
		check "$name, layer $layer, $rule" compare top "$tmp/ours.npy" "$tmp/theirs" "$top" 5
	done
	rm -f "$tmp/w"
}

for item in $list; do
	name=${item%%:*}
	width=${item#"$name"}
	width=${width#:}
	if ! [ -f "$peer_cfg/$name.cfg" ]; then
		fail "$name: no such cfg in $peer_cfg"
		continue
	fi
	stock "$name" "${width:-64}"
done
verdict stock
