# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# kernel.sh - a guest with a kernel of its own: fetching Debian's kernel, making the initramfs, and
# booting it in QEMU over this machine's file system. Sourced after common.sh, from the root of the
# checkout. docs/kernel.md explains it. Nothing here needs root or /dev/kvm.
#
# The cache ($KERNEL_CACHE, one folder for each kernel version) is written under a lock and by
# rename, so that two runs may start at the same time.

# shellcheck disable=SC2034 # used by the scripts that source this file
PACKAGES_KERNEL=(
    qemu-system-x86 busybox-static cpio kmod xz-utils zstd binutils
    iproute2 iputils-ping ibverbs-providers
)

# shellcheck disable=SC2034
PACKAGES_FIGURES=(perftest)

KERNEL_CACHE=${SLUICE_KERNEL_CACHE:-$PWD/build/kernel}
KERNEL_DIR='' # set by kernel_need: vmlinux, modules/, initrd

# ---- fetching -------------------------------------------------------------------------------------

# apt-get and apt-cache with the system's package lists, or, once `apt_private` is set, with lists of
# our own: those can be brought up to date without root.
apt_options=(-o APT::Sandbox::User=)
kernel_apt() { "$1" "${apt_options[@]}" "${@:2}" < /dev/null; }

kernel_private_lists() {
    local lists=$KERNEL_CACHE/apt
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    apt_options+=(-o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache")
    kernel_apt apt-get -q update > "$lists/log" 2>&1
}

# The package of the kernel that this Debian runs.
kernel_package() {
    kernel_apt apt-cache depends linux-image-amd64 2> /dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | sort -V | tail -n 1
}

# kernel_unpack DEB FOLDER - takes the modules and the kernel out of a package. QEMU starts the ELF
# file inside the compressed image directly: decompressing it under emulation takes seconds.
kernel_unpack() {
    local deb=$1 out=$2 image modules magic offset
    dpkg -x "$deb" "$WORK/package" || return
    image=$(find "$WORK/package/boot" -name 'vmlinuz-*' -type f | head -n 1)
    modules=$(find "$WORK/package" -path '*/lib/modules/*' -prune -type d | head -n 1)
    [[ -n $image && -n $modules ]] || return
    for magic in '\xfd7zXZ\x00' '\x28\xb5\x2f\xfd'; do
        while IFS=: read -r offset _; do
            if [[ $magic == *7zXZ* ]]; then
                tail -c +$((offset + 1)) "$image" | xz -dc --single-stream
            else
                tail -c +$((offset + 1)) "$image" | zstd -dcq
            fi > "$out/vmlinux" 2> /dev/null || true # what follows the kernel is not compressed data
            [[ $(head -c 4 "$out/vmlinux" | tr -d '\0') != $'\x7fELF' ]] || break 2
        done < <(LC_ALL=C grep -obUaP "$magic" "$image")
        rm -f "$out/vmlinux"
    done
    [[ -s $out/vmlinux ]] || return
    mkdir -p "$out/lib/modules"
    mv "$modules" "$out/lib/modules/"
    rm -rf "$WORK/package"
    depmod -b "$out" "$(basename "$modules")"
}

# Fetches and unpacks the kernel unless it is in the cache; sets KERNEL_DIR. False: it cannot be had.
kernel_fetch() {
    local package version part
    package=$(kernel_package)
    if [[ -z $package ]]; then
        kernel_private_lists || true
        package=$(kernel_package)
    fi
    [[ -n $package ]] || return
    version=${package#linux-image-}
    KERNEL_DIR=$KERNEL_CACHE/$version
    if [[ -s $KERNEL_DIR/vmlinux ]]; then
        note "kernel $version is in $KERNEL_CACHE"
        return
    fi
    part=$KERNEL_CACHE/part.$$
    mkdir -p "$part" "$WORK/deb"
    (cd "$WORK/deb" && kernel_apt apt-get -q download "$package" > "$WORK/apt.log" 2>&1) ||
        { kernel_private_lists && (cd "$WORK/deb" &&
            kernel_apt apt-get -q download "$package" > "$WORK/apt.log" 2>&1); } ||
        { cat "$WORK/apt.log" >&2; rm -rf "$part"; return 1; }
    if ! kernel_unpack "$WORK"/deb/*.deb "$part"; then
        rm -rf "$part"
        die "the package $package does not contain a kernel as expected"
    fi
    rm -rf "$WORK/deb" "$KERNEL_DIR"
    mv "$part" "$KERNEL_DIR"
    note "kernel $version fetched into $KERNEL_CACHE"
}

# ---- initramfs ------------------------------------------------------------------------------------

# Uncompressed, and with uncompressed modules: emulation makes every decompression slow.
kernel_initramfs() {
    local tree=$WORK/tree list=tests/kernel/guest/modules.list init=tests/kernel/guest/init
    local version module verb file rest name
    version=$(basename "$KERNEL_DIR"/lib/modules/*)
    if [[ -s $KERNEL_DIR/initrd && $KERNEL_DIR/initrd -nt $list && $KERNEL_DIR/initrd -nt $init &&
        $KERNEL_DIR/initrd -nt tools/lib/kernel.sh ]]; then
        return
    fi
    mkdir -p "$tree"/{bin,dev,proc,sys,root,modules}
    : > "$tree/modules/order"
    while read -r module; do
        [[ -n $module && $module != '#'* ]] || continue
        while read -r verb file rest; do
            [[ $verb == insmod ]] || continue # built in
            name=$(basename "${file%.[xz]*}")
            [[ ! -e $tree/modules/$name ]] || continue
            case $file in
                *.xz) xz -dc "$file" ;;
                *.zst) zstd -dcq "$file" ;;
                *) cat "$file" ;;
            esac > "$tree/modules/$name"
            strip --strip-debug "$tree/modules/$name"
            echo "$name" >> "$tree/modules/order"
        done < <(modprobe -d "$KERNEL_DIR" -S "$version" --show-depends "$module")
    done < "$list"
    install -m 755 "$(command -v busybox)" "$tree/bin/busybox"
    install -m 755 "$init" "$tree/init"
    (cd "$tree" && find . | cpio -o -H newc --quiet) > "$WORK/initrd"
    mv "$WORK/initrd" "$KERNEL_DIR/initrd"
    rm -rf "$tree"
}

# kernel_need - a kernel and an initramfs in KERNEL_DIR. False: no kernel to be had.
kernel_need() {
    local lock
    mkdir -p "$KERNEL_CACHE"
    exec {lock}> "$KERNEL_CACHE/lock"
    flock -w 300 "$lock" || die "another run holds $KERNEL_CACHE/lock for five minutes"
    kernel_fetch || { exec {lock}>&-; return 1; }
    kernel_initramfs
    exec {lock}>&-
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

# kernel_boot SECONDS EXCHANGE SOURCE BUILD LINES - starts the guest as a child ($CHILD). What it
# tells on its second serial line goes to the fifo LINES, its console to EXCHANGE/console.
kernel_boot() {
    local seconds=$1 exchange=$2 source=$3 build=$4 lines=$5
    printf 'SOURCE=%q\nBUILD=%q\n' "$source" "$build" > "$exchange/settings"
    install -m 644 tests/kernel/guest/run "$exchange/run"
    # norandmaps: what was translated for one process serves the next one as well; starting a program
    # takes a quarter of the time.
    spawn "$seconds" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
        -machine q35 -accel tcg,thread=multi,tb-size=512 -cpu qemu64 \
        -smp "$KERNEL_CPUS" -m "$KERNEL_MEGABYTES" \
        -kernel "$KERNEL_DIR/vmlinux" -initrd "$KERNEL_DIR/initrd" \
        -append "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr norandmaps no_timer_check \
tsc=reliable cryptomgr.notests audit=0 random.trust_cpu=on" \
        -device virtio-rng-pci \
        -virtfs "$(kernel_share root / readonly)" \
        -virtfs "$(kernel_share source "$source" readonly)" \
        -virtfs "$(kernel_share build "$build" readonly)" \
        -virtfs "$(kernel_share exchange "$exchange" writable)" \
        -serial "file:$exchange/console" -serial stdio < /dev/null > "$lines" 2> "$exchange/qemu"
}
