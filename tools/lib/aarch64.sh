# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# aarch64.sh - a folder with the headers and libraries of this Debian release for aarch64, for the cross
# compiler and for QEMU's user mode. Sourced after common.sh, from the root of the checkout.
#
# apt fetches the packages with lists and a cache of its own and nothing is installed: dpkg of this
# machine learns of no other architecture, and nobody needs to be root. build/aarch64-root points to the
# folder, which is where cmake/aarch64.cmake looks.
#
# The cache ($AARCH64_CACHE) is shared by all checkouts: a folder there is made under a lock and appears
# by rename.

# shellcheck disable=SC2034 # used by the scripts that source this file
PACKAGES_AARCH64=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static)

AARCH64_CACHE=${SLUICE_AARCH64_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/sluice-aarch64}
AARCH64_OLD_DAYS=14 # a root that nobody used for so long is removed

# What Sluice is built with, there. Compiler and tools are this machine's.
AARCH64_PACKAGES=(
    libc6-dev libstdc++-12-dev
    librdmacm-dev libibverbs-dev liburcu-dev libhwloc-dev libsodium-dev
    libbenchmark-dev libcmocka-dev libuv1-dev
)

# apt-get for that architecture, as if nothing were installed. Sources and keys are this machine's.
aarch64_apt() {
    apt-get -o "Dir::State=$part/apt" -o "Dir::State::Lists=$part/apt/lists" \
        -o "Dir::State::Status=$part/apt/status" -o "Dir::Cache=$part/apt/cache" \
        -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User= \
        -o Acquire::Languages=none -o Acquire::Retries=3 "$@" < /dev/null
}

# Links of packages are those of a root; the linker follows them as this machine's.
aarch64_relative_links() {
    local link target
    while read -r link; do
        target=$(readlink "$link")
        ln -sfnr "$1$target" "$link"
    done < <(find "$1" -type l -lname '/*')
}

# aarch64_make ROOT - makes it in $part.
aarch64_make() {
    local deb
    mkdir -p "$part/apt/lists/partial" "$part/apt/cache/archives/partial" "$part/root/usr/lib"
    : > "$part/apt/status"
    aarch64_apt -q update &&
        aarch64_apt -q -y --no-install-recommends --download-only install "${AARCH64_PACKAGES[@]}" || return
    ln -s usr/lib "$part/root/lib"
    for deb in "$part"/apt/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$part/root" \
            --exclude='./usr/share' --exclude='./var' --exclude='./bin' --exclude='./sbin' \
            --exclude='./usr/bin' --exclude='./usr/sbin' || return
    done
    aarch64_relative_links "$part/root"
    [[ -e $part/root/usr/include/infiniband/verbs.h && -x $part/root/lib/ld-linux-aarch64.so.1 ]] || return
    mv "$part/root" "$1"
}

# Makes build/aarch64-root point to a root; a build with another one goes. False: it cannot be had.
aarch64_need() {
    local codename key root part lock old
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-unknown}")
    key=$(cat tools/lib/aarch64.sh | sha256sum | cut -c 1-12)
    root=$AARCH64_CACHE/$codename-$key
    mkdir -p "$AARCH64_CACHE" build || return
    exec {lock}> "$AARCH64_CACHE/lock"
    flock -w 900 "$lock" || return
    if [[ ! -d $root ]]; then
        step "fetching the libraries of $codename for aarch64"
        part=$AARCH64_CACHE/part
        rm -rf "$part"
        mkdir -p "$part"
        if ! aarch64_make "$root" > "$WORK/aarch64.log" 2>&1; then
            tail -n 15 "$WORK/aarch64.log" | sed 's/^/    | /' >&2
            rm -rf "$part"
            exec {lock}>&-
            return 1
        fi
        rm -rf "$part"
        note "fetched into $root ($(du -sh "$root" | cut -f 1))"
    fi
    touch "$root"
    while IFS= read -r old; do
        rm -rf "$old"
    done < <(find "$AARCH64_CACHE" -mindepth 1 -maxdepth 1 -type d -mtime "+$AARCH64_OLD_DAYS")
    exec {lock}>&-
    if [[ $(readlink build/aarch64-root) != "$root" ]]; then
        rm -rf build/aarch64
        ln -sfn "$root" build/aarch64-root
    fi
}
