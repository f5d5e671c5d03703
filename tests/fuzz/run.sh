#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# run.sh - one fuzz target for a bounded search that is always the same, from its seeds, in a temporary folder.
#
# usage: run.sh FOLDER-OF-PROGRAMS TARGET
# SLUICE_FUZZ_SECONDS=N searches for so long instead, led by coverage; SLUICE_FUZZ_SEED makes it another
# search, SLUICE_FUZZ_RUNS a longer one, SLUICE_FUZZ_CORPUS a folder where it begins and what it finds stays.
# An input that fails is printed in Base64: decoded into a file it is the argument of the target that shows it again.
set -euo pipefail

bin=$1 target=$2
seed=${SLUICE_FUZZ_SEED:-1}
if [[ ! -x $bin/$target ]]; then
    echo "SKIPPED: $target was not built: THIS COMPILER HAS NO LIBFUZZER (Debian: libclang-rt-dev)"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-fuzz.XXXXXX")
trap 'rm -rf "$work"' EXIT
corpus=${SLUICE_FUZZ_CORPUS:-$work/corpus}
mkdir -p "$corpus"

# Where threads have a part, what a run covers is not quite the same each time, and neither would be a search
# that is led by it: these get as many inputs made beforehand, each of which is run once.
case $target in
rendezvous_fuzz | credit_fuzz | request_fuzz | greeting_fuzz) inputs=4000 ;;
control_fuzz) inputs=5000 ;;
slot_fuzz) inputs=8000 ;;
*) inputs=0 ;;
esac
runs=${SLUICE_FUZZ_RUNS:-$([[ $target == stats_fuzz ]] && echo 6000 || echo 300000)}
limits=(-runs="$runs" -max_total_time=60)
if [[ -n ${SLUICE_FUZZ_SECONDS:-} ]]; then
    inputs=0
    limits=(-runs="${SLUICE_FUZZ_RUNS:--1}" -max_total_time="$SLUICE_FUZZ_SECONDS" -len_control=10)
elif ((inputs > 0)) && [[ -z ${SLUICE_FUZZ_RUNS:-} ]]; then
    limits=(-runs=0)
else
    inputs=0
fi
"$bin/fuzz_seeds" "$target" "$corpus" "$inputs" "$seed"
# The limit of one input only ends what hangs: the machine may be mostly somebody else's.
"$bin/$target" "$corpus" "${limits[@]}" -seed="$seed" -max_len=320 -timeout=300 \
    -rss_limit_mb=1024 -artifact_prefix="$work/" -print_final_stats=1 \
    > "$work/log" 2>&1 || {
    cat "$work/log"
    for file in "$work"/*-*; do
        [[ -f $file ]] && echo "INPUT $(base64 -w0 "$file")"
    done
    exit 1
}
grep -E '^stat::(number_of_executed_units|new_units_added)|DONE' "$work/log" || true
