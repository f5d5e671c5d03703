#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# syscall_test.sh - messages between two spinning processes cost no system call: strace counts those of
# the thread that sends and receives, with so many messages and with twice as many, in both processes.
#
# Threads of the library that have nothing to do with messages are not counted. The polling thread makes a
# few calls by the clock (it is interrupted, it rings a peer whose threads woke up), so the longer run may
# have some more for every millisecond it took longer; a call for every 300th message would be too many.
set -euo pipefail

messages=100000
few=40 # calls that may differ anyhow
per_ms=2

skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}

bin=${SLUICE_BIN_DIR:?SLUICE_BIN_DIR is not set}
[ -z "${SLUICE_SANITIZE:-}" ] || skip "A SANITIZER'S RUNTIME MAKES SYSTEM CALLS OF ITS OWN"
command -v strace >/dev/null || skip "STRACE IS NOT INSTALLED (PACKAGE strace)"
work=$(mktemp -d)
server=
cleanup() {
    local traced=
    if [ -n "$server" ]; then # first what strace runs: it ends when that does
        read -r traced _ <"/proc/$server/task/$server/children" || true
        kill "${traced:-$server}" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
strace -f -qq -s0 -o "$work/probe" true 2>/dev/null || skip "STRACE MAY NOT TRACE HERE (ptrace IS FORBIDDEN)"

cpus=$(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{ for (i = $1; i <= (NF > 1 ? $2 : $1); i++) print i }' | head -n 2 | paste -sd' ')
read -r cpu_a cpu_b <<<"$cpus"
[ -n "${cpu_b:-}" ] || skip "ONE CPU ONLY: NOBODY CAN SPIN"

fail() {
    echo "syscall_test: $*" >&2
    exit 1
}

# The first thread that strace saw is the program's own: the one that polls. name=count, a line each; a
# call that is shown twice because another thread's came in between counts once.
calls() {
    awk 'NR == 1 { first = $1 } $1 == first && match($2, /^[a-z0-9_]+\(/) {
        n[substr($2, 1, RLENGTH - 1)]++ } END { for (i in n) print i "=" n[i] }' "$1" | sort
}

total() {
    awk -F= '{ n += $2 } END { print n + 0 }' "$1"
}

# run TOOL COUNT ARGS...: system calls of each process's polling thread into $work/server.COUNT, client.COUNT
run() {
    local tool=$1 count=$2 port= began limit=$((SECONDS + 60))
    shift 2
    : >"$work/server" # what the server before has said is not to be read
    strace -f -qq -s0 -o "$work/server.trace" "$bin/$tool" -p 0 --cpu "$cpu_a" >/dev/null 2>"$work/server" &
    server=$!
    while [ -z "$port" ]; do
        port=$(sed -n 's/.*listening on .*:\([0-9]*\)$/\1/p' "$work/server")
        kill -0 "$server" 2>/dev/null || fail "$tool: $(cat "$work/server")"
        ((SECONDS < limit)) || fail "$tool does not listen"
        [ -n "$port" ] || read -rt 0.02 <> <(:) || true
    done
    began=$(date +%s%N)
    timeout 120 strace -f -qq -s0 -o "$work/client.trace" "$bin/$tool" -p "$port" -n "$count" -w 1000 \
        --cpu "$cpu_b" --json "$@" 127.0.0.1 >"$work/out" 2>"$work/err" || fail "$tool: $(cat "$work/err")"
    echo $((($(date +%s%N) - began) / 1000000)) >"$work/ms.$count"
    wait "$server" || fail "$tool: the server failed: $(cat "$work/server")"
    server=
    grep -q '"size"' "$work/out" || fail "$tool: no result"
    calls "$work/server.trace" >"$work/server.$count"
    calls "$work/client.trace" >"$work/client.$count"
}

# compare_once TOOL ARGS...: false, with what differs in $why, if the longer run made too many more
compare_once() {
    local side once twice more
    run "$1" "$messages" "${@:2}"
    run "$1" $((2 * messages)) "${@:2}"
    more=$(($(<"$work/ms.$((2 * messages))") - $(<"$work/ms.$messages")))
    more=$((few + per_ms * (more > 0 ? more : 0)))
    ((more < messages / 300)) || more=$((messages / 300))
    for side in server client; do
        once=$(total "$work/$side.$messages") twice=$(total "$work/$side.$((2 * messages))")
        echo "$*: the $side made $once system calls with $messages messages, $twice with twice as many"
        ((once > 20)) || fail "strace saw next to nothing"
        ((twice <= once + more)) && continue
        why="the $side made $((twice - once)) calls more for $messages messages more"
        diff "$work/$side.$messages" "$work/$side.$((2 * messages))" >&2 || true
        echo "$why" >&2
        return 1
    done
}

# compare TOOL ARGS...: a peer that loses its CPU in the longer run is waited for with calls, which says nothing about
# messages; calls that messages cost are there in every pair of runs.
compare() {
    local attempt
    for attempt in 1 2 3 4; do
        ! compare_once "$@" || return 0
    done
    fail "$why, $attempt times in a row"
}

compare sluice-lat -s 64
compare sluice-bw -s 64
compare sluice-bw -s 64 -b
compare sluice-bw -s 8192 -l 1
