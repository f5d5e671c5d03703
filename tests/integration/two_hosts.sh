#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# two_hosts.sh BIN - the tools between two hosts without an RDMA device: two network namespaces with a veth pair, as anybody
# who may make user namespaces. Skipped where nobody may, or where what it takes is missing.
set -euo pipefail

# shellcheck source=tests/support/two_hosts.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/two_hosts.sh"

fail() {
    echo "FAILED: $*"
    exit 1
}

# ---- two hosts ---------------------------------------------------------------------------------------

ip link add here type veth peer name there netns "$other" 2> /dev/null || { echo "skipped: no veth" && exit 77; }
hosts_up

# serve COMMAND... - on the other host; its port in $port, from its first words.
serve() {
    rm -f "$work/served" "$work/said"
    : > "$work/served"
    : > "$work/said"
    nsenter -t "$other" -n setpriv --pdeathsig KILL "$@" >> "$work/served" 2>> "$work/said" < "${input:-/dev/null}" &
    server=$!
    for ((i = 0; i < 3000; i++)); do
        port=$(sed -n 's/.*listening on .*:\([0-9]*\)$/\1/p' "$work/said" "$work/served" | head -1)
        [[ -z $port ]] || return 0
        kill -0 "$server" 2> /dev/null || break
        sleep 0.01
    done
    fail "$* does not listen: $(cat "$work/said")"
}

served() {
    local status=0
    wait "$server" || status=$?
    ((status != WRONG_DATA)) || wrong_data "the server: $(cat "$work/said")"
    ((status == 0)) || fail "the server ended with status $status: $(cat "$work/said")"
}

# ---- what goes between them --------------------------------------------------------------------------

for host in 10.77.0.2 "[fd77::2]"; do
    serve "$bin/sluice-lat" -p 0 --mode adaptive
    timeout 60 "$bin/sluice-lat" "$host:$port" -n 500 --mode adaptive > "$work/lat" 2>&1 ||
        fail "sluice-lat to $host: $(cat "$work/lat")"
    grep -q ', over TCP, ' "$work/lat" || fail "sluice-lat does not say how it went: $(cat "$work/lat")"
    grep -Eq '^ +64 +500 ' "$work/lat" || fail "sluice-lat to $host says: $(cat "$work/lat")"
    served
done

serve "$bin/sluice-bw" -p 0 --mode adaptive
timeout 60 "$bin/sluice-bw" "10.77.0.2:$port" -s 1M -n 200 --mode adaptive > "$work/bw" 2>&1 ||
    fail "sluice-bw: $(cat "$work/bw")"
served

# carry - 20 MB, the same at the other end.
head -c 20000000 /dev/urandom > "$work/bytes"
carry() {
    serve "$bin/sluice-cat" -l 0
    timeout 120 "$bin/sluice-cat" "10.77.0.2:$port" < "$work/bytes" > "$work/cat" 2>&1 ||
        fail "sluice-cat $*: $(cat "$work/cat")"
    served
    cmp "$work/bytes" "$work/served" || wrong_data "sluice-cat $*: other bytes arrived"
}
carry
hosts_mtu 9000
carry with jumbo frames
hosts_mtu 1280
carry with small frames

# One that loses, delays and swaps packets.
if command -v tc > /dev/null && tc qdisc add dev here root netem loss 1% delay 1ms reorder 25% 2> /dev/null; then
    carry over a bad network
    tc qdisc del dev here root
fi

# ---- where there is nobody, and where nobody may go --------------------------------------------------

status=0
timeout 60 "$bin/sluice-lat" 10.77.0.2:9 > "$work/refused" 2>&1 || status=$?
((status == 1)) || fail "nobody listens: status $status: $(cat "$work/refused")"
grep -q 'no listener' "$work/refused" || fail "nobody listens: $(cat "$work/refused")"

status=0
timeout 60 "$bin/sluice-lat" 198.51.100.1:9 > "$work/routeless" 2>&1 || status=$?
((status == 1)) || fail "no route: status $status"
grep -qi 'unreachable' "$work/routeless" || fail "no route: $(cat "$work/routeless")"

status=0
SLUICE_SOFT_NET=off timeout 60 "$bin/sluice-lat" 10.77.0.2:9 > "$work/off" 2>&1 || status=$?
((status == 1)) || fail "off: status $status"
grep -q 'SLUICE_SOFT_NET' "$work/off" || fail "off: $(cat "$work/off")"

echo "two hosts: all of it went"
