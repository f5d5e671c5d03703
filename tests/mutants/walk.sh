#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# walk.sh SOURCE CC CXX - puts the faults of walk.txt into a copy of the library, one after the other, and has the random walk
# of sessions find each. Without a fault it must find nothing. A walk is never the same twice, as the device has a thread of its
# own: 200 walks find each fault four times or more on average, and what they do not find has other 200.
set -euo pipefail
source=$1 cc=$2 cxx=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
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

bad=0 count=0
walks 1 || { echo "without a fault: $?"; cat "$work/walk"; exit 1; }
while IFS='|' read -r name file line; do
    [[ $name != \#* && -n $name ]] || continue
    name=${name// /} file=$work/source/${file// /}
    cp "$file" "$work/kept"
    sed -i "${line# }" "$file"
    changed=$(diff "$work/kept" "$file" | grep -c '^>' || true)
    if ((changed != 1)); then
        echo "FAILED: $name changes $changed lines: walk.txt is not of this source"
        bad=$((bad + 1))
    else
        status=0
        walks 1 || status=$?
        if ((status == 0)); then
            walks 201 || status=$?
        fi
        found=$(grep -m1 'wrong data: ' "$work/walk" || true)
        echo "$name: $status ${found:-FAILED: nothing was found}"
        [[ $status == 86 && -n $found ]] || bad=$((bad + 1))
    fi
    count=$((count + 1))
    cp "$work/kept" "$file"
done < "$here/walk.txt"
echo "$count faults, $bad not found"
((count > 0 && bad == 0))
