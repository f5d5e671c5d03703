# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# programs.sh - the programs that bench/compare runs, each as a function that prints numbers: Sluice's
# tools, the raw device, and other libraries, always as two processes on CPUs $a and $b. Sourced.

work=$(mktemp -d)
server=
way=shm # how all of them go: through shared memory, or tcp
cleanup() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

allowed() { # every CPU this process may use, one per line
    taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
        awk -F- '{ for (i = $1; i <= (NF > 1 ? $2 : $1); i++) print i }'
}

field() { # field NAME: a number out of a JSON line on standard input
    sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p"
}

nap() { # until something may have changed
    read -rt 0.01 <> <(:) || true
}

floor_now() {
    "$benches/raw-verbs" --floor --cpus "$a,$b"
}

# ---- Sluice --------------------------------------------------------------------------------------

both_sides=() # more flags, also of the server
# sluice TOOL ARGS...: one round, the JSON line on standard output
sluice() {
    local tool=$1 port=
    shift
    : >"$work/server"
    local -x SLUICE_SOFT_NET=off
    [ "$way" = shm ] || SLUICE_SOFT_NET=require
    "$bin/$tool" -p 0 --device soft --cpu "$a" ${both_sides[@]+"${both_sides[@]}"} >/dev/null 2>"$work/server" &
    server=$!
    while [ -z "$port" ]; do # the server says when it listens; it ends by itself if it cannot
        port=$(sed -n 's/.*listening on .*:\([0-9]*\)$/\1/p' "$work/server")
        kill -0 "$server" 2>/dev/null || fail "$tool: $(cat "$work/server")"
        [ -n "$port" ] || nap
    done
    timeout 120 "$bin/$tool" -p "$port" --device soft --cpu "$b" --json ${both_sides[@]+"${both_sides[@]}"} "$@" 127.0.0.1 ||
        fail "$tool $*: the client failed with status $?" # its server waits for another one: cleanup() ends it
    wait "$server" || fail "$tool: the server failed: $(cat "$work/server")"
    server=
}

# nic COMMAND...: the same on a device that has no shorter ways than a NIC has
nic() {
    local -x SLUICE_SOFT_PROFILE=nic
    "$@"
}

has_flag() { # has_flag TOOL FLAG: does this build of the tool know it
    "$bin/$1" --help | grep -q -e "$2"
}

# raw FILE: all figures of raw verbs once; raw_value FILE FIGURE N: the N-th value of one
raw() {
    local quick_flag=()
    [ "$quick" = 0 ] || quick_flag=(--quick)
    timeout 300 "$benches/raw-verbs" --json --cpus "$a,$b" ${quick_flag[@]+"${quick_flag[@]}"} >"$1" ||
        fail "raw-verbs failed"
}
raw_value() {
    awk -v n="\"$2\"" -F'[:,}]' 'index($0, n) { print $'"$3"' }' "$1"
}

# ---- UCX -----------------------------------------------------------------------------------------

listens() { # does anybody listen on this TCP port
    awk -v p="$(printf ':%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == p { f = 1 }
        END { exit !f }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# ucx TEST SIZE ITERATIONS: "p50_us avg_us bw_MiB rate". It reports nothing of very few iterations.
ucx() {
    local port try
    [ "$3" -ge 10000 ] || [ "$quick" = 0 ] || set -- "$1" "$2" $(($2 > 4096 ? 1000 : 20000))
    local -x UCX_TLS=posix,sysv,cma,self UCX_LOG_LEVEL=error
    [ "$way" = shm ] || local -x UCX_TLS=tcp,self UCX_NET_DEVICES=lo
    for try in 1 2 3; do
        port=$((20000 + RANDOM % 20000))
        taskset -c "$a" ucx_perftest -p "$port" >"$work/ucx" 2>&1 &
        server=$!
        # it listens as soon as the kernel says so; a taken port ends it
        until listens "$port" || ! kill -0 "$server" 2>/dev/null; do
            nap
        done
        if kill -0 "$server" 2>/dev/null; then
            timeout 120 taskset -c "$b" ucx_perftest 127.0.0.1 -p "$port" -t "$1" -s "$2" \
                -n "$3" -f -v 2>/dev/null | awk -F, '/^[0-9]/ { l = $0 } END {
                split(l, f, ","); print f[2], f[3], f[6], f[8] }'
            wait "$server" 2>/dev/null || true
            server=
            return
        fi
        wait "$server" 2>/dev/null || true
        server=
    done
    fail "ucx_perftest found no port in $try tries"
}

