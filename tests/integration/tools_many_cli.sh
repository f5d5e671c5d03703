#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# tools_many_cli.sh - sluice-lat and sluice-bw with several sessions (-q): in turn and on each, over shared memory and over
# TCP, one client after the other, clients that are killed in the middle, and a clear line for what does not go together.
set -uo pipefail
# shellcheck source=tests/support/tools_checks.sh
. "${BASH_SOURCE[0]%/*}/../support/tools_checks.sh"

sessions=40
lat_many="${lat_line%'\}$'}, \"sessions\": $sessions, \"rounds_per_s\": $number\}$"
bw_many="${bw_line%'\}$'}, \"sessions\": $sessions\}$"

# measure WHAT LINES PATTERN TOOL ARGUMENTS...: a client that prints so many lines of that shape, and nothing else
measure() {
    local what=$1 lines=$2 pattern=$3
    shift 3
    run "$@" </dev/null
    check "$what: the client's status is $status" [ "$status" = 0 ]
    check "$what: other lines came" lines_are "$lines" "$pattern" "$work/out"
    check "$what: no JSON" json_valid "$work/out"
}

# counts WHAT KEY NUMBER: the last client's line has that number
counts() {
    check "$1: $2 is not $3" grep -Eq "\"$2\": $3," "$work/out"
}

# ---- what is measured ----------------------------------------------------------------------------

measure_all() { # WAY: on a server of each tool that serves all of these
    local mode args
    serve "lat" sluice-lat -p 0 --keep
    for mode in "" --in-turn --each; do
        # shellcheck disable=SC2086
        measure "lat $mode over $1" 1 "$lat_many" sluice-lat "127.0.0.1:$port" -q $sessions $mode -n 3000 --json
        counts "lat $mode over $1" iterations 3000
    done
    measure "lat of all sizes over $1" 24 "$lat_many" sluice-lat "127.0.0.1:$port" -q $sessions -a -n 50 -w 10 --json
    measure "lat for a while over $1" 1 "$lat_many" sluice-lat "127.0.0.1:$port" -q $sessions -D 0.05 --json
    measure "lat of fewer messages than sessions over $1" 1 "$lat_many" sluice-lat "127.0.0.1:$port" -q $sessions -n 3 -w 0 \
        --each --json
    counts "lat of fewer messages than sessions over $1" iterations 3
    measure "lat of one session behind these over $1" 1 "$lat_line" sluice-lat "127.0.0.1:$port" -n 100 --json
    kill -TERM "$server"
    served "$server" 143 "lat over $1"
    serve "bw" sluice-bw -p 0 --keep
    for args in "" "--in-turn" "--each -l 1" "-b" "-b --in-turn" "--region" "--copy -b" "-t 1" "-t 1 --in-turn -b" "-s 1M -n 100"; do
        # shellcheck disable=SC2086
        measure "bw $args over $1" 1 "$bw_many" sluice-bw "127.0.0.1:$port" -q $sessions -s 64 -n 5000 --json $args
    done
    measure "bw -b for a while over $1" 1 "$bw_many" sluice-bw "127.0.0.1:$port" -q $sessions -b -D 0.05 --json
    measure "bw -b over $1" 1 "$bw_many" sluice-bw "127.0.0.1:$port" -q $sessions -b -s 64 -n 5000 --json
    counts "bw -b over $1" messages 10000
    kill -TERM "$server"
    served "$server" 143 "bw over $1"
}

measure_all "shared memory"
SLUICE_SOFT_NET=require measure_all TCP

# A person reads how many there are, and what they carry.
serve lat sluice-lat -p 0
run sluice-lat "127.0.0.1:$port" -q $sessions -n 100 </dev/null
check "lat -q: the heading does not say so" grep -q "^# sluice-lat: .*, $sessions sessions in turn$" "$work/out"
check "lat -q: no rate of all" grep -q " rounds/s$" "$work/out"
served "$server" 0 "lat -q"

# ---- ends ----------------------------------------------------------------------------------------

# has_sessions PID: sluice-stat sees all of them
has_sessions() {
    local i
    for ((i = 0; i < 2000; i++)); do
        [[ $("$bin/sluice-stat" "$1" 2>/dev/null | grep -c '127\.0\.0\.1') -ge $sessions ]] && return 0
        kill -0 "$1" 2>/dev/null || return 1
    done
    return 1
}

serve lat sluice-lat -p 0 --keep --mode block
for round in 1 2; do
    "$bin/sluice-lat" "127.0.0.1:$port" -q $sessions -D 60 --mode block >"$work/out" 2>"$work/err" &
    client=$!
    running[$client]=1
    check "lat -q, round $round: not all sessions come" has_sessions "$client"
    kill -KILL "$client"
    wait "$client" 2>/dev/null
    unset "running[$client]"
done
measure "lat behind clients that were killed" 1 "$lat_many" sluice-lat "127.0.0.1:$port" -q $sessions -n 100 --json
kill -TERM "$server"
served "$server" 143 "lat whose clients were killed"

serve bw sluice-bw -p 0 --mode block
"$bin/sluice-bw" "127.0.0.1:$port" -q $sessions -D 60 --mode block >"$work/out" 2>"$work/err" &
client=$!
running[$client]=1
check "bw -q: not all sessions come" has_sessions "$client"
kill -KILL "$server"
wait "$client"
status=$?
unset "running[$client]"
check "bw whose server was killed: the client's status is $status" [ "$status" = 1 ]
check "bw whose server was killed: no reason" grep -Eq '^sluice-bw: the connection to .* ended (in the middle of a run|while data was sent)' "$work/err"
served "$server" 137 "bw that was killed"

# Thousands that end at once take the one over which the two talk with them no more.
thousands=9000
[ -z "${SLUICE_SANITIZE:-}" ] || thousands=900 # each access is checked, in both processes
serve lat sluice-lat -p 0 -q "$thousands"
run sluice-lat "127.0.0.1:$port" -q "$thousands" -n "$thousands" </dev/null
check "lat -q $thousands: the client's status is $status" [ "$status" = 0 ]
served "$server" 0 "lat -q $thousands"

# ---- what does not go together -------------------------------------------------------------------

serve lat sluice-lat -p 0 --keep
expect 1 "the server gave up: the server holds [0-9]+ sessions: start it with -q 5000" \
    sluice-lat "127.0.0.1:$port" -q 5000
kill -TERM "$server"
served "$server" 143 "lat that was asked for too much"
expect 2 "--each and --in-turn exclude each other" sluice-lat 127.0.0.1 -q 4 --each --in-turn
expect 2 "--each and --in-turn need -q" sluice-bw 127.0.0.1 --in-turn
expect 2 "--each and --in-turn are for the client" sluice-lat --each
expect 2 "--requests and -q exclude each other" sluice-bw 127.0.0.1 -q 4 --requests 8
expect 2 "-q: 0 is out of range: 1 to 20000 is allowed" sluice-lat 127.0.0.1 -q 0
expect 2 "-q: 20001 is out of range: 1 to 20000 is allowed" sluice-bw 127.0.0.1 -q 20001

checks_end
