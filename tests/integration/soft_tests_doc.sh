#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# soft_tests_doc.sh - docs/soft-device-tests.md names only tests that exist, and every test program of
# the software device.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
doc=$root/docs/soft-device-tests.md
failed=0

fail() {
    echo "soft_tests_doc: $*" >&2
    failed=1
}

# Words of three parts and more are names of tests; every one of them is run by some program.
for name in $(grep -oE '\b[a-z0-9]+(_[a-z0-9]+){2,}\b' "$doc" | sort -u); do
    grep -qE "\b$name\b" "$root"/tests/unit/*_test.c || fail "$name is no test"
done

for source in "$root"/tests/unit/{softverbs,softcm,fault,ctl}*_test.c; do
    program=$(basename "$source" _test.c)
    grep -q "\`$program\`" "$doc" || fail "nothing of $program is named"
done
exit $failed
