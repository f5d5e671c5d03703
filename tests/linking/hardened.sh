#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# hardened.sh SHADOW OBJECTS FILE... - what an attacker who found a mistake must not find in the library and the tools: a table
# of functions to write to, a stack without a guard, a fixed address, a folder of anybody's to load from. SHADOW says whether the compiler makes code for shadow stacks: then each object of
# the list OBJECTS must be made so, and each file be marked so, as the kernel gives it none otherwise.
set -euo pipefail
failed=0

wrong() { # FILE TEXT
    printf '%s: %s\n' "$(basename "$1")" "$2"
    failed=1
}

marked() { readelf -nW "$1" 2> /dev/null | grep -q 'x86 feature:.*SHSTK'; }

(($# > 4)) || { echo "no files"; exit 1; }
shadow=$1 objects=$2
shift 2
if [[ -n $shadow ]]; then
    count=0
    while read -r object; do
        marked "$object" || wrong "$object" "no code for a shadow stack"
        count=$((count + 1))
    done < "$objects"
    ((count > 100)) || wrong "$objects" "only $count objects"
fi
guarded=0 fortified=0
for file; do
    headers=$(readelf -lW "$file") dynamic=$(readelf -dW "$file") symbols=$(readelf -W --dyn-syms "$file")
    grep -q GNU_RELRO <<< "$headers" || wrong "$file" "relocations stay writable (no RELRO)"
    grep -qE '\(FLAGS_1\).* NOW|BIND_NOW' <<< "$dynamic" || wrong "$file" "functions are bound late"
    ! grep -qE 'GNU_STACK .* RWE' <<< "$headers" || wrong "$file" "the stack can be executed"
    ! grep -qE ' LOAD .* RWE' <<< "$headers" || wrong "$file" "memory can be written and executed"
    grep -q 'Type: *DYN\|file type is DYN' <<< "$headers" || wrong "$file" "it has a fixed address"
    path=$(sed -n 's/.*(R[UN]*PATH).*\[\(.*\)\]/\1/p' <<< "$dynamic")
    [[ ":$path:" != *::* || -z $path ]] || wrong "$file" "an empty entry in its path: $path"
    [[ -z $shadow ]] || marked "$file" || wrong "$file" "it has no shadow stack"
    [[ -z $path ]] || [[ ! "$path" =~ (^|:)[^\$] ]] || wrong "$file" "not relative to itself: $path"
    ! grep -q __stack_chk_fail <<< "$symbols" || guarded=$((guarded + 1))
    ! grep -qE '__(v?snprintf|memcpy|memset|read|recv)_chk' <<< "$symbols" || fortified=$((fortified + 1))
done
((guarded > 0)) || wrong "all" "no function guards its stack"
((fortified > 0)) || wrong "all" "no call is fortified"
exit "$failed"
