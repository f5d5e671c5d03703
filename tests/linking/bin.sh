#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# bin.sh BUILD TOOL... - bin/ of a build has the tools and nothing else, and the target "tools" needs no test and no
# benchmark, nor what those are linked with.
set -euo pipefail
build=$1
shift

wanted=$(printf '%s\n' "$@" | sort)
there=$(cd "$build/bin" && printf '%s\n' * | sort)
if [[ $wanted != "$there" ]]; then
    echo "bin/ has other files than the tools:"
    diff <(echo "$wanted") <(echo "$there") || true
    exit 1
fi
if ! inputs=$(ninja -C "$build" -t inputs tools 2> /dev/null); then
    echo "SKIPPED in part: this ninja does not list what a target is made of"
    exit 0
fi
if (($(wc -l <<< "$inputs") < 100)) ||
    grep -E '^(tests|bench)/|/lib(cmocka|benchmark)[.]' <<< "$inputs"; then
    echo "the target tools is made of what only tests and benchmarks need, or of nothing"
    exit 1
fi
