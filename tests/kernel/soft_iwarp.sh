#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# soft_iwarp.sh - the software device speaks iWARP over TCP to Linux's Soft-iWARP, either of them as listener: Sluice's own
# programs on both ends, and programs that know nothing of Sluice, at the second host with the software device as drop-in.
# Then the same through a cable that loses, delays and reorders. The frames of all but the longest are captured where
# Soft-iWARP is, and judged by the host (support/judge_capture.sh). Last, malformed input for both (malformed_peer.c).
#
# Runs in the guest with fabric=hosts: the first host has Soft-iWARP, the second uses the software device.
set -uo pipefail
bin=${SLUICE_BIN_DIR:?} device=${SLUICE_DEVICE:?}
siw_host=${SLUICE_TEST_HOST:?} soft_host=${SLUICE_TEST_HOST_2:?}
PATH=$bin:$PATH
unset SLUICE_DEVICE # each call names its own
read -ra second <<< "${SLUICE_TEST_NS:?}"
dropin=("${second[@]}" sluice-soft run)
checks=0 failures=0 port=7700 again=0

check() { # WHAT COMMAND...
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || {
        failures=$((failures + 1))
        printf 'FAILED: %s\n' "$what"
        for file in served server.err out err; do
            printf '%s:\n' "$file"
            tr -cd '\n -~' < "$file" | tail -c 1000
        done
    }
}

# listens PORT NAMESPACE... - waits until somebody listens there, by TCP's own list
listens() {
    local hex
    printf -v hex ':%04X' "$1"
    shift
    for ((tries = 0; tries < 300; tries++)); do
        ! "$@" grep -qE "^ *[0-9]+: [0-9A-F]+$hex [0-9A-F:]+ 0A " /proc/net/tcp /proc/net/tcp6 || return 0
        read -rt 0.1 <> pause
    done
    return 1
}

# both NAME SIDE SERVER... -- CLIENT... - SIDE is of the server: siw or soft. The client's input is `in`.
both() {
    local name=$1 side=$2 server=() place=() pid
    shift 2
    while [[ $1 != -- ]]; do
        server+=("$1")
        shift
    done
    shift
    [[ $side == siw ]] || place=("${second[@]}")
    timeout 60 "${server[@]}" > served 2> server.err < /dev/null &
    pid=$!
    check "$name: nobody listens" listens "$port" ${place[@]+"${place[@]}"}
    timeout 60 "$@" < in > out 2> err
    set -- $? "$@"
    # perftest connects twice, and listens for the second time when it may be too late: a dialer of iWARP does not try again.
    if grep -q 'Connection refused' err && ((again-- > 0)); then
        kill "$pid"
        wait "$pid"
        port=$((port + 1))
        return 1
    fi
    check "$name: the client: status $1" [ "$1" = 0 ]
    wait "$pid"
    check "$name: the server: status $?" [ $? = 0 ]
    port=$((port + 1))
    return 0
}

# ours BYTES COUNT WHERE - Sluice's programs, both ways
ours() {
    head -c "$1" /dev/urandom > in
    both "cat to siw$3" siw sluice-cat --device "$device" -l "$siw_host:$port" -- \
        "${second[@]}" "$bin/sluice-cat" --device soft "$siw_host:$port"
    check "wrong data: cat to siw$3" cmp in served
    both "cat to soft$3" soft "${second[@]}" "$bin/sluice-cat" --device soft -l "$soft_host:$port" -- \
        sluice-cat --device "$device" "$soft_host:$port"
    check "wrong data: cat to soft$3" cmp in served
    : > in
    both "lat to siw$3" siw sluice-lat --device "$device" -p "$port" --bind "$siw_host" --mode block -- \
        "${second[@]}" "$bin/sluice-lat" --device soft "$siw_host:$port" -n "$2" --mode block
    both "lat to soft$3" soft "${second[@]}" "$bin/sluice-lat" --device soft -p "$port" --bind "$soft_host" --mode block -- \
        sluice-lat --device "$device" "$soft_host:$port" -n "$2" --mode block
    both "bw to siw$3" siw sluice-bw --device "$device" -p "$port" --bind "$siw_host" --mode adaptive -- \
        "${second[@]}" "$bin/sluice-bw" --device soft "$siw_host:$port" -b -s 300K -n "$2" --mode adaptive
    both "bw to soft$3" soft "${second[@]}" "$bin/sluice-bw" --device soft -p "$port" --bind "$soft_host" --mode adaptive -- \
        sluice-bw --device "$device" "$soft_host:$port" -b -s 300K -n "$2" --mode adaptive
}

# theirs COUNT WHERE - rping looks at each byte
theirs() {
    both "rping to siw$2" siw rping -s -a "$siw_host" -p "$port" -C "$1" -V -S 4000 -- \
        "${dropin[@]}" rping -c -a "$siw_host" -p "$port" -C "$1" -V -S 4000
    both "rping to soft$2" soft "${dropin[@]}" rping -s -a "$soft_host" -p "$port" -C "$1" -V -S 4000 -- \
        rping -c -a "$soft_host" -p "$port" -C "$1" -V -S 4000
    both "ucmatose to siw$2" siw ucmatose -b "$siw_host" -p "$port" -C "$1" -S 4000 -- \
        "${dropin[@]}" ucmatose -s "$siw_host" -p "$port" -C "$1" -S 4000
    both "ucmatose to soft$2" soft "${dropin[@]}" ucmatose -b "$soft_host" -p "$port" -C "$1" -S 4000 -- \
        ucmatose -s "$soft_host" -p "$port" -C "$1" -S 4000
}

