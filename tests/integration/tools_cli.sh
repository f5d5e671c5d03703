#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# tools_cli.sh - the command line promises of the tools: help and version, one clear line and the
# right exit status for whatever is wrong, results and nothing else on standard output, servers that
# serve one client or, with --keep, many, and an end within a second after a signal.
set -uo pipefail
tools=(sluice-lat sluice-bw sluice-cat sluice-info sluice-stat)
# shellcheck source=tests/support/tools_checks.sh
. "${BASH_SOURCE[0]%/*}/../support/tools_checks.sh"

# ---- help, version, wrong usage ------------------------------------------------------------------

for tool in "${tools[@]}"; do
    for flag in -h --help; do
        run "$tool" $flag </dev/null
        check "$tool $flag: status $status" [ "$status" = 0 ]
        check "$tool $flag: no usage" grep -q '^usage:' "$work/out"
        check "$tool $flag: says something on standard error" [ ! -s "$work/err" ]
    done
    for flag in -V --version; do
        run "$tool" $flag </dev/null
        check "$tool $flag: status $status" [ "$status" = 0 ]
        check "$tool $flag: no version" grep -Eq "^$tool [0-9]+\.[0-9]+\.[0-9]+$" "$work/out"
    done
    expect 2 "'--frob' is not a flag" "$tool" --frob
    expect 2 "'-Z' is not a flag" "$tool" -Z
    expect 2 "'(one|two)' is one argument too many" "$tool" one two
done

# "sluice-soft run" has a command line of its own; what follows the program's name is the program's.
for flag in -h --help; do
    run sluice-soft run $flag </dev/null
    check "run $flag: status $status" [ "$status" = 0 ]
    check "run $flag: no usage" grep -q '^  sluice-soft run \[--preload | --library-path\]' "$work/out"
    check "run $flag: no word on --library-path" grep -q '^ *--library-path ' "$work/out"
    check "run $flag: says something on standard error" [ ! -s "$work/err" ]
done
for flag in -V --version; do
    run sluice-soft run $flag </dev/null
    check "run $flag: status $status" [ "$status" = 0 ]
    check "run $flag: no version" grep -Eq '^sluice-soft [0-9]+\.[0-9]+\.[0-9]+$' "$work/out"
done
run sluice-soft --help </dev/null
check "--help: no word on run" grep -q 'sluice-soft run ' "$work/out"
expect 2 "'--frob' is not a flag" sluice-soft run --frob true
expect 2 "--preload takes no value" sluice-soft run --preload=x true
expect 2 "--preload and --library-path exclude each other" \
    sluice-soft run --preload --library-path true
expect 2 "the program is missing" sluice-soft run
expect 2 "the program is missing" sluice-soft run --preload --
if [[ -z ${SLUICE_SANITIZE:-} ]]; then # whose runtime would have to come first
    expect 127 "cannot start /nonexistent/program: No such file" sluice-soft run /nonexistent/program
    expect 126 "cannot start /: Permission denied" sluice-soft run -- /
    run sluice-soft run -- printf '%s' --help </dev/null
    check "run: the program's arguments are not its own" [ "$(cat "$work/out")" = --help ]
    run sluice-soft run sh -c 'exit 5' </dev/null
    check "run: the status $status is not the program's" [ "$status" = 5 ]
fi

