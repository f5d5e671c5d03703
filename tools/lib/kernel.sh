# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# kernel.sh - guests with a kernel of their own: fetching Debian's kernels, making an initramfs, and
# booting one in QEMU over a root file system: this machine's (stock), or one of a later Debian (new,
# siw: kernel-later.sh). Sourced after common.sh, from the root of the checkout.
# docs/kernel.md explains it. Nothing here needs /dev/kvm; making the later root needs to be root.
# Callers ask whether a step went well, so that `set -e` does not hold in here: each step that can fail says so.
#
# The cache ($KERNEL_CACHE) is shared by all checkouts. A kernel has a folder there that is written
# under a lock and by rename, so that runs may start at the same time and may be stopped at any.

# shellcheck disable=SC2034 # used by the scripts that source this file
PACKAGES_KERNEL=(
    qemu-system-x86 busybox-static cpio kmod xz-utils zstd binutils
    iproute2 iputils-ping ibverbs-providers
)
# shellcheck disable=SC2034
PACKAGES_KERNEL_ROOT=(debootstrap debian-archive-keyring)

# shellcheck disable=SC2034
PACKAGES_FIGURES=(perftest)

KERNEL_CACHE=${SLUICE_KERNEL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/sluice-kernel}
KERNEL_OLD_DAYS=14 # what nobody used for so long is taken out of the cache

# Set by kernel_need:
KERNEL_DIR=''  # the kernel: vmlinux, lib/modules/, initrd.*
KERNEL_ROOT='' # the root file system of the guest, a folder of this machine
KERNEL_INITRD='' # of that guest
KERNEL_LATER='' # for stock, what a later librdmacm made: a program in a later root, or nothing
KERNEL_WHY=''  # where kernel_need or kernel_build failed: why

# shellcheck source=tools/lib/kernel-versions.sh
. tools/lib/kernel-versions.sh
# shellcheck source=tools/lib/kernel-later.sh
. tools/lib/kernel-later.sh

# ---- fetching -------------------------------------------------------------------------------------

# apt-get and apt-cache with the system's package lists, or, after kernel_private_lists, with lists of our
# own: those can be brought up to date without root. A network that says nothing ends it, too.
apt_options=(-o APT::Sandbox::User= -o Acquire::Retries=1)
kernel_apt() { timeout -k 5 300 "$1" "${apt_options[@]}" "${@:2}" < /dev/null; }

