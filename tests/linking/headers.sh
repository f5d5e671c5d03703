#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# headers.sh SOURCE OBJECTS - what a file offers stands in the header of its own name, in the internal.h of its folder,
# or in the door of a folder around it (x/x.h); and no other folder includes an internal.h. OBJECTS lists the objects of
# the library; what they define is asked of nm.
set -euo pipefail
source=$1 objects=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"

# NAME HEADER of every prototype and variable: at the beginning of a line, or behind a return type on the line before.
find common device/include device/src src -name '*.h' -exec awk '
    /^(static|typedef|struct [a-z_0-9]+;|#|\/|struct [a-z_]+ \{|enum|_Static)/ && !/^(struct|enum) .*\(/ { next }
    /^[a-z]/ && match($0, /[A-Za-z_0-9]+(\(|(\[[^]]*\])*;)/) {
        name = substr($0, RSTART, RLENGTH)
        sub(/[^A-Za-z_0-9].*/, "", name)
        print name, FILENAME
    }' {} + | sort -u > "$work/declared"
# NAME FILE of every symbol that an object offers.
xargs nm -A --defined-only -g < "$objects" | awk 'NF == 3 {
        file = $1; sub(/\.o:[0-9a-f]+$/, "", file); if (!sub(/.*\/device\/src\//, "device/src/", file) && !sub(/.*\/common\//, "common/", file)) sub(/.*\/src\//, "src/", file)
        print $3, file
    }' | sort -u > "$work/defined"

# FILE:HOME of each line "HOME: ..." of an upward.h, which declares for a folder what is made in one above it.
grep -rnoE --include=upward.h '^/\* [a-z_]+/[a-z_]+[.]c:' src | sed -E 's|:[0-9]+:/\* ([^:]*):|:\1|' > "$work/upward"
join "$work/declared" "$work/defined" | awk -v named="$(< "$work/upward")" '
    BEGIN { count = split(named, line, "\n"); for (i = 1; i <= count; i++) upward[line[i]] }
    {
        header = $2; file = $3
        folder = header; sub(/\/[^\/]*$/, "", folder)
        base = header; sub(/.*\//, "", base)
        home = file; sub(/\/[^\/]*$/, "", home)
        own = file; sub(/\.c$/, ".h", own)
        door = folder; sub(/.*\//, "", door)
        total++
        if (header ~ /^device\/include\// && file ~ /^device\/src\//) next
        if (header == own || (base == "internal.h" && folder == home)) next
        if (base == "upward.h" && (folder "/" base ":" substr(file, length("src/datapath/") + 1)) in upward) next # it names the file
        if (base == "upcalls.h" && file ~ /\/upcalls\.c$/) next # filled in above, and used below
        if (base == door ".h" && index(file, folder "/") == 1) next
        print $1 ": " file " offers it, and " header " declares it"
    }
    END { print total > "/dev/stderr" }' > "$work/elsewhere" 2> "$work/total"
grep -rn --include='*.[ch]' '^#include "[a-z_/]*/internal.h"' device/src src |
    awk -F'[:"]' '{ from = $1; sub(/\/[^\/]*$/, "", from); to = (from ~ /^device\// ? "device/src/" : "src/") $4; sub(/\/[^\/]*$/, "", to); if (from != to) print $1 " includes " $4 }' \
    >> "$work/elsewhere"
(($(< "$work/total") > 500)) || { echo "only $(< "$work/total") declarations were found" >&2; exit 1; }
cat "$work/elsewhere"
[[ ! -s $work/elsewhere ]]
