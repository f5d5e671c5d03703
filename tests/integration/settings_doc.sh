#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# settings_doc.sh - docs/settings.md has every variable that the sources name, and no other; and each is tried with all words
# that it may say, in capitals, too, and with a wrong one: a node opens, or is refused with a sentence that has the
# variable, what it says, and what it may say.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
doc=$root/docs/settings.md
info=${SLUICE_BIN_DIR:?}/sluice-info
wrong=offf
failed=0
tried=0

fail() {
    echo "settings_doc: $1" >&2
    failed=1
}

# The names in the sources, as strings that are nothing else; those of the page.
named=$(grep -rhoE --include='*.[ch]' '"SLUICE_[A-Z0-9_]+"' "$root"/{common,device/dropin,device/src,src} "$root/tools/src" | tr -d '"' | sort -u)
described=$(awk -F'|' '$2 ~ /^ `SLUICE_[A-Z0-9_]+` $/ { gsub(/[ `]/, "", $2); print $2 }' "$doc" | sort)
diff <(echo "$named") <(echo "$described") >&2 || fail "< is what the sources name, > what docs/settings.md does"

# words VARIABLE: what stands in backquotes in its second column, one a line
words() {
    awk -F'|' -v name=" \`$1\` " '$2 == name { print $3 }' "$doc" | grep -o '`[^`]*`' | tr -d '`'
}

# takes VARIABLE VALUE
takes() {
    local said
    tried=$((tried + 1))
    said=$(env "$1=$2" "$info" 2>&1 >/dev/null) || fail "$1='$2' is refused: $said"
}

# refuses VARIABLE VALUE WHAT...: each of WHAT is in the sentence
refuses() {
    local name=$1 value=$2 said what
    shift 2
    tried=$((tried + 1))
    said=$(env "$name=$value" "$info" 2>&1 >/dev/null) && fail "$name='$value' is not refused"
    for what in "$name" "$value" "$@"; do
        grep -qF -- "$what" <<<"$said" || fail "$name='$value': '$what' is not in: $said"
    done
}

for name in $described; do
    mapfile -t known < <(words "$name")
    row=$(grep -F "| \`$name\` |" "$doc")
    case $name in
    SLUICE_SOFT_FAULTS) takes "$name" 'call=create_srq errno=ENOMEM'; refuses "$name" "$wrong" 'a rule begins with' ;;
    SLUICE_CPUS) takes "$name" "$(taskset -cp $$ | sed 's/.*: //')"; refuses "$name" "$wrong" '0-3,8' ;;
    SLUICE_NUMA) takes "$name" none; refuses "$name" "$wrong" none ;;
    SLUICE_DEVICE) takes "$name" auto; takes "$name" soft; refuses "$name" "$wrong" sluice_soft0 ;;
    SLUICE_WITHOUT | SLUICE_SOFT_PROFILE)
        for word in "${known[@]}"; do takes "$name" "$word"; done
        refuses "$name" "$wrong" "${known[@]}" ;;
    *)
        if [[ $row =~ 'a number from '([0-9]+)' to '([0-9]+) ]]; then
            least=${BASH_REMATCH[1]} most=${BASH_REMATCH[2]}
            for word in "$least" "$most" "${known[@]}"; do takes "$name" "$word"; done
            for word in "$wrong" -1 "${most}0" "${most}ms"; do
                refuses "$name" "$word" "from $least to $most"
            done
            continue
        fi
        [ ${#known[@]} -ge 2 ] || fail "$name: no words in docs/settings.md"
        others=()
        for word in "${known[@]}"; do
            takes "$name" "$word"
            takes "$name" "${word^^}"
            [ "$word" != on ] || others+=(yes True 1)
            [[ $word != off && $word != no ]] || others+=(no OFF False 0)
        done
        for word in "${others[@]}"; do takes "$name" "$word"; done
        refuses "$name" "$wrong" "${known[@]}"
        refuses "$name" "${known[0]} " "${known[@]}"
        [[ " ${others[*]} " == *" 1 "* ]] || refuses "$name" 1 "${known[@]}" ;;
    esac
    takes "$name" ''
done

echo "settings_doc: $tried settings tried"
[ "$tried" -ge 90 ] || fail "only $tried"
exit $failed
