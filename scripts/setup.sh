#!/usr/bin/env bash
# Installs the Debian packages that the build, the tests and the demo need. Quick and quiet when all are there.
# usage: scripts/setup.sh [--tidy]     --tidy: also what `make tidy` and `make format` call
set -u

packages=(
	build-essential make gcc pkg-config
	libdnnl-dev                     # convolutions and matrix products of the CPU backend
	libopenmpi-dev openmpi-bin      # ranks of the fsdp plugin
	libcjson-dev                    # checkpoints' meta.json
	libxxhash-dev                   # checksums
	zlib1g-dev
	libstb-dev                      # decoding and writing images
	libcunit1-dev                   # tests
	python3 procps                  # demo and tests read JSON logs with it, and look for processes
)
[ "${1:-}" = --tidy ] && packages+=(clang-tidy clang-format cppcheck)

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
	echo "setup: this is not a Debian system: install the equivalents of: ${packages[*]}" >&2
	exit 1
fi

missing=()
for p in "${packages[@]}"; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2> /dev/null)
	[ "$status" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
	if command -v sudo > /dev/null && sudo -n true 2> /dev/null < /dev/null; then
		sudo=(sudo -n)
	elif command -v sudo > /dev/null && [ -t 0 ] && sudo -v; then   # asks for the password
		sudo=(sudo)
	else
		echo "setup: missing packages, and no rights to install them; run:" >&2
		echo "    sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
		exit 1
	fi
fi

echo "setup: installing ${missing[*]}"
apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0)
if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" < /dev/null > /dev/null 2>&1; then
	"${apt[@]}" update < /dev/null || exit 1        # package lists may be old or absent
	"${apt[@]}" install --no-install-recommends "${missing[@]}" < /dev/null || exit 1
fi
