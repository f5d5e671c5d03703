# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
#
# tools_checks.sh - what the tests of the tools' command lines share: runs tools, starts servers and waits for their ends,
# counts checks. To be sourced; end with checks_end.
#
# Programs are found in SLUICE_BIN_DIR. Nothing here waits for time to pass: servers say when they
# are ready, and everything else is waited for by its end.
bin=${SLUICE_BIN_DIR:?}
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-tools.XXXXXX")
checks=0 failures=0 final=
declare -A running=() reader=() # by process: of a server, what copies its standard error

cleanup() {
    local pid
    for pid in "${!running[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT
trap "exit 143" TERM INT

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n' "$*"
    [[ $* != "wrong data: "* ]] || final=86 # tests/support/verdict.h
    local f
    for f in "$work/out" "$work/err"; do [[ -s $f ]] && sed "s|^|  ${f##*/}: |" "$f" | head -n 20; done
}
check() { # check WHAT COMMAND...
    checks=$((checks + 1))
    local what=$1
    shift
    "$@" || fail "$what"
}

# run TOOL ARGUMENTS... -> $status, $work/out, $work/err; standard input is the caller's
run() {
    local tool=$1
    shift
    timeout 150 "$bin/$tool" "$@" >"$work/out" 2>"$work/err"
    status=$?
}

# expect STATUS PATTERN TOOL ARGUMENTS...: exit status, nothing on standard output, and a standard
# error that ends in one line "TOOL: ..." with the (extended regular) pattern in it
expect() {
    local want=$1 pattern=$2
    shift 2
    run "$@" </dev/null
    check "$*: status $status, not $want" [ "$status" = "$want" ]
    check "$*: something on standard output" [ ! -s "$work/out" ]
    check "$*: no line '$1: ...$pattern...' on standard error" \
        grep -Eq -- "^$1: .*$pattern" "$work/err"
    # Notes about the machine may stand before; what went wrong is one line and the last.
    check "$*: the last line is another" grep -Eq -- "$pattern" <(tail -n 1 "$work/err")
}

# serve NAME TOOL ARGUMENTS...: starts a server, waits until it listens -> $server, $port;
# standard output goes to $work/NAME.out, what it says to $work/NAME.err
serve() {
    local name=$1 tool=$2 line fd
    shift 2
    rm -f "$work/$name.fifo"
    mkfifo "$work/$name.fifo"
    [[ $tool == sluice-* ]] || tool=../tests/$tool
    "$bin/$tool" "$@" >"$work/$name.out" 2>"$work/$name.fifo" &
    server=$!
    running[$server]=1
    exec {fd}<"$work/$name.fifo"
    : >"$work/$name.err"
    port=
    while IFS= read -r -t 30 -u "$fd" line; do
        printf '%s\n' "$line" >>"$work/$name.err"
        if [[ $line =~ ^listening\ on\ .*:([0-9]+)$ ]]; then
            port=${BASH_REMATCH[1]}
            break
        fi
    done
    cat <&"$fd" >>"$work/$name.err" &
    reader[$server]=$!
    exec {fd}<&-
    check "$name: $tool $* does not listen" [ -n "$port" ]
}

# served PID STATUS WHAT: waits for a server's end, and until its file has all that it said
served() {
    wait "$1"
    local got=$?
    wait "${reader[$1]}"
    unset "running[$1]" "reader[$1]"
    check "$3: the server's status is $got, not $2" [ "$got" = "$2" ]
}

# shellcheck disable=SC2034 # for those that source this
number='-?[0-9]+(\.[0-9]+)?'
lat_line="^\{\"size\": [0-9]+, \"iterations\": [0-9]+, \"p50_ns\": $number, \"p99_ns\": $number, \
\"p999_ns\": $number, \"max_ns\": $number, \"mean_ns\": $number, \"floor_ns\": ($number|null)\}$"
bw_line="^\{\"size\": [0-9]+, \"messages\": [0-9]+, \"messages_per_s\": $number, \
\"bytes_per_s\": $number\}$"
requests_line="^\{\"size\": [0-9]+, \"depth\": [0-9]+, \"requests\": [0-9]+, \
\"requests_per_s\": $number, \"p50_ns\": $number, \"p99_ns\": $number, \"p999_ns\": $number, \
\"max_ns\": [0-9]+\}$"

# lines_are COUNT PATTERN FILE: exactly so many lines, each of this shape
lines_are() {
    [[ $(wc -l <"$3") = "$1" && $(grep -Ec -- "$2" "$3") = "$1" ]]
}
# A JSON reader's word, where the machine has one.
json_valid() {
    if command -v jq >/dev/null; then jq -e . "$1" >/dev/null
    elif command -v python3 >/dev/null; then
        python3 -c 'import json,sys; [json.loads(l) for l in open(sys.argv[1])]' "$1"
    fi
}
has_keys() { # has_keys FILE KEY...
    local file=$1 key
    shift
    for key in "$@"; do grep -q "\"$key\": " "$file" || { echo "no key $key"; return 1; }; done
}

# The result, as the script's last command.
checks_end() {
    echo "$checks checks, $failures failed"
    [ -z "$final" ] || exit "$final"
    [ "$failures" = 0 ]
}
