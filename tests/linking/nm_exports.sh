#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# nm_exports.sh LIBRARY HEADER... - only sluice_* leaves the library, shared or static, and everything the
# headers declare does leave it.
set -euo pipefail
library=$1
shift

table=-D
[[ $library != *.a ]] || table=-g
# Type A is the version node of the symbol map itself.
exported=$(nm $table --defined-only "$library" | awk 'NF == 3 && $2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
declared=$(cat "$@" | tr '\n' ' ' | tr ';' '\n' | grep -E '(^|[ /])SLUICE_API[ ]' |
    grep -oE '\bsluice_[a-z0-9_]+\(' | tr -d '(' | sort -u)

status=0
strangers=$(grep -v '^sluice_' <<< "$exported" || true)
if [[ -n $strangers ]]; then
    printf 'exported but not the interface:\n%s\n' "$strangers"
    status=1
fi
missing=$(comm -23 <(echo "$declared") <(echo "$exported"))
if [[ -n $missing ]]; then
    printf 'declared in a header but not exported:\n%s\n' "$missing"
    status=1
fi
undeclared=$(comm -13 <(echo "$declared") <(echo "$exported") | grep '^sluice_' || true)
if [[ -n $undeclared ]]; then
    printf 'exported but not declared in a header:\n%s\n' "$undeclared"
    status=1
fi
if (($(wc -l <<< "$declared") < 20)); then
    echo "found too few declarations in $*: this test does not see the interface"
    status=1
fi
exit $status