for tool in sluice-lat sluice-bw; do
    expect 2 "-s: '12Q' is not a size" $tool -s 12Q
    expect 2 "-s: 65M is out of range: 0 to 64M" $tool -s 65M
    expect 2 "-s: a value is missing" $tool -s
    expect 2 "-n: 0 is out of range" $tool -n 0
    expect 2 "-n: '-5' is not a whole number" $tool -n -5
    expect 2 "-D: 'soon' is not a time in seconds" $tool -D soon
    expect 2 "-p: 65536 is out of range: 0 to 65535" $tool -p 65536
    expect 2 "--mode: 'lazy' is none of spin, adaptive, block" $tool --mode lazy
    expect 2 "--without: 'luck' is none of inline, wr-batch, signalling, wc-batch, srq, coalesce, rendezvous, extended" \
        $tool --without coalesce,luck
    expect 2 "--without: '' is none of" $tool --without inline,
    expect 2 "--rendezvous: 'both' is none of auto, read, write" $tool --rendezvous both
    expect 2 "--rendezvous-above: 0 is out of range: 1 to 64M" $tool --rendezvous-above 0
    expect 2 "--json takes no value" $tool --json=yes
    expect 2 "--device: the value is empty" $tool --device ""
    expect 2 "-n and -D exclude each other" $tool -n 5 -D 5
    expect 2 "-a and -s exclude each other" $tool -a -s 5
    expect 2 "--keep is for the server" $tool --keep 127.0.0.1
    expect 2 "--bind is for the server" $tool --bind 127.0.0.1 127.0.0.1
    expect 2 "--bind: 'a:b:c' is not an address" $tool --bind a:b:c
    expect 2 "port is given twice" $tool -p 1 127.0.0.1:2
    expect 2 "port 0 cannot be connected to" $tool 127.0.0.1:0
    expect 2 "'127.0.0.1:x' is not an address" $tool 127.0.0.1:x
    expect 2 "'\[::1' is not an address" $tool '[::1'
    expect 1 "--cpu 8000: this process may not run" $tool --cpu 8000
    expect 1 "no_such_device" $tool --device no_such_device
done
expect 2 "-l: 0 is out of range: 1 to 1024" sluice-bw -l 0
expect 2 "--credits: 3 is out of range" sluice-bw --credits 3
expect 2 "--requests: 257 is out of range" sluice-bw --requests 257
expect 2 "--requests is for the client" sluice-bw --requests 1
expect 2 "--region and --copy exclude" sluice-bw --region --copy
expect 2 "--region and --copy are for messages" sluice-bw 127.0.0.1 --requests 1 --copy
expect 2 "--requests and -b exclude" sluice-bw 127.0.0.1 --requests 1 -b
expect 2 "HOST:PORT sends, -l PORT receives" sluice-cat
expect 2 "'host:1' is one argument too many" sluice-cat -l 1 host:1
expect 2 "the port is missing" sluice-cat 127.0.0.1
expect 2 "-l: the port must be" sluice-cat -l 65536
expect 2 "-l: 'x:y' is not" sluice-cat -l x:y
expect 1 "no_such_device" sluice-cat --device no_such_device -l 0
expect 1 "no_such_device" sluice-info --device no_such_device
expect 2 "its PID is missing" sluice-stat
expect 2 "'xyz' is not a process id" sluice-stat xyz
expect 2 "'0' is not a process id" sluice-stat 0
expect 1 "process $$ has no sluice node" sluice-stat $$
# A process that has just ended, so that its number is free.
true &
gone=$!
wait $gone
expect 1 "no process $gone" sluice-stat $gone
if [[ $(id -u) != 0 ]]; then
    expect 1 "process 1 belongs to another user" sluice-stat 1
fi

# ---- one result, nothing else, both tools --------------------------------------------------------

serve lat sluice-lat -p 0
run sluice-lat "127.0.0.1:$port" -n 200 --json </dev/null
check "lat: status $status" [ "$status" = 0 ]
check "lat: not exactly the promised object" lines_are 1 "$lat_line" "$work/out"
check "lat: not JSON" json_valid "$work/out"
served "$server" 0 "lat"
check "lat: the server writes to standard output" [ ! -s "$work/lat.out" ]

serve bw sluice-bw -p 0 --json
run sluice-bw 127.0.0.1 -p "$port" -s 1K -n 2000 --json </dev/null
check "bw: status $status" [ "$status" = 0 ]
check "bw: not exactly the promised object" lines_are 1 "$bw_line" "$work/out"
check "bw: not JSON" json_valid "$work/out"
check "bw: not 2000 messages" grep -q '"size": 1024, "messages": 2000,' "$work/out"
served "$server" 0 "bw"
check "bw: the server writes to standard output" [ ! -s "$work/bw.out" ]

# ---- --keep: sizes, times, both directions, text, modes ------------------------------------------

serve keep sluice-lat -p 0 --keep
run sluice-lat "127.0.0.1:$port" -a -n 20 --json </dev/null
check "lat -a: status $status" [ "$status" = 0 ]
check "lat -a: not 24 objects" lines_are 24 "$lat_line" "$work/out"
for size in 0 192 200; do # 192 and 200: data as long as the tools' own control messages
    run sluice-lat "127.0.0.1:$port" -s $size -n 50 -w 0 --json </dev/null
    check "lat -s $size: status $status" [ "$status" = 0 ]
    check "lat -s $size: not one object" lines_are 1 "$lat_line" "$work/out"
