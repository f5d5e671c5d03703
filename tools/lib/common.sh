# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# common.sh - what the scripts in tools/ share: messages, temporary files, child processes, the
# packages of the build, and building a preset. Sourced with `set -euo pipefail` on. Nothing here
# reads standard input except sudo's password prompt, and that only on a terminal.

# shellcheck disable=SC2034 # used by the scripts that source this file
# Debian packages to build and run everything with gcc ...
PACKAGES_BUILD=(
    gcc g++ cmake ninja-build pkg-config
    librdmacm-dev libibverbs-dev liburcu-dev libhwloc-dev libsodium-dev
    libbenchmark-dev libcmocka-dev libuv1-dev libmimalloc2.0
)
# ... and what the full test run uses on top.
# shellcheck disable=SC2034 # used by the scripts that source this file
PACKAGES_TEST=(clang libclang-rt-dev)
# ... and what single tests and passes use, which are skipped where it is missing.
# shellcheck disable=SC2034
PACKAGES_WISHED=(strace valgrind)
# shellcheck disable=SC2034
PACKAGES_FORMAT=(clang-format)
# shellcheck disable=SC2034
PACKAGES_MODELS=(spin)
# shellcheck disable=SC2034
PACKAGES_CONFORMANCE=(rdmacm-utils ibverbs-utils perftest libfabric-bin ucx-utils tshark tgt libiscsi-bin dapl2-utils ceph-mon ceph-osd ceph-common)

# ---- messages: on standard error, so that standard output stays the result ------------------------

if [[ -t 2 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
    bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'
else
    bold='' red='' plain=''
fi

step() { printf '%s==> %s%s\n' "$bold" "$*" "$plain" >&2; }
note() { printf '    %s\n' "$*" >&2; }
warn() { printf '%s%s%s\n' "$red" "$*" "$plain" >&2; }
die() {
    warn "error: $*"
    exit 1
}

# ---- temporary files and children -----------------------------------------------------------------

WORK='' # the script's own temporary folder
CHILDREN=()

# Makes $WORK and sees to it that it and every child are gone however the script ends.
work_open() {
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/sluice.XXXXXX")
    trap work_close EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}

work_close() {
    local pid
    trap '' INT TERM HUP
    for pid in ${CHILDREN[@]+"${CHILDREN[@]}"}; do
        kill -TERM "$pid" 2> /dev/null || true
    done
    for pid in ${CHILDREN[@]+"${CHILDREN[@]}"}; do
        wait "$pid" 2> /dev/null || true
        kill -KILL -- "-$pid" 2> /dev/null || true # what it started and left behind, if anything
    done
    CHILDREN=()
    [[ -z $WORK ]] || rm -rf "$WORK"
    WORK=''
}

# spawn SECONDS COMMAND... - starts a child, its id in $CHILD. timeout(1) makes it a process group of
# its own, passes a SIGTERM on to all of it and follows it with SIGKILL, so that waiting for a child is
# bounded whatever the child does. Redirections of the call are those of the child. The shell acts on a
# signal while it waits for a child like this, not while it waits for a command in the foreground.
spawn() {
    timeout -k 5 "$@" <&0 &
    CHILD=$!
    CHILDREN+=("$CHILD")
}

# reap PID - waits for a child and returns its status (124 or 137: it ran out of time).
reap() {
    local status=0 pid rest=()
    wait "$1" || status=$?
    for pid in ${CHILDREN[@]+"${CHILDREN[@]}"}; do
        [[ $pid == "$1" ]] || rest+=("$pid")
    done
    CHILDREN=(${rest[@]+"${rest[@]}"})
    return "$status"
}

# ---- packages -------------------------------------------------------------------------------------

package_installed() {
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2> /dev/null) == installed ]]
}

