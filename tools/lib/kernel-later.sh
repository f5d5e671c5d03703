# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# kernel-later.sh - the guests that are newer than this machine: a root file system of a later Debian with its
# kernel, made by kernel-root.sh and kept in the cache, Soft-iWARP for that kernel, and Sluice built in that root.
# Sourced by kernel.sh.

# ---- root and kernel ------------------------------------------------------------------------------

# The mirror that this machine's Debian comes from, as apt has it, whatever form its sources have.
kernel_mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2> /dev/null |
        awk -v name="$codename" '$2 == name && $3 == "main" { print $1; exit }'
}

# kernel_recipe VERB FOLDER ARGUMENT... - runs kernel-root.sh, its log in $WORK/recipe.log; the status is its.
kernel_recipe() {
    local own=() status=0 proxy=''
    # Where it may have a mount namespace of its own, nothing it mounts can outlive it.
    ! unshare --mount --propagation private true 2> /dev/null ||
        own=(unshare --mount --propagation private)
    [[ -n ${http_proxy:-} ]] || eval "$(apt-config shell proxy Acquire::http::Proxy)"
    spawn 1800 env ${proxy:+http_proxy="$proxy"} ${own[@]+"${own[@]}"} \
        bash tools/lib/kernel-root.sh "$@" > "$WORK/recipe.log" 2>&1 < /dev/null
    reap "$CHILD" || status=$?
    if ((status != 0)); then
        note "the last lines of the recipe's log (status $status):"
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

# Takes out of the cache what an older or a newer recipe or table made and nobody used for long.
kernel_forget_old() {
    local folder lock
    for folder in "$KERNEL_CACHE"/later-* "$KERNEL_CACHE"/stock-*; do
        [[ -d $folder && $folder != "$1" ]] || continue
        [[ -n $(find "$folder/used" -mtime +"$KERNEL_OLD_DAYS" 2> /dev/null) || $folder == *.part ]] || continue
        exec {lock}> "${folder%.part}.lock" || continue
        ! flock -n "$lock" || kernel_forget "$folder"
        exec {lock}>&-
    done
}

# kernel_later KIND - the later root and its kernel, and siw.ko for `siw`, unless they are in the cache;
# sets KERNEL_ROOT and KERNEL_DIR. False: KERNEL_WHY says why not. Two locks: until this process
# ends it holds FOLDER.lock with all others who use it, so that nobody takes it out of the cache; and one at
# a time holds FOLDER.make, only while something is looked for or made, so that runs do not wait for runs.
kernel_later() {
    local kind=$1 folder make status=0
    folder=$KERNEL_CACHE/later-$(kernel_table_key)
    KERNEL_ROOT=$folder/root KERNEL_DIR=$folder/kernel
    KERNEL_WHY="$folder.lock is held by another run, or cannot be written"
    [[ -z ${later_lock:-} ]] || exec {later_lock}>&-
    exec {later_lock}> "$folder.lock" {make}> "$folder.make" || return
    flock -w 300 -s "$later_lock" && kernel_locked "$make" "$folder.make" || return
    kernel_later_make "$kind" "$folder" || status=$?
    exec {make}>&-
    ((status != 0)) || kernel_forget_old "$folder"
    return "$status"
}

# kernel_later_make KIND FOLDER - what kernel_later does with both locks.
kernel_later_make() {
    local kind=$1 folder=$2
    [[ -s $KERNEL_DIR/vmlinux ]] || kernel_make_root "$folder" || return
    [[ $kind != siw || -s $folder/versions.siw ]] || kernel_make_siw "$folder" || return
    KERNEL_WHY="the kernel's initramfs cannot be made"
    touch "$folder/used" && kernel_initramfs "$kind"
}

# kernel_make_root FOLDER - at once or not at all.
kernel_make_root() {
    local folder=$1 started=$SECONDS mirror
    mirror=$(kernel_mirror) || true
    KERNEL_WHY="apt names no mirror of Debian"
    [[ -n $mirror ]] || return
    step "making the root of a later Debian from $mirror (once, some minutes)"
    KERNEL_WHY="the root of a later Debian cannot be made"
    kernel_forget "$folder.part" "$folder"
    if mkdir -p "$folder.part/kernel" && kernel_judged new > "$folder.part/judged" &&
        kernel_recipe root "$folder.part" "$mirror" "$(kernel_judged_archive)" &&
        kernel_unpack "$folder.part/kernel" "$folder.part"/debs/*.deb &&
        rm -rf "$folder.part/debs" && mv "$folder.part" "$folder"; then
        note "made in $((SECONDS - started)) s: $folder ($(kernel_size "$folder"))"
        return 0
    fi
    kernel_forget "$folder.part"
    return 1
}

# kernel_rename FOLDER - the name of a root is made of the table: one that was recorded keeps its root, unless
# somebody else uses it.
kernel_rename() {
    local folder=$1 name lock
    name=$KERNEL_CACHE/later-$(kernel_table_key)
    [[ $name != "$folder" && ! -e $name ]] || return 0
    exec {later_lock}>&- # ours
    later_lock=''
    exec {lock}> "$folder.lock" || return
    if flock -n "$lock"; then
        mv "$folder" "$name"
    else
        note "$folder is in use: the next run makes another root"
    fi
    exec {lock}>&-
}

# kernel_make_siw FOLDER - the module, for the kernel of that root.
kernel_make_siw() {
    local folder=$1 started=$SECONDS version updates
    version=$(cat "$folder/version")
    updates=$KERNEL_DIR/lib/modules/$version/updates
    step "building Soft-iWARP for the kernel $version (once)"
    KERNEL_WHY="Soft-iWARP for $version cannot be made"
    rm -f "$folder/versions.siw"
    kernel_recipe siw "$folder" "$version" "$(kernel_judged_version siw linux-source)" || {
        rm -f "$folder/versions.siw.part"
        return 1
    }
    mkdir -p "$updates" && mv "$folder/siw.ko" "$updates/siw.ko" && depmod -b "$KERNEL_DIR" "$version" &&
        mv "$folder/versions.siw.part" "$folder/versions.siw" || return
    note "built in $((SECONDS - started)) s"
}

# ---- Sluice in the later root -----------------------------------------------------------------------

# kernel_build TARGETS... - builds the programs (patterns) inside of KERNEL_ROOT with its own
# compiler, from a copy of the checkout: nothing is mounted for it. Sets KERNEL_BUILD, the build's path
# as the guest has it. 1: it does not build. 2: there is no place for it, KERNEL_WHY says why.
kernel_build() {
    local home lock started=$SECONDS status=0
    home=/sluice/$(basename "$PWD")-$(sha256sum <<< "$PWD" | cut -c 1-12)
    KERNEL_BUILD=$home/build
    KERNEL_WHY="Sluice cannot be copied into $KERNEL_ROOT"
    kernel_forget_builds "$home"
    step "building Sluice in $KERNEL_ROOT"
    mkdir -p "$KERNEL_ROOT$home" && exec {lock}> "$KERNEL_ROOT$home.lock" &&
        kernel_locked "$lock" "$KERNEL_ROOT$home.lock" &&
        printf '%s\n' "$PWD" > "$KERNEL_ROOT$home/checkout" || return 2
    # The copy has the times of the originals: what did not change is not built again.
    rm -rf "${KERNEL_ROOT:?}$home/src"
    mkdir "$KERNEL_ROOT$home/src" &&
        tar -c --exclude=./build --exclude=./.git --exclude=./.cache . | tar -x -C "$KERNEL_ROOT$home/src" ||
        return 2
    spawn 3600 chroot "$KERNEL_ROOT" env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 \
        sh -ec 'home=$1; shift; cd "$home/src"
            cmake -G Ninja -B "$home/build" -DCMAKE_BUILD_TYPE=Release -DSLUICE_BENCH=OFF .
            ninja -C "$home/build" -t cleandead # programs that are built elsewhere now, or nowhere
            wanted=""
            for target in $(ninja -C "$home/build" -t targets all |
                sed -n -E "s/^((bin|tests|examples|lib(\/sluice-soft)?)\/[^:\/]*): .*_(EXECUTABLE|SHARED_LIBRARY)_LINKER__.*/\1/p"); do
                for pattern; do
                    case ${target##*/} in $pattern) wanted="$wanted $target"; break ;; esac
                done
            done
            ninja -C "$home/build" -j "$(nproc)" $wanted' sh "$home" "$@" > "$WORK/build.log" 2>&1 < /dev/null
    reap "$CHILD" || status=$?
    exec {lock}>&-
    if ((status != 0)); then
        if grep -q 'No space left on device' "$WORK/build.log"; then
            KERNEL_WHY="there is no room to build Sluice in $KERNEL_ROOT"
            return 2
        fi
        grep -A 20 -E 'error|FAILED|Error' "$WORK/build.log" | head -n 60 >&2 || tail -n 40 "$WORK/build.log" >&2
        return 1
    fi
    note "built in $((SECONDS - started)) s, with its libraries and programs $(kernel_size "$KERNEL_ROOT$home")"
}

# kernel_old_programs BUILD - what older headers made: a program of this machine's build, if there is one, and the
# libraries of it that the later root has in another version, for tests/kernel/old_headers.sh.
kernel_old_programs() {
    local program=$1/tests/kernel_wakeup_test old=$KERNEL_ROOT$KERNEL_BUILD/old library
    rm -rf "$old"
    [[ -x $program ]] || return 0
    mkdir "$old" && cp "$program" "$old/" || return
    while read -r library; do
        [[ -e $KERNEL_ROOT$library ]] || cp -L "$library" "$old/" || return
    done < <(ldd "$program" | grep -o '/[^ :]*\.so[^ :]*')
}

# kernel_later_program NAME - the other way round, for tests/kernel/later_library.sh: a program made in the later root,
# which a guest finds below its own root. Where there is such a root: none is made for it. Sets KERNEL_LATER.
kernel_later_program() {
    local here=("$KERNEL_DIR" "$KERNEL_ROOT" "$KERNEL_INITRD") KERNEL_BUILD=''
    KERNEL_LATER=''
    [[ $EUID == 0 && -s $KERNEL_CACHE/later-$(kernel_table_key)/kernel/vmlinux ]] || return 0
    if kernel_later new && kernel_build "$1"; then
        KERNEL_LATER="$(realpath "$KERNEL_ROOT") $KERNEL_BUILD/tests/$1"
    fi
    KERNEL_DIR=${here[0]} KERNEL_ROOT=${here[1]} KERNEL_INITRD=${here[2]}
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
