#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# figures.sh - sluice-lat and sluice-bw beside ib_send_lat and ib_send_bw of perftest, on rxe0, both
# sleeping until an event comes, in turns within one boot. Only the ratios mean something: in an
# emulated guest the times are those of the emulator.
#
# Status 1 if a ratio is above the bar, or a run gave no result.
set -uo pipefail
bin=${SLUICE_BIN_DIR:?} host=${SLUICE_TEST_HOST:?} device=${SLUICE_DEVICE:?}
ROUNDS=5
BAR=1.5
port=18600
failed=0

# sluice TOOL ARGUMENTS... - server and client; the client's JSON in `json`
sluice() {
    local tool=$1 server listening line
    shift
    rm -f fifo
    mkfifo fifo
    timeout 60 "$bin/$tool" -p 0 --bind "$host" --mode block > /dev/null 2> fifo &
    server=$!
    exec {listening}< fifo
    while IFS= read -r -t 30 -u "$listening" line; do
        [[ ! $line =~ ^listening\ on\ .*:([0-9]+)$ ]] || break
    done
    cat <&"$listening" > /dev/null &
    exec {listening}<&-
    json=$(timeout 60 "$bin/$tool" "$host:${BASH_REMATCH[1]}" --mode block --json "$@" 2>> errors)
    wait "$server"
}

# perftest TOOL COLUMN ARGUMENTS... - server and client; the column of the client's one row in `cell`
perftest() {
    local tool=$1 column=$2 server tries out=''
    shift 2
    port=$((port + 1))
    timeout 60 "$tool" -d "$device" -p "$port" -e -F "$@" > /dev/null 2>> errors &
    server=$!
    # It does not say when it listens; a client that comes too early ends at once.
    for ((tries = 0; tries < 300; tries++)); do
        ! ss -Hltn "sport = :$port" | grep -q . || break
        read -rt 0.05 <> pause
    done
    out=$(timeout 60 "$tool" -d "$device" -p "$port" -e -F "$@" "$host" 2>> errors)
    wait "$server"
    cell=$(awk -v column="$column" '/^ *[0-9]+ +[0-9]+ / { print $column }' <<< "$out")
}

field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" <<< "$json"; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

# row WHAT SIZE UNIT BETTER OURS... -- THEIRS... - BETTER: less or more
row() {
    local what=$1 size=$2 unit=$3 better=$4 ours=() theirs=() a b
    shift 4
    while [[ $1 != -- ]]; do ours+=("$1") && shift; done
    shift
    theirs=("$@")
    a=$(median "${ours[@]}") b=$(median "${theirs[@]}")
    awk -v what="$what" -v size="$size" -v unit="$unit" -v a="$a" -v b="$b" -v better="$better" \
        -v bar="$BAR" 'BEGIN {
            if (a <= 0 || b <= 0) { printf("%-10s %8d  no result\n", what, size); exit 1 }
            ratio = better == "less" ? a / b : b / a
            above = (ratio > bar)
            printf("%-10s %8d %10.1f %10.1f %-6s %6.2f%s\n", what, size, a, b, unit, ratio,
                   above ? "  above " bar : "")
            exit above
        }' || failed=1
}

mkfifo pause
printf '%-10s %8s %10s %10s %-6s %6s\n' '' bytes sluice perftest unit ratio
for size in 8 4096 65536; do
    ours=() theirs=()
    for ((round = 0; round < ROUNDS; round++)); do
        sluice sluice-lat -s "$size" -n 500
        ours+=("$(awk -v ns="$(field p50_ns)" 'BEGIN { print ns / 1000 }')")
        perftest ib_send_lat 5 -s "$size" -n 500
        theirs+=("${cell:-0}")
    done
    row latency "$size" us less "${ours[@]}" -- "${theirs[@]}"
done
for size in 64 4096 65536; do
    ours=() theirs=()
    for ((round = 0; round < ROUNDS; round++)); do
        sluice sluice-bw -s "$size" -n 2000
        ours+=("$(awk -v bytes="$(field bytes_per_s)" 'BEGIN { print bytes / 1048576 }')")
        perftest ib_send_bw 4 -s "$size" -n 2000
        theirs+=("${cell:-0}")
    done
    row bandwidth "$size" MiB/s more "${ours[@]}" -- "${theirs[@]}"
done
((!failed)) || cat errors
exit "$failed"
