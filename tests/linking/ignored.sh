#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# ignored.sh SOURCE CC - the compiler complains about an ignored result where ignoring it is a mistake, and
# nowhere else: where there is nothing to be done about a failure the program need not look. ignored.c says of
# every call which it is; a new call has to be decided there.
set -euo pipefail
source=$1 cc=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names() { grep -oE '\bsluice_[a-z_]+\(' | tr -d '(' | sort -u; }

must=$(grep -E '; +/[*] must' "$here/ignored.c" | names)
may=$(grep -E '; +/[*] may' "$here/ignored.c" | names)
LC_ALL=C "$cc" -std=gnu11 -Wall -Wextra -Wunused-result -I "$source/include" -c "$here/ignored.c" \
    -o "$work/ignored.o" 2> "$work/said" || { cat "$work/said"; exit 1; }
told=$(sed -nE 's/^[^:]*ignored\.c:([0-9]+):.*\[-Wunused-result\]$/\1p/p' "$work/said" |
    sed -n -f - "$here/ignored.c" | names)
diff <(echo "$must") <(echo "$told") ||
    { echo "FAILED: < must not be ignored, > is complained about"; exit 1; }

# All calls of the headers that answer with a number.
headers=$(tr '\n' ' ' < "$source/include/sluice/sluice.h" | cat - <(tr '\n' ' ' < "$source/include/sluice/memory.h") |
    grep -oE 'SLUICE_API (SLUICE_CHECK )?int sluice_[a-z_]+\(' | names)
diff <(echo "$headers") <(printf '%s\n%s\n' "$must" "$may" | sort -u) ||
    { echo "FAILED: < is not decided, > is no call"; exit 1; }
echo "$(echo "$must" | wc -l) must be looked at, $(echo "$may" | wc -l) may be ignored"
