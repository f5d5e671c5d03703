# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
#
# two_hosts.sh - sourced by the tests of two hosts without an RDMA device: network namespaces, as anybody who may make user
# namespaces. This is one host, there() is the other. The driver is skipped where nobody may, or where what it takes is missing.
# What it started and has not waited for is ended with it.

bin=${1:-${SLUICE_BIN_DIR:-}}
WRONG_DATA=86 # verdict.h
wrong_data() {
    echo "wrong data: $*"
    exit $WRONG_DATA
}

for word in unshare nsenter setpriv ip; do
    command -v "$word" > /dev/null || { echo "skipped: no $word" && exit 77; }
done
if [[ ${TWO_HOSTS:-} != inside ]]; then
    unshare -Urn true 2> /dev/null || { echo "skipped: no user namespaces" && exit 77; }
    export TWO_HOSTS=inside
    exec unshare -Urn bash "$0" "$bin"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/two-hosts.XXXXXX")
finish() {
    local pid
    for pid in $(jobs -p); do
        kill -CONT "$pid" 2> /dev/null || true
        kill -KILL "$pid" 2> /dev/null || true
    done
    wait 2> /dev/null
    rm -rf "$work"
}
trap finish EXIT

namespace() { # its process in $made
    unshare -n setpriv --pdeathsig KILL sleep 600 &
    made=$!
    local own
    own=$(readlink /proc/self/ns/net)
    until [[ $(readlink "/proc/$made/ns/net") != "$own" ]]; do sleep 0.01; done
}
namespace && other=$made
there() { nsenter -t "$other" -n "$@"; }

# The interfaces `here` and, on the other host, `there` are made: they get their addresses, and are up.
hosts_up() {
    ip link set lo up
    there ip link set lo up
    ip addr add 10.77.0.1/24 dev here
    there ip addr add 10.77.0.2/24 dev there
    ip addr add fd77::1/64 dev here nodad
    there ip addr add fd77::2/64 dev there nodad
    ip link set here up
    there ip link set there up
}

hosts_mtu() { ip link set here mtu "$1" && there ip link set there mtu "$1"; }
