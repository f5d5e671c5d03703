#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# soft_run.sh - programs that a preloaded library does not reach by itself get the device from `sluice-soft run` as well:
# those that load libibverbs and librdmacm by name, and those with the address sanitizer.
set -uo pipefail
bin=${SLUICE_BIN_DIR:?}
tests=$bin/../tests
failures=0
asan=detect_leaks=0
# What is loaded before all programs, as by a pass that makes their system calls slower, is loaded before the sanitizer.
[ -z "${LD_PRELOAD:-}" ] || asan=$asan:verify_asan_link_order=0

one() { # one PROGRAM [WAY]
    local out
    out=$(ASAN_OPTIONS=$asan timeout 60 "$bin/sluice-soft" run ${2+"$2"} -- "$tests/$1" 2>&1) && return
    echo "FAILED: $1 ${2-}: $out"
    failures=$((failures + 1))
}

[ -z "${SLUICE_SANITIZE:-}" ] || {
    echo "SKIPPED: WITH A SANITIZER IN THE DEVICE'S LIBRARIES NOTHING OF THIS IS AS A USER HAS IT" >&2
    exit 77
}
for program in conformance_probe conformance_load conformance_asan; do
    if [ ! -x "$tests/$program" ]; then
        echo "SKIPPED: NO $program: THE COMPILER HAS NO ADDRESS SANITIZER" >&2
        [ "$program" = conformance_asan ] || failures=$((failures + 1))
        continue
    fi
    one "$program"
    [ ! -e "$bin/../lib/sluice-soft" ] || one "$program" --library-path
    [ "$program" = conformance_asan ] || one "$program" --preload
done
exit $((failures > 0))
