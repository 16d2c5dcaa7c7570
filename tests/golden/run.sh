#!/usr/bin/env bash
# Tiny nets against Debian's darknet: outputs, losses and the change of every tensor in training.
#   tests/golden/run.sh         our program against the committed fixtures; where the package is installed, the fixtures are made
#                               again, compared with the committed ones, and ours is compared with each layer of the fresh ones
#   tests/golden/run.sh make    writes the fixtures (needs the package)
#
# Tolerances. Forward: 1e-4 of the largest magnitude; both sides compute in float32, and a sum of n products in another order
# differs by about sqrt(n) * 6e-8 of its terms, times the gain of the layers that follow. Training: the change of each tensor
# differs by at most 1e-4 of its norm, since a change is a sum of such sums, and ten updates feed it back; losses 1e-5 at first and
# 1e-4 after ten updates. Both use -legacy-bn: the two rules of batch normalisation differ by more than that.
cd "$(dirname "$0")/../.." || exit 1
. tests/golden/lib.bash
forward_tol=1e-4
train_tol=1e-4
loss_tol=1e-4
again_tol=1e-6          # fixtures of the same package, made again: another machine may have other vector units

seed_of() { # NAME: of its values; files keep their numbers when nets are added
	printf '%s' "$1" | cksum | cut -d' ' -f1
}

images_of() { # NAME: multiples of every batch; training sees two different ones
	case $1 in
	train-*) echo 16 ;;
	*) echo 8 ;;
	esac
}

cfg_of_steps() { # CFG STEPS OUT
	sed "s/^max_batches=.*/max_batches=$2/" "$1" > "$3"
}

# make_one NAME DIR: everything Debian's library says about a net
make_one() {
	local name=$1 dir=$2 cfg=$golden/nets/$1.cfg images seed inputs truths steps
	images=$(images_of "$name")
	seed=$(seed_of "$name")
	oracle init "$cfg" "$seed" "$dir/$name.weights" || return 1
	oracle layout "$cfg" > "$dir/$name.layout" || return 1
	inputs=$(($(key "$cfg" width) * $(key "$cfg" height) * $(key "$cfg" channels)))
	compare random "$seed" $((images * inputs)) "$dir/$name.in" || return 1
	oracle forward "$cfg" "$dir/$name.weights" "$dir/$name.in" "$dir/$name.out" || return 1
	case $name in
	train-*) ;;
	*) return 0 ;;
	esac
	truths=$(($(wc -c < "$dir/$name.out") / 4 / images))
	if grep -q '^\[softmax\]' "$cfg"; then
		compare classes "$seed" $images $truths "$dir/$name.truth" || return 1
	else
		compare random $((seed + 1)) $((images * truths)) "$dir/$name.truth" || return 1
	fi
	for steps in 1 10; do
		oracle train "$cfg" "$dir/$name.weights" "$dir/$name.in" "$dir/$name.truth" $steps "$dir/$name-$steps.weights" |
			awk '{ print $3 }' > "$dir/$name-$steps.loss" || return 1
	done
	# decay and momentum are worth testing only where they move something
	for term in decay momentum; do
		sed "s/^$term=.*/$term=0/" "$cfg" > "$tmp/without.cfg"
		oracle train "$tmp/without.cfg" "$dir/$name.weights" "$dir/$name.in" "$dir/$name.truth" 10 "$tmp/without.weights" > /dev/null ||
			return 1
		check "$name: $term moves a tensor by 1 %" compare share "$dir/$name.layout" "$dir/$name.weights" "$tmp/without.weights" \
			"$dir/$name-10.weights" 0.01
	done
}

our_forward() { # NAME DIR OUT FLAG...: with DIR's weights and images
	local name=$1 dir=$2 out=$3 cfg=$golden/nets/$1.cfg images
	images=$(images_of "$name")
	shift 3
	compare npy "$dir/$name.in" "$tmp/in.npy" $images "$(key "$cfg" channels)" "$(key "$cfg" height)" "$(key "$cfg" width)" &&
		ours forward "$cfg" "$dir/$name.weights" "$tmp/in.npy" "$out" -legacy-bn "$@"
}

