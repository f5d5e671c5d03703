#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# syscall_test.sh - messages between two spinning processes cost no system call: strace counts those of
# the thread that sends and receives, with so many messages and with twice as many, in both processes.
#
# Threads of the library that have nothing to do with messages are not counted. The polling thread makes a
# few calls by the clock (it is interrupted, it rings a peer whose threads lost their CPU: once a millisecond),
# so a run may have some of these for every millisecond it took: a machine that is busy elsewhere takes longer
# and rings more. All other calls stay below one for every 300th message however long it took.
set -euo pipefail

messages=100000
few=40 # rings however short the run
per_ms=1

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

# total FILE: calls of any kind; rings FILE: those that ring
total() {
    awk -F= '{ n += $2 } END { print n + 0 }' "$1"
}

rings() {
    awk -F= '$1 == "sendto" { n += $2 } END { print n + 0 }' "$1"
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

# judge_rings SIDE COUNT: false, with what differs in $why, if the clock does not account for the rings of that run
judge_rings() {
    local rung limit
    rung=$(rings "$work/$1.$2") limit=$((few + per_ms * $(<"$work/ms.$2")))
    echo "  the $1 rang $rung times in $(<"$work/ms.$2") ms with $2 messages: at most $limit"
    ((rung > limit)) || return 0
    why="the $1 rang $rung times in $(<"$work/ms.$2") ms"
    return 1
}

# judge_others SIDE: the same if the longer run made too many calls more that do not ring
judge_others() {
    local a=$work/$1.$messages b=$work/$1.$((2 * messages)) once twice limit=$((messages / 300))
    once=$(($(total "$a") - $(rings "$a"))) twice=$(($(total "$b") - $(rings "$b")))
    echo "  the $1 made $once other calls with $messages messages, $twice with twice as many: at most $limit more"
    ((twice > once + limit)) || return 0
    why="the $1 made $((twice - once)) calls more for $messages messages more"
    diff "$a" "$b" >&2 || true
    return 1
}

# compare_once TOOL ARGS...: false if messages cost calls
compare_once() {
    local side
    run "$1" "$messages" "${@:2}"
    run "$1" $((2 * messages)) "${@:2}"
    echo "$*:"
    for side in server client; do
        (($(total "$work/$side.$messages") > 20)) || fail "strace saw next to nothing"
        judge_rings "$side" "$messages" && judge_rings "$side" $((2 * messages)) && judge_others "$side" || return 1
    done
}

# compare TOOL ARGS...: a peer that loses its CPU in the longer run is waited for with calls, which says nothing about
# messages; calls that messages cost are there in every pair of runs.
compare() {
    local attempt
    for attempt in 1 2 3 4; do
        ! compare_once "$@" || return 0
        echo "$why" >&2
    done
    fail "$why, $attempt times in a row"
}

compare sluice-lat -s 64
compare sluice-bw -s 64
compare sluice-bw -s 64 -b
compare sluice-bw -s 8192 -l 1
