# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# kernel.sh - guests with a kernel of their own: fetching Debian's kernels, making an initramfs, and
# booting one in QEMU over a root file system: this machine's (stock), or one of a later Debian (new,
# siw), which kernel-root.sh makes. Sourced after common.sh, from the root of the checkout.
# docs/kernel.md explains it. Nothing here needs /dev/kvm; making the later root needs to be root.
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
KERNEL_WHY=''  # where kernel_need failed: what cannot be had

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
    [[ -s $out/vmlinux ]] || return
    mkdir -p "$out/lib/modules"
    mv "$modules" "$out/lib/modules/"
    rm -rf "$WORK/package"
    depmod -b "$out" "$(basename "$modules")"
}

kernel_size() { du -sh "$1" | cut -f 1; }

# Fetches and unpacks this release's kernel unless it is in the cache; sets KERNEL_DIR. False: it cannot
# be had.
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
        return
    fi
    part=$KERNEL_CACHE/part
    rm -rf "$part"
    mkdir -p "$part" "$WORK/deb"
    (cd "$WORK/deb" && kernel_apt apt-get -q download "$package" > "$WORK/apt.log" 2>&1) ||
        { kernel_private_lists && (cd "$WORK/deb" &&
            kernel_apt apt-get -q download "$package" > "$WORK/apt.log" 2>&1); } ||
        {
            cat "$WORK/apt.log" >&2
            rm -rf "$part"
            return 1
        }
    if ! kernel_unpack "$part" "$WORK"/deb/*.deb; then
        rm -rf "$part"
        die "the package $package does not contain a kernel as expected"
    fi
    rm -rf "$WORK/deb" "$KERNEL_DIR"
    mv "$part" "$KERNEL_DIR"
    note "kernel $version fetched into $KERNEL_CACHE ($(kernel_size "$KERNEL_DIR"))"
}

# ---- a later Debian -------------------------------------------------------------------------------

# The mirror that this machine's Debian comes from, as apt has it, whatever form its sources have.
kernel_mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2> /dev/null |
        awk -v name="$codename" '$2 == name && $3 == "main" { print $1; exit }'
}

# kernel_recipe VERB FOLDER ARGUMENT - runs kernel-root.sh, its log in FOLDER.log; the status is its.
kernel_recipe() {
    local verb=$1 folder=$2 argument=$3 own=() status=0 proxy=''
    # Where it may have a mount namespace of its own, nothing it mounts can outlive it.
    ! unshare --mount --propagation private true 2> /dev/null ||
        own=(unshare --mount --propagation private)
    [[ -n ${http_proxy:-} ]] || eval "$(apt-config shell proxy Acquire::http::Proxy)"
    spawn 2400 env ${proxy:+http_proxy="$proxy"} ${own[@]+"${own[@]}"} \
        bash tools/lib/kernel-root.sh "$verb" "$folder" "$argument" > "$WORK/recipe.log" 2>&1 < /dev/null
    reap "$CHILD" || status=$?
    if ((status != 0)); then
        note "the last lines of the recipe's log:"
        tail -n 15 "$WORK/recipe.log" | tr -d '\r' | sed 's/^/    | /' >&2
    fi
    return "$status"
}

# kernel_forget FOLDER... - removes what the recipe made. What may be mounted there is not touched.
kernel_forget() {
    local folder
    for folder in "$@"; do
        [[ -e $folder ]] || continue
        if grep -qF " $(realpath "$folder")/" /proc/self/mounts; then
            warn "something is mounted below $folder: left as it is"
            continue
        fi
        rm -rf --one-file-system "$folder"
    done
}

# Takes roots out of the cache that an older or a newer recipe made and nobody used for long.
kernel_forget_old() {
    local folder lock
    for folder in "$KERNEL_CACHE"/later-*; do
        [[ -d $folder && $folder != "$1" ]] || continue
        [[ -n $(find "$folder/used" -mtime +"$KERNEL_OLD_DAYS" 2> /dev/null) || $folder == *.part ]] || continue
        exec {lock}> "${folder%.part}.lock"
        ! flock -n "$lock" || kernel_forget "$folder"
        exec {lock}>&-
    done
}

# kernel_later KIND - the later root and its kernel, and siw.ko for `siw`, unless they are in the cache;
# sets KERNEL_ROOT and KERNEL_DIR. 1: it cannot be had. 2: it does not build. Two locks: until this process
# ends it holds FOLDER.lock with all others who use it, so that nobody takes it out of the cache; and one at
# a time holds FOLDER.make, only while something is looked for or made, so that runs do not wait for runs.
kernel_later() {
    local kind=$1 folder make status=0
    folder=$KERNEL_CACHE/later-$(sha256sum < tools/lib/kernel-root.sh | cut -c 1-12)
    KERNEL_ROOT=$folder/root KERNEL_DIR=$folder/kernel
    [[ -z ${later_lock:-} ]] || exec {later_lock}>&-
    exec {later_lock}> "$folder.lock" {make}> "$folder.make"
    flock -w 300 -s "$later_lock" || die "$folder.lock is held by another run for five minutes"
    kernel_locked "$make" "$folder.make"
    kernel_later_make "$kind" "$folder" || status=$?
    exec {make}>&-
    ((status != 0)) || kernel_forget_old "$folder"
    return "$status"
}

# kernel_later_make KIND FOLDER - what kernel_later does with both locks.
kernel_later_make() {
    local kind=$1 folder=$2 started=$SECONDS mirror version status=0
    if [[ ! -s $KERNEL_DIR/vmlinux ]]; then
        mirror=$(kernel_mirror)
        [[ -n $mirror ]] || { KERNEL_WHY="apt names no mirror of Debian"; return 1; }
        step "making the root of a later Debian from $mirror (once, some minutes)"
        kernel_forget "$folder.part" "$folder"
        mkdir -p "$folder.part/kernel"
        kernel_recipe root "$folder.part" "$mirror" || status=$?
        if ((status == 0)); then
            kernel_unpack "$folder.part/kernel" "$folder.part"/debs/*.deb || status=1
        fi
        if ((status != 0)); then
            kernel_forget "$folder.part"
            KERNEL_WHY="the root of a later Debian"
            return $((status == 77 ? 1 : 2))
        fi
        rm -rf "$folder.part/debs"
        mv "$folder.part" "$folder"
        note "made in $((SECONDS - started)) s: $folder ($(kernel_size "$folder"))"
    fi
    version=$(cat "$folder/version")
    if [[ $kind == siw && ! -s $KERNEL_DIR/lib/modules/$version/updates/siw.ko ]]; then
        started=$SECONDS
        step "building Soft-iWARP for the kernel $version (once)"
        kernel_recipe siw "$folder" "$version" || status=$?
        if ((status != 0)); then
            KERNEL_WHY="Soft-iWARP for $version"
            return $((status == 77 ? 1 : 2))
        fi
        mkdir -p "$KERNEL_DIR/lib/modules/$version/updates"
        mv "$folder/siw.ko" "$KERNEL_DIR/lib/modules/$version/updates/siw.ko"
        depmod -b "$KERNEL_DIR" "$version"
        note "built in $((SECONDS - started)) s"
    fi
    touch "$folder/used"
    kernel_initramfs "$kind" || return 2
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
    local kind=$1 tree=$WORK/tree init=tests/kernel/guest/init
    local version module parameters verb file rest name
    version=$(basename "$KERNEL_DIR"/lib/modules/*)
    KERNEL_INITRD=$KERNEL_DIR/initrd.$kind.$(cat tests/kernel/guest/modules.list "$init" tools/lib/kernel.sh \
        "$KERNEL_DIR/lib/modules/$version/modules.dep" | sha256sum | cut -c 1-12)
    if [[ -s $KERNEL_INITRD ]]; then
        touch "$KERNEL_INITRD"
        return
    fi
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,dev,proc,sys,root,modules}
    : > "$tree/modules/order"
    while read -r module parameters; do
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
            if [[ ${name%.ko} == "$module" ]]; then
                echo "$name $parameters"
            else
                echo "$name"
            fi >> "$tree/modules/order"
        done < <(modprobe -d "$KERNEL_DIR" -S "$version" --show-depends "$module")
    done < <(kernel_modules "$kind")
    install -m 755 "$(command -v busybox)" "$tree/bin/busybox"
    install -m 755 "$init" "$tree/init"
    (cd "$tree" && find . | cpio -o -H newc --quiet) > "$KERNEL_INITRD.part"
    mv "$KERNEL_INITRD.part" "$KERNEL_INITRD"
    rm -rf "$tree"
    find "$KERNEL_DIR" -maxdepth 1 -name 'initrd.*' -mtime +"$KERNEL_OLD_DAYS" -delete
}

# kernel_locked FD NAME - takes the lock, says whom it waits for, and waits no longer than anything in
# there may take.
kernel_locked() {
    flock -n "$1" && return
    note "another run writes into $KERNEL_CACHE: waiting for it"
    flock -w 3000 "$1" || die "$2 is held by another run for fifty minutes"
}

# kernel_need KIND - a kernel, an initramfs and a root. 1: something cannot be had, KERNEL_WHY says what.
# 2: something does not build.
kernel_need() {
    local lock status=0
    mkdir -p "$KERNEL_CACHE"
    if [[ $1 != stock ]]; then
        kernel_later "$1"
        return
    fi
    KERNEL_ROOT=/
    exec {lock}> "$KERNEL_CACHE/lock"
    kernel_locked "$lock" "$KERNEL_CACHE/lock"
    kernel_fetch || { KERNEL_WHY="the package of the kernel" status=1; }
    ((status != 0)) || kernel_initramfs stock
    exec {lock}>&-
    return "$status"
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
    printf 'SOURCE=%q\nBUILD=%q\nKERNEL=%q\nHOST=%q\n' "$source" "$build" "$kind" "$KERNEL_HOST" \
        > "$exchange/settings"
    install -m 644 tests/kernel/guest/run "$exchange/run"
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

# ---- Sluice in the later root -----------------------------------------------------------------------

# kernel_build TARGETS... - builds the programs (patterns) inside of KERNEL_ROOT with its own
# compiler, from a copy of the checkout: nothing is mounted for it. Sets KERNEL_BUILD, the build's path
# as the guest has it. False: it does not build.
kernel_build() {
    local home lock started=$SECONDS status=0
    home=/sluice/$(basename "$PWD")-$(sha256sum <<< "$PWD" | cut -c 1-12)
    KERNEL_BUILD=$home/build
    kernel_forget_builds "$home"
    mkdir -p "$KERNEL_ROOT$home"
    step "building Sluice in $KERNEL_ROOT"
    exec {lock}> "$KERNEL_ROOT$home.lock"
    kernel_locked "$lock" "$KERNEL_ROOT$home.lock"
    printf '%s\n' "$PWD" > "$KERNEL_ROOT$home/checkout"
    # The copy has the times of the originals: what did not change is not built again.
    rm -rf "${KERNEL_ROOT:?}$home/src"
    mkdir "$KERNEL_ROOT$home/src"
    tar -c --exclude=./build --exclude=./.git --exclude=./.cache . | tar -x -C "$KERNEL_ROOT$home/src"
    spawn 3600 chroot "$KERNEL_ROOT" env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 \
        sh -ec 'home=$1; shift; cd "$home/src"
            cmake -G Ninja -B "$home/build" -DCMAKE_BUILD_TYPE=Release -DSLUICE_BENCH=OFF .
            ninja -C "$home/build" -t cleandead # programs that are built elsewhere now, or nowhere
            wanted=""
            for target in $(ninja -C "$home/build" -t targets all |
                sed -n -E "s/^((bin|tests|examples)\/[^:\/]*): .*_EXECUTABLE_LINKER__.*/\1/p"); do
                for pattern; do
                    case ${target##*/} in $pattern) wanted="$wanted $target"; break ;; esac
                done
            done
            ninja -C "$home/build" -j "$(nproc)" $wanted' sh "$home" "$@" > "$WORK/build.log" 2>&1 < /dev/null
    reap "$CHILD" || status=$?
    exec {lock}>&-
    if ((status != 0)); then
        grep -A 20 -E 'error|FAILED|Error' "$WORK/build.log" | head -n 60 >&2 || tail -n 40 "$WORK/build.log" >&2
        return 1
    fi
    note "built in $((SECONDS - started)) s, with its libraries and programs $(kernel_size "$KERNEL_ROOT$home")"
}

# Builds of checkouts that are gone, or that nobody built for long.
kernel_forget_builds() {
    local folder lock
    for folder in "$KERNEL_ROOT"/sluice/*/; do
        folder=${folder%/}
        [[ -f $folder/checkout && $folder != "$KERNEL_ROOT$1" ]] || continue
        [[ ! -d $(cat "$folder/checkout") || -n $(find "$folder/checkout" -mtime +"$KERNEL_OLD_DAYS") ]] ||
            continue
        exec {lock}> "$folder.lock"
        ! flock -n "$lock" || rm -rf "$folder" "$folder.lock"
        exec {lock}>&-
    done
}
