#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# check.sh - searches one model completely: the right protocol must have no error, and every mutant
# of it must have one, else the model proves nothing.
#
# Compiling a search takes longer than most searches: those for a mutant's error, which end at once, are
# compiled without optimisation. In the wakeup's model the right protocol is searched for both kinds of
# reader, its mutants for one of them, and for both in a long run (SLUICE_TEST_LONG=1).
#
# usage: check.sh MODEL.pml
set -euo pipefail

model=$(realpath "$1")
if ! command -v spin > /dev/null; then
    echo "SKIPPED: SPIN IS MISSING, $(basename "$model") WAS NOT SEARCHED (Debian: spin)"
    exit 77
fi
compiler=${CC:-cc}
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-model.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0
optimise=-O2

# search NAME CLAIM DEFINE... - prints "errors: N" of a search, "incomplete" if it was cut short.
# CLAIM is "safety" (assertions and end states) or the name of an LTL property.
search() {
    local claim=$1 options=(-DNOCLAIM -DSAFETY) run=(-m200000) words=()
    shift
    words=("${@/#/-D}")
    if [[ $claim != safety ]]; then
        options=()
        run+=(-a -N "$claim")
    fi
    rm -f pan* ./*.trail pan.log
    spin "${words[@]}" -a "$model" > spin.log 2>&1 || { cat spin.log >&2; return 1; }
    "$compiler" "$optimise" -w "${options[@]}" -o pan pan.c
    timeout 60 ./pan "${run[@]}" > pan.log 2>&1 || true
    if grep -qE 'max search depth too small|out of memory|aborting' pan.log ||
        ! grep -q 'errors: ' pan.log; then
        echo incomplete
    else
        sed -n 's/.*errors: \([0-9]*\).*/errors: \1/p' pan.log
    fi
}

right() {
    local got
    got=$(search "$@")
    echo "right protocol, $*: $got, $(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1 states/p' pan.log)"
    [[ $got == "errors: 0" ]] || { cat pan.log; failed=1; }
}

mutant() {
    local got
    got=$(optimise=-O0 && search safety "$@")
    echo "mutant $*: $got"
    [[ $got == errors:\ [1-9]* ]] || { echo "NOT FOUND: $*"; failed=1; }
}

case $(basename "$model") in
    wakeup.pml)
        for order in LOOP CM_TURN; do
            for way in EVENTFD USER; do
                right safety "$order" "$way"
                right stops "$order" "$way" RECORDS=1
            done
            [[ $order == LOOP || ${SLUICE_TEST_LONG:-0} != 0 ]] || continue
            for broken in NO_FENCE NO_RING_FENCE NO_RECHECK ARM_AFTER_LOOK RING_BEFORE_POST \
                NO_MERGE DRAIN_AFTER_ARM NO_STOP_CHECK; do
                mutant "$order" EVENTFD "$broken"
            done
            mutant "$order" USER NO_FALLBACK
        done
        ;;
    idle.pml)
        right safety RIGHT
        for broken in ARM_AFTER_LOOK NO_RECHECK NO_REARM NO_ARM IGNORE_REST ARM_TWICE; do
            mutant "$broken"
        done
        ;;
    *)
        echo "check.sh: no list of variants for $model" >&2
        exit 1
        ;;
esac
exit "$failed"
