#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# figures.sh - sluice-lat and sluice-bw beside other programs of the same device, in turns within one boot:
# ib_send_lat and ib_send_bw of perftest, both sides asleep until an event comes; fi_pingpong of libfabric, which
# spins; rstream of librdmacm, which spins for a while before it sleeps. Then the same two tools over TCP by the
# software device beside this device of the kernel. Only the ratios mean something: in an emulated guest the times
# are those of the emulator.
#
# Status 1 if a ratio is above its bar, or a run gave no result. A peer that is not installed is named.
set -uo pipefail
bin=${SLUICE_BIN_DIR:?} host=${SLUICE_TEST_HOST:?} device=${SLUICE_DEVICE:?}
ROUNDS=5
BAR=1.5
declare -A bars=([latency/8]=1.15 [bandwidth/65536]=1.03 [latency/fi_pingpong]=1 [latency/rstream]=1 [bandwidth/rstream]=1)
port=18600
failed=0

# sluice TOOL ARGUMENTS... - server and client; the client's JSON in `json`
mode=block
sluice() {
    local tool=$1 server listening line
    shift
    rm -f fifo
    mkfifo fifo
    timeout 60 "$bin/$tool" -p 0 --bind "$host" --mode "$mode" > /dev/null 2> fifo &
    server=$!
    exec {listening}< fifo
    while IFS= read -r -t 30 -u "$listening" line; do
        [[ ! $line =~ ^listening\ on\ .*:([0-9]+)$ ]] || break
    done
    cat <&"$listening" > /dev/null &
    exec {listening}<&-
    json=$(timeout 60 "$bin/$tool" "$host:${BASH_REMATCH[1]}" --mode "$mode" --json "$@" 2>> errors)
    wait "$server"
}

# await_port PORT - these tools do not say when they listen; a client that comes too early ends at once.
await_port() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        ! ss -Hltn "sport = :$1" | grep -q . || break
        read -rt 0.05 <> pause
    done
}

# fi_pingpong SIZE - microseconds of one way in `cell`
pingpong() {
    local server
    port=$((port + 1))
    timeout 60 fi_pingpong -p verbs -e msg -B "$port" -I 500 -S "$1" > /dev/null 2>> errors &
    server=$!
    await_port "$port"
    cell=$(timeout 60 fi_pingpong -p verbs -e msg -P "$port" -I 500 -S "$1" "$host" 2>> errors |
        awk '/^[0-9]/ { print $7 }')
    wait "$server"
}

# rstream SIZE COUNT ITERATIONS - microseconds of a transfer in `cell`. It listens on rdma_cm, where nobody can
# see it: a client that comes too early is refused, and tried again.
stream() {
    local server tries
    port=$((port + 1))
    timeout 60 rstream -b "$host" -p "$port" -T b -S "$1" -C "$2" -I "$3" > /dev/null 2>> errors &
    server=$!
    cell=''
    for ((tries = 0; tries < 50; tries++)); do
        cell=$(timeout 60 rstream -s "$host" -p "$port" -T b -S "$1" -C "$2" -I "$3" 2>> errors |
            awk '$1 == "custom" { print $8 }')
        [[ -z $cell ]] || break
        read -rt 0.1 <> pause
    done
    wait "$server"
}

# perftest TOOL COLUMN ARGUMENTS... - server and client; the column of the client's one row in `cell`
perftest() {
    local tool=$1 column=$2 server out=''
    shift 2
    port=$((port + 1))
    timeout 60 "$tool" -d "$device" -p "$port" -e -F "$@" > /dev/null 2>> errors &
    server=$!
    await_port "$port"
    out=$(timeout 60 "$tool" -d "$device" -p "$port" -e -F "$@" "$host" 2>> errors)
    wait "$server"
    cell=$(awk -v column="$column" '/^ *[0-9]+ +[0-9]+ / { print $column }' <<< "$out")
}

field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" <<< "$json"; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

# row WHAT SIZE PEER UNIT BETTER OURS... -- THEIRS... - BETTER: less or more
row() {
    local what=$1 size=$2 peer=$3 unit=$4 better=$5 ours=() theirs=() a b bar
    shift 5
    bar=${bars[$what/$peer]:-$BAR}
    [[ $peer != ib_send_* ]] || bar=${bars[$what/$size]:-$BAR} # of the sizes that a bar is set for
    while [[ $1 != -- ]]; do ours+=("$1") && shift; done
    shift
    theirs=("$@")
    a=$(median "${ours[@]}") b=$(median "${theirs[@]}")
    awk -v what="$what" -v size="$size" -v unit="$unit" -v a="$a" -v b="$b" -v better="$better" \
        -v bar="$bar" -v peer="$peer" -v mode="$mode" 'BEGIN {
            if (a <= 0 || b <= 0) { printf("%-10s %8d %-12s no result\n", what, size, peer); exit 1 }
            ratio = better == "less" ? a / b : b / a
            above = (bar != "none" && ratio > bar + 0)
            printf("%-10s %8d %-9s %10.1f %10.1f %-6s %-12s %6.2f%s\n", what, size, mode, a, b, unit, peer, ratio,
                   above ? "  above " bar : "")
            exit above
        }' || failed=1
}

