#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# bare.sh - the device where there is little: no privilege and no capability, a root file system that
# cannot be written, no /dev/shm to speak of; and one device, not two, in a process that also has Sluice.
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need ibv_rc_pingpong setpriv unshare

# poor COMMAND... - by nobody, without capabilities, in a read-only world
poor() {
    unshare --mount -- bash -c '
        mount --make-rprivate / &&
            mount -t tmpfs -o size=64k,mode=1777 none /dev/shm &&
            { mount -o remount,bind,ro / || mount -o bind / / && mount -o remount,bind,ro /; } &&
            exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set -all \
                --inh-caps -all -- "$@"' poor "$@"
}

run() { # run PROGRAM ARGUMENTS... - as server and, with 127.0.0.1 behind, as client
    next_port
    local child status=0
    in_time
    poor timeout -k 2 "$LIMIT" "$bin/sluice-soft" run -- "$@" -p "$port" > "$work/server" 2>&1 < /dev/null &
    child=$!
    children=("$child")
    until_listens tcp "$port"
    poor timeout -k 2 "$LIMIT" "$bin/sluice-soft" run -- "$@" -p "$port" 127.0.0.1 \
        > "$work/client" 2>&1 < /dev/null || status=$?
    reap "$status"
    result "$status" "$* as nobody, no capabilities, read-only root, 64 KiB of /dev/shm"
}

# What is said of a place that is really so poor.
poor_says() {
    poor awk '$5 == "/" { options = $6 } END { exit options !~ /^ro/ }' /proc/self/mountinfo
    result $? "the root file system is read-only"
    [[ $(poor grep -E '^Cap(Eff|Prm|Bnd):' /proc/self/status | awk '{ print $2 }' | sort -u) == 0000000000000000 ]]
    result $? "no capability is left"
}

if ! poor true 2> "$work/why"; then
    skip "$(head -n 1 "$work/why")" "without privileges in a read-only root"
elif ! poor test -x "$bin/sluice-soft"; then
    skip "nobody may not read the build folder" "without privileges in a read-only root"
else
    run ibv_rc_pingpong -g 0 -c
    run ibv_rc_pingpong -g 0 -c -e
    run ibv_ud_pingpong -g 0 -c
    poor_says
fi

# One device in a process that has both.
"$bin/sluice-soft" run -- "$bin/sluice-info" > "$work/client" 2>&1 &&
    grep -q sluice_soft0 "$work/client"
result $? "sluice-info beside the preload"
for way in preload library-path; do
    unset SLUICE_DEVICE
    on "$bin/sluice-info" > "$work/client" 2>&1 && grep -q 'software' "$work/client"
    result $? "sluice-info takes the drop-in's device for software"
done

# What cannot be had is said in one line.
way=preload
[[ $("$bin/sluice-soft" run -- /nonexistent/program 2>&1) == "sluice-soft: cannot start /nonexistent/program: No such file or directory" ]]
result $? "a program that is not there"
"$bin/sluice-soft" run 2> "$work/client"
[[ $? == 2 ]]
result $? "no program at all"
(
    mkdir -p "$work/bin" && cp "$bin/sluice-soft" "$work/bin/" &&
        "$work/bin/sluice-soft" run -- true > "$work/client" 2>&1
    [[ $? == 1 ]] && grep -q 'libsluice-soft.so is not where it belongs' "$work/client"
)
result $? "without its library it says so"

refused() { # refused CALL TEXT - the kernel refuses this call, as a sandbox does: status 1, and it says which
    local status=0
    strace -qq -o "$work/trace" -e trace="$1" -e inject="$1:error=EPERM" \
        "$bin/sluice-soft" run -- true > "$work/client" 2>&1 || status=$?
    [[ $status == 1 && $(wc -l < "$work/client") == 1 ]] && grep -q "^sluice-soft: $2" "$work/client"
    result $? "$1 refused is told in one line"
}
if strace -qq -o "$work/trace" true 2> /dev/null; then
    refused memfd_create 'this system does not allow memory files (memfd_create)'
    refused socket 'this system does not allow unix sockets'
else
    skip "strace is missing, or may not trace" "what a sandbox refuses"
fi
finish
