#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# tools.sh - the programs people run, on rxe0: by name and chosen by "auto", results that are right,
# bytes that arrive. Their command lines are tested elsewhere, on the software device.
#
# Runs in the guest; servers say when they listen, everything else is waited for by its end.
set -uo pipefail
bin=${SLUICE_BIN_DIR:?} host=${SLUICE_TEST_HOST:?} device=${SLUICE_DEVICE:?}
PATH=$bin:$bin/../examples:$PATH
unset SLUICE_DEVICE # each call names its own
checks=0 failures=0

check() { # WHAT COMMAND...
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || {
        failures=$((failures + 1))
        printf 'FAILED: %s\n' "$what"
        head -n 20 out err 2> /dev/null
    }
}

# serve TOOL ARGUMENTS... - starts a server and waits for its port: $server, $port
serve() {
    local line fd
    rm -f fifo
    mkfifo fifo
    timeout 60 "$@" > served 2> fifo &
    server=$!
    exec {fd}< fifo
    port=''
    while IFS= read -r -t 30 -u "$fd" line; do
        printf '%s\n' "$line" >> server.err
        [[ $line =~ ^listening\ on\ .*[:\ ]([0-9]+)$ ]] && port=${BASH_REMATCH[1]} && break
    done
    cat <&"$fd" >> server.err &
    exec {fd}<&-
    check "$1 does not listen" [ -n "$port" ]
}

run() { # TOOL ARGUMENTS...
    timeout 60 "$@" > out 2> err
    status=$?
}

# ---- which device, and how threads are woken ------------------------------------------------------

wake='eventfd (librdmacm before 60'
librdmacm=$(ldconfig -p | awk '$1 == "librdmacm.so.1" { print $NF; exit }')
if grep -q rdma_write_cm_event "$librdmacm"; then
    wake='eventfd (the kernel takes no user events'
    [ "$(printf '%s\n' 6.18 "$(uname -r)" | sort -V | head -n 1)" = 6.18 ] &&
        wake="rdma_write_cm_event of the system's rdma_cm"
fi
for asked in "$device" auto; do
    run sluice-info --device "$asked" --json
    check "info --device $asked: status $status" [ "$status" = 0 ]
    check "info --device $asked: another device" grep -q "\"device\": \"$device\"" out
    check "info --device $asked: software" grep -Eq '"software": (0|false)' out
    # rdma_write_cm_event came with librdmacm 60 and Linux 6.18: with either missing, eventfd it is,
    # and the line says which of the two.
    check "info --device $asked: woken by something else" grep -q "\"wake\": \"$wake" out
done
run sluice-info --device soft --json
check "info --device soft: not the software device" grep -q '"device": "sluice_soft0"' out

# ---- measuring ------------------------------------------------------------------------------------

for asked in "$device" auto; do
    serve sluice-lat --device "$asked" -p 0 --bind "$host" --mode block
    run sluice-lat --device "$asked" "$host:$port" -n 200 --mode block --json
    check "lat --device $asked: status $status" [ "$status" = 0 ]
    check "lat --device $asked: no result" grep -q '"size": 64, "iterations": 200, "p50_ns": [1-9]' out
    check "lat --device $asked: the server" wait "$server"
done
serve sluice-bw --device "$device" -p 0 --bind "$host" --mode adaptive
run sluice-bw --device "$device" "$host:$port" -b -s 300K -n 40 --mode adaptive --json
check "bw: status $status" [ "$status" = 0 ]
check "bw: not 80 messages" grep -q '"messages": 80,' out
check "bw: the server" wait "$server"

# ---- bytes ----------------------------------------------------------------------------------------

for bytes in 0 1 262129 3000000; do
    head -c "$bytes" /dev/urandom > in
    serve sluice-cat --device "$device" -l "$host:0"
    timeout 60 "$bin/sluice-cat" --device "$device" "$host:$port" < in > out 2> err
    check "cat of $bytes bytes: status $?" [ $? = 0 ]
    check "cat of $bytes bytes: the server" wait "$server"
    check "wrong data: cat of $bytes bytes: others arrived" cmp in served
done

# ---- the examples of the README ---------------------------------------------------------------------

for asked in "$device" auto; do
    export SLUICE_DEVICE=$asked
    serve pong "$host:0"
    run ping "$host:$port"
    check "ping with SLUICE_DEVICE=$asked: status $status" [ "$status" = 0 ]
    check "ping with SLUICE_DEVICE=$asked: nothing came back" grep -q 'ping came back' out
    check "pong with SLUICE_DEVICE=$asked" wait "$server"
    unset SLUICE_DEVICE
done

printf '%d checks, %d failed\n' "$checks" "$failures"
((failures == 0))
