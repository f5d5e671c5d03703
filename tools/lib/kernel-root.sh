#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# kernel-root.sh - the recipe of the guest that is newer than this machine: a root file system of a
# later Debian with its kernel, and Soft-iWARP for that kernel. A program of its own, run by kernel.sh
# as root, in a mount namespace of its own where the system allows one: mounts end with it.
#
#   kernel-root.sh root FOLDER MIRROR ARCHIVE    makes FOLDER/root, FOLDER/debs (packages of the kernel),
#                                                FOLDER/versions and FOLDER/archive
#   kernel-root.sh siw FOLDER VERSION JUDGED     makes FOLDER/siw.ko for FOLDER/root's kernel headers, and
#                                                FOLDER/versions.siw.part
#
# Versions are asked for: FOLDER/judged has "PACKAGE VERSION" lines, ARCHIVE the time of the archive that they are
# of, JUDGED that of linux-source. What the archive does not keep is taken as it is there.
#
# All it writes is inside FOLDER, which is thrown away unless it ends well; kernel.sh makes it anew whenever
# this file changes. Standard output is a log for people.
set -euo pipefail

SUITE=forky

# What Sluice is built with and what its tests run, in that root.
PACKAGES=(
    gcc g++ libc6-dev cmake ninja-build make pkg-config
    librdmacm-dev libibverbs-dev liburcu-dev libhwloc-dev libsodium-dev libcmocka-dev libuv1-dev
    ibverbs-providers rdmacm-utils ibverbs-utils perftest libfabric-bin
    iproute2 iputils-ping ethtool kmod procps
)

# A root that nobody reads the manuals of, and that is made again rather than repaired.
settings_of_the_root() {
    mkdir -p "$root/etc/dpkg/dpkg.cfg.d" "$root/etc/apt/apt.conf.d"
    cat > "$root/etc/dpkg/dpkg.cfg.d/guest" << 'SETTINGS'
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
SETTINGS
    # The index of a suite that is not released yet, kept by a mirror that stands still, may be older
    # than it wants to be. Signatures are checked all the same.
    cat > "$root/etc/apt/apt.conf.d/99guest" << 'SETTINGS'
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
SETTINGS
    printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d" # nothing is started in there
    chmod 755 "$root/usr/sbin/policy-rc.d"
}

inside() {
    chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        "$@" < /dev/null
}

# The one package that PACKAGE stands for: linux-image-amd64 is linux-image-VERSION-amd64.
stands_for() {
    inside apt-cache depends "$1" | sed -n "s/^ *Depends: \(${1%-amd64}-[0-9][^ ]*\)\$/\1/p" |
        sort -V | tail -n 1
}

# ---- which versions -------------------------------------------------------------------------------

# Debian keeps its archive as it was at any time, in a place of its own that not everyone reaches.
SNAPSHOTS=http://snapshot.debian.org/archive/debian

# archive_of MIRROR - the time at which the suite was last changed there: YYYYMMDDTHHMMSSZ.
archive_of() {
    local file=$folder/release date
    rm -f "$file"
    PATH=$PATH:/usr/lib/apt timeout 60 apt-helper -o Acquire::Retries=0 -o Acquire::http::Timeout=20 \
        download-file "${1%/}/dists/$SUITE/InRelease" "$file" > /dev/null 2>&1 || return
    date=$(sed -n 's/^Date: //p' "$file" | head -n 1)
    rm -f "$file"
    [[ -n $date ]] && date -u -d "$date" +%Y%m%dT%H%M%SZ
}

# mirrors MIRROR ARCHIVE - where to make the root from, the best first: the mirror, but where that has moved on,
# the archive as it was, if it can be reached. It holds a change from some hours later on.
mirrors() {
    local moment
    if [[ -n $2 && $(archive_of "$1") != "$2" ]]; then
        moment=$(date -u -d "$(sed -E 's/(....)(..)(..)T(..)(..)(..)Z/\1-\2-\3 \4:\5:\6 UTC/' <<< "$2") + 6 hours" +%Y%m%dT%H%M%SZ)
        [[ -z $(archive_of "$SNAPSHOTS/$moment") ]] || printf '%s\n' "$SNAPSHOTS/$moment"
    fi
    printf '%s\n' "$1"
}

# prefer_judged PATTERN - the judged versions of these packages, before all others, as far as there are any.
prefer_judged() {
    awk -v pattern="$1" '$1 ~ pattern { printf("Package: %s\nPin: version %s\nPin-Priority: 1001\n\n", $1, $2) }' "$folder/judged" \
        > "$root/etc/apt/preferences.d/judged"
}

# install_judged PACKAGE... - with what debootstrap brought made to be of the judged versions too. Some of them may not go
# together with others that the archive does not keep: then without asking for any but the kernel.
install_judged() {
    if inside apt-get -q -y --allow-downgrades dist-upgrade && inside apt-get -q -y --allow-downgrades install "$@"; then
        return 0
    fi
    prefer_judged '^linux-'
    inside apt-get -q -y -f install && inside apt-get -q -y install "$@"
}

# The kernel under a name that stays, what was asked for, then what that brought. The names of the kernel's
# own packages have its version in them: they are one with linux-image-amd64.
write_versions() {
    local name
    : > "$folder/versions"
    for name in linux-image-amd64 linux-headers-amd64; do
        printf '%s %s\n' "$name" "$(candidate "$name")" >> "$folder/versions"
    done
    # shellcheck disable=SC2016 # dpkg-query's own
    inside dpkg-query -W -f '${Package} ${Version}\n' | grep -vE '^linux-[a-z]+-[0-9]+\.[0-9]' > "$folder/installed"
    for name in "${PACKAGES[@]}"; do
        awk -v name="$name" '$1 == name' "$folder/installed"
    done >> "$folder/versions"
    awk 'NR == FNR { done[$1] = 1; next } !($1 in done)' "$folder/versions" "$folder/installed" > "$folder/rest"
    cat "$folder/rest" >> "$folder/versions"
    rm "$folder/rest" "$folder/installed"
}

