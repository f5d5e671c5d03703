#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# storms_many_cli.sh - 20,000 sessions between two processes of this host, with keys and without, and 10,000 over TCP: dialed all at
# once, none fails, each carries a message to and fro, and each is seen to close at both ends (lib-connect fails otherwise).
# And 4,000 whose server closes, or is killed, and starts again.
set -euo pipefail

bin=${SLUICE_BIN_DIR:?SLUICE_BIN_DIR is not set}
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

here=20000 there=10000
[ -z "${SLUICE_SANITIZE:-}" ] || here=3000 there=1500 # each access is checked, in both processes
ulimit -n "$(ulimit -Hn)"
most=$(ulimit -n) # a session over TCP has a descriptor
if [ "$most" != unlimited ] && [ "$most" -lt $((there + 500)) ]; then
    there=$((most > 1000 ? most - 500 : 10))
    echo "storms_many_cli: only $there sessions over TCP, for this process may open $most files" >&2
fi

# storm COUNT ARGS...: with two workers at the listener
storm() {
    if ! timeout 200 "$bin/../bench/lib-connect" --storm --workers 2 --count "$@" > "$work/out" 2> "$work/err"; then
        echo "storms_many_cli: $* over ${SLUICE_SOFT_NET:-shared memory}: $(cat "$work/err")" >&2
        failed=1
    fi
    sed "s/^/$1 ${2-}: /" "$work/out"
}

storm "$here"
storm "$here" --handshake
SLUICE_SOFT_NET=require storm "$there"
SLUICE_SOFT_NET=require storm "$there" --handshake

# per_s FIGURE: what lib-connect has printed of it
per_s() {
    awk -v figure="$1" 'index($0, figure) { print $(NF - 1) }' "$work/out"
}

# back ARGS...: a server that starts again has its dialers back in three times the time of the storm before, at most; a
# machine that is busy with something else meanwhile is asked again
back() {
    for try in 1 2 3; do
        storm "$again" "$@"
        up=$(per_s "all at once, up") returns=$(per_s "all up again")
        [ "$((3 * ${returns:-0}))" -lt "${up:-1}" ] || return 0
        echo "storms_many_cli: try $try, $* over ${SLUICE_SOFT_NET:-shared memory}: $up/s, and again $returns/s" >&2
    done
    failed=1
}

again=4000
[ -z "${SLUICE_SANITIZE:-}" ] || again=600
for how in close kill; do
    back --restart "$how"
    back --restart "$how" --handshake
    SLUICE_SOFT_NET=require back --restart "$how"
done
exit "$failed"
