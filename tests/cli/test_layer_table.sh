#!/usr/bin/env bash
# Darknet's table of layers: each type's own columns, and which sizes are one number.
. "$(dirname "$0")/lib.bash"

cat > "$tmp/all.cfg" << 'EOF'
[net]
width=16
height=16
channels=4
batch=2
[conv]
filters=8
size=3
pad=1
[maxpool]
stride=2
[maxpool]
size=3
stride=1
[route]
layers=-1,-2
[shortcut]
from=-2
[conv]
filters=16
[shortcut]
from=4
[dropout]
probability=.25
[dropout]
[upsample]
[reorg]
stride=2
[local]
filters=3
[deconv]
filters=2
[batchnorm]
[normalization]
[l2norm]
[activation]
activation=relu
[crop]
crop_width=4
crop_height=4
[local_avgpool]
size=2
[avgpool]
[connected]
output=3
[logistic]
[softmax]
noloss=1
[cost]
EOF
cat > "$tmp/want" << 'EOF'
layer     filters    size              input                output
    0 conv      8  3 x 3 / 1    16 x  16 x   4   ->    16 x  16 x   8  0.000 BFLOPs
    1 max          2 x 2 / 2    16 x  16 x   8   ->     8 x   8 x   8
    2 max          3 x 3 / 1     8 x   8 x   8   ->     8 x   8 x   8
    3 route  2 1                 8 x   8 x  16   ->     8 x   8 x  16
    4 res     2                  8 x   8 x  16   ->     8 x   8 x  16
    5 conv     16  1 x 1 / 1     8 x   8 x  16   ->     8 x   8 x  16  0.000 BFLOPs
    6 res     4                  8 x   8 x  16   ->     8 x   8 x  16
    7 dropout       p = 0.25              1024   ->              1024
    8 dropout       p = 0.50              1024   ->              1024
    9 upsample                   8 x   8 x  16   ->    16 x  16 x  16
   10 reorg                     16 x  16 x  16   ->     8 x   8 x  64
   11 local                      8 x   8 x  64   ->     8 x   8 x   3  0.000 BFLOPs
   12 deconvolutional            8 x   8 x   3   ->     8 x   8 x   2  0.000 BFLOPs
   13 batchnorm                  8 x   8 x   2   ->     8 x   8 x   2
   14 normalization              8 x   8 x   2   ->     8 x   8 x   2
   15 l2norm                     8 x   8 x   2   ->     8 x   8 x   2
   16 activation                 8 x   8 x   2   ->     8 x   8 x   2
   17 crop                       8 x   8 x   2   ->     4 x   4 x   2
   18 local_avgpool              4 x   4 x   2   ->     4 x   4 x   2
   19 avg                        4 x   4 x   2   ->                 2
   20 connected                              2   ->                 3  0.000 BFLOPs
   21 logistic                               3   ->                 3
   22 softmax                                3   ->                 3
   23 cost                                   3   ->                 3
EOF
run 0 net "$tmp/all.cfg"
sed -n '1,/ cost /p' "$tmp/out" | diff "$tmp/want" - > "$tmp/diff" || fail "the table is another: $(cat "$tmp/diff")"
finish 'layer table'
