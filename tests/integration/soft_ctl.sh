#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# soft_ctl.sh - sluice-soft against live tools: state, plans and their log from outside, the device
# taken away under a running server; one clear line and the right status for whatever is wrong.
#
# Programs are found in SLUICE_BIN_DIR. Nothing here waits for time to pass.
set -uo pipefail
bin=${SLUICE_BIN_DIR:?}
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-ctl.XXXXXX")
checks=0 failures=0 server=

cleanup() {
    [[ -n $server ]] && kill -KILL "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

check() { # check WHAT COMMAND...
    checks=$((checks + 1))
    local what=$1
    shift
    "$@" && return
    failures=$((failures + 1))
    echo "FAILED: $what"
    head -n 20 "$work/out" "$work/err"
}
run() {
    timeout 60 "$bin/sluice-soft" "$@" >"$work/out" 2>"$work/err"
    status=$?
}
expect() { # expect STATUS PATTERN ARGUMENTS...: one line on standard error, nothing else
    local want=$1 pattern=$2
    shift 2
    run "$@" </dev/null
    check "$*: status $status, not $want" [ "$status" = "$want" ]
    check "$*: something on standard output" [ ! -s "$work/out" ]
    check "$*: no '$pattern'" grep -Eq -- "^sluice-soft: .*$pattern" "$work/err"
    check "$*: more than a line" [ "$(wc -l <"$work/err")" = 1 ]
}

# ---- usage -----------------------------------------------------------------------------------------

run --help
check "--help: status $status" [ "$status" = 0 ]
check "--help: no usage" grep -q 'sluice-soft ctl PID' "$work/out"
run --version
check "--version: status $status" [ "$status" = 0 ]
expect 2 "what to do is missing"
expect 2 "'frob' is not ctl" frob
expect 2 "its PID is missing" ctl
expect 2 "'xyz' is not a process id" ctl xyz status
expect 2 "what to do is missing" ctl 1
expect 2 "'explode' is none of" ctl 1 explode
expect 2 "the plan is missing" ctl 1 plan
expect 1 "cannot read $work/none" ctl 1 plan "@$work/none"
expect 1 "process $$ has no software device open" ctl $$ status
true &
gone=$!
wait $gone
expect 1 "there is no process $gone" ctl $gone status

# ---- a live server -----------------------------------------------------------------------------------

serve() { # serve ARGUMENTS... -> $server, $port
    local fd line
    rm -f "$work/fifo"
    mkfifo "$work/fifo"
    "$bin/sluice-lat" -p 0 "$@" >"$work/server.out" 2>"$work/fifo" </dev/null &
    server=$!
    exec {fd}<"$work/fifo"
    line=
    # what it says before it listens (on one CPU: how it waits) is not the address
    until [[ $line == *"listening on "* ]]; do
        IFS= read -r -t 30 -u "$fd" line || break
    done
    port=${line##*:}
    cat <&"$fd" >"$work/server.err" &
    reader=$!
    exec {fd}<&-
}
serve --keep
run ctl "$server" status
check "status: $status" [ "$status" = 0 ]
check "status: no device" grep -q '^device sluice_soft0, port up, contexts ' "$work/out"
check "status: descriptors of peers wait" grep -q '^closing 0 threads 0$' "$work/out"
check "status: no listener" grep -Eq '^id#[0-9]+ state LISTEN' "$work/out"

expect 1 "line 1, column 13: 'los' means nothing here" ctl "$server" plan 'qp=1 send=1 los'
run ctl "$server" plan 'qp=* send=* delay=1us' </dev/null
check "plan: status $status" [ "$status" = 0 ]
timeout 60 "$bin/sluice-lat" "127.0.0.1:$port" -n 20 -w 0 --json </dev/null >"$work/out" 2>"$work/err"
check "a client of a server with a plan: status $?" [ $? = 0 ]
run ctl "$server" log
check "log: $status" [ "$status" = 0 ]
check "log: no decision" grep -Eq '^qp#[0-9]+ send 1: delay 1us \(line 1\)$' "$work/out"

printf '# all replies are lost\ncm=REP loss\n' >"$work/plan"
run ctl "$server" plan "@$work/plan" </dev/null
check "plan @FILE: status $status" [ "$status" = 0 ]
run ctl "$server" plan - <"$work/plan"
check "plan -: status $status" [ "$status" = 0 ]
run ctl "$server" clear
check "clear: status $status" [ "$status" = 0 ]
timeout 60 "$bin/sluice-lat" "127.0.0.1:$port" -n 20 --json </dev/null >"$work/out" 2>"$work/err"
check "a client behind clear: status $?" [ $? = 0 ]

# ---- the device goes away under it -----------------------------------------------------------------------

run ctl "$server" device remove
check "device remove: status $status" [ "$status" = 0 ]
run ctl "$server" status
# The server may have given the device up by now.
check "status behind a removal" grep -Eq 'sluice_soft0 removed|has (no software device open|closed its software device)|no process' \
    "$work/out" "$work/err"
wait "$server" # nobody can reach it any more, and it hears of that
status=$?
server=
wait "$reader"
check "a server without its device: status $status" [ "$status" = 1 ]
check "a server without its device does not say so: $(cat "$work/server.err")" \
    grep -q 'cannot listen at .* any more: the RDMA device failed or was removed' "$work/server.err"

# ---- a plan in the environment -----------------------------------------------------------------------------

serve --keep
SLUICE_SOFT_FAULTS='id=* event=UNREACHABLE' timeout 60 "$bin/sluice-lat" "127.0.0.1:$port" -n 20 \
    </dev/null >"$work/out" 2>"$work/err"
check "a client that reaches nobody: status $?" [ $? = 1 ]
check "a client that reaches nobody does not say so" grep -q 'cannot connect to' "$work/err"
SLUICE_SOFT_FAULTS='nonsense' timeout 60 "$bin/sluice-lat" "127.0.0.1:$port" -n 20 --json \
    </dev/null >"$work/out" 2>"$work/err"
check "a bad plan in the environment: status $?" [ $? = 1 ]
check "a bad plan is not reported once" [ "$(grep -c 'SLUICE_SOFT_FAULTS is refused' "$work/err")" = 1 ]

echo "$checks checks, $failures failed"
[ "$failures" = 0 ]