measured() { # PROGRAM
    both "$1 to siw" siw "$1" -R -n 100 -s 4096 -p "$port" -- \
        "${dropin[@]}" "$1" -R -n 100 -s 4096 -p "$port" "$siw_host"
    again=10
    until both "$1 to soft" soft "${dropin[@]}" "$1" -R -n 100 -s 4096 -p "$port" -- \
        "$1" -R -n 100 -s 4096 -p "$port" "$soft_host"; do
        continue
    done
    again=0
}

# keep SIDE - what was said last of an input goes to the file SIDE
keep() {
    touch "$1"
    awk '{ name = $0; sub(/: [^:]*$/, "", name) }
        FNR == NR { said[name] = $0; order[++count] = name; next }
        !(name in said)
        END { for (i = 1; i <= count; i++) print said[order[i]] }' said "$1" > kept
    mv kept "$1"
    cp "$1" "${KERNEL_EXCHANGE:?}/malformed.$1.out"
}

# malformed SIDE DIALS... - plays malformed input at rping there, of `names` or all; DIALS goes before what is at the other
# host. What is said of it goes to the file SIDE, and then an honest client is served. To Soft-iWARP of 7.2 nothing
# is played that may end before its first frame was seen, as two such ends are the kernel's, too. What ends before
# siw_accept_newconn() took it has the listener's callbacks still (siw_cm_llp_state_change()): the listener is closed for it, and
# siw_destroy_listen() falls over what is left. What is peer to peer and ends before siw_rtr_data_ready() saw a good frame was
# not established, and BUG() of cm_close_handler() says so.
malformed() {
    local side=$1 place=() server=() client=() flag=(--siw) address=$siw_host pid status=0
    shift
    if [[ $side == soft ]]; then
        place=("${second[@]}") server=("${dropin[@]}") flag=() address=$soft_host
    else
        client=("${dropin[@]}")
    fi
    timeout 300 ${server[@]+"${server[@]}"} rping -s -P -a "$address" -p "$port" > served 2> server.err < /dev/null &
    pid=$!
    check "malformed to $side: nobody listens" listens "$port" ${place[@]+"${place[@]}"}
    timeout 240 "$@" "$bin/../tests/malformed_peer" ${flag[@]+"${flag[@]}"} "$address" "$port" \
        ${names[@]+"${names[@]}"} > said 2> err || status=$?
    keep "$side"
    check "malformed to $side: status $status" [ "$status" = 0 ]
    status=0
    timeout 60 ${client[@]+"${client[@]}"} rping -c -a "$address" -p "$port" -C 5 -V > out 2> err || status=$?
    check "malformed to $side: an honest client: status $status" [ "$status" = 0 ]
    kill "$pid"
    wait "$pid"
    port=$((port + 1))
}

mkfifo pause
# Nobody at the second host is to find a device of the kernel's.
rdma link del "${SLUICE_DEVICE_2:?}"
ours 30000000 100 ''
"$bin/../tests/capture_peer" "${KERNEL_NET_A:?}" frames > capturing 2> captured &
recorder=$!
for ((tries = 0; tries < 300; tries++)); do
    [[ ! -s capturing ]] || break
    read -rt 0.1 <> pause
done
ours 300000 100 ', captured'
theirs 20 ''
# Not ib_send_bw: on a device of iWARP it waits for leave to send, which on any other it does not give.
for program in ib_send_lat ib_write_lat ib_write_bw ib_read_lat ib_read_bw; do
    measured "$program"
done

# ---- a cable that loses, delays and reorders --------------------------------------------------------

tc qdisc add dev "${KERNEL_NET_A:?}" root netem delay 2ms loss 3% reorder 25% 50%
"${second[@]}" tc qdisc add dev "${KERNEL_NET_B:?}" root netem delay 2ms loss 3% reorder 25% 50%
ours 1000000 50 ' in bad weather'
theirs 10 ' in bad weather'

kill -TERM "$recorder"
status=0
wait "$recorder" || status=$?
check "captured: $(< captured)" [ "$status" = 0 ]
cp frames "${KERNEL_EXCHANGE:?}/soft_iwarp.pcap"

# ---- what neither of the two is to take --------------------------------------------------------------

tc qdisc del dev "$KERNEL_NET_A" root
"${second[@]}" tc qdisc del dev "$KERNEL_NET_B" root
names=()
malformed siw "${second[@]}"
malformed soft
judge=(bash "${SLUICE_SOURCE_DIR:?}/tests/support/judge_malformed.sh" "$SLUICE_SOURCE_DIR/tests/kernel/malformed.expected"
    siw soft names)
# Soft-iWARP is asked again for what it took otherwise, the device is not. Of the kernel's two ways not to say a Terminate one
# is by design, while a send is under way (siw_send_terminate()); and what starts its send queue, as a READ request does, is
# forgotten if the queue pair's state is being changed just then (siw_sq_resume()).
for ((tries = 0; tries < 3; tries++)); do
    : > names
    ! "${judge[@]}" > judged || break
    mapfile -t names < <(sort -u names)
    cat judged
    ((${#names[@]} > 0)) || break
    printf 'asked again: %s\n' "${names[@]}"
    malformed siw "${second[@]}"
done
check "malformed input" "${judge[@]}"

printf '%d checks, %d failed\n' "$checks" "$failures"
((failures == 0))
