#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# walks.sh SOURCE - docs/walks.md names functions that exist, each defined in the file that its line names.
set -euo pipefail
cd "$1"
failed=0
steps=0
while IFS='|' read -r _ file function what _; do
    file=${file// /}
    [[ $file == device/* ]] || file=src/$file
    function=${function//[ \`]/}
    steps=$((steps + 1))
    if [[ ! -f $file ]]; then
        echo "$file: no such file"
        failed=1
    # A definition begins its line; what is only called or declared does not.
    elif ! grep -qE "^[a-z][^;=]*\b$function(\(|\[)" "$file" ||
        ! grep -A8 -E "^[a-z][^;=]*\b$function(\(|\[)" "$file" | grep -qE '(\{|= \{)$'; then
        echo "$file defines no $function"
        failed=1
    fi
    [[ -n ${what// /} ]] || { echo "$function: no word of what it does" && failed=1; }
done < <(grep -E '^\| [a-z_/]+[.][ch] \|' docs/walks.md)
((steps >= 40)) || { echo "only $steps steps: the page is not read as it is written" && failed=1; }
exit "$failed"
