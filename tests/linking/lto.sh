#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# lto.sh SOURCE BUILD CC - builds the library as distributions do: without a build type, with their flags and link-time
# optimisation, from objects that hold no machine code beside. The libraries must export the same names and versions as
# BUILD's, and messages must arrive.
set -euo pipefail
source=$1 build=$2 cc=$3
command -v "$cc" > /dev/null || { echo "SKIPPED: $cc IS NOT INSTALLED"; exit 77; }
work=$(mktemp -d)
server=
finish() {
    if [[ -n $server ]]; then
        kill "$server" 2> /dev/null || true
        wait "$server" 2> /dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

lto=(-flto=auto -fno-fat-lto-objects)
[[ $("$cc" --version) != *clang* ]] || lto=(-flto=thin)
if ! "$cc" -O2 "${lto[@]}" -x c -o "$work/probe" - <<< 'int main(void) { return 0; }' 2> "$work/log"; then
    echo "SKIPPED: $cc HAS NO LINK-TIME OPTIMISATION HERE: $(tail -1 "$work/log")"
    exit 77
fi
flags=(-O2 -g "${lto[@]}" -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
       -Wformat -Werror)
env -u CFLAGS -u LDFLAGS cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="${flags[*]}" -DSLUICE_TESTS=OFF -DSLUICE_BENCH=OFF > "$work/log" ||
    { cat "$work/log"; exit 1; }
cmake --build "$work/build" --target tools > "$work/log" || { tail -30 "$work/log"; exit 1; }

# NAME VERSION of what is exported
exports() {
    objdump -T "$1" | awk '/ g / { print $NF, $(NF - 1) }' | sort
}
for library in libsluice.so libsluice-soft.so sluice-soft/libibverbs.so.1 sluice-soft/librdmacm.so.1; do
    [[ -e $build/lib/$library || $library != sluice-soft/* ]] || continue
    diff <(exports "$build/lib/$library") <(exports "$work/build/lib/$library") ||
        { echo "$library exports something else"; exit 1; }
done
[[ -n $(exports "$build/lib/libsluice.so") ]]
# The static library is machine code, for programs that are built without.
archive=$work/build/lib/libsluice.a
diff <(exports "$build/lib/libsluice.so" | cut -d' ' -f1 | grep '^sluice_') \
    <(readelf -sW "$archive" | awk '$5 == "GLOBAL" && $7 != "UND" { print $8 }' | sort) ||
    { echo "libsluice.a exports something else"; exit 1; }
! readelf -SW "$archive" | grep -q 'gnu\.lto_' || { echo "libsluice.a is not linked yet"; exit 1; }

export SLUICE_DEVICE=soft
timeout 100 "$work/build/bin/sluice-lat" -p 0 --bind 127.0.0.1 --keep 2> "$work/said" &
server=$!
mkfifo "$work/pause"
exec 9<> "$work/pause"
until port=$(sed -n 's/.*listening on .*:\([0-9]*\)$/\1/p' "$work/said") && [[ -n $port ]]; do
    kill -0 "$server" 2> /dev/null || { echo "the server ended"; cat "$work/said"; exit 1; }
    read -rt 0.05 -u 9 || true
done
timeout 60 "$work/build/bin/sluice-lat" "127.0.0.1:$port" -n 1000
timeout 60 "$work/build/bin/sluice-lat" "127.0.0.1:$port" -n 100 -s 1M
