#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# ceph.sh - a Ceph cluster of one monitor and one OSD whose messages all go by RDMA: an object is written and read,
# the OSD is killed and started again, and the object is still there. Queue pairs are connected by number when
# preloaded (Ceph's default), by rdma_cm with the library path.
set -uo pipefail
LIMIT=${LIMIT:-120}
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need ceph ceph-mon ceph-osd rados monmaptool
unset CEPH_ARGS CEPH_CONF
id=4c1f3a52-6d0e-4b7a-9a57-0c5b9d1e2f30 disk=8f0b6c11-2a94-4d35-b1c8-5e7d3f9a0b64

# Ceph by itself wants three hosts, passwords and much memory: here are one host, none and little.
settings() {
    cat << END
[global]
fsid = $id
mon host = v2:127.0.0.1:$port
mon initial members = a
public network = 127.0.0.1/32
cluster network = 127.0.0.1/32
ms bind msgr1 = false
ms type = async+rdma
ms async rdma device name = sluice_soft0
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = true
mon data = $work/mon
mon data avail crit = 1
osd data = $work/osd
osd objectstore = bluestore
bluestore block size = 1G
osd memory target = 939524096
osd crush update on start = false
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
run dir = $work
admin socket = $work/\$name.\$pid.asok
log file = $work/\$name.log
log to stderr = false
err to stderr = false
END
    [[ $way == preload ]] || printf '%s\n' 'ms async rdma type = iwarp' 'ms async rdma cm = true'
}

ask() { # ask PROGRAM ARGUMENTS... - what a client of the cluster says
    LIMIT=30 on "$1" -c "$work/conf" "${@:2}" > "$work/client" 2>&1 < /dev/null
}

# Started anew since the map that has this number, in use, and no other.
until_up() { # until_up EPOCH
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        ask ceph osd stat && grep -q '1 up.*1 in' "$work/client" && (($(epoch) > $1)) && return
        kill -0 "$osd" 2> /dev/null || return 1
        nap
    done
    return 1
}

epoch() {
    sed -n 's/.*epoch: e\([0-9]*\).*/\1/p' "$work/client"
}

osd() {
    start ceph-osd -c "$work/conf" -i 0 -f
    osd=$child children=("$monitor" "$osd")
}

cluster() {
    rm -rf "$work/mon" "$work/osd"
    mkdir "$work/mon" "$work/osd"
    settings > "$work/conf"
    monmaptool --create --clobber --fsid "$id" --enable-all-features --addv a "[v2:127.0.0.1:$port]" "$work/map" &&
        ask ceph-mon -i a --mkfs --monmap "$work/map"
} > "$work/client" 2>&1

object() { # object NAME - what was written is what is read
    rm -f "$work/read"
    ask rados -p pool get "$1" "$work/read" && cmp "$work/written" "$work/read" > "$work/client" 2>&1
}

# With SIGKILL, which "timeout" cannot hand on: to its child, which the program is.
kill_osd() {
    kill -KILL "$(tr -d ' ' < "/proc/$osd/task/$osd/children")" || return
    wait "$osd" 2> /dev/null
    [[ $? == 137 ]]
}

cases() {
    local before end kind=tcp
    [[ $way == preload ]] || kind=cm
    in_time
    next_port
    cluster
    result $? "ceph-mon --mkfs"
    start ceph-mon -c "$work/conf" -i a -f
    monitor=$child
    until_listens "$kind" "$port"
    ask ceph -s
    result $? "ceph-mon: a monitor that answers"
    ask ceph osd new "$disk" && ask ceph-osd -i 0 --mkfs --osd-uuid "$disk" &&
        ask ceph osd crush add osd.0 1.0 root=default
    result $? "ceph-osd --mkfs"
    osd
    until_up 0
    result $? "ceph-osd: up, in"
    head -c 9000001 /dev/urandom > "$work/written"
    ask ceph osd pool create pool 8 8 replicated && ask rados -p pool put one "$work/written" && object one
    result $? "rados: an object of 9 MB written and read"
    ask rados -p pool bench 2 write -b 65536 --max-objects 500
    result $? "rados bench: writes"
    ask ceph osd stat
    before=$(epoch)
    kill_osd && osd && until_up "$before" && object one
    result $? "ceph-osd: killed and started again, the object is there"
    for end in "$osd" "$monitor"; do
        kill -TERM "$end" 2> /dev/null
        wait "$end" 2> /dev/null
    done
    children=()
}

both cases
finish
