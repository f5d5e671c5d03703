#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# libfabric.sh - fi_info and fi_pingpong over libfabric's verbs provider, with the data checked (-v). The
# provider uses no loopback address: the host needs another one.
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need fi_info fi_pingpong ip
address=$(ip -4 -o addr show up scope global | awk '{ sub("/.*", "", $4); print $4; exit }')
if [[ -z $address ]]; then
    echo "SKIPPED: this host has no address but loopback, and libfabric's verbs provider wants one"
    exit 77
fi

pingpong() { # pingpong ENDPOINT PROVIDER FLAGS
    next_port
    NAME="fi_pingpong -p $2 -e $1 $3" pair tcp "fi_pingpong -p $2 -e $1 -B $port -v $3" \
        "fi_pingpong -p $2 -e $1 -P $port -v $3 $address"
}

cases() {
    one fi_info -p verbs
    pingpong msg verbs "-I 100"
    pingpong msg verbs "-I 100 -S 1048576"
    # ofi_rxm acts on the peer's hang-up on a thread of its own, and what its last send ended with is lost where
    # the other thread did not poll before: so a hang-up is heard later here than a busy machine is slow.
    export SLUICE_SOFT_FAULTS="cm_in=DREQ delay=2s"
    pingpong rdm "verbs;ofi_rxm" "-I 100"
    unset SLUICE_SOFT_FAULTS
    if has ud; then
        pingpong dgram verbs "-I 100 -S 1024"
    else
        skip "the device has no UD" fi_pingpong -e dgram
    fi
}
both cases
finish
