#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# examples.sh SOURCE - the programs of the README work, are the programs in examples/, and are short.
set -euo pipefail
source=$1
bin=$SLUICE_BIN_DIR/../examples
work=$(mktemp -d)
pong=
cleanup() {
    [[ -z $pong ]] || kill "$pong" 2> /dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    printf 'FAILED: %s\n' "$*"
    exit 1
}

for name in pong ping; do
    # The code block that follows the line naming the file, without its licence line.
    awk -v name="examples/$name.c" 'index($0, name) { seen = 1 }
        seen && /^```c$/ { block = 1; next } block && /^```$/ { exit } block' \
        "$source/README.md" > "$work/readme"
    tail -n +2 "$source/examples/$name.c" > "$work/file"
    diff "$work/readme" "$work/file" || fail "README.md does not show examples/$name.c as it is"
    lines=$(wc -l < "$work/file")
    ((lines <= 20)) || fail "examples/$name.c has $lines lines"
done

mkfifo "$work/fifo"
"$bin/pong" 127.0.0.1:0 2> "$work/fifo" &
pong=$!
exec 3< "$work/fifo"
port=
while IFS= read -r -t 30 line <&3; do
    echo "pong: $line"
    [[ $line != "listening on port "* ]] || { port=${line##* }; break; }
done
[[ $port =~ ^[1-9][0-9]*$ ]] || fail "pong did not say its port"

out=$(timeout 30 "$bin/ping" "127.0.0.1:$port") || fail "ping ended with status $?"
[[ $out == "ping came back" ]] || fail "ping said: $out"
# pong serves one peer and ends when that peer has gone.
status=0
wait "$pong" || status=$?
pong=
((status == 0)) || fail "pong ended with status $status"

# Nobody listens there now: ping says so, in one line, and does not wait for ever.
status=0
out=$(timeout 30 "$bin/ping" "127.0.0.1:$port" 2>&1) || status=$?
((status == 1)) || fail "ping without a listener ended with status $status: $out"
[[ -n $out && $out != *$'\n'* ]] || fail "ping without a listener said: $out"

# An address that the software device may not reach: ping says why, and where to read on.
status=0
out=$(SLUICE_SOFT_NET=off timeout 30 "$bin/ping" "192.0.2.1:$port" 2>&1) || status=$?
[[ $status == 1 && $out == *192.0.2.1*docs/two-hosts.md ]] || fail "ping to another host, status $status, said: $out"

# mailbox lends its memory: what another process put there is said.
"$bin/mailbox" 127.0.0.1:0 > "$work/said" 2> "$work/fifo" &
pong=$!
exec 3< "$work/fifo"
IFS= read -r -t 30 line <&3 || fail "mailbox said nothing"
port=${line##* }
timeout 30 "$bin/mailbox" "127.0.0.1:$port" "written from elsewhere" || fail "mailbox did not write"
status=0
wait "$pong" || status=$?
pong=
((status == 0)) || fail "mailbox ended with status $status"
[[ $(< "$work/said") == "written from elsewhere" ]] || fail "mailbox said: $(< "$work/said")"
