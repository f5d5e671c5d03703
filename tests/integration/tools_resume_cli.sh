#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# tools_resume_cli.sh - tools whose connection is lost while they work: with --resume on both sides they go on where they were, within a
# host and as between two; without it, or when there is no other connection in time, they end with the reason.
#
# With SLUICE_TEST_LONG=1 a transfer of 1 GiB survives that the port is down three times, for two seconds after that was noticed.
set -uo pipefail
# shellcheck source=tests/support/tools_checks.sh
. "${BASH_SOURCE[0]%/*}/../support/tools_checks.sh"
export SLUICE_DEVICE=soft

# The first four queue pairs of the process break when they have sent so often: a large message is one send at least. Not the last
# one: a good-bye that is lost leaves the other side waiting.
breaks= breaks_soon=
for qp in 1 2 3 4; do
    breaks+="qp=$qp send=150 status=RETRY_EXC_ERR; "
    breaks_soon+="qp=$qp send=12 status=RETRY_EXC_ERR; "
done

# receiver NAME ARGUMENTS...: listens -> $server, $port; sender NAME ARGUMENTS...: sends $work/data -> $client
receiver() {
    serve "$1" sluice-cat -l 0 "${@:2}"
}
sender() {
    local name=$1
    shift
    "$bin/sluice-cat" "$@" <"$work/data" >"$work/$name.out" 2>"$work/$name.err" &
    started
}
# The process just started is the client, whose files are complete when it has ended.
started() {
    client=$!
    running[$client]=1
    true &
    reader[$client]=$!
}
# says FILE PATTERN NUMBER: so many lines at least
says() {
    [ "$(grep -c -- "$2" "$1")" -ge "$3" ]
}
until_says() {
    local until=$((SECONDS + 30))
    while ((SECONDS < until)); do
        ! says "$@" || return 0
        sleep 0.01
    done
    return 1
}

# ---- wrong usage -----------------------------------------------------------------------------------

for tool in sluice-lat sluice-bw sluice-cat; do
    expect 2 "--resume: a value is missing" $tool --resume
    expect 2 "--resume: 0 is out of range: 0.01 to 86400 is allowed" $tool --resume 0
    expect 2 "--resume: 'soon' is not a time in seconds" $tool --resume soon 127.0.0.1:1
done

# ---- it goes on ------------------------------------------------------------------------------------

head -c $((16 << 20)) /dev/urandom >"$work/data"
for way in "" require; do
    export SLUICE_SOFT_NET=$way
    [[ -n $way ]] || unset SLUICE_SOFT_NET
    receiver copy --resume 60
    SLUICE_SOFT_FAULTS=$breaks_soon sender original --resume 60 "127.0.0.1:$port"
    served "$client" 0 "sluice-cat whose connection breaks"
    served "$server" 0 "sluice-cat that receives meanwhile"
    check "wrong data: what sluice-cat wrote is not what was sent" cmp "$work/data" "$work/copy.out"
    for side in original copy; do
        check "$side: not told of three losses" says "$work/$side.err" "lost its connection" 3
        check "$side: not told that it goes on" says "$work/$side.err" "goes on after" 3
    done
    for tool in sluice-lat sluice-bw; do
        serve "$tool" $tool -p 0 --resume 60
        SLUICE_SOFT_FAULTS=$breaks run $tool -n 2000 --resume 60 -p "$port" 127.0.0.1
        check "$tool: status $status" [ "$status" = 0 ]
        check "$tool: no result" grep -Eq '^ +[0-9]+ +2000 ' "$work/out"
        check "$tool: not told of losses" says "$work/err" "lost its connection" 1
        served "$server" 0 "$tool that serves meanwhile"
    done
done

# ---- it does not -----------------------------------------------------------------------------------

# One side alone does not want it: the first loss ends both.
for receiver in "" "--resume 60"; do
    # shellcheck disable=SC2086 # one word or two
    receiver alone $receiver
    # shellcheck disable=SC2046 # likewise
    SLUICE_SOFT_FAULTS=$breaks_soon sender other $([[ -n $receiver ]] || echo --resume 60) "127.0.0.1:$port"
    served "$client" 1 "a sender whose receiver does not resume"
    served "$server" 1 "a receiver whose sender does not resume"
    check "told of a loss that was the end" [ "$(cat "$work/other.err" "$work/alone.err" | grep -c 'lost its')" = 0 ]
done

# The way is away for longer than it may be.
receiver gone --resume 0.2
sender waits --resume 0.2 "127.0.0.1:$port" # it waits for more when all is read: see below
served "$client" 0 "a sender of a file"
served "$server" 0 "its receiver"
mkfifo "$work/slow"
receiver gone --resume 0.2
"$bin/sluice-cat" --resume 0.2 "127.0.0.1:$port" <"$work/slow" 2>"$work/waits.err" &
started
exec 7>"$work/slow"
echo begun >&7
check "the receiver has nothing" until_says "$work/gone.out" begun 1
kill -KILL "$server"
served "$server" 137 "a receiver that was killed"
served "$client" 1 "a sender whose receiver is gone"
exec 7>&-
check "the sender says something else" grep -Eq "connection .*in time|does not know" "$work/waits.err"

# ---- a port that is down ------------------------------------------------------------------------

port() {
    "$bin/sluice-soft" ctl "$client" device "$1" >/dev/null
}
part() { # part NUMBER: a quarter of the data
    tail -c +$(($1 * quarter + 1)) "$work/data" | head -c $quarter >&7
}
outage() { # outage NUMBER: of the sender's port, while there is that part to be sent
    check "port-down" port port-down
    part "$1" &
    local writer=$!
    check "no loss" until_says "$work/original.err" "lost its connection" "$1"
    [[ ${SLUICE_TEST_LONG:-0} = 0 ]] || sleep 2
    check "port-up" port port-up
    check "it does not go on" until_says "$work/original.err" "goes on after" "$1"
    wait $writer
}
outages=1
[[ ${SLUICE_TEST_LONG:-0} = 0 ]] || outages=3
[[ ${SLUICE_TEST_LONG:-0} = 0 ]] || head -c $((1 << 30)) /dev/urandom >"$work/data"
for way in "" require; do
    export SLUICE_SOFT_NET=$way
    [[ -n $way ]] || unset SLUICE_SOFT_NET
    receiver copy --resume 60
    rm -f "$work/slow"
    mkfifo "$work/slow"
    "$bin/sluice-cat" --resume 60 "127.0.0.1:$port" <"$work/slow" 2>"$work/original.err" &
    started
    exec 7>"$work/slow"
    quarter=$(($(stat -c %s "$work/data") / 4))
    for number in 0 1 2 3; do
        if ((number > 0 && number <= outages)); then outage $number; else part $number; fi
    done
    exec 7>&-
    served "$client" 0 "sluice-cat whose port was down"
    served "$server" 0 "sluice-cat that waited for it"
    check "wrong data: not what was sent, after outages" cmp "$work/data" "$work/copy.out"
done

checks_end