our_train() { # NAME DIR STEPS FLAG...: leaves $tmp/trained.weights and $tmp/trained.loss
	local name=$1 dir=$2 steps=$3 cfg=$tmp/$1.cfg images
	images=$(images_of "$name")
	shift 3
	rm -rf "$tmp/backup"
	mkdir "$tmp/backup"
	cfg_of_steps "$golden/nets/$name.cfg" "$steps" "$cfg"
	compare npy "$dir/$name.in" "$tmp/in.npy" $images "$(key "$cfg" channels)" "$(key "$cfg" height)" "$(key "$cfg" width)" &&
		compare npy "$dir/$name.truth" "$tmp/truth.npy" $images $(($(wc -c < "$dir/$name.truth") / 4 / images)) || return 1
	printf 'format=npy\ntrain=%s\ntrain_truth=%s\n' "$tmp/in.npy" "$tmp/truth.npy" > "$tmp/golden.data"
	ours train "$tmp/golden.data" "$cfg" "$dir/$name.weights" -shuffle 0 -legacy-bn -backup "$tmp/backup" -log "$tmp/log.jsonl" "$@" ||
		return 1
	sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$tmp/log.jsonl" > "$tmp/trained.loss"
	mv "$tmp/backup/${name}_final.weights" "$tmp/trained.weights"
}

# against NAME DIR WHAT: our program against the fixtures of a folder, on both backends
against() {
	local name=$1 dir=$2 what=$3 backend steps
	for backend in cpu ref; do
		our_forward "$name" "$dir" "$tmp/out.npy" -backend $backend || { fail "$name: forward"; return; }
		check "$name: forward, $backend, $what" compare max "$tmp/out.npy" "$dir/$name.out" $forward_tol
		case $name in
		train-*) ;;
		*) continue ;;
		esac
		for steps in 1 10; do
			our_train "$name" "$dir" $steps -backend $backend || { fail "$name: train"; return; }
			check "$name: losses of $steps, $backend, $what" compare loss "$tmp/trained.loss" "$dir/$name-$steps.loss" $loss_tol
			check "$name: change after $steps, $backend, $what" compare change "$dir/$name.layout" "$dir/$name.weights" \
				"$tmp/trained.weights" "$dir/$name-$steps.weights" $train_tol
		done
	done
}

# live NAME DIR: the committed fixtures are still what the library says; every layer of ours is its layer
live() {
	local name=$1 dir=$2 cfg=$golden/nets/$1.cfg f i n
	for f in "$golden/data/$name".* "$golden/data/$name"-*; do
		[ -f "$f" ] || continue
		case $f in
		*.in | *.truth | *.layout) check "$(basename "$f"): made again" cmp "$f" "$dir/$(basename "$f")" ;;
		*.out | "$golden/data/$name.weights") check "$(basename "$f"): made again" compare max "$f" "$dir/$(basename "$f")" $again_tol ;;
		*.loss) check "$(basename "$f"): made again" compare loss "$f" "$dir/$(basename "$f")" $again_tol ;;
		*-1.weights | *-10.weights) check "$(basename "$f"): made again" compare change "$dir/$name.layout" "$dir/$name.weights" "$f" \
			"$dir/$(basename "$f")" $again_tol ;;
		esac
	done
	rm -f "$tmp"/layer.*
	oracle each "$cfg" "$dir/$name.weights" "$dir/$name.in" "$tmp/layer" || { fail "$name: each"; return; }
	n=$(oracle layers "$cfg" | grep -c '^layer ')
	for ((i = 0; i < n; i++)); do
		[ -f "$tmp/layer.$i" ] || continue      # [cost]
		our_forward "$name" "$dir" "$tmp/out.npy" -layer $i || { fail "$name: layer $i"; continue; }
		check "$name: layer $i, live" compare max "$tmp/out.npy" "$tmp/layer.$i" $forward_tol
	done
}

nets=$(cd $golden/nets && ls ./*.cfg | sed 's/^\.\///; s/\.cfg$//')
if [ "${1:-}" = make ]; then
	[ -n "$peer" ] || { echo "golden: the package darknet is not installed"; exit 1; }
	mkdir -p $golden/data
	for name in $nets; do
		make_one "$name" $golden/data || exit 1
	done
	verdict make
	exit
fi
for name in $nets; do
	if ! [ -f "$golden/data/$name.out" ]; then
		fail "$name: no fixtures in $golden/data"
		continue
	fi
	against "$name" $golden/data committed
done
if [ -n "$peer" ]; then
	mkdir "$tmp/live"
	for name in $nets; do
		make_one "$name" "$tmp/live" || { fail "$name: fixtures"; continue; }
		live "$name" "$tmp/live"
		against "$name" "$tmp/live" live
	done
else
	echo "SKIP golden live: the package darknet is not installed (apt-get install darknet)"
fi
verdict golden