candidate() { inside apt-cache policy "$1" | sed -n 's/^ *Candidate: \([^(].*\)/\1/p'; }

# ---- the root -------------------------------------------------------------------------------------

bootstrap() { # MIRROR
    local needs=''
    [[ $1 != https:* ]] || needs=--include=ca-certificates
    rm -rf "$root"
    # This release's debootstrap need not know the suite's name: all of them are made like sid.
    debootstrap --variant=minbase --merged-usr --components=main \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg ${needs:+"$needs"} \
        "$SUITE" "$root" "$1" /usr/share/debootstrap/scripts/sid
}

make_root() {
    local mirror image headers part packages=() made=''
    for mirror in $(mirrors "$1" "$2"); do
        echo "from $mirror"
        ! bootstrap "$mirror" || { made=$mirror && break; }
    done
    [[ -n $made ]]
    settings_of_the_root
    prefer_judged .
    cp /etc/hosts "$root/etc/hosts" # a mirror may be named there
    inside apt-get -q update
    headers=$(stands_for linux-headers-amd64)
    image=$(stands_for linux-image-amd64)
    [[ -n $headers && -n $image ]]
    install_judged "${PACKAGES[@]}" "$headers"
    write_versions
    archive_of "$made" > "$folder/archive" || echo "it is not known of when the archive is"

    # The kernel is not installed: only its files are wanted. It may come in parts.
    for part in image binary modules base; do
        part=linux-$part-${image#linux-image-}
        [[ -z $(inside apt-cache policy "$part") ]] || packages+=("$part")
    done
    mkdir -p "$root/var/tmp/debs"
    inside sh -c 'cd /var/tmp/debs && apt-get -q download "$@"' sh "${packages[@]}"
    mv "$root/var/tmp/debs" "$folder/debs"
    inside apt-get clean
    printf '127.0.0.1 localhost\n' > "$root/etc/hosts"
    printf '%s\n' "${image#linux-image-}" > "$folder/version"
}

# ---- Soft-iWARP -----------------------------------------------------------------------------------

# mend_siw FILE - two races by which Soft-iWARP of 7.2 ended its kernel when peers came and went, see
# docs/kernel.md: a socket is read from the work queue without its lock, and an accept that fails leaves
# the queue pair with a socket that is gone.
mend_siw() {
    local before
    before=$(wc -l < "$1")
    sed -i -e 's|^\(\t*\)cep->sock->sk->sk_data_ready(cep->sock->sk);|\1lock_sock(cep->sock->sk);\n&\n\1release_sock(cep->sock->sk);|' \
        -e '/^error_unlock:$/,/^}$/ s|^\tsiw_destroy_cep_sock(cep);|\tif (qp->attrs.sk == cep->sock)\n\t\tsiw_qp_llp_close(qp);\n&|' "$1"
    # A later kernel may have mended them itself.
    (($(wc -l < "$1") == before + 4)) || echo "Soft-iWARP is not as it was: mended in part, or not" >&2
}

# Debian's kernels leave Soft-iWARP out; their source has it.
make_siw() {
    local version=$1 judged=$2 source where=/var/tmp/siw
    source=linux-source-$(sed -n 's/^\([0-9]*\.[0-9]*\).*/\1/p' <<< "$version")
    rm -rf "${root:?}$where"
    mkdir -p "$root$where"
    cp /etc/hosts "$root/etc/hosts"
    # shellcheck disable=SC2016 # the words are for the shell inside
    inside sh -c 'cd "$1" && { { [ -n "$3" ] && apt-get -q download "$2=$3"; } || apt-get -q download "$2"; }' \
        sh "$where" "$source" "$judged"
    dpkg-deb -f "$root$where"/*.deb Version | sed 's/^/linux-source /' > "$folder/versions.siw.part"
    printf '127.0.0.1 localhost\n' > "$root/etc/hosts"
    dpkg-deb --fsys-tarfile "$root$where"/*.deb | tar -xO --wildcards './usr/src/*.tar.xz' |
        xz -dc | tar -x -C "$root$where" --strip-components=1 --wildcards '*/drivers/infiniband/sw/siw'
    rm -f "$root$where"/*.deb
    mend_siw "$root$where/drivers/infiniband/sw/siw/siw_cm.c"
    proc_inside
    inside make -s -C "/lib/modules/$version/build" "M=$where/drivers/infiniband/sw/siw" \
        CONFIG_RDMA_SIW=m modules
    mv "$root$where/drivers/infiniband/sw/siw/siw.ko" "$folder/siw.ko"
    rm -rf "${root:?}$where"
}

# The kernel's objtool looks its limits up. Where nothing may be mounted, as in many containers, a copy
# of them serves as well.
proc_inside() {
    mount -t proc proc "$root/proc" 2> /dev/null || mount --bind /proc "$root/proc" 2> /dev/null || {
        mkdir -p "$root/proc/self"
        cat /proc/self/limits > "$root/proc/self/limits"
    }
}

# What is mounted below the folder, the innermost first.
mounts_of_the_root() {
    awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/self/mounts | sort -r
}

finish() {
    local status=$? place
    while read -r place; do
        umount "$place" || umount -l "$place" || true
    done < <(mounts_of_the_root)
    exit "$status"
}

verb=$1 folder=$(realpath "$2") root=$(realpath "$2")/root
trap finish EXIT
trap 'exit 143' INT TERM HUP
umask 022
case $verb in
    root) make_root "$3" "$4" ;;
    siw) make_siw "$3" "$4" ;;
esac
