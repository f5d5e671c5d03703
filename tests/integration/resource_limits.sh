#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# resource_limits.sh - every limit of setrlimit(2), far too low: a tool works all the same, or ends with status 1 and
# names the limit. No signal ends it. (Limits of a cgroup are files: limits_test. RLIMIT_CPU is there to end who
# computes, and is tried with more than is needed. Below RLIMIT_STACK of a few pages no program of the system starts.)
set -uo pipefail
bin=${SLUICE_BIN_DIR:?}
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-limits.XXXXXX")
failures=0 server=

cleanup() {
    [[ -n $server ]] && kill -KILL "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    head -n 5 "$work"/* | cut -c 1-300
}
command -v prlimit >/dev/null || {
    echo "SKIPPED: THERE IS NO prlimit (util-linux)" >&2
    exit 77
}
[ -z "${SLUICE_SANITIZE:-}" ] || {
    echo "SKIPPED: A SANITIZER NEEDS MORE MEMORY THAN IS LEFT HERE" >&2
    exit 77
}

# limited RLIMIT_NAME TOO_LITTLE...: sluice-info with each
limited() {
    local name=$1 value status option said
    shift
    option=--${name#RLIMIT_}
    for value in "$@"; do
        status=0
        said=$(timeout 60 prlimit "${option,,}=$value" "$bin/sluice-info" 2>&1) || status=$?
        case $status in
            0) ;;
            1) [[ $said == *"$name"* ]] || fail "$name of $value is not named: $said" ;;
            127) [[ $said == *"error while loading shared libraries"* ]] || fail "$name of $value: $said" ;;
            *) fail "$name of $value: status $status: $said" ;;
        esac
    done
}
limited RLIMIT_AS 20000000 60000000 200000000
limited RLIMIT_CORE 0
limited RLIMIT_CPU 60
limited RLIMIT_DATA 2000000 4000000 10000000 20000000 40000000
limited RLIMIT_FSIZE 0 4096 100000 1000000 3000000
limited RLIMIT_LOCKS 0
limited RLIMIT_MEMLOCK 0
limited RLIMIT_MSGQUEUE 0
limited RLIMIT_NICE 0
limited RLIMIT_NOFILE 4 5 8 12 16 30
limited RLIMIT_NPROC 1
limited RLIMIT_RSS 0
limited RLIMIT_RTPRIO 0
limited RLIMIT_RTTIME 1000
limited RLIMIT_SIGPENDING 0
limited RLIMIT_STACK 65536

# What a tool writes may be longer than a file may be: it says so, and the other side as well.
prlimit --fsize=3000000 "$bin/sluice-cat" -l 127.0.0.1:0 >"$work/data" 2>"$work/err" &
server=$!
port=
while [ -z "$port" ] && kill -0 "$server" 2>/dev/null; do
    port=$(sed -n 's/.*listening on .*:\([0-9]*\)$/\1/p' "$work/err")
    read -rt 0.01 <> <(:)
done
status=0
head -c 20000000 /dev/zero | timeout 60 "$bin/sluice-cat" "127.0.0.1:$port" >"$work/out" 2>"$work/sender" || status=$?
[ "$status" = 1 ] || fail "the sender: status $status"
status=0
wait "$server" || status=$?
server=
[ "$status" = 1 ] || fail "the receiver: status $status"
for side in err sender; do
    grep -q 'cannot write standard output .*RLIMIT_FSIZE' "$work/$side" || fail "$side does not name the limit"
done
exit $((failures > 0))
