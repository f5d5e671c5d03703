#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# dapl.sh - uDAPL's test: connections, WRITE and READ, and a ping-pong of messages whose two ends sleep.
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need dtest
export DAT_OVERRIDE=$work/dat.conf
echo 'soft u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "lo 0" ""' > "$DAT_OVERRIDE"

cases() {
    local size
    for size in 64 65536 1048576; do
        NAME="dtest -b $size" LISTEN=15828 pair tcp "dtest -P soft -b $size -s" \
            "dtest -P soft -b $size -h 127.0.0.1"
    done
    NAME="dtest -b 65536 -p (polling)" LISTEN=15828 pair tcp "dtest -P soft -b 65536 -p -s" \
        "dtest -P soft -b 65536 -p -h 127.0.0.1"
}

both cases
finish
