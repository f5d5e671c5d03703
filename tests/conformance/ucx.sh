#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# ucx.sh - UCX's own programs over its verbs transports. UCX connects RC queue pairs by way of UD ones, so
# both need UD. It wants a character device of the device's name, which only the preload pretends; for the
# library path there is one in a mount namespace, where that is allowed.
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need ucx_info ucx_perftest
export UCX_NET_DEVICES=sluice_soft0:1 UCX_WARN_UNUSED_ENV_VARS=n

# with_node COMMAND... - where /dev/infiniband/sluice_soft0 is a character device, for this command alone
with_node() {
    unshare --mount -- bash -c '
        old=$1/dev
        shift
        mkdir -p "$old" && mount --make-rprivate / && mount --rbind /dev "$old" &&
            mount -t tmpfs none /dev && mkdir /dev/infiniband /dev/shm &&
            mount --rbind "$old/shm" /dev/shm || exit 125
        for node in null zero random urandom; do
            : > "/dev/$node" && mount --bind "$old/$node" "/dev/$node" || exit 125
        done
        : > /dev/infiniband/sluice_soft0 &&
            mount --bind "$old/zero" /dev/infiniband/sluice_soft0 || exit 125
        exec "$@"' with_node "$work" "$@"
}
export -f with_node
export work

perf() { # perf TRANSPORTS TEST FLAGS
    next_port
    export UCX_TLS=$1
    NAME="ucx_perftest -t $2 $3 ${4:-}, $1" pair tcp "ucx_perftest -p $port ${4:-}" \
        "ucx_perftest -p $port 127.0.0.1 -t $2 -n 1000 -w 100 $3 ${4:-}"
    unset UCX_TLS
}

cases() {
    if [[ $way == library-path && ! -c /dev/infiniband/sluice_soft0 ]]; then
        if ! with_node true 2> "$work/why"; then
            skip "UCX wants the character device /dev/infiniband/sluice_soft0: $(head -n 1 "$work/why")" ucx_perftest
            return
        fi
        via=(bash -c 'with_node "$@"' with_node)
    fi
    one ucx_info -d
    grep -q 'Device: *sluice_soft0:1' "$work/client"
    result $? "ucx_info finds the device"
    if ! has ud; then
        skip "the device has no UD" ucx_perftest
        return
    fi
    perf rc_verbs,ud_verbs tag_lat "-s 64"
    perf rc_verbs,ud_verbs tag_bw "-s 65536"
    perf rc_verbs,ud_verbs ucp_put_lat "-s 8"
    perf rc_verbs,ud_verbs ucp_get "-s 65536"
    perf rc_verbs,ud_verbs tag_lat "-s 64" "-E sleep"
    perf rc_verbs,ud_verbs tag_bw "-s 64" "-E sleep"
    perf ud_verbs tag_lat "-s 64"
    perf ud_verbs tag_bw "-s 4096"
    perf ud_verbs tag_lat "-s 64" "-E sleep"
    perf ud_verbs tag_bw "-s 64" "-E sleep"
}
both cases
finish