done
run sluice-lat "127.0.0.1:$port" -D 0.2 --json </dev/null
check "lat -D: status $status" lines_are 1 "$lat_line" "$work/out"
run sluice-lat "127.0.0.1:$port" -n 50 </dev/null
check "lat: status $status" [ "$status" = 0 ]
check "lat: no heading" grep -q '^# sluice-lat: device .*, mode ' "$work/out"
check "lat: no row" grep -Eq '^ +64 +50 ' "$work/out"
for mode in adaptive block; do
    run sluice-lat "127.0.0.1:$port" -n 50 --mode $mode --json </dev/null
    check "lat --mode $mode: status $status" lines_are 1 "$lat_line" "$work/out"
done
run sluice-lat "127.0.0.1:$port" -n 50 --without inline,wr-batch,signalling,wc-batch,coalesce --json </dev/null
check "lat --without: status $status" lines_are 1 "$lat_line" "$work/out"
timeout 60 "$bin/sluice-lat" "127.0.0.1:$port" -n 50 </dev/null >/dev/full 2>"$work/err"
check "lat: a result that cannot be written is a success" [ $? = 1 ]
check "lat: no reason for it" grep -q 'cannot write the results' "$work/err"
expect 1 "the server gave up: the client is sluice-bw, this is sluice-lat" \
    sluice-bw "127.0.0.1:$port" -n 5
expect 1 "the server gave up: the sender is sluice-cat, this is sluice-lat|the receiver gave up" \
    sluice-cat "127.0.0.1:$port"
expect 1 "cannot listen at [^ ]*:$port: the (port is taken|address is in use)" sluice-lat -p "$port"
check "a port that is taken is told twice" [ "$(grep -o 'cannot listen' "$work/err" | wc -l)" = 1 ]
run sluice-lat "127.0.0.1:$port" -n 50 --json </dev/null
check "lat: --keep did not survive the wrong clients" lines_are 1 "$lat_line" "$work/out"
kill -TERM "$server"
served "$server" 143 "lat --keep stopped by SIGTERM"

serve keep sluice-bw -p 0 --keep
run sluice-bw "127.0.0.1:$port" -a -n 20 --json </dev/null
check "bw -a: status $status" [ "$status" = 0 ]
check "bw -a: not 24 objects" lines_are 24 "$bw_line" "$work/out"
for size in 0 192 200 300K; do
    run sluice-bw "127.0.0.1:$port" -b -s $size -n 300 --json </dev/null
    check "bw -b -s $size: status $status" [ "$status" = 0 ]
    check "bw -b -s $size: not 600 messages" grep -q '"messages": 600,' "$work/out"