# ucx_trips SIZE COUNT DEPTH: round trips, so many of them on their way at once
ucx_trips() {
    local -x UCX_TLS=posix,sysv,cma,self UCX_LOG_LEVEL=error
    [ "$way" = shm ] || local -x UCX_TLS=tcp,self UCX_NET_DEVICES=lo
    timeout 120 "$benches/peer-ucx" trips "$1" "$2" "$3" "$a" "$b"
}

# ---- other people's verbs programs on the device ---------------------------------------------------

bound() { # does anybody listen on this port of the device
    grep -qE "^[0-9a-f]+: [0-9]+ [0-9]+ 00010000 .*@sluice-soft[.][0-9]+/cm/.*/$1\$" /proc/net/unix
}

# perftest PROGRAM FLAGS...: the last line of numbers
perftest() {
    local port=$((20000 + RANDOM % 20000))
    taskset -c "$a" timeout 120 "$bin/sluice-soft" run -- "$@" -F -p "$port" >"$work/perftest" 2>&1 &
    server=$!
    until listens "$port" || ! kill -0 "$server" 2>/dev/null; do
        nap
    done
    timeout 120 taskset -c "$b" "$bin/sluice-soft" run -- "$@" -F -p "$port" 127.0.0.1 2>/dev/null |
        awk '/^ *[0-9]+ +[0-9]+ / { l = $0 } END { print l }'
    wait "$server" || fail "$*: $(cat "$work/perftest")"
    server=
}

# cmtime_rate CONNECTIONS: how many a second get connected; the program ends if one is not
cmtime_rate() {
    local port=$((20000 + RANDOM % 20000))
    taskset -c "$a" timeout 120 "$bin/sluice-soft" run -- cmtime -p "$port" -c "$1" >"$work/cmtime-server" 2>&1 &
    server=$!
    until bound "$port" || ! kill -0 "$server" 2>/dev/null; do
        nap
    done
    timeout 120 taskset -c "$b" "$bin/sluice-soft" run -- cmtime -s 127.0.0.1 -p "$port" -c "$1" \
        >"$work/cmtime" 2>&1 || fail "cmtime: $(cat "$work/cmtime")"
    awk -v n="$1" '/^connect / { print n / $3 * 1000 }' "$work/cmtime"
    kill "$server" 2>/dev/null || true # it never ends by itself
    wait "$server" 2>/dev/null || true
    server=
}

# ---- libfabric -----------------------------------------------------------------------------------

# libfabric SIZE ITERATIONS: "one_way_ns bytes_per_s", both of its ping-pong
libfabric() {
    local port=$((20000 + RANDOM % 20000)) ends=(-p "$way" -e rdm)
    taskset -c "$a" timeout 120 fi_pingpong "${ends[@]}" -B "$port" -S "$1" -I "$2" \
        >/dev/null 2>&1 &
    server=$!
    until listens "$port" || ! kill -0 "$server" 2>/dev/null; do
        nap
    done
    timeout 120 taskset -c "$b" fi_pingpong "${ends[@]}" -P "$port" -S "$1" -I "$2" 127.0.0.1 \
        2>/dev/null | awk '/^[0-9]/ { l = $0 } END { split(l, f); print f[7] * 1000, f[6] * 1e6 }'
    wait "$server" 2>/dev/null || true
    server=
}

# ---- programs of ours over other libraries -------------------------------------------------------

# local_peer NAME lat|bw SIZE COUNT: its JSON line
local_peer() {
    local url=()
    [ "$way" = shm ] || url=("tcp://127.0.0.1:$((20000 + RANDOM % 10000))")
    timeout 120 "$benches/peer-$1" "$2" "$3" "$4" "$a" "$b" ${url[@]+"${url[@]}"} || fail "peer-$1 failed"
}

# lib_busy NET ARGS...: the mean in nanoseconds, beside two programs that spin; NET as in SLUICE_SOFT_NET
lib_busy() {
    SLUICE_SOFT_NET=$1 timeout 120 taskset -c "$a,$b" "$benches/lib-busy" --json --load 2 "${@:2}" |
        field mean_ns
}

# raw_tcp lat|bw SIZE COUNT: nanoseconds one way, or messages a second, of plain TCP
raw_tcp() {
    timeout 120 taskset -c "$a,$b" "$benches/raw-tcp" "--$1" "$2" "$3" | awk '{ print $3 }'
}
