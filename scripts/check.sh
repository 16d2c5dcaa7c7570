#!/usr/bin/env bash
# All checks, on two cores in 40 minutes: format, static analysis and the include rules, every test, those of a device that is far away,
# and once more with the address and the undefined behaviour sanitizer those that read what others wrote or run ranks as threads.
set -eu
cd "$(dirname "$0")/.."

begin=$SECONDS
took() {
	echo "check: $1 took $((SECONDS - begin)) s"
	begin=$SECONDS
}

scripts/setup.sh --tidy
make format-check
make tidy
took "format and analysis"
scripts/test.sh
took "the tests"
make WERROR=1 NP=2 FAR_SEEDS=1 test-far
took "the tests on a device that is far away"
make WERROR=1 NP= T="test_base_keyfile test_base_file test_base_text test_data test_graph test_image test_io test_keys test_list fsdp/" test-asan
took "the sanitizers"