done
for from in region:64 region:300K copy:0 copy:64 copy:300K; do
    run sluice-bw "127.0.0.1:$port" --${from%:*} -s ${from#*:} -n 300 --json </dev/null
    check "bw --$from: status $status" [ "$status" = 0 ]
    check "bw --$from: not 300 messages" grep -q '"messages": 300,' "$work/out"
done
for depth in 1 32 256; do
    run sluice-bw "127.0.0.1:$port" --requests $depth -s 64 -n 3000 --json </dev/null
    check "bw --requests $depth: status $status" lines_are 1 "$requests_line" "$work/out"
    check "bw --requests $depth: not 3000" grep -q '"requests": 3000,' "$work/out"
done
run sluice-bw "127.0.0.1:$port" --requests 8 -s 1K -D 0.2 </dev/null
check "bw --requests -D: status $status" [ "$status" = 0 ]
run sluice-bw "127.0.0.1:$port" -D 0.2 -l 1 -t 8 --json </dev/null
check "bw -D: status $status" lines_are 1 "$bw_line" "$work/out"
for without in inline wr-batch signalling wc-batch srq coalesce rendezvous extended \
    inline,wr-batch,signalling,wc-batch,srq,coalesce,rendezvous; do
    run sluice-bw "127.0.0.1:$port" -b -s 64 -n 300 --without $without --json </dev/null
    check "bw --without $without: status $status" [ "$status" = 0 ]
    check "bw --without $without: not 600 messages" grep -q '"messages": 600,' "$work/out"
done
for way in auto read write; do
    run sluice-bw "127.0.0.1:$port" -b -s 300K -n 30 --rendezvous $way --rendezvous-above 16K \
        --json </dev/null
    check "bw --rendezvous $way: status $status" lines_are 1 "$bw_line" "$work/out"
done
run sluice-bw "127.0.0.1:$port" -b -D 0.2 --mode block </dev/null
check "bw -b -D --mode block: status $status" [ "$status" = 0 ]
check "bw: no heading" grep -q '^# sluice-bw: device ' "$work/out"
kill -INT "$server"
served "$server" 130 "bw --keep stopped by SIGINT"

# ---- both families --------------------------------------------------------------------------------

# A server that is not told where listens everywhere, as at ::.
if grep -q ' lo$' /proc/net/if_inet6 2>/dev/null; then
    for bind in '' ::; do
        serve both sluice-lat -p 0 --keep ${bind:+--bind "$bind"}
        for host in 127.0.0.1 '[::1]'; do
            run sluice-lat "$host:$port" -n 20 --json </dev/null
            check "lat at '$bind' is not reached at $host" lines_are 1 "$lat_line" "$work/out"
        done
        kill -INT "$server"
        served "$server" 130 "lat in both families"
    done
fi

# ---- nobody there, the wrong one there -----------------------------------------------------------

# The port of a server that has just gone: no listener there.
expect 1 "cannot connect to 127.0.0.1:$port: .*start the server" sluice-lat "127.0.0.1:$port"
expect 1 "cannot connect to 127.0.0.1:$port" sluice-bw "127.0.0.1:$port"
expect 1 "cannot connect to 127.0.0.1:$port" sluice-cat "127.0.0.1:$port"
expect 1 "cannot connect to no-such-host.invalid:18515" sluice-lat no-such-host.invalid
expect 1 "cannot listen at 192.0.2.1:[0-9]*: it is not an address of this host" sluice-lat --bind 192.0.2.1

# Another host, where the device is kept from the network: that it is, and where it says what to do. The last one is no
# address as it stands, so it is looked up like a name, and needs no name server for it.
elsewhere="is another host, and SLUICE_SOFT_NET keeps the device in this one: docs/two-hosts.md"
export SLUICE_SOFT_NET=off
for tool in sluice-lat sluice-bw sluice-cat; do
    expect 1 "cannot connect to 192.0.2.1:18515: .*192.0.2.1 $elsewhere$" $tool 192.0.2.1:18515
done
expect 1 "cannot connect to .*2001:db8::1 $elsewhere$" sluice-lat "[2001:db8::1]:18515"
expect 1 "cannot connect to 0xc0000201:18515: .*192.0.2.1 $elsewhere$" sluice-lat 0xc0000201:18515
unset SLUICE_SOFT_NET

# A server for one client ends with the wrong one, and says why.
serve wrong sluice-bw -p 0
expect 1 "the server gave up: the client is sluice-lat, this is sluice-bw" \
    sluice-lat "127.0.0.1:$port" -n 5
served "$server" 1 "bw with a wrong client"
check "bw: does not say why" grep -q 'sluice-bw: the client is sluice-lat' "$work/wrong.err"

# Somebody else's program: refused, accepted or asked in another language than ours.
for mode in reject garbage accept; do
    serve foreign foreign_peer $mode
    expect 1 "cannot connect to 127.0.0.1:$port: .*" sluice-lat "127.0.0.1:$port"
    expect 1 "cannot connect to 127.0.0.1:$port: .*" sluice-cat "127.0.0.1:$port"
    [[ $mode = reject ]] || check "foreign $mode: not told that it is no sluice" \
        grep -q 'does not speak this protocol' "$work/err"
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    unset "running[$server]"
done
serve native sluice-lat -p 0
timeout 60 "$bin/../tests/foreign_peer" dial "$port" >"$work/out" 2>"$work/err" </dev/null
check "a foreign client is not refused: status $?" [ $? = 0 ]
run sluice-lat "127.0.0.1:$port" -n 50 --json </dev/null
check "a foreign client disturbs the server" lines_are 1 "$lat_line" "$work/out"
served "$server" 0 "lat after a foreign client"

# ---- one CPU -------------------------------------------------------------------------------------

first_cpu=$(awk '/^Cpus_allowed_list:/ { split($2, a, /[-,]/); print a[1] }' /proc/self/status)
serve shared sluice-lat -p 0 --cpu "$first_cpu"
run sluice-lat "127.0.0.1:$port" --cpu "$first_cpu" -n 100 --json </dev/null
check "lat on one CPU: status $status" lines_are 1 "$lat_line" "$work/out"
check "lat on one CPU: does not say that it does not spin" \
    grep -q 'adaptive mode instead of spin' "$work/err"
served "$server" 0 "lat on one CPU"

# Where the server was not told its CPU it makes room: whichever of two the client has, both spin.
mapfile -t two_cpus < <(awk '/^Cpus_allowed_list:/ {
    for (n = split($2, part, ","); i < n && found < 2;) {
        split(part[++i], end, "-")
        for (cpu = end[1] + 0; cpu <= (end[2] == "" ? end[1] : end[2]) + 0 && found < 2; cpu++) {
            print cpu
            found++
        }
    }
}' /proc/self/status)
if ((${#two_cpus[@]} == 2)); then
    serve roomy sluice-lat -p 0 --keep
    for cpu in "${two_cpus[@]}"; do
        run sluice-lat "127.0.0.1:$port" --cpu "$cpu" -n 20 </dev/null
        check "lat on CPU $cpu: the server does not make room: $(head -n 1 "$work/out")" \
            grep -Eq "mode spin, CPU $cpu, server CPU [0-9]+$" "$work/out"
        check "lat on CPU $cpu: the server has it, too" \
            bash -c "! grep -q 'CPU $cpu, server CPU $cpu\$' '$work/out'"
    done
    kill -INT "$server"
    served "$server" 130 "lat that makes room"
fi

# ---- a peer that dies, a signal in the middle ----------------------------------------------------

serve victim sluice-lat -p 0
"$bin/sluice-lat" "127.0.0.1:$port" -D 600 >"$work/out" 2>"$work/err" &
client=$!
running[$client]=1
stat_until() { # stat_until PID: until the process has received messages
    local i
    for ((i = 0; i < 2000; i++)); do
        "$bin/sluice-stat" --json "$1" 2>/dev/null |
            grep -Eq '"total": \{[^}]*"messages_received": [0-9]{3,}' && return 0
    done
    return 1
}
check "stat: the busy server's counters do not move" stat_until "$server"
run sluice-stat "$server" </dev/null
check "stat: no buffers by size" \
    grep -Eq "^  [0-9]+[KM]?( +[0-9]+){2} +handed out; [0-9]+ not returned$" "$work/out"
transport=tcp way=TCP
[ "${SLUICE_SOFT_NET:-}" = require ] || transport=shared_memory way="shared memory"
check "stat: it does not say which way the session goes" \
    grep -Eq "^  127\.0\.0\.1:[0-9]+ +loop +0   $way$" "$work/out"
run sluice-stat --json "$server" </dev/null
check "stat --json: it does not say which way the session goes" \
    grep -Eq "\"sessions\": \[\{\"session\": [0-9]+, \"peer\": \"127\.0\.0\.1:[0-9]+\", \"loop\": 0, \"transport\": \"$transport\"\}\]" \
    "$work/out"
kill -KILL "$server"
wait "$server" 2>/dev/null
unset "running[$server]"
wait "$client"
got=$?
check "lat: a client whose server was killed: status $got" [ "$got" = 1 ]
unset "running[$client]"
check "lat: a client whose server was killed says nothing" \
    grep -q 'sluice-lat: the connection to .* ended' "$work/err"

serve busy sluice-bw -p 0
# No warm-up: between two rounds the client might go in peace.
"$bin/sluice-bw" "127.0.0.1:$port" -D 600 -w 0 --json >"$work/out" 2>"$work/err" &
client=$!
running[$client]=1
check "stat: the busy server's counters do not move" stat_until "$server"
before=$(date +%s%N)
kill -INT "$client"
wait "$client"
got=$?
unset "running[$client]"
check "bw: Ctrl-C: status $got" [ "$got" = 130 ]
check "bw: Ctrl-C took longer than a second and a half" \
    [ $((($(date +%s%N) - before) / 1000000)) -lt 1500 ]
check "bw: Ctrl-C leaves something on standard output" [ ! -s "$work/out" ]
served "$server" 1 "bw whose client was stopped"

# ---- info and stat -------------------------------------------------------------------------------

run sluice-info </dev/null
check "info: status $status" [ "$status" = 0 ]
for word in device why wake workers placement messages memory arenas sessions budget limits; do
    check "info: no $word" grep -q "^$word " "$work/out"
done
check "info: not where a worker is" grep -Eq "^workers +1, on (CPU [0-9]+|no CPU of its own)" "$work/out"
check "info: not where the device is" grep -q "the device is on no NUMA node$" "$work/out"
check "info: not where memory is" grep -q "memory is bound to no NUMA node" "$work/out"
check "info: no arenas" grep -Eq "^arenas +for sending: [0-9]+ KiB on " "$work/out"
check "info: no arenas" grep -Eq "^ +for receiving: [0-9]+ KiB on " "$work/out"
check "info: not what sending has" grep -q "bytes for allocating and sending" "$work/out"
check "info: not what receiving has" grep -q "bytes for receiving" "$work/out"
check "info: not what a session has" grep -q "a session has at least" "$work/out"
check "info: no limit on locked memory" grep -q "locked memory.*(.ulimit -l.)" "$work/out"
check "info: no limit of the cgroup" grep -q "of the cgroup\|for the cgroup" "$work/out"
check "info: no limit of descriptors" grep -Eq "[0-9]+ of [0-9]+ descriptors are open" "$work/out"
SLUICE_HUGE_PAGES=no run sluice-info </dev/null
check "info: not on the pages that were chosen" \
    grep -Eq "for sending: [0-9]+ KiB on ordinary pages$" "$work/out"
SLUICE_NUMA=4000 run sluice-info </dev/null
check "info on a NUMA node that is not there: status $status" [ "$status" = 1 ]
check "info on such a node: $(cat "$work/err")" grep -q "SLUICE_NUMA names NUMA node 4000" "$work/err"
SLUICE_SOFT_PROFILE=nic run sluice-info </dev/null
check "info: not the inline data that the device grants" grep -q "^inline  *64 bytes" "$work/out"
run sluice-info --json --workers 0 </dev/null
check "info --json: status $status" [ "$status" = 0 ]
check "info --json: keys" has_keys "$work/out" version device software why wake worker_cpus \
    message_bytes_max eager_bytes inline_bytes memory_bytes_max memory_bytes sessions_max \
    worker_numa device_numa memory_numa placement memory_pages receive_memory_pages budget \
    receive_bytes_max session_bytes sessions_bytes limits files huge_pages
check "info --json: not JSON" json_valid "$work/out"
check "info --json: not one line" [ "$(wc -l <"$work/out")" = 1 ]

serve stat sluice-lat -p 0
run sluice-stat "$server" </dev/null
check "stat: status $status" [ "$status" = 0 ]
for word in sessions messages_sent bytes_sent credit_stalls polls send_wrs receive_posts receive_wrs \
    longest_busy_ns stalls drained idle bytes_max grown_ahead huge_missed completions/poll WRs/post \
    receives/post CONNECT_REQUEST USER unknown PORT_ERR DEVICE_SPEED_CHANGE; do
    check "stat: no $word" grep -q "^  $word " "$work/out"
done
for pool in send receive; do
    check "stat: no memory for $pool" grep -q "^memory, $pool$" "$work/out"
done
run sluice-stat --json "$server" </dev/null
check "stat --json: status $status" [ "$status" = 0 ]
check "stat --json: keys" has_keys "$work/out" pid name device total loops drained cm events sessions \
    messages_sent messages_received bytes_sent bytes_received credit_stalls idle polls send_wrs \
    receive_posts receive_wrs longest_busy_ns stalls sleeps memory numa send receive sizes others \
    bytes_max huge_missed grown_on_demand ADDR_RESOLVED \
    ADDR_ERROR ROUTE_RESOLVED ROUTE_ERROR CONNECT_REQUEST CONNECT_RESPONSE CONNECT_ERROR \
    UNREACHABLE REJECTED ESTABLISHED DISCONNECTED DEVICE_REMOVAL MULTICAST_JOIN MULTICAST_ERROR \
    ADDR_CHANGE TIMEWAIT_EXIT ADDRINFO_RESOLVED ADDRINFO_ERROR USER INTERNAL \
    device_events PORT_ACTIVE PORT_ERR GID_CHANGE DEVICE_FATAL CLIENT_REREGISTER
check "stat --json: not JSON" json_valid "$work/out"
check "stat --json: another process" grep -q "\"pid\": $server, \"name\": \"sluice-lat\"" "$work/out"
"$bin/sluice-stat" --watch 0.05 "$server" >"$work/out" 2>"$work/err" &
watcher=$!
running[$watcher]=1
run_client=0
"$bin/sluice-lat" "127.0.0.1:$port" -n 100 >/dev/null 2>&1 </dev/null || run_client=$?
check "lat under watch: status $run_client" [ "$run_client" = 0 ]
served "$server" 0 "lat under watch"
wait "$watcher"
got=$?
unset "running[$watcher]"
# Between the last look and the end the node may already be gone.
check "stat --watch: status $got after the process ended" [ "$got" = 0 -o "$got" = 1 ]
check "stat --watch: does not say that it ended" \
    grep -Eq "process $server (has ended|has no sluice node)|no process $server" "$work/err"

# ---- cat -----------------------------------------------------------------------------------------

for bytes in 0 1 176 177 262127 262128 262129 3000000; do
    head -c "$bytes" /dev/urandom >"$work/in"
    serve cat sluice-cat -l 0
    timeout 60 "$bin/sluice-cat" "127.0.0.1:$port" <"$work/in" >"$work/out" 2>"$work/err"
    check "cat of $bytes bytes: status $?" [ $? = 0 ]
    check "cat of $bytes bytes: the sender talks" [ ! -s "$work/out" -a ! -s "$work/err" ]
    served "$server" 0 "cat of $bytes bytes"
    check "wrong data: cat of $bytes bytes: something else arrived" cmp -s "$work/in" "$work/cat.out"
done
# A pipe that trickles.
serve cat sluice-cat -l 127.0.0.1:0
for i in 1 2 3 4 5; do echo "line $i"; done | timeout 60 "$bin/sluice-cat" "127.0.0.1:$port" \
    --progress 2>"$work/err"
check "cat from a pipe: status ${PIPESTATUS[1]}" [ "${PIPESTATUS[1]}" = 0 ]
check "cat --progress shows none" grep -q 'MiB/s' "$work/err"
served "$server" 0 "cat from a pipe"
check "cat from a pipe: something else arrived" [ "$(wc -l <"$work/cat.out")" = 5 ]

# A receiver that cannot write: both sides say so.
cat_full() {
    local fd
    rm -f "$work/full.fifo"
    mkfifo "$work/full.fifo"
    "$bin/sluice-cat" -l 0 >/dev/full 2>"$work/full.fifo" &
    server=$!
    running[$server]=1
    exec {fd}<"$work/full.fifo"
    IFS= read -r -t 30 -u "$fd" line
    port=${line##*:}
    cat <&"$fd" >"$work/full.err" &
    reader[$server]=$!
    exec {fd}<&-
}
cat_full
timeout 60 "$bin/sluice-cat" "127.0.0.1:$port" <"$work/in" >"$work/out" 2>"$work/err"
check "cat to a full disk: the sender's status is $?" [ $? = 1 ]
check "cat to a full disk: the sender does not say why" \
    grep -q 'the receiver gave up: cannot write standard output.*No space left' "$work/err"
served "$server" 1 "cat to a full disk"
check "cat to a full disk: the receiver does not say why" \
    grep -q 'sluice-cat: cannot write standard output.*No space left' "$work/full.err"

# A sender that dies before the end of its data.
serve cat sluice-cat -l 0
mkfifo "$work/endless"
"$bin/sluice-cat" "127.0.0.1:$port" <"$work/endless" >"$work/out" 2>"$work/err" &
client=$!
running[$client]=1
exec {feed}>"$work/endless"
echo "the beginning" >&"$feed"
cat_has_data() {
    local i
    for ((i = 0; i < 2000; i++)); do
        [[ -s $work/cat.out ]] && return 0
        "$bin/sluice-stat" "$server" >/dev/null 2>&1
    done
    return 1
}
check "cat: the first line does not arrive before the second is there" cat_has_data
kill -KILL "$client"
wait "$client" 2>/dev/null
unset "running[$client]"
exec {feed}>&-
served "$server" 1 "cat whose sender was killed"
check "cat: the receiver does not say that the sender went" \
    grep -q 'before the end of the data' "$work/cat.err"

# ---- result --------------------------------------------------------------------------------------

checks_end
