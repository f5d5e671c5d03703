#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# nm_imports.sh FILE - what the parts of the library import; FILE lists its object files. Only those of
# src/fabric may import ibv_* or rdma_*: everything else goes through the fabric's table. The hot verbs
# are inline calls through ibv_context.ops and import nothing.
set -euo pipefail
mapfile -t objects < <(grep . "$1")
((${#objects[@]} > 0)) || { echo "no object files in $1"; exit 1; }

# One line for each import: OBJECT: U SYMBOL
imports=$(nm -A --undefined-only "${objects[@]}" | grep -E ' U (ibv|rdma)_' || true)
outside=$(grep -v '/src/fabric/' <<< "$imports" || true)
if [[ -n $outside ]]; then
    printf 'imports outside src/fabric:\n%s\n' "$outside"
    exit 1
fi
if ! grep -q '/src/fabric/' <<< "$imports" ||
    ! printf '%s\n' "${objects[@]}" | grep -v '/src/fabric/' > /dev/null; then
    echo "no import inside src/fabric, or nothing outside it: this test does not see the library"
    exit 1
fi

# The CM thread waits for no memory: of the pool it reads a counter and nothing more. And only the
# resolver's threads wait for name servers; the device's own call for it (device/src/soft) is not used here.
pool=$(nm -A --undefined-only "${objects[@]}" | grep '/src/cm/' | grep -E ' U pool_' || true)
if [[ $(grep -cv ' U pool_bytes$' <<< "$pool") != 0 || -z $pool ]]; then
    printf 'src/cm uses the pool:\n%s\n' "$pool"
    exit 1
fi
names=$(nm -A --undefined-only "${objects[@]}" | grep -v '/device/src/soft/' |
    grep -E ' U (getaddrinfo|gethostby.*)$' || true)
if [[ -z $names ]] || grep -qv '/src/cm/name_lookup\.' <<< "$names"; then
    printf 'name servers are asked by:\n%s\n' "${names:-nobody}"
    exit 1
fi

# The device and what it shares with the library need nothing of the library.
symbols() { # symbols device|library NM-ARGUMENTS... - of the objects of either
    local invert=''
    [[ $1 == device ]] || invert=yes
    shift
    printf '%s\n' "${objects[@]}" | grep -E ${invert:+-v} '/(device/src|common)/' |
        xargs nm "$@" | awk 'NF >= 2 { print $NF }' | sort -u
}
needed=$(comm -12 <(symbols device --undefined-only) <(symbols library --defined-only -g))
if [[ -n $needed || $(symbols device --defined-only -g | wc -l) -lt 300 ]]; then
    printf 'the device needs of the library, or was not found:\n%s\n' "$needed"
    exit 1
fi

# A program that runs with more rights than its caller does not let the caller's environment decide: see
# secure_getenv(3).
environment=$(nm -A --undefined-only "${objects[@]}" | grep -E ' U (secure_)?getenv$' || true)
if [[ -z $environment ]] || grep -q ' U getenv$' <<< "$environment"; then
    printf 'the environment is read, without a look at whose it is, by:\n%s\n' "${environment:-nobody}"
    exit 1
fi
