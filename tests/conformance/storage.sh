#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# storage.sh - an iSCSI target that speaks iSER (tgt), and logins to it one after the other (libiscsi).
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need tgtd tgtadm iscsi-inq iscsi-readcapacity16
name=iqn.2020-01.com.example:disk
who=iqn.2007-10.com.github:sahlberg:libiscsi
export TGT_IPC_SOCKET=$work/tgtd

adm() {
    timeout 10 tgtadm --lld iser "$@" > "$work/client" 2>&1
}

# The target is there, with a disk of 8 MiB that these programs may use.
target() {
    truncate -s 8M "$work/disk" &&
        adm --mode target --op new --tid 1 --targetname "$name" &&
        adm --mode logicalunit --op new --tid 1 --lun 1 -b "$work/disk" &&
        adm --mode target --op bind --tid 1 -I ALL &&
        adm --mode target --op bind --tid 1 -Q "$who:iscsi-inq" &&
        adm --mode target --op bind --tid 1 -Q "$who:iscsi-readcapacity16"
}

logins() { # logins COUNT
    local i
    for ((i = 0; i < $1; i++)); do
        on iscsi-inq "iser://127.0.0.1:3260/$name/1" > "$work/client" 2>&1 < /dev/null || return
        grep -q '^Peripheral Device Type:DIRECT_ACCESS' "$work/client" || return
    done
}

cases() {
    local child status=0
    in_time
    next_port # of its iSCSI; that of iSER cannot be chosen
    start tgtd -f --iscsi "portal=127.0.0.1:$port" --iser pool_sz_mb=128
    until_listens cm 3260
    target
    result $? "tgtd: a target for iSER"
    logins 50
    result $? "iscsi-inq: 50 logins over iSER"
    on iscsi-readcapacity16 "iser://127.0.0.1:3260/$name/1" > "$work/client" 2>&1 < /dev/null &&
        grep -q 'Total size:8388608' "$work/client"
    result $? "iscsi-readcapacity16 over iSER"
    reap "$status" forever
}

both cases
finish
