#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# two_hosts_break.sh BIN - sessions between two hosts without an RDMA device, when what is between them breaks: a cable that is out
# for less than two keepalive intervals or for more, a peer that is stopped, an MTU that changes. Two network namespaces, and a third
# with a bridge that is the switch between them, so that a cable that is out takes no interface down. As anybody who may make user
# namespaces; skipped where nobody may, or where what it takes is missing.
#
# With SLUICE_TEST_LONG=1 the cable is out for three seconds and for thirty, with keepalive as it is by default.
set -euo pipefail

# shellcheck source=tests/support/two_hosts.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/two_hosts.sh"

# Two intervals without a word end a session. TCP itself would try for 20 s.
if [[ ${SLUICE_TEST_LONG:-0} != 0 ]]; then
    short_s=3 long_s=30 bearing=() ending=()
else
    short_s=1 long_s=0 bearing=(keepalive_ms=2000) ending=(keepalive_ms=500)
fi
keepalive=22 # SLUICE_REASON_KEEPALIVE

fail() {
    echo "FAILED: $*"
    for file in "$work"/*.said; do
        printf '%s: ' "$file"
        tail -n 5 "$file"
    done
    exit 1
}

# until_is WHAT COMMAND... - a minute at most
until_is() {
    local what=$1 until=$((SECONDS + 60))
    shift
    while ((SECONDS < until)); do
        ! "$@" || return 0
        sleep 0.01
    done
    fail "$what: not in a minute"
}

# ---- two hosts and a switch --------------------------------------------------------------------------

namespace && switch=$made
between() { nsenter -t "$switch" -n "$@"; }

ip link add name here type veth peer name port0 netns "$switch" 2> /dev/null || { echo "skipped: no veth" && exit 77; }
there ip link add name there type veth peer name port1 netns "$switch"
between ip link add name bridge type bridge 2> /dev/null || { echo "skipped: no bridge" && exit 77; }
for port in port0 port1; do
    between ip link set "$port" master bridge up
done
between ip link set bridge up
hosts_up

cable() { # out|in
    case $1 in
        out) between ip link set port1 nomaster ;;
        in) between ip link set port1 master bridge ;;
    esac
}

switch_mtu() { between ip link set port0 mtu "$1" && between ip link set port1 mtu "$1"; }
now=1500
mtu() { # BYTES - the switch never lets through less than the hosts send
    (($1 <= now)) || switch_mtu "$1"
    hosts_mtu "$1"
    switch_mtu "$1"
    now=$1
}

# ---- a session, and bytes that are looked at ----------------------------------------------------------

# peer NAME WORDS... - what it says in NAME.said, its commands by descriptor; pid in $pid
peer() {
    local name=$1
    shift
    rm -f "$work/$name.in"
    mkfifo "$work/$name.in"
    : > "$work/$name.said"
    "$@" < "$work/$name.in" > "$work/$name.said" 2>&1 &
    pid=$!
    exec {input}> "$work/$name.in"
}
says() { grep -q "^$2" "$work/$1.said"; }

# connect KEYS... - a flood from here to there
connect() {
    peer sink nsenter -t "$other" -n env SLUICE_TEST_HOST=10.77.0.2 SLUICE_DEVICE=soft \
        "$bin/../tests/session_peer" listen sink handlers "$@"
    sink=$pid sink_in=$input
    until_is "it listens" says sink port
    port=$(sed -n 's/^port //p' "$work/sink.said")
    peer flood env SLUICE_TEST_HOST=10.77.0.2 SLUICE_DEVICE=soft \
        "$bin/../tests/session_peer" "dial:$port" flood handlers "$@"
    flood=$pid flood_in=$input
    until_is "they are connected" says flood up
}

counts() { grep -c '^count' "$work/sink.said" || true; }
has_counted() { (($(counts) > $1)); }
# What the other end has looked at by now, in $count.
counted() {
    local before
    before=$(counts)
    echo count >&"$sink_in"
    until_is "it counts" has_counted "$before"
    count=$(sed -n 's/^count received=\([0-9]*\).*/\1/p' "$work/sink.said" | tail -1)
}

more() { counted && ((count > $1)); }

# goes_on WHAT - hundred messages more, and nobody was told of an end
goes_on() {
    counted
    until_is "$1: the transfer goes on" more $((count + 100))
    ! says flood closed || fail "$1: it ended"
    ! says sink closed || fail "$1: it ended there"
}

ended() { # PID WHO
    local status=0
    wait "$1" || status=$?
    ((status != WRONG_DATA)) || wrong_data "$2: $(cat "$work"/*.said)"
    ((status == 0)) || fail "$2: status $status"
}

end() { # both end well: all bytes were right
    echo quit >&"$flood_in"
    ended "$flood" "the sender"
    echo quit >&"$sink_in"
    ended "$sink" "the receiver"
    exec {flood_in}>&- {sink_in}>&-
}

lost() { # WHO WHAT
    until_is "$2: $1 ends" says "$1" closed
    grep -q "^closed reason=$keepalive .*nothing was heard of the peer for two intervals" "$work/$1.said" ||
        fail "$2: $1: another reason"
}

said() { sed -n "s/^closed .* $2=\([0-9]*\).*/\1/p" "$work/$1.said" | tail -1; }

accounted() { # WHAT - each message has an outcome
    (($(said flood accepted) == $(said flood outcomes))) || wrong_data "$1: messages without an outcome"
}

# ---- a cable, an MTU, a peer that stands still --------------------------------------------------------

connect "${bearing[@]}"
goes_on "at first"
cable out
sleep "$short_s"
cable in
goes_on "a cable that is out for less than two intervals"
for bytes in 600 1500 9000 1280; do
    mtu "$bytes"
    goes_on "an MTU of $bytes"
done
end
mtu 1500

connect "${ending[@]}"
goes_on "at first"
cable out
before=$SECONDS
lost flood "a cable that stays out"
lost sink "a cable that stays out"
accounted "a cable that stays out"
((SECONDS - before < long_s)) && sleep $((long_s - SECONDS + before))
cable in
end

connect "${ending[@]}"
goes_on "with the cable in again"
kill -STOP "$sink"
lost flood "a peer that is stopped"
! says sink closed || fail "it is not stopped"
kill -CONT "$sink"
until_is "a peer that goes on: it ends" says sink closed
end

echo "two hosts: what broke was told"
