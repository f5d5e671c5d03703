#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# soft_tests_doc.sh - device/docs/soft-device-tests.md names only tests that exist in the program it says, and
# every test program of the software device.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
doc=$root/device/docs/soft-device-tests.md
failed=0

fail() {
    echo "soft_tests_doc: $*" >&2
    failed=1
}

# A row names tests behind the program they belong to: `program`: first, second; `other`: third. Names
# that stand alone (of numbered lines of the contract) may be in any program.
while read -r program name; do
    case $program in
        contract/*) sources=$root/tests/contract/${program#contract/}_test.c ;;
        hostile/*) sources=$root/tests/hostile/${program#hostile/}_test.c ;;
        *) sources=$(find "$root/device/tests" "$root/tests/unit" -name "${program}_test.c") ;;
    esac
    # shellcheck disable=SC2086 # one or many
    grep -qE "\b$name(_test)?\b" $sources < /dev/null || fail "$program has no test $name"
done < <(awk -F'|' '
    /^\|/ && NF > 2 {
        n = split($(NF - 1), parts, ";")
        for (i = 1; i <= n; i++) {
            program = "*"
            part = parts[i]
            if (match(part, /`[a-z0-9_\/]+`: /)) {
                program = substr(part, RSTART + 1, RLENGTH - 4)
                part = substr(part, RSTART + RLENGTH)
            }
            m = split(part, names, ",")
            for (k = 1; k <= m; k++) {
                gsub(/^ +| +$/, "", names[k])
                if (names[k] ~ /^[a-z0-9]+(_[a-z0-9]+)+$/) print program, names[k]
            }
        }
    }' "$doc")

for source in "$root"/device/tests/{softverbs,softcm,fault,ctl,iwarp}*_test.c "$root"/tests/unit/fabric/softverbs*_test.c; do
    program=$(basename "$source" _test.c)
    grep -q "\`$program\`" "$doc" || fail "nothing of $program is named"
done
exit $failed
