# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# util.sh - what the conformance drivers share: unmodified programs of the system, started by
# "sluice-soft run" both ways (preload, library path). A case is one program in one mode; its result is
# one line: ok, FAILED, or skipped and why. Servers are waited for by looking at the kernel's lists of
# listening sockets, never by time. Sourced with `set -uo pipefail` on.
bin=${SLUICE_BIN_DIR:?}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-conformance.XXXXXX")
passed=0 failures=0 skipped=0
children=()
way=preload
via=() # what stands in front of "sluice-soft run"
port=$((10000 + $$ % 220 * 100)) # below those that the kernel gives to connections
LIMIT=${LIMIT:-60}    # seconds a program may take
BUDGET=${BUDGET:-500} # seconds the driver may take; ctest ends it without a word at 600
export LC_ALL=C

# Ends what is still running: the children are "timeout", which hands TERM on to its program, and KILL 2 s later.
cleanup() {
    local child
    trap '' TERM INT HUP
    for child in ${children[@]+"${children[@]}"}; do
        kill -TERM "$child" 2> /dev/null
    done
    wait
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

# need PROGRAM... - the driver is skipped, loudly, unless all of them are there.
need() {
    local program missing=()
    if [[ -n ${SLUICE_SANITIZE:-} ]]; then
        echo "SKIPPED: a sanitizer's runtime cannot be preloaded under other people's programs"
        exit 77
    fi
    for program in "$@"; do
        command -v "$program" > /dev/null || missing+=("$program")
    done
    ((${#missing[@]} == 0)) && return
    echo "SKIPPED: not installed: ${missing[*]} (packages rdmacm-utils ibverbs-utils perftest libfabric-bin ucx-utils tshark tgt libiscsi-bin dapl2-utils ceph-mon ceph-osd ceph-common)"
    exit 77
}

# What runs in the background ends with the driver: cleanup knows it.
on() { # on PROGRAM ARGUMENTS... - on the device, the way chosen
    local option=--preload
    [[ $way == preload ]] || option=--library-path
    timeout -k 2 "$LIMIT" ${via[@]+"${via[@]}"} "$bin/sluice-soft" run "$option" -- "$@"
}

start() { # start PROGRAM ARGUMENTS... - the same in the background: the server; child is its number
    local option=--preload
    [[ $way == preload ]] || option=--library-path
    rm -f "$work/client"
    timeout -k 2 "$LIMIT" ${via[@]+"${via[@]}"} "$bin/sluice-soft" run "$option" -- "$@" > "$work/server" 2>&1 < /dev/null &
    child=$!
    children=("$child")
}

# A long run, by hand, rather than one of every change?
long() {
    [[ -n ${SLUICE_TEST_LONG:-} && $SLUICE_TEST_LONG != 0 ]]
}

nap() { # a short wait between looks
    read -rt 0.02 <> <(:) || true
}

# Out of time: the rest is not tried, and that is a failure.
in_time() {
    ((SECONDS < BUDGET)) && return
    failures=$((failures + 1))
    echo "FAILED   $way: $BUDGET s are over, what follows was not tried"
    finish
}

result() { # result STATUS WHAT...
    local status=$1
    shift
    if [[ $status == 0 ]]; then
        passed=$((passed + 1))
        printf 'ok       %-12s %s\n' "$way" "$*"
        return
    fi
    failures=$((failures + 1))
    printf 'FAILED   %-12s %s (exit status %s)\n' "$way" "$*" "$status"
    sed 's/^/    client: /' "$work/client" 2> /dev/null | tail -n 12
    sed 's/^/    server: /' "$work/server" 2> /dev/null | tail -n 12
}

skip() { # skip WHY WHAT...
    skipped=$((skipped + 1))
    printf 'skipped  %-12s %s: %s\n' "$way" "${*:2}" "$1"
}

# has WORD - does the device say that it has it (probe prints what there is)?
has() {
    [[ " $(on "$bin/../tests/conformance_probe" 2> /dev/null) " == *" $1 "* ]]
}

one() { # one PROGRAM ARGUMENTS... - a program alone
    in_time
    rm -f "$work/server"
    on "$@" > "$work/client" 2>&1 < /dev/null
    result $? "$@"
}

# The next one that no socket has, in whatever state.
next_port() {
    local tries
    for ((tries = 0; tries < 1000; tries++)); do
        port=$((port < 32000 ? port + 1 : 10000))
        grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$port") " /proc/net/tcp /proc/net/tcp6 2> /dev/null || return 0
    done
}

listens() { # listens KIND PORT - tcp: a socket of the kernel's; cm: a port of the device's; none: at once
    local hex
    case $1 in
        tcp)
            hex=$(printf ':%04X' "$2")
            grep -qE "^ *[0-9]+: [0-9A-F]+$hex [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 2> /dev/null
            ;;
        # bound and, by the flag, listened on
        cm) grep -qE "^[0-9a-f]+: [0-9]+ [0-9]+ 00010000 .*@sluice-soft[.][0-9]+/cm/.*/$2\$" /proc/net/unix ;;
    esac
}

until_listens() { # until_listens KIND PORT - or until the child has ended
    local tries=0
    until listens "$1" "$2" || ! kill -0 "$child" 2> /dev/null || ((tries++ > 1000)); do
        nap
    done
}

# reap STATUS [FLAG] - the child's end; sets status to STATUS, or if that is 0 to the child's.
reap() {
    local ended=0
    status=$1
    [[ -z ${2:-} ]] || kill -TERM "$child" 2> /dev/null
    wait "$child" || ended=$?
    [[ -n ${2:-} || $status != 0 ]] || status=$ended
    children=()
}

# pair KIND SERVER-WORDS CLIENT-WORDS [FLAG] - two programs against each other; KIND as above. With the flag
# "forever" the server never ends by itself, and is ended.
pair() {
    local kind=$1 server client status=0 child words=${NAME:-$3}
    in_time
    read -ra server <<< "$2"
    read -ra client <<< "$3"
    start "${server[@]}"
    until_listens "$kind" "${LISTEN:-$port}"
    on "${client[@]}" > "$work/client" 2>&1 < /dev/null || status=$?
    reap "$status" "${4:-}"
    result "$status" "$words"
}

both() { # both FUNCTION - the same cases, preloaded and by library path
    for way in preload library-path; do
        "$1"
    done
}

finish() {
    echo "$passed ok, $failures failed, $skipped skipped"
    ((failures == 0)) || exit 1
    ((passed > 0)) || exit 77
    exit 0
}
