#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# links_doc.sh - what a page links to is there: the file, and in a page the heading.
set -u
cd "$(dirname "$0")/../.." || exit 1
failed=0 links=0

# anchors FILE: of its headings, as they are made from their words
anchors() {
    sed -nE '/^```/,/^```/d; s/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

while IFS=: read -r page target; do
    links=$((links + 1))
    file=${target%%#*} anchor=''
    [[ $target != *'#'* ]] || anchor=${target#*#}
    path=$page
    [[ -z $file ]] || path=$(dirname "$page")/$file
    if [[ ! -e $path ]]; then
        echo "links_doc: $page leads to $target, which is not there" >&2
        failed=1
    elif [[ -n $anchor && $path == *.md ]] && ! anchors "$path" | grep -qxF -- "$anchor"; then
        echo "links_doc: $page leads to $target, and $path has no such heading" >&2
        failed=1
    fi
done < <(find . -name '*.md' -not -path './build/*' -not -path './.git/*' -printf '%P\n' | LC_ALL=C sort |
    xargs grep -oHE '\]\([^) ]+\)' | sed -E 's/\]\((.*)\)$/\1/' | grep -vE ':(https?|mailto):')
((links > 100)) || { echo "links_doc: only $links links were found" >&2 && failed=1; }
exit $failed
