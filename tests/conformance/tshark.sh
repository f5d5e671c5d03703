#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# tshark.sh - what the software device says over TCP, read by a decoder of iWARP that is not ours: Sluice's tools on
# both ends, and programs that know nothing of Sluice. The decoder finds a byte that a fault changed, so it does look.
#
# In a network namespace of its own, which has nothing but these frames; skipped where none may be made.
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need tshark rping ib_atomic_lat ib_write_bw ip unshare
if [[ ${CAPTURED:-} != inside ]]; then
    unshare -Urn true 2> /dev/null || { echo "skipped: no user namespaces" && exit 77; }
    cleanup
    trap - EXIT
    CAPTURED=inside exec unshare -Urn bash "${BASH_SOURCE[0]}"
fi
ip link set lo mtu 1500 up
export SLUICE_SOFT_NET=require
peers=$bin/../tests

# capture NAME - from here on; stop ends it.
capture() {
    "$peers/capture_peer" lo "$work/$1" > "$work/capturing" 2> "$work/captured" &
    child=$!
    children=("$child")
    for ((tries = 0; tries < 1000; tries++)); do
        [[ ! -s $work/capturing ]] || return 0
        nap
    done
}
stop() {
    kill -TERM "$1"
    wait "$1"
    result $? "all packets were captured: $(< "$work/captured")"
    children=() # of util.sh
}

# ours SERVER-WORDS... -- CLIENT-WORDS... - two of Sluice's tools; the client's input is $work/in. Sets status.
ours() {
    local server=() words
    next_port
    words=("${@//PORT/$port}")
    while [[ ${words[0]} != -- ]]; do
        server+=("${words[0]}")
        words=("${words[@]:1}")
    done
    timeout -k 2 "$LIMIT" "$bin/${server[0]}" "${server[@]:1}" > "$work/server" 2> "$work/server.err" < /dev/null &
    child=$!
    until_listens tcp "$port"
    status=0
    timeout -k 2 "$LIMIT" "$bin/${words[1]}" "${words[@]:2}" < "$work/in" > "$work/client" 2>&1 || status=$?
    wait "$child" || status=$?
}

talk() {
    head -c 3000000 /dev/urandom > "$work/in"
    ours sluice-cat -l 127.0.0.1:PORT -- sluice-cat 127.0.0.1:PORT
    cmp "$work/in" "$work/server" || { echo "wrong data: sluice-cat: other bytes arrived" && status=86; }
    result "$status" "sluice-cat"
    : > "$work/in"
    ours sluice-lat -p PORT --mode adaptive -- sluice-lat 127.0.0.1:PORT -n 200 --mode adaptive
    result "$status" "sluice-lat"
    ours sluice-bw -p PORT --mode adaptive -- \
        sluice-bw 127.0.0.1:PORT -s 300K -n 50 -b --rendezvous write --mode adaptive
    result "$status" "sluice-bw by WRITE"
    ours sluice-bw -p PORT --mode adaptive -- sluice-bw 127.0.0.1:PORT -s 100 -n 2000 --requests 16 --mode adaptive
    result "$status" "sluice-bw of requests"
    next_port
    pair tcp "rping -s -p $port -C 20 -S 4000 -V" "rping -c -a 127.0.0.1 -p $port -C 20 -S 4000 -V"
    next_port
    pair tcp "ib_write_bw -R -F -n 100 -s 20000 -p $port" "ib_write_bw -R -F -n 100 -s 20000 -p $port 127.0.0.1"
    next_port
    pair tcp "ib_atomic_lat -R -F -n 50 -p $port" "ib_atomic_lat -R -F -n 50 -p $port 127.0.0.1"
}

judge() { # judge FILE MESSAGE...
    bash "$here/../support/judge_capture.sh" "$work/$1" "${@:2}" > "$work/client" 2>&1
}

capture good
recorder=$child
talk
stop "$recorder"
rm -f "$work/server"
judge good Send Write 'Read Request' 'Read Response' 'Atomic Request' 'Atomic Response'
result $? "tshark: $(tail -1 "$work/client")"

# A byte of some frame differs from what its check value was made of.
capture bad
recorder=$child
head -c 3000000 /dev/urandom > "$work/in"
SLUICE_SOFT_FAULTS='qp=* send=4 corrupt' ours sluice-cat -l 127.0.0.1:PORT -- sluice-cat 127.0.0.1:PORT
[[ $status != 0 ]]
result $? "a changed byte ends the session"
stop "$recorder"
rm -f "$work/server"
! judge bad && grep -q 'check values are wrong' "$work/client"
result $? "tshark finds a changed byte: $(tail -1 "$work/client")"
finish
