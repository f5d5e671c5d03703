# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# kernel-versions.sh - the versions of what the guests run: tests/kernel/packages.list has those that were judged
# last, and each kernel in the cache has a file `versions` of those it was made of. Sourced by kernel.sh.
#
# An archive that moves on keeps few old versions. So a judged one is asked for, what is there is taken, and a
# difference is named: a test that fails then may have met another kernel and not a mistake.

KERNEL_TABLE=tests/kernel/packages.list

# kernel_judged KIND - "PACKAGE VERSION" for each package of that kernel in the table.
kernel_judged() { awk -v kind="$1" '$1 == kind { print $2, $3 }' "$KERNEL_TABLE"; }

# kernel_judged_version KIND PACKAGE
kernel_judged_version() {
    awk -v kind="$1" -v package="$2" '$1 == kind && $2 == package { print $3; exit }' "$KERNEL_TABLE"
}

# The time of the archive from which the judged root was made: YYYYMMDDTHHMMSSZ.
kernel_judged_archive() { awk '$1 == "archive" { print $2; exit }' "$KERNEL_TABLE"; }

# kernel_differences KIND FILE - a line for each package whose version in FILE is not the judged one.
kernel_differences() {
    kernel_judged "$1" | awk -v kind="$1" '
        table { judged[$1] = $2; order[++rows] = $1; next }
        { is[$1] = $2; if (!($1 in judged)) fresh[++others] = $1 }
        END {
            for (i = 1; i <= rows; i++) {
                name = order[i]
                if (!(name in is)) printf("%s: %s is not there, judged was %s\n", kind, name, judged[name])
                else if (is[name] != judged[name])
                    printf("%s: %s is %s, judged was %s\n", kind, name, is[name], judged[name])
            }
            for (i = 1; i <= others; i++)
                printf("%s: %s is %s, judged was none\n", kind, fresh[i], is[fresh[i]])
        }' table=1 - table=0 "$2"
}

# kernel_table_key - a word that changes with what the table says of the later root.
kernel_table_key() {
    { cat tools/lib/kernel-root.sh && awk '$1 == "archive" || $1 == "new" || $1 == "siw"' "$KERNEL_TABLE"; } |
        sha256sum | cut -c 1-12
}

# kernel_record KIND FILE [ARCHIVE] - what FILE has is what was judged of that kernel from now on.
kernel_record() {
    local kind=$1 file=$2 archive=${3:-} table=$WORK/packages.list
    awk -v kind="$kind" -v archive="$archive" '
        $1 == "archive" && archive != "" { next }
        $1 == kind { next }
        { print }' "$KERNEL_TABLE" > "$table" || return
    [[ -z $archive ]] || printf 'archive %s\n' "$archive" >> "$table" || return
    awk -v kind="$kind" '{ print kind, $1, $2 }' "$file" >> "$table" || return
    # One order, whatever is recorded first: the comment, stock, the archive, new, siw.
    {
        grep '^#' "$table"
        for kind in stock archive new siw; do
            awk -v kind="$kind" '$1 == kind' "$table"
        done
    } > "$table.new" && cp "$table.new" "$KERNEL_TABLE"
}
