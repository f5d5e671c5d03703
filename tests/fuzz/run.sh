#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# run.sh - one fuzz target for a bounded number of runs, from its seeds, in a temporary folder.
#
# usage: run.sh FOLDER-OF-PROGRAMS TARGET
# SLUICE_FUZZ_RUNS and SLUICE_FUZZ_SEED make a longer or another search than the one that is always
# the same. An input that fails is printed in Base64 by libFuzzer, and so is the way to it.
set -euo pipefail

bin=$1 target=$2
runs=${SLUICE_FUZZ_RUNS:-300000} seed=${SLUICE_FUZZ_SEED:-1}
if [[ ! -x $bin/$target ]]; then
    echo "SKIPPED: $target was not built: THIS COMPILER HAS NO LIBFUZZER (Debian: libclang-rt-dev)"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-fuzz.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/corpus"
"$bin/fuzz_seeds" "$target" "$work/corpus"
"$bin/$target" "$work/corpus" -runs="$runs" -seed="$seed" -max_len=320 -timeout=10 \
    -rss_limit_mb=1024 -max_total_time=60 -artifact_prefix="$work/" -print_final_stats=1 \
    > "$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
grep -E '^stat::(number_of_executed_units|new_units_added)|DONE' "$work/log" || true
