#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# replay.sh - the seeds of one fuzz target and inputs made of them by numbers that are always the same: the part of the
# search that the gate has. run.sh has the long one.
#
# usage: replay.sh FOLDER-OF-PROGRAMS TARGET
# SLUICE_FUZZ_SEED makes other inputs, SLUICE_FUZZ_INPUTS so many. One that fails is printed in Base64: decoded into a file
# it is the argument of the target that shows it again.
set -euo pipefail

bin=$1 target=$2
case $target in
stats_fuzz) inputs=500 ;;
rendezvous_fuzz | credit_fuzz | request_fuzz | greeting_fuzz | control_fuzz | slot_fuzz | half_open_fuzz) inputs=500 ;;
*) inputs=2000 ;;
esac
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-replay.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/inputs"
"$bin/fuzz_seeds" "$target" "$work/inputs" "${SLUICE_FUZZ_INPUTS:-$inputs}" "${SLUICE_FUZZ_SEED:-1}"
"$bin/$target" "$work/inputs" "$work/note" > "$work/log" 2>&1 || {
    cat "$work/log"
    echo "INPUT $(base64 -w0 "$(tail -n 1 "$work/note")")"
    exit 1
}
cat "$work/log"
