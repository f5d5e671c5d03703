#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# limits.sh - every test of a build has a limit, so that what hangs ends: twenty times what seconds.txt says that it
# takes, at least 30 s; 120 s for what was not measured yet.
#
# usage: limits.sh FOLDER-OF-CTESTTESTFILE SECONDS.TXT
set -euo pipefail
sed -n 's/^add_test(\[=\[\([^]]*\)\]=\].*/test \1/p
    s/^set_tests_properties(\[=\[\([^]]*\)\]=\].* TIMEOUT "\([0-9.]*\)".*/limit \1 \2/p' "$1/CTestTestfile.cmake" |
    awk -v long="$([[ ${SLUICE_TEST_LONG:-} != 1 ]] || echo 10)" '
    FNR == NR { if (!/^#/) seconds[$1] = $2; next }
    $1 == "test" { tests++; left[$2] = 1 }
    $1 == "limit" {
        want = $2 in seconds ? 20 * seconds[$2] : 120
        want = (want < 30 ? 30 : want) * (long ? long : 1)
        if ($3 == want) delete left[$2]
        else printf("FAILED: %s ends after %s s, not %d\n", $2, $3, want)
    }
    END {
        for (name in left) { bad++; print "FAILED: no right limit: " name }
        print tests + 0 " tests, " bad + 0 " without their limit"
        exit tests == 0 || bad > 0
    }' "$2" -
