#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# limits.sh - every test of a build stands in seconds.txt and has a limit from there, so that what hangs ends: twenty
# times what it takes, at least 30 s. The replays of preset asan are asked for as well, by their sources: this test is
# not built there. With "all" a name that is no test is found too: a build that lacks some tests cannot tell.
#
# usage: limits.sh FOLDER-OF-CTESTTESTFILE SECONDS.TXT [all]
set -euo pipefail
{
    for source in "$(dirname "$2")"/fuzz/*_fuzz.c; do
        printf 'elsewhere %s\n' "$(basename "$source" .c)"
    done
    sed -n 's/^add_test(\[=\[\([^]]*\)\]=\].*/test \1/p
        s/^set_tests_properties(\[=\[\([^]]*\)\]=\].* TIMEOUT "\([0-9.]*\)".*/limit \1 \2/p' "$1/CTestTestfile.cmake"
} | awk -v long="$([[ ${SLUICE_TEST_LONG:-} != 1 ]] || echo 10)" -v all="${3:-}" -v file="tests/${2##*/}" '
    function failed(text) { bad++; print "FAILED: " text }
    function asked(name) {
        if (!(name in seconds))
            failed(name " is not in " file ": add a line \"" name " SECONDS\", in order, with what it takes, or 1")
    }
    FNR == NR { if (!/^#/ && NF) seconds[$1] = $2; next }
    $1 == "elsewhere" { other["replay_" $2] = other[$2] = 1; asked("replay_" $2) }
    $1 == "test" { tests++; left[$2] = 1; own[$2] = 1; asked($2) }
    $1 == "limit" {
        delete left[$2]
        if (!($2 in seconds)) next # said above
        want = 20 * seconds[$2]
        want = (want < 30 ? 30 : want) * (long ? long : 1)
        if ($3 != want) failed($2 " ends after " $3 " s, not " want)
    }
    END {
        for (name in left) failed(name " has no limit")
        if (all == "all")
            for (name in seconds)
                if (!(name in own) && !(name in other)) failed(name " is no test, but stands in " file)
        print tests + 0 " tests, " bad + 0 " faults of their limits"
        exit tests == 0 || bad > 0
    }' "$2" -
