#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# reasons_doc.sh - docs/reasons.md has every status and every reason of include/sluice/status.h, with its
# value, once, in order, and nothing else.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
doc=$root/docs/reasons.md
header=$root/include/sluice/status.h
failed=0

# "NAME VALUE" of one list of the header.
listed() {
    awk -v list="#define SLUICE_$1_LIST(X)" '
        index($0, "#define") { inside = index($0, list) == 1; next }
        inside && match($0, /X\([A-Z_]+, -?[0-9]+,/) {
            split(substr($0, RSTART + 2, RLENGTH - 3), part, ", ")
            print part[1], part[2]
        }' "$header"
}

# "NAME VALUE" of one table of the page: | `SLUICE_NAME` | value | ...
described() {
    awk -F'|' -v heading="## $1" '
        /^## / { inside = $0 == heading }
        inside && $2 ~ /^ `[A-Z_]+` $/ {
            gsub(/[ `]/, "", $2)
            gsub(/ /, "", $3)
            print $2, $3
        }' "$doc"
}

compare() { # LIST HEADING PREFIX
    local expected
    expected=$(listed "$1" | sed "s/^/$3/")
    if [ -z "$expected" ]; then
        echo "reasons_doc: no $1 list in $header" >&2
        failed=1
    elif ! diff <(echo "$expected") <(described "$2") >&2; then
        echo "reasons_doc: < is what status.h says of $2, > what docs/reasons.md does" >&2
        failed=1
    fi
}

compare STATUS Statuses SLUICE_
compare REASON Reasons SLUICE_REASON_
exit $failed
