#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# unused.sh SOURCE OBJECTS - what a file of the library offers to the others is used by the library, the drop-in or a
# tool: what only tests and benchmarks want is in tests/support/ or there. A use in an assertion counts, in every build.
# OBJECTS lists the objects of the library, nm what they define; sluice_* is there for its users.
set -euo pipefail
source=$1 objects=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"

exceptions=(
    cpu_claim_any # a claim of no list; the tests of claims begin with it
    connection_add    # another connection of a session: made by tests alone, until sessions outlive theirs
    connection_switch # and gone over to
)

xargs nm --defined-only -g < "$objects" | awk 'NF == 3 && $3 !~ /^sluice_/ && $3 ~ /^[a-z][a-z_0-9]*$/ { print $3 }' | sort -u > "$work/defined"

# Every name in the code, comments and strings left out, but where it is declared or defined: that is in a line that is not
# indented, and a function's name is the first there that a parenthesis follows, a variable's the last before what it is
# or has.
find common device/dropin device/src src tools/src -name '*.[ch]' -exec awk '
    {
        gsub(/"([^"\\]|\\.)*"/, "")
        gsub(/\/\*([^*]|\*[^\/])*\*\//, "")
        if (inside) {
            if (!match($0, /\*\//)) next
            $0 = substr($0, RSTART + 2)
            inside = 0
        }
        if (match($0, /\/\*/)) {
            $0 = substr($0, 1, RSTART - 1)
            inside = 1
        }
        if (/^[a-z_A-Z]/) {
            line = $0
            if (match(line, /[A-Za-z_0-9]+\(/)) sub(/[A-Za-z_0-9]+\(/, "(")
            else if (match(line, /[A-Za-z_0-9]+(\[[^]]*\])*( = .*|;)$/)) sub(/[A-Za-z_0-9]+(\[[^]]*\])*( =|;)/, "=")
        }
        print
    }
    FNR == 1 { inside = 0 }' {} + | tr -cs A-Za-z0-9_ '\n' > "$work/names"
# The device's calls are used by the fabric out of a table, whose entries are called as they are, without "soft_".
grep -oE 'X\([a-z_0-9]+\)|device->[a-z_0-9]+' src/fabric/soft.c | sed -E 's/.*(\(|->)/soft_/; s/\)//' >> "$work/names"
sort -u "$work/names" > "$work/used"

(($(wc -l < "$work/defined") > 500)) || { echo "only $(wc -l < "$work/defined") definitions were found" >&2; exit 1; }
comm -23 "$work/defined" "$work/used" | grep -vxF "$(printf '%s\n' "${exceptions[@]}")" > "$work/unused" || true
sed 's|$|: offered by the library, and used by no file of it or of tools/src|' "$work/unused"
[[ ! -s $work/unused ]]
