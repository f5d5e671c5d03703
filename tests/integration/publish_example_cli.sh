#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# publish_example_cli.sh - the examples publish and subscribe: every number comes once, in order, whatever happens to them.
set -euo pipefail
source=$(dirname "${BASH_SOURCE[0]}")/../..
bin=$SLUICE_BIN_DIR
examples=$bin/../examples
work=$(mktemp -d)
publisher='' subscriber=''
# shellcheck disable=SC2329 # by the trap
cleanup() {
    for pid in $publisher $subscriber; do
        kill -CONT "$pid" 2> /dev/null || true
        kill "$pid" 2> /dev/null || true
        wait "$pid" 2> /dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    printf 'FAILED: %s\n' "$*"
    tail -n 5 "$work"/*
    exit 1
}

lines=$(cat "$source"/examples/{publish,subscribe}.c | wc -l)
((lines < 100)) || fail "together they have $lines lines"

count() { wc -l < "$work/numbers"; }
more() { # WHAT: another twenty numbers come
    local from end=$((SECONDS + 60))
    from=$(count)
    until (($(count) >= from + 20)); do
        ((SECONDS < end)) || fail "no numbers after $1"
        sleep 0.1
    done
    echo "goes on after $1"
}
said() { # TEXT TIMES: the subscriber has said so that often
    local end=$((SECONDS + 60))
    until (($(grep -c "$1" "$work/subscriber" || true) >= $2)); do
        ((SECONDS < end)) || fail "the subscriber did not say: $1"
        sleep 0.1
    done
}
publish() {
    "$examples/publish" "127.0.0.1:$port" >> "$work/publisher" 2>&1 &
    publisher=$!
}

port=$((20000 + RANDOM % 10000))
: > "$work/numbers"
publish
"$examples/subscribe" "127.0.0.1:$port" > "$work/numbers" 2> "$work/subscriber" &
subscriber=$!
more start

kill -STOP "$publisher"
sleep 1
kill -CONT "$publisher"
more "a publisher that stood still"

"$bin/sluice-soft" ctl "$subscriber" device port-down
said 'the peer died' 1
"$bin/sluice-soft" ctl "$subscriber" device port-up
more "a port that was down"

kill -9 "$publisher"
wait "$publisher" 2> /dev/null || true
publish
said 'does not know the session' 1
more "a publisher that was restarted"

"$bin/sluice-soft" ctl "$publisher" device remove
said 'does not know the session' 2
more "a device that was removed"

awk 'NR > 1 && $1 != last + 1 { print "after " last " came " $1; bad = 1 } { last = $1 } END { exit bad }' \
    "$work/numbers" || fail "a number is missing, or came twice"
echo "$(count) numbers, each once"