# Lists that could not be brought up to date and know nothing are not used.
kernel_private_lists() {
    local lists=$KERNEL_CACHE/apt before=("${apt_options[@]}")
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial" || return
    apt_options+=(-o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache")
    kernel_apt apt-get -q update > "$lists/log" 2>&1 || true
    kernel_package '' > /dev/null || apt_options=("${before[@]}")
}

# kernel_image NAME[=VERSION] - the package with the kernel that this one needs, or nothing where apt does not know it: of a
# version that the archive keeps no more apt-cache shows nothing, and does not fail.
kernel_image() {
    kernel_apt apt-cache show "$1" 2> /dev/null |
        sed -n 's/^Depends: .*\(linux-image-[0-9][^ ,]*\).*/\1/p' | head -n 1
}

# kernel_package JUDGED - "PACKAGE VERSION": the kernel of this Debian, of the judged version where the archive
# keeps it, else of the one that apt would install. False: apt knows none.
kernel_package() {
    local name=linux-image-amd64 version=$1 package=''
    [[ -z $version ]] || package=$(kernel_image "$name=$version")
    if [[ -z $package ]]; then
        version=$(kernel_apt apt-cache policy "$name" 2> /dev/null | sed -n 's/^ *Candidate: \([^(].*\)/\1/p')
        [[ -z $version ]] || package=$(kernel_image "$name=$version")
    fi
    [[ -n $package ]] && printf '%s %s\n' "$package" "$version"
}

# kernel_unpack FOLDER DEB... - takes the modules and the kernel out of packages. QEMU starts the ELF
# file inside the compressed image directly: decompressing it under emulation takes seconds.
kernel_unpack() {
    local out=$1 deb image modules magic offset
    shift
    rm -rf "$WORK/package"
    for deb in "$@"; do
        dpkg -x "$deb" "$WORK/package" || return
    done
    image=$(find "$WORK/package" -name 'vmlinuz*' -type f | head -n 1)
    modules=$(find "$WORK/package" -path '*/lib/modules/*/kernel' -prune -type d | head -n 1)
    modules=${modules%/kernel}
    [[ -n $image && -n $modules ]] || return
    for magic in '\xfd7zXZ\x00' '\x28\xb5\x2f\xfd'; do
        while read -r offset; do
            if [[ $magic == *7zXZ* ]]; then
                tail -c +$((offset + 1)) "$image" | xz -dc --single-stream
            else
                tail -c +$((offset + 1)) "$image" | zstd -dcq
            fi > "$out/vmlinux" 2> /dev/null || true # what follows the kernel is not compressed data
            [[ $(head -c 4 "$out/vmlinux" | tr -d '\0') != $'\x7fELF' ]] || break 2
        done < <(LC_ALL=C grep -obUaP "$magic" "$image" | LC_ALL=C cut -d : -f 1)
        rm -f "$out/vmlinux"
    done
    # The table of its sections is the last thing in it: a disk that was full is noticed there.
    [[ -s $out/vmlinux && -z $(readelf -S "$out/vmlinux" 2>&1 > /dev/null) ]] || return
    mkdir -p "$out/lib/modules" && mv "$modules" "$out/lib/modules/" || return
    rm -rf "$WORK/package"
    depmod -b "$out" "$(basename "$modules")"
}

kernel_size() { du -sh "$1" | cut -f 1; }

# kernel_download PACKAGE VERSION - into $WORK/deb.
kernel_download() {
    rm -rf "$WORK/deb"
    mkdir "$WORK/deb" && (cd "$WORK/deb" && kernel_apt apt-get -q download "$1=$2" > "$WORK/apt.log" 2>&1)
}

# kernel_fetch - the judged kernel of this release, or the one that there is, unless it is in the cache; sets
# KERNEL_DIR. False: it cannot be had.
kernel_fetch() {
    local judged found='' package version part=$KERNEL_CACHE/part fresh=0
    judged=$(kernel_judged_version stock linux-image-amd64)
    KERNEL_DIR=$KERNEL_CACHE/stock-$judged
    [[ -n $judged && -s $KERNEL_DIR/vmlinux ]] && return
    : > "$WORK/apt.log"
    while :; do
        found=$(kernel_package "$judged") || true
        read -r package version <<< "$found" || true
        # The system's lists may be older than what was judged.
        if [[ -n $found ]] && { ((fresh)) || ! dpkg --compare-versions "$version" lt "$judged"; }; then
            KERNEL_DIR=$KERNEL_CACHE/stock-$version
            [[ ! -s $KERNEL_DIR/vmlinux ]] || return 0
            ! kernel_download "$package" "$version" || break
        fi
        if ((fresh)); then
            cat "$WORK/apt.log" >&2
            return 1
        fi
        fresh=1
        kernel_private_lists || true
    done
    rm -rf "$part"
    if mkdir -p "$part" && kernel_unpack "$part" "$WORK"/deb/*.deb &&
        printf 'linux-image-amd64 %s\n' "$version" > "$part/versions" &&
        rm -rf "$KERNEL_DIR" && mv "$part" "$KERNEL_DIR"; then
        rm -rf "$WORK/deb"
        note "kernel $version fetched into $KERNEL_CACHE ($(kernel_size "$KERNEL_DIR"))"
        return 0
    fi
    rm -rf "$part" "$WORK/deb" "$WORK/package"
    warn "the package $package $version could not be unpacked into a kernel"
    return 1
}

# ---- initramfs ------------------------------------------------------------------------------------

# kernel_modules KIND - of modules.list, what that guest inserts, with parameters.
kernel_modules() {
    local name kernels rest
    while read -r name kernels rest; do
        [[ -n $name && $name != '#'* ]] || continue
        if [[ $kernels == kernels=* ]]; then
            [[ ,${kernels#*=}, == *",$1,"* ]] || continue
        else
            rest="$kernels${rest:+ $rest}"
        fi
        printf '%s %s\n' "$name" "$rest"
    done < tests/kernel/guest/modules.list
}

# kernel_initramfs KIND - unless there is one made of the same: sets KERNEL_INITRD. Uncompressed, and
# with uncompressed modules: emulation makes every decompression slow.
kernel_initramfs() {
    local kind=$1 tree=$WORK/tree init=tests/kernel/guest/init version
    version=$(basename "$KERNEL_DIR"/lib/modules/*)
    KERNEL_INITRD=$KERNEL_DIR/initrd.$kind.$(cat tests/kernel/guest/modules.list "$init" tools/lib/kernel.sh \
        "$KERNEL_DIR/lib/modules/$version/modules.dep" | sha256sum | cut -c 1-12)
    if [[ -s $KERNEL_INITRD ]]; then
        touch "$KERNEL_INITRD"
        return
    fi
    rm -rf "$tree" "$KERNEL_INITRD.part"
    mkdir -p "$tree"/{bin,dev,proc,sys,root,modules} && kernel_initramfs_modules "$kind" "$version" &&
        install -m 755 "$(command -v busybox)" "$tree/bin/busybox" && install -m 755 "$init" "$tree/init" &&
        (cd "$tree" && find . | cpio -o -H newc --quiet) > "$KERNEL_INITRD.part" &&
        mv "$KERNEL_INITRD.part" "$KERNEL_INITRD" || {
        rm -f "$KERNEL_INITRD.part"
        return 1
    }
    rm -rf "$tree"
    find "$KERNEL_DIR" -maxdepth 1 -name 'initrd.*' -mtime +"$KERNEL_OLD_DAYS" -delete
}

# kernel_initramfs_modules KIND VERSION - into the tree, with their order.
kernel_initramfs_modules() {
    local module parameters verb file rest name
    : > "$tree/modules/order" || return
    while read -r module parameters; do
        while read -r verb file rest; do
            [[ $verb == insmod ]] || continue # built in
            name=$(basename "${file%.[xz]*}")
            [[ ! -e $tree/modules/$name ]] || continue
            case $file in
                *.xz) xz -dc "$file" ;;
                *.zst) zstd -dcq "$file" ;;
                *) cat "$file" ;;
            esac > "$tree/modules/$name" && strip --strip-debug "$tree/modules/$name" || return
            if [[ ${name%.ko} == "$module" ]]; then
                echo "$name $parameters"
            else
                echo "$name"
            fi >> "$tree/modules/order" || return
        done < <(modprobe -d "$KERNEL_DIR" -S "$2" --show-depends "$module")
    done < <(kernel_modules "$1")
}

# kernel_locked FD NAME - takes the lock, says whom it waits for, and waits no longer than anything in
# there may take.
kernel_locked() {
    flock -n "$1" && return
    note "another run writes into $KERNEL_CACHE: waiting for it"
    flock -w 3000 "$1" || {
        warn "$2 is held by another run for fifty minutes"
        return 1
    }
}

# kernel_need KIND - a kernel, an initramfs and a root. False: they are not to be had here, KERNEL_WHY says
# what. Whatever it is (no network, no package, no room, a recipe that broke), the tests have not failed.
kernel_need() {
    local lock status=0
    KERNEL_WHY="$KERNEL_CACHE cannot be written"
    mkdir -p "$KERNEL_CACHE" || return
    if [[ $1 != stock ]]; then
        kernel_later "$1"
        return
    fi
    KERNEL_ROOT=/
    exec {lock}> "$KERNEL_CACHE/lock" && kernel_locked "$lock" "$KERNEL_CACHE/lock" || return
    KERNEL_WHY="the package of the kernel is not to be had"
    kernel_fetch || status=$?
    if ((status == 0)); then
        KERNEL_WHY="the kernel's initramfs cannot be made"
        touch "$KERNEL_DIR/used" && kernel_initramfs stock || status=$?
    fi
    exec {lock}>&-
    return "$status"
}

# kernel_versions KIND - the file with the versions of what kernel_need made.
kernel_versions() {
    case $1 in
        stock) echo "$KERNEL_DIR/versions" ;;
        new) echo "${KERNEL_DIR%/kernel}/versions" ;;
        siw) echo "${KERNEL_DIR%/kernel}/versions.siw" ;;
    esac
}

# ---- booting --------------------------------------------------------------------------------------

# As many CPUs as there are, two to four: more of them than the machine has wait for each other's locks
# while none of them runs.
KERNEL_CPUS=$(nproc)
KERNEL_CPUS=$((KERNEL_CPUS < 2 ? 2 : KERNEL_CPUS > 4 ? 4 : KERNEL_CPUS))
KERNEL_CPUS=${SLUICE_KERNEL_CPUS:-$KERNEL_CPUS}
KERNEL_MEGABYTES=2048

# kernel_share TAG FOLDER WRITABLE - QEMU's words for a folder of this machine seen by the guest.
kernel_share() {
    local words="local,path=${2//,/,,},mount_tag=$1,security_model=none,multidevs=remap"
    [[ $3 == writable ]] || words+=,readonly=on
    printf '%s' "$words"
}

# kernel_boot KIND SECONDS EXCHANGE SOURCE BUILD-HERE BUILD LINES - starts the guest as a child
# ($CHILD). What it tells on its second serial line goes to the fifo LINES, its console to
# EXCHANGE/console. BUILD is the path there of the folder BUILD-HERE. More words for QEMU: KERNEL_QEMU.
# KERNEL_HOST is `only`, or which of two guests it is: kernel_cables makes the words that join them.
KERNEL_QEMU=()
KERNEL_HOST=only
kernel_boot() {
    local kind=$1 seconds=$2 exchange=$3 source=$4 build_here=$5 build=$6 lines=$7
    printf 'SOURCE=%q\nBUILD=%q\nKERNEL=%q\nHOST=%q\nLATER=%q\n' "$source" "$build" "$kind" "$KERNEL_HOST" \
        "$KERNEL_LATER" > "$exchange/settings"
    install -m 644 tests/kernel/guest/{run,fabric} "$exchange/"
    # norandmaps: what was translated for one process serves the next one as well; starting a program
    # takes a quarter of the time.
    # maxcpus=1: the emulator does not see a patch of code that another CPU is just running in time; the
    # kernel patches most while it boots, and a boot of 7.x would die of it now and then. `run` switches
    # the others on.
    spawn "$seconds" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
        -machine q35 -accel tcg,thread=multi,tb-size=512 -cpu qemu64 \
        -smp "$KERNEL_CPUS" -m "$KERNEL_MEGABYTES" \
        -kernel "$KERNEL_DIR/vmlinux" -initrd "$KERNEL_INITRD" \
        -append "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr norandmaps no_timer_check \
tsc=reliable cryptomgr.notests audit=0 random.trust_cpu=on maxcpus=1" \
        -device virtio-rng-pci \
        -virtfs "$(kernel_share root "$KERNEL_ROOT" readonly)" \
        -virtfs "$(kernel_share source "$source" readonly)" \
        -virtfs "$(kernel_share build "$build_here" readonly)" \
        -virtfs "$(kernel_share exchange "$exchange" writable)" \
        ${KERNEL_QEMU[@]+"${KERNEL_QEMU[@]}"} \
        -serial "file:$exchange/console" -serial stdio < /dev/null > "$lines" 2> "$exchange/qemu"
}

# kernel_cables FOLDER - sets KERNEL_QEMU: two networks that the first guest and the second share, one
# below the RDMA devices and one for commands. The first one waits at two sockets in that folder, so that
# the second can be there, be gone and be back.
kernel_cables() {
    local name number=1 server=on
    KERNEL_QEMU=()
    [[ $KERNEL_HOST == first ]] || number=2 server=off
    for name in 77 78; do
        KERNEL_QEMU+=(-netdev "stream,id=net$name,server=$server,addr.type=unix,addr.path=${1//,/,,}/net$name"
            -device "virtio-net-pci,netdev=net$name,mac=52:54:00:$name:00:0$number,romfile=")
    done
}
