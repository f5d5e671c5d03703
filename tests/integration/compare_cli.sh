#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# compare_cli.sh - bench/compare runs every section once with next to no messages: its JSON is what
# docs/measuring.md says, what is missing is named, wrong usage is status 2. No figure is looked at.
set -euo pipefail

bin=${SLUICE_BIN_DIR:?SLUICE_BIN_DIR is not set}
compare=$(dirname "$0")/../../bench/compare
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
failed=0

check() { # check TEXT CONDITION...
    local text=$1
    shift
    "$@" || {
        echo "compare_cli: $text" >&2
        failed=1
    }
}
skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}

[ -z "${SLUICE_SANITIZE:-}" ] || skip "WITH A SANITIZER EVERYTHING IS TOO SLOW TO BE MEASURED"
[ -x "$bin/../bench/raw-verbs" ] || skip "BUILT WITHOUT THE BENCHMARKS (SLUICE_BENCH)"
[ "$(nproc)" -ge 2 ] || skip "ONE CPU ONLY: THERE IS NOTHING TO COMPARE"

usage() { # usage ARGUMENTS...: must be refused with status 2 and one line or the usage
    local status=0
    "$compare" --bin "$bin" "$@" >"$work/out" 2>"$work/err" || status=$?
    check "'$*' is accepted: status $status" [ "$status" = 2 ]
    check "'$*': nothing is said" [ -s "$work/err" ]
    check "'$*': something on standard output" [ ! -s "$work/out" ]
}
usage --rounds 0
usage --rounds x
usage --rounds
usage --only nothing
usage --lat big
usage --cpus 1
usage --sessions -1
usage --unknown
"$compare" --help >"$work/out"
check "--help says nothing of --only" grep -q -e --only "$work/out"

quick() {
    "$compare" --bin "$bin" --quick --rounds 1 --sessions 10 --bw "64 65536" "$@"
}
number='-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?'
figure="^\{\"figure\":\"[a-z0-9_A-Z-]+\",\"bar\":\"[0-9b-]+\",\"unit\":\"[a-zA-Z/0-9]+\",\"rounds\":1,\"sluice\":$number,\"other\":$number,\"other_name\":\"[a-zA-Z0-9_-]+\",\"ratio\":$number,\"sluice_nic\":($number|null),\"ratio_nic\":($number|null),\"floor_ns\":$number,\"aim\":\"[^\"]*\"\}$"
percentiles="^\{\"percentiles\":\"[a-z-]+\",\"size\":[0-9]+,\"rounds\":1,\"p50_ns\":$number,\"p99_ns\":$number,\"p999_ns\":$number,\"floor_ns\":$number\}$"
other='^\{"(missing|skipped)":"[^"]+","(package|why)":"[^"]+"\}$'

status=0
quick --json --plot "$work/ratios.svg" >"$work/out" 2>"$work/err" || status=$?
check "status $status: $(cat "$work/err")" [ "$status" = 0 ]
check "a line that is no result: $(grep -vE "$figure|$percentiles|$other" "$work/out" | head -n 1)" \
    [ -z "$(grep -vE "$figure|$percentiles|$other" "$work/out")" ]
for name in latency_64_floor latency_64_raw tail_64_raw stream_64_raw stream_65536_raw many_rate \
    many_registered many_resident many_in_turn many_beside_p99 many_tcp_1 many_tcp_128 many_tcp_1000 idle_cpu requests_64 stream_65536_buffers stream_65536_write; do
    check "no $name" grep -q "\"figure\":\"$name\"" "$work/out"
done
# Each technique that the tool can leave out; the help has them between two colons and "; with commas".
techniques=$("$bin/sluice-bw" --help | tr '\n' ' ' |
    sed 's/.*--without LIST *leave techniques out, on this side: *\([^;]*\);.*/\1/; s/,//g')
check "the help of sluice-bw names no techniques: $techniques" [ "$(wc -w <<<"$techniques")" -ge 7 ]
for what in $techniques; do
    check "no gain of $what" grep -q "\"figure\":\"gain_${what}_64\"" "$work/out"
done
for name in latency_64_floor latency_64_raw stream_64_raw stream_65536_raw many_rate many_resident idle_cpu requests_64; do
    check "no $name on profile nic" grep -qE "\"figure\":\"$name\".*\"sluice_nic\":[0-9]" "$work/out"
done
check "no percentiles of ours" grep -q '"percentiles":"sluice"' "$work/out"
check "no percentiles of the device" grep -q '"percentiles":"raw"' "$work/out"
for program in ucx_perftest fi_pingpong ib_send_lat; do
    if command -v "$program" >/dev/null; then
        check "$program is there and missing" [ -z "$(grep "\"missing\":\"$program\"" "$work/out")" ]
    else
        check "$program is not there and not said to be missing" grep -q "\"missing\":\"$program\"" "$work/out"
    fi
done
if command -v gnuplot >/dev/null; then
    check "no picture" grep -q '<svg' "$work/ratios.svg"
else
    check "a missing gnuplot is not told" grep -q gnuplot "$work/err"
fi

quick --only "latency busy device" >"$work/out" 2>"$work/err" || failed=1
check "text: no median" grep -q '^latency_64_floor .* median' "$work/out"
check "text: no column of profile nic" grep -qE '^latency_64_floor +1 +median( +[0-9.]+){2} +ns( +[0-9.]+){4} ' "$work/out"
check "text: no ends that sleep" grep -q '^busy_request_4096_tcp .* median' "$work/out"
check "text: no device" grep -q '^device_send_64_floor .* median' "$work/out"
check "text: a section that was not asked for" [ -z "$(grep '^many_rate' "$work/out")" ]

status=0
"$compare" --bin "$work" >"$work/out" 2>"$work/err" || status=$?
check "a folder without tools: status $status" [ "$status" = 1 ]
exit "$failed"
