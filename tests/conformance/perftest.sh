#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# perftest.sh - perftest's bandwidth and latency programs: all sizes, polling and sleeping, queue pairs
# exchanged over TCP or connected by the connection manager. They time, they do not check data.
#
# Latency programs take most of the time for their largest sizes, and the device is the same object whichever
# way it gets in. So only a long run (SLUICE_TEST_LONG=1) has every size of the latency programs and every
# case both ways; a short one has three sizes, and by library path each program once.
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat

run() { # run PROGRAM FLAGS
    next_port
    local kind=tcp flags="$2 -F -p $port"
    [[ $2 == *-R* ]] && kind=cm
    NAME="$1 $2" pair "$kind" "$1 $flags" "$1 $flags 127.0.0.1"
}

cases() {
    local verb what
    for verb in send write read; do
        run "ib_${verb}_bw" "-a -n 20"
        if long; then
            run "ib_${verb}_lat" "-a -n 10"
        else
            run "ib_${verb}_lat" "-s 2 -n 10"
            run "ib_${verb}_lat" "-s 4096 -n 10"
            run "ib_${verb}_lat" "-s 1048576 -n 10"
        fi
    done
    for what in bw lat; do
        run "ib_atomic_$what" "-n 200"
        run "ib_atomic_$what" "-n 200 -A CMP_AND_SWAP"
        run "ib_send_$what" "-n 200 -e"
        run "ib_read_$what" "-n 200 -e"
        run "ib_atomic_$what" "-n 200 -e"
        run "ib_send_$what" "-n 200 -R"
        run "ib_send_$what" "-n 200 -R -e"
        run "ib_write_$what" "-n 200 -R"
        run "ib_read_$what" "-n 200 -R"
        run "ib_atomic_$what" "-n 200 -R"
    done
    run ib_write_bw "-n 200 -q 4"
    run ib_send_bw "-n 200 -b"
    run ib_send_bw "-n 200 -r 64 --use-srq"
    for what in bw lat; do
        if has uc; then
            run "ib_send_$what" "-n 200 -c UC"
            run "ib_send_$what" "-n 200 -c UC -e"
            run "ib_write_$what" "-n 200 -c UC"
        else
            skip "the device has no UC" "ib_send_$what" -c UC
            skip "the device has no UC" "ib_write_$what" -c UC
        fi
        if has ud; then
            run "ib_send_$what" "-n 200 -c UD -s 1024"
            run "ib_send_$what" "-n 200 -c UD -s 1024 -e"
            run "ib_send_$what" "-n 200 -c UD -s 1024 -R"
        else
            skip "the device has no UD" "ib_send_$what" -c UD
        fi
    done
}
each_once() {
    local what
    for what in send_bw send_lat write_bw write_lat read_bw read_lat atomic_bw atomic_lat; do
        run "ib_$what" "-n 200"
    done
}

if long; then
    both cases
else
    way=preload
    cases
    way=library-path
    each_once
fi
finish
