#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# storms_cli.sh - sessions by the hundred, dialed one after another and all at once, with keys and without: each comes up, and is
# closed. And bench/control, which makes figures of that, comes to its end and prints all of them. No figure is looked at.
set -euo pipefail

bin=${SLUICE_BIN_DIR:?SLUICE_BIN_DIR is not set}
top=$(dirname "$0")/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
failed=0

skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}
[ -x "$bin/../bench/lib-connect" ] || skip "BUILT WITHOUT THE BENCHMARKS (SLUICE_BENCH)"

# The second has requests that wait at the dialer for their turn, and more than the listener lets wait.
for count in 30 1200; do
    for keys in "" --handshake; do
        if ! "$bin/../bench/lib-connect" --json --count "$count" $keys > "$work/out" 2> "$work/err"; then
            echo "storms_cli: $count sessions $keys: $(cat "$work/err")" >&2
            failed=1
        elif [ "$(grep -c "^{\"figure\":\"[a-z, ]*\",\"count\":$count,\".*}$" "$work/out")" != 5 ]; then
            echo "storms_cli: $count sessions $keys: figures are missing: $(cat "$work/out")" >&2
            failed=1
        fi
    done
done

# The server closes, or is killed, with its sessions up; all dialers come back.
for how in close kill; do
    for net in off require; do
        if ! SLUICE_SOFT_NET=$net "$bin/../bench/lib-connect" --count 200 --restart "$how" > "$work/out" 2> "$work/err"; then
            echo "storms_cli: --restart $how, SLUICE_SOFT_NET=$net: $(cat "$work/err")" >&2
            failed=1
        fi
    done
done

[ -z "${SLUICE_SANITIZE:-}" ] || exit "$failed" # the benchmark of wakes is no program of theirs
if ! "$top/bench/control" --bin "$bin/../bench" --rounds 1 --count 20 > "$work/out" 2> "$work/err"; then
    echo "storms_cli: bench/control: $(cat "$work/err")" >&2
    failed=1
fi
for line in "one after another" "all at once, up" "all at once, down" "set up.p50" "set up.p99" "are up after" "wakeup/wake"; do
    grep -q -- "$line" "$work/out" || {
        echo "storms_cli: bench/control does not say '$line'" >&2
        failed=1
    }
done
exit "$failed"
