#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# walk.sh SOURCE CC CXX - puts the faults of walk.txt into a copy of the library, one after the other, and has the random walk
# of sessions find each. Without a fault it must find nothing. A walk is never the same twice, as the device has a thread of its
# own: 200 walks find each fault four times or more on average, and what they do not find has other 200.
#
# walk.sh SOURCE - looks only whether each fault is one line of that source.
set -euo pipefail
source=$1 cc=${2:-} cxx=${3:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# changes FAULT FILE: false, and why, if it is not one line of the file
changes() {
    local count
    count=$(sed "$1" "$2" | diff "$2" - | grep -c '^>' || true)
    ((count == 1)) || echo "it changes $count lines of ${2#"$source"/}: walk.txt is not of this source"
    ((count == 1))
}

# faults COMMAND: calls it for each, with NAME FILE FAULT; how many it was false for, and how many there are, in bad and count
faults() {
    local name file line
    bad=0 count=0
    while IFS='|' read -r name file line; do
        [[ $name != \#* && -n $name ]] || continue
        count=$((count + 1))
        "$1" "${name// /}" "${file// /}" "${line# }" < /dev/null || bad=$((bad + 1))
    done < "$here/walk.txt"
}

is_of_source() {
    local why
    why=$(changes "$3" "$source/$2") || { echo "FAILED: $1: $why" && return 1; }
}
if [[ -z $cc ]]; then
    faults is_of_source
    echo "$count faults, $bad are not of this source"
    ((count > 0 && bad == 0))
    exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
for part in CMakeLists.txt cmake include common device src tests tools bench examples docs LICENSE README.md; do
    [[ ! -e $source/$part ]] || cp -r "$source/$part" "$work/source/"
done
cmake -G Ninja -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_CXX_COMPILER="$cxx" -DSLUICE_BENCH=OFF > "$work/log" || { cat "$work/log"; exit 1; }

# What the walk ends with, from a seed on: 0, 86 for data that is wrong, or what is wrong with the build.
walks() {
    cmake --build "$work/build" --target session_walk_test > "$work/log" 2>&1 ||
        { grep -m3 error "$work/log" || tail -3 "$work/log"; return 1; }
    local status=0
    SLUICE_DEVICE=soft SLUICE_TEST_SEED=$1 timeout 300 "$work/build/tests/session_walk_test" > "$work/walk" 2>&1 || status=$?
    return "$status"
}

walks 1 || { echo "without a fault: $?"; cat "$work/walk"; exit 1; }

is_found() {
    local file=$work/source/$2 status=0 found
    is_of_source "$@" || return 1
    cp "$file" "$work/kept"
    sed -i "$3" "$file"
    walks 1 || status=$?
    if ((status == 0)); then
        walks 201 || status=$?
    fi
    found=$(grep -m1 'wrong data: ' "$work/walk" || true)
    echo "$1: $status ${found:-FAILED: nothing was found}"
    cp "$work/kept" "$file"
    [[ $status == 86 && -n $found ]]
}
faults is_found
echo "$count faults, $bad not found"
((count > 0 && bad == 0))
