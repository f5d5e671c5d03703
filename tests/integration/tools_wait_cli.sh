#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tools_wait_cli.sh - clients that start before their servers, and sluice-stat before the node: --wait.
set -u
# shellcheck source=tests/support/tools_checks.sh
. "$(dirname "$0")/../support/tools_checks.sh"
export SLUICE_DEVICE=soft

# client NAME TOOL ARGUMENTS...: starts one, until it says that it waits -> $client; standard input is the caller's
client() {
    local name=$1 tool=$2 line fd said=
    shift 2
    rm -f "$work/$name.fifo"
    mkfifo "$work/$name.fifo"
    "$bin/$tool" "$@" >"$work/$name.out" 2>"$work/$name.fifo" <&0 &
    client=$!
    running[$client]=1
    exec {fd}<"$work/$name.fifo"
    : >"$work/$name.err"
    while IFS= read -r -t 30 -u "$fd" line; do
        printf '%s\n' "$line" >>"$work/$name.err"
        if [[ $line =~ ^$tool:\ waiting\ for\ .*:\ .*no\ listener ]]; then
            said=yes
            break
        fi
    done
    cat <&"$fd" >>"$work/$name.err" &
    reader[$client]=$!
    exec {fd}<&-
    check "$name: $tool $* does not say that it waits" [ -n "$said" ]
}

# A port at which there is no listener any more.
serve first sluice-lat -p 0
free=$port
kill -INT "$server"
served "$server" 130 "a server that was stopped"

for way in "" require; do
    export SLUICE_SOFT_NET=$way
    [[ -n $way ]] || unset SLUICE_SOFT_NET
    for tool in sluice-lat sluice-bw; do
        client early $tool --wait -n 100 "127.0.0.1:$free"
        serve late $tool -p "$free"
        served "$client" 0 "$tool that waited"
        served "$server" 0 "$tool that was waited for"
        check "$tool: no result" grep -Eq '^ +[0-9]+ +100 ' "$work/early.out"
        check "$tool: says more than once that it waits" [ "$(grep -c waiting "$work/early.err")" = 1 ]
    done
    client early sluice-cat --wait "localhost:$free" <<<"what was sent before there was a receiver"
    serve late sluice-cat -l "$free"
    served "$client" 0 "sluice-cat that waited"
    served "$server" 0 "sluice-cat that was waited for"
    check "sluice-cat: not what was sent" \
        [ "$(cat "$work/late.out")" = "what was sent before there was a receiver" ]
done

# Of several addresses the one that answers is used.
serve late sluice-lat -p 0
check "not the second address" timeout 60 "$bin/sluice-lat" -n 100 "127.0.0.1:$free,localhost:$port" \
    >"$work/out" 2>"$work/err"
served "$server" 0 "the second of two addresses"
serve late sluice-cat -l 0
check "not the first address" timeout 60 "$bin/sluice-cat" "localhost:$port,127.0.0.1:$free" </dev/null
served "$server" 0 "the first of two addresses"

# A server that was started anew while its client waited: it is the second one that is found.
client early sluice-bw --wait -n 100 "127.0.0.1:$free"
serve other sluice-lat -p 0
kill -INT "$server"
served "$server" 130 "another server"
serve late sluice-bw -p "$free"
served "$client" 0 "a client between two servers"
served "$server" 0 "the second of two servers"

# Ctrl-C ends a wait.
client early sluice-lat --wait "127.0.0.1:$free"
kill -INT "$client"
served "$client" 130 "a wait that was ended by Ctrl-C"

# What does not help is not waited for.
serve foreign foreign_peer garbage
expect 1 "does not speak this protocol" sluice-lat --wait "127.0.0.1:$port"
kill -KILL "$server"
wait "$server" 2>/dev/null
wait "${reader[$server]}"
unset "running[$server]" "reader[$server]"
expect 2 "--wait is for the client" sluice-lat --wait
expect 2 "--wait is for the sender" sluice-cat --wait -l 0

# ---- sluice-stat ----------------------------------------------------------------------------------

mkfifo "$work/begin"
(read -r <"$work/begin"; exec "$bin/sluice-lat" -p 0) >/dev/null 2>&1 &
late=$!
running[$late]=1
expect 1 "process $late has no sluice node open" sluice-stat "$late"
timeout 60 "$bin/sluice-stat" --wait "$late" >"$work/stat.out" 2>"$work/stat.err" &
stat=$!
echo >"$work/begin"
wait "$stat"
check "sluice-stat: status $? of a node that came later" [ $? = 0 ]
check "sluice-stat: not that node" grep -q "^node sluice-lat of process $late" "$work/stat.out"
kill -INT "$late"
wait "$late" 2>/dev/null
unset "running[$late]"

mkfifo "$work/end"
(read -r <"$work/end") &
never=$!
running[$never]=1
timeout 60 "$bin/sluice-stat" --wait "$never" >"$work/stat.out" 2>"$work/stat.err" &
stat=$!
echo >"$work/end"
wait "$never"
unset "running[$never]"
wait "$stat"
check "sluice-stat: status of a process that ended" [ $? = 1 ]
check "sluice-stat: does not say that it ended" \
    grep -Eq "process $never( has ended, and had no sluice node open|$)" "$work/stat.err"
expect 1 "there is no process $never" sluice-stat --wait "$never"

checks_end
