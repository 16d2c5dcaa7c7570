#!/usr/bin/env bash
# From a fresh checkout: set-up, build without warnings, all tests, at 1 to 4 ranks. Ends with a table of the suites.
set -eu
cd "$(dirname "$0")/.."

scripts/setup.sh
make -j "$(nproc)" WERROR=1 all tests
make WERROR=1 NP="${NP:-1 2 3 4}" test
