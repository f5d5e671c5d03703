#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# rdmacm.sh - the programs of rdmacm-utils: connections, datagrams, multicast, and the same program with
# the device reached by "sluice-soft ctl".
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need rping ucmatose udaddy mckey cmtime rdma_server rdma_client

cases() {
    local size
    for size in 64 60000; do
        next_port
        NAME="rping -C 100 -S $size -V" pair cm "rping -s -p $port -C 100 -S $size -V" \
            "rping -c -a 127.0.0.1 -p $port -C 100 -S $size -V"
    done
    next_port
    NAME="rping -P (server with threads)" pair cm "rping -s -P -p $port" \
        "rping -c -a 127.0.0.1 -p $port -C 10 -V" forever
    next_port
    one_refused
    next_port
    NAME="ucmatose -c 20 -C 10 -S 4096" pair cm "ucmatose -p $port -c 20 -C 10 -S 4096" \
        "ucmatose -s 127.0.0.1 -p $port -c 20 -C 10 -S 4096"
    next_port
    NAME="ucmatose -m (ids move between channels)" pair cm "ucmatose -p $port -m" \
        "ucmatose -s 127.0.0.1 -p $port -m"
    next_port
    NAME="cmtime -c 100" pair cm "cmtime -p $port -c 100" "cmtime -s 127.0.0.1 -p $port -c 100" forever
    next_port
    NAME="cmtime -c 1000" pair cm "cmtime -p $port -c 1000" "cmtime -s 127.0.0.1 -p $port -c 1000" forever
    next_port
    NAME="rdma_server, rdma_client" pair cm "rdma_server -p $port" "rdma_client -s 127.0.0.1 -p $port"
    if has ud; then
        NAME=udaddy LISTEN=7174 pair cm udaddy "udaddy -s 127.0.0.1" # its port cannot be chosen
        NAME="udaddy -c 8 -C 50 -S 4000" LISTEN=7174 pair cm "udaddy -c 8 -C 50 -S 4000" \
            "udaddy -s 127.0.0.1 -c 8 -C 50 -S 4000"
    else
        skip "the device has no UD" udaddy
        skip "the device has no UD" mckey
        return
    fi
    multicast
}

# Where nobody listens that is said, though not at once.
one_refused() {
    rm -f "$work/server"
    on rping -c -a 127.0.0.1 -p "$port" -C 1 > "$work/client" 2>&1 < /dev/null
    [[ $? != 0 ]] && grep -q 'RDMA_CM_EVENT_REJECTED, error 8' "$work/client"
    result $? "rping to a port that nobody listens on is refused"
}

# Two members of a group; the receiver has joined when it says so.
multicast() {
    local child status=0 tries=0
    in_time
    start stdbuf -oL mckey -m 239.1.2.3 -b 127.0.0.1
    until grep -q 'joined dgid' "$work/server" || ! kill -0 "$child" 2> /dev/null || ((tries++ > 1000)); do
        nap
    done
    on mckey -m 239.1.2.3 -b 127.0.0.1 -s > "$work/client" 2>&1 < /dev/null || status=$?
    reap "$status"
    result "$status" mckey
}

# What another program does with the device can be looked at from outside.
watched() {
    local child status=1 pid
    way=preload
    next_port
    start rping -s -p "$port"
    until_listens cm "$port"
    pid=$(pgrep -P "$child" -x rping)
    "$bin/sluice-soft" ctl "${pid:-0}" status > "$work/client" 2>&1 &&
        grep -q '^device sluice_soft0, port up' "$work/client" && status=0
    reap "$status" forever
    result "$status" "sluice-soft ctl reaches rping"
}

both cases
watched
finish