mkfifo pause

lat() { # SIZE - our median of one way in `cell`
    sluice sluice-lat -s "$1" -n 500
    cell=$(awk -v ns="$(field p50_ns)" 'BEGIN { print ns / 1000 }')
}

bw() { # SIZE - our MiB/s in `cell`
    sluice sluice-bw -s "$1" -n 2000
    cell=$(awk -v bytes="$(field bytes_per_s)" 'BEGIN { print bytes / 1048576 }')
}

# turns WHAT SIZE PEER UNIT BETTER OURS -- THEIRS... - both in turns, each with the words given, and the row
turns() {
    local what=$1 size=$2 peer=$3 unit=$4 better=$5 own=$6 ours=() theirs=() round
    shift 7
    if ! command -v "${peer%% *}" > /dev/null; then
        printf '%-10s %8d %-12s is not installed\n' "$what" "$size" "$peer"
        return
    fi
    for ((round = 0; round < ROUNDS; round++)); do
        "$own" "$size"
        ours+=("${cell:-0}")
        "$@"
        theirs+=("${cell:-0}")
    done
    row "$what" "$size" "$peer" "$unit" "$better" "${ours[@]}" -- "${theirs[@]}"
}

# What a blocking rstream took for its transfers, as MiB/s
stream_bw() { # SIZE COUNT
    stream "$1" "$2" 1
    cell=$(awk -v us="${cell:-0}" -v bytes="$1" 'BEGIN { print(us > 0 ? bytes / us / 1.048576 : 0) }')
}

printf '%-10s %8s %-9s %10s %10s %-6s %-12s %6s\n' '' bytes mode sluice other unit '' ratio
# The programs of perftest make their own queue pairs, which an iWARP device cannot connect.
rnic=0
[[ $(< "/sys/class/infiniband/$device/node_type") != *RNIC* ]] || rnic=1
((!rnic)) || printf '%-10s %8s %-12s cannot connect on %s\n' '' '' perftest "$device"
for size in 8 4096 65536; do
    ((!rnic)) || break
    turns latency "$size" ib_send_lat us less lat -- perftest ib_send_lat 5 -s "$size" -n 500
done
for size in 64 4096 65536; do
    ((!rnic)) || break
    turns bandwidth "$size" ib_send_bw MiB/s more bw -- perftest ib_send_bw 4 -s "$size" -n 2000
done

# beside WHAT SIZE PEER UNIT BETTER OWN THEIRS - ours over TCP with the software device, and the peer, in turns
beside() {
    local ours=() theirs=() round
    for ((round = 0; round < ROUNDS; round++)); do
        SLUICE_DEVICE=soft SLUICE_SOFT_NET=require "$6" "$2"
        ours+=("${cell:-0}")
        "$7" "$2"
        theirs+=("${cell:-0}")
    done
    row "$1" "$2" "$3" "$4" "$5" "${ours[@]}" -- "${theirs[@]}"
}
bars[latency/$device]=1 bars[bandwidth/$device]=1
for mode in spin block; do
    beside latency 64 "$device" us less lat lat
    beside bandwidth 65536 "$device" MiB/s more bw bw
done

# What is possible over a socket: one call a message, without a check value. No bar.
raw=$bin/../bench/raw-tcp
raw_lat() { cell=$(timeout 60 "$raw" --lat "$1" 2000 | awk '{ print $3 / 1000 }'); }
raw_bw() { cell=$(timeout 60 "$raw" --bw "$1" 2000 | awk -v bytes="$1" '{ print $3 * bytes / 1048576 }'); }
if [[ -x $raw ]]; then # what is built in the guest has no benchmarks
    mode=spin
    bars[latency/plain-tcp]=none bars[bandwidth/plain-tcp]=none bars[no-crc/plain-tcp]=none
    beside latency 64 plain-tcp us less lat raw_lat
    beside bandwidth 65536 plain-tcp MiB/s more bw raw_bw
    SLUICE_SOFT_CRC=off beside no-crc 65536 plain-tcp MiB/s more bw raw_bw
fi

mode=spin
turns latency 64 fi_pingpong us less lat -- pingpong 64
mode=adaptive
turns latency 64 rstream us less lat -- stream 64 1 500
turns bandwidth 65536 rstream MiB/s more bw -- stream_bw 65536 2000
((!failed)) || cat errors
exit "$failed"
