#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# plain_words_doc.sh - comments and pages name the thread, peer, process or user that they are about: the words
# somebody, nobody, whoever and anybody, which do not, stand in no comment of these folders, and on no page.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1

# With all that lies below them.
folders='include common device/dropin device/include device/src src'
code='include common device src tests tools bench examples'
pages='docs device/docs device/README.md'
files='CONTRIBUTING.md README.md'

# shellcheck disable=SC2086 # lists of names without spaces
mapfile -t names < <({
    find $folders -name '*.[ch]'
    find $pages -name '*.md' -o -path '*/man/*' -type f
    printf '%s\n' $files
} | sort)
((${#names[@]} >= 300)) || { echo "plain_words_doc: only ${#names[@]} files: a folder was moved" >&2 && exit 1; }

# Of C only the comments, of a page every line.
found=$(awk '
    function look(text) {
        if (tolower(text) ~ /(^|[^a-z0-9_])(somebody|nobody|whoever|anybody)([^a-z0-9_]|$)/)
            print FILENAME ":" FNR ": " $0
    }
    FNR == 1 { comment = 0 }
    FILENAME !~ /[.][ch]$/ { look($0); next }
    {
        line = $0
        text = ""
        while (line != "") {
            at = index(line, comment ? "*/" : "/*")
            if (comment)
                text = text " " (at ? substr(line, 1, at - 1) : line)
            if (!at)
                break
            line = substr(line, at + 2)
            comment = !comment
        }
        look(text)
    }' "${names[@]}") || exit 1
failed=0
if [[ -n $found ]]; then
    echo "$found" >&2
    echo "plain_words_doc: name the thread, peer, process, user or application instead" >&2
    failed=1
fi

# A comment stands for itself: it does not send its reader to the one above.
# shellcheck disable=SC2086
if grep -rnE '(/\*+|^ *\*) (The same|The others|As above)([^a-z]|$)' --include='*.[ch]' $code >&2; then
    echo "plain_words_doc: say what it is that is the same" >&2
    failed=1
fi
exit $failed