# packages_need PACKAGE... - installs what is missing, or says how and ends the script.
packages_need() {
    local package missing=() as_root=()
    if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
        packages_elsewhere "$@"
        return
    fi
    for package in "$@"; do
        package_installed "$package" || missing+=("$package")
    done
    if ((${#missing[@]} == 0)); then
        note "all $# packages are installed"
        return
    fi
    note "missing: ${missing[*]}"

    if ((EUID != 0)); then
        if command -v sudo > /dev/null && sudo -n true 2> /dev/null < /dev/null; then
            as_root=(sudo -n)
        elif command -v sudo > /dev/null && [[ -t 0 && -z ${CI:-} ]]; then
            as_root=(sudo)
        else
            warn "installing packages needs root. Run this, then start again:"
            printf '    apt-get update && apt-get install -y --no-install-recommends %s\n' \
                "${missing[*]}" >&2
            exit 1
        fi
    fi
    apt_run update -q || note "apt-get update failed: trying with the package lists as they are"
    apt_run install -q -y --no-install-recommends "${missing[@]}" ||
        die "apt-get could not install: ${missing[*]}"
    for package in "${missing[@]}"; do
        package_installed "$package" || die "apt-get did not install $package"
    done
}

# packages_wish PACKAGE... - installs what is missing if that is possible without a question; goes on
# in any case.
packages_wish() {
    local package missing=() as_root=()
    command -v dpkg-query > /dev/null && command -v apt-get > /dev/null || return 0
    for package in "$@"; do
        package_installed "$package" || missing+=("$package")
    done
    ((${#missing[@]} > 0)) || return 0
    if ((EUID != 0)); then
        as_root=(sudo -n)
        command -v sudo > /dev/null && sudo -n true 2> /dev/null < /dev/null || as_root=(false)
    fi
    # At once, which is quicker; or one by one: where one cannot be had, the others are installed all the same.
    if [[ ${as_root[*]} != false ]]; then
        apt_run update -q || true
        ! apt_run install -q -y --no-install-recommends "${missing[@]}" || return 0
    fi
    for package in "${missing[@]}"; do
        [[ ${as_root[*]} != false ]] &&
            apt_run install -q -y --no-install-recommends "$package" && continue
        note "without $package: tests that use it are skipped"
    done
}

# Uses as_root of its caller. sudo asks for a password on the terminal itself, not on stdin.
apt_run() {
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 "$@" >&2 < /dev/null
}

# Not Debian: the script cannot install, but goes on when everything is there already.
packages_elsewhere() {
    local thing missing=()
    for thing in cc c++ cmake ninja pkg-config; do
        command -v "$thing" > /dev/null || missing+=("$thing")
    done
    for thing in librdmacm libibverbs liburcu-cds liburcu-bp hwloc libsodium benchmark cmocka; do
        pkg-config --exists "$thing" 2> /dev/null || missing+=("$thing")
    done
    if ((${#missing[@]} > 0)); then
        warn "this is not Debian: install these with the system's own package manager:"
        printf '    %s\n' "${missing[@]}" >&2
        note "their names on Debian: $*"
        exit 1
    fi
    note "not Debian, but everything needed is there"
}

# ---- building -------------------------------------------------------------------------------------

# build_preset NAME [PREFIX...] - configures and builds build/NAME, all of it or the target BUILD_TARGET. On a
# terminal the compiler's progress shows; elsewhere the output is shown only when something failed. PREFIX: before
# the commands.
build_preset() {
    local preset=$1 log=$WORK/build.log started=$SECONDS target=${BUILD_TARGET:-all}
    shift
    step "building preset $preset in build/$preset"
    spawn 600 "$@" cmake --preset "$preset" > "$log" 2>&1 < /dev/null
    if ! reap "$CHILD"; then
        cat "$log" >&2
        return 1
    fi
    ninja -C "build/$preset" -t cleandead > /dev/null 2>&1 || true # what is built elsewhere now, or nowhere
    if [[ -t 2 && -z ${CI:-} ]]; then
        spawn 3600 "$@" cmake --build --preset "$preset" --target "$target" >&2 < /dev/null
        reap "$CHILD" || return 1
    else
        spawn 3600 "$@" cmake --build --preset "$preset" --target "$target" > "$log" 2>&1 < /dev/null
        if ! reap "$CHILD"; then
            cat "$log" >&2
            return 1
        fi
    fi
    note "built in $((SECONDS - started)) s"
}

# ---- counting -------------------------------------------------------------------------------------

# count_results FILE - prints "PASSED FAILED SKIPPED" and the names of failed tests from ctest's JUnit
# file. A test whose program is missing is "notrun" there like a skipped one, but it did not skip: it failed.
count_results() {
    awk '
        function settle() {
            if (status == "run") passed++
            else if (status == "disabled" || (status == "notrun" && excused)) skipped++
            else if (status != "") { failed++; names = names " " name }
            status = ""; excused = 0
        }
        /^[ \t]*<testcase / {
            settle()
            name = $0; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name)
            status = $0; sub(/.* status="/, "", status); sub(/".*/, "", status)
        }
        /^[ \t]*<skipped message="SKIP_/ { excused = 1 }
        END { settle(); printf "%d %d %d%s\n", passed, failed, skipped, names }' "$1"
}
