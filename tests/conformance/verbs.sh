#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# verbs.sh - the programs of ibverbs-utils: what the device says of itself, ping-pong over each kind of
# queue pair, polling and sleeping, with the data checked (-c), over the extended calls (-N, -t).
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong

pingpong() { # pingpong KIND FLAGS
    next_port
    NAME="ibv_$1_pingpong $2" pair tcp "ibv_$1_pingpong -g 0 -p $port $2" \
        "ibv_$1_pingpong -g 0 -p $port $2 127.0.0.1"
}

refused() { # refused FLAGS - what the device does not have is refused, not tried
    rm -f "$work/server"
    # shellcheck disable=SC2086 # words
    on ibv_rc_pingpong -g 0 $1 > "$work/client" 2>&1 < /dev/null
    [[ $? == 1 ]]
    result $? "ibv_rc_pingpong $1 is refused"
}

cases() {
    one ibv_devices
    one ibv_devinfo -v
    grep -q 'hca_id:.*sluice_soft0' "$work/client"
    result $? "ibv_devinfo names the software device"
    local mode
    for mode in "" -e; do
        pingpong rc "-c $mode"
        pingpong rc "-N $mode"
        # With -t and -e together the program takes an event without a completion for an error.
        [[ -n $mode ]] || pingpong rc "-t"
        pingpong srq "-c $mode"
        if has uc; then pingpong uc "-c $mode"; else skip "the device has no UC" ibv_uc_pingpong "$mode"; fi
        if has ud; then pingpong ud "-c $mode"; else skip "the device has no UD" ibv_ud_pingpong "$mode"; fi
    done
    pingpong rc "-c -s 1048576 -n 100"
    refused -o
    refused -j
}
both cases
finish
