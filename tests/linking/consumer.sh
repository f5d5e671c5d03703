#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# consumer.sh BUILD CC CXX - installs the build into a temporary prefix, moves that prefix once, and
# builds and runs a user's program against what is installed: through pkg-config and through CMake,
# in C and in C++. Nothing of the source tree is on the consumer's include path.
set -euo pipefail
build=$1 cc=$2 cxx=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf -- '-- %s\n' "$*"; }
run() {
    say "run: $*"
    "$@"
}

# A library with a sanitizer in it needs programs with the same sanitizer.
flags=()
[[ -z ${SLUICE_SANITIZE:-} ]] || flags=("-fsanitize=$SLUICE_SANITIZE")

cmake --install "$build" --prefix "$work/first" > "$work/install.log"
mv "$work/first" "$work/prefix"
mkdir "$work/src"
cp "$here/consumer.c" "$here/consumer.cc" "$work/src/"
cp "$here/CMakeLists.consumer.txt" "$work/src/CMakeLists.txt"

pc=$(find "$work/prefix" -name sluice.pc)
export PKG_CONFIG_PATH=${pc%/*}
libdir=$(pkg-config --variable=libdir sluice)
[[ -e $libdir/libsluice.so.0 ]] || { echo "no libsluice.so.0 in $libdir"; exit 1; }
version=$(pkg-config --modversion sluice)
say "installed version $version"

# The folder above the prefix is gone, so whatever still names it fails here.
read -ra pc_flags < <(pkg-config --cflags --libs sluice)
run "$cc" -std=gnu11 -Wall -Wextra -Werror "${flags[@]}" -o "$work/by_pkg_config" \
    "$work/src/consumer.c" "${pc_flags[@]}" "-Wl,-rpath,$libdir" -pthread
run "$work/by_pkg_config"
readelf -d "$work/by_pkg_config" | grep -q 'NEEDED.*\[libsluice\.so\.0\]' ||
    { echo "the program does not ask for libsluice.so.0"; exit 1; }

# Within the program: beside the shared library by a name of its own, and alone by the usual one.
read -ra all_flags < <(pkg-config --cflags --libs --static sluice)
mkdir "$work/alone"
cp "$libdir/libsluice.a" "$work/alone"
for way in beside alone; do
    flags_of_way=("${all_flags[@]/#-lsluice/-lsluice_static}")
    [[ $way == beside ]] || flags_of_way=("${all_flags[@]/#-L$libdir/-L$work/alone}")
    run "$cc" -std=gnu11 -Wall -Wextra -Werror "${flags[@]}" -o "$work/static_$way" \
        "$work/src/consumer.c" "${flags_of_way[@]}"
    run "$work/static_$way"
    ! readelf -d "$work/static_$way" | grep 'NEEDED.*libsluice' || { echo "the library is not in the program"; exit 1; }
done

run cmake -G Ninja -S "$work/src" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_C_FLAGS="${flags[*]}" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror ${flags[*]}" \
    > "$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
run cmake --build "$work/build" > "$work/make.log" || { cat "$work/make.log"; exit 1; }
run "$work/build/consumer_c"
run "$work/build/consumer_cc"
run "$work/build/consumer_static"
! readelf -d "$work/build/consumer_static" | grep 'NEEDED.*libsluice' || { echo "it is not static"; exit 1; }

# The page that a message of the library names is there to be read.
[[ -n $(find "$work/prefix" -name two-hosts.md) ]] || { echo "two-hosts.md is not installed"; exit 1; }

# Installed tools find the installed library from where they are.
for tool in "$work"/prefix/bin/sluice-*; do
    run "$tool" --help > /dev/null
done
