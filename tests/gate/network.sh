#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# network.sh - what a failed job of a guest did to its network is undone: the next job finds the network that the
# first one found. In a network namespace; `rdma` is a stand-in. It needs root, veth and namespaces; 77: they are missing.
set -uo pipefail
source=$(cd "${1:?the checkout}" && pwd)
if [[ ${2:-} != inside ]]; then
    unshare -nm true 2> /dev/null || { echo "SKIPPED: NO NETWORK NAMESPACE" >&2; exit 77; }
    exec unshare -nm --propagation private bash "$0" "$source" inside
fi
mkdir -p /run/netns 2> /dev/null
mount -t tmpfs none /run/netns && mount -t sysfs none /sys || exit 77

export KERNEL_NET_A=ka KERNEL_NET_B=kb KERNEL_DRIVER=rxe
export SLUICE_TEST_HOST=10.77.0.1 SLUICE_TEST_HOST_2=10.77.0.2 SLUICE_DEVICE=sluice-a SLUICE_DEVICE_2=sluice-b
export driver=rxe HOST=only BUILD=/none
# shellcheck source=tests/kernel/guest/fabric
. "$source/tests/kernel/guest/fabric"
mount -t tmpfs none /mnt && ln -s "$(type -P true)" /mnt/rdma && ln -s "$(type -P true)" /mnt/ping || exit 77
PATH=/mnt:$PATH
ip link add ka type veth peer name kb 2> /dev/null && ip link del ka || { echo "SKIPPED: NO VETH" >&2; exit 77; }

fail() {
    echo "FAIL: $*" >&2
    exit 1
}
there_is() { # KIND... - of both ends; numbers and addresses of hardware are others every time
    local end
    for end in "" "ip netns exec peer"; do
        [[ -z $end || -e /run/netns/peer ]] || continue
        $end ip -o link
        $end ip -o -4 addr
        $end ip route
        $end tc qdisc
    done | sed -E 's/^[0-9]+: //; s/link\/ether.*//; s/@[a-z0-9]+//; s/qdisc ([a-z_]+) [0-9a-f]+:/qdisc \1/; s/state [A-Z]+//; s/(NO-CARRIER|LOWER_UP|M-DOWN),?//g; s/link-netns.*//; s/valid_lft.*//'
    ip netns | sed 's/ .*//'
}
litter() {
    tc qdisc replace dev ka root pfifo limit 7 || fail "no qdisc"
    ip link add name la type veth peer name lb
    ip addr add 10.99.0.1/24 dev ka
    ip addr add 10.98.0.1/32 dev lo
    tc qdisc replace dev lo root pfifo limit 9
    "${there[@]}" ip link set kb mtu 1500 down
    "${there[@]}" ip link add name lc type veth peer name ld
    ip netns add other
    ip link set lb netns other
    ip route add 10.97.0.0/24 dev ka
}

for kind in pair hosts; do
    devices "$kind" || fail "no network for $kind"
    before=$(there_is)
    litter
    [[ $(there_is) != "$before" ]] || fail "nothing was done to $kind"
    fabric_undo
    devices "$kind" || fail "no network for $kind after it was undone"
    after=$(there_is)
    [[ $after == "$before" ]] || {
        diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") >&2
        fail "$kind is not what it was"
    }
done
fabric_undo
[[ ! -e /sys/class/net/ka && -z $(ip netns) ]] || fail "something is left"
echo "the network is what it was"
