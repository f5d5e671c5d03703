#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# kernels.sh - what tools/run-kernel-tests does where a package, a root or a kernel cannot be had, one way after
# the other, and which versions it asks for. apt, debootstrap, chroot and the like are stand-ins; no guest is
# booted. Making the later root needs to be root: without, those cases are left out.
set -euo pipefail
source=$(cd "${1:?the checkout}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CI http_proxy https_proxy
command -v xz > /dev/null || exit 77

mkdir -p "$work/tree/tests" "$work/bin" "$work/state" "$work/build/bin"
cp -R "$source/tools" "$work/tree/"
cp -R "$source/tests/kernel" "$work/tree/tests/"
cd "$work/tree"
export STATE=$work/state SLUICE_KERNEL_CACHE=$work/cache PATH=$work/bin:$PATH
table=tests/kernel/packages.list
xz -c "$(type -P true)" > "$work/kernel.xz" # an ELF file, as QEMU wants it

# ---- stand-ins ------------------------------------------------------------------------------------

# What is there, and what goes wrong, is in files of $STATE: `has` (PACKAGE VERSION, the last one is the newest),
# `archive` (URL DATE), and `no-WORD` for a command of that word that fails.
stand_in() { # NAME - its text on standard input
    { printf '#!/bin/bash\necho "%s $*" >> "$STATE/calls"\n' "$1" && cat; } > "$work/bin/$1"
    chmod +x "$work/bin/$1"
}
stand_in dpkg-query << 'END'
[[ $* != *Version* ]] || { awk '!/^linux-(image|source)/' "$STATE/has"; exit; }
[[ -e $STATE/no-packages ]] || echo installed
END
stand_in apt-get << 'END'
for word; do
    case $word in update | install | download | dist-upgrade) verb=$word ;; esac
done
[[ $* != *indextargets* ]] || { . /etc/os-release; echo "http://mirror.invalid/debian $VERSION_CODENAME main"; exit; }
[[ ! -e $STATE/no-$verb ]] || { echo "$verb: it is not to be had"; exit 100; }
[[ ! -e $STATE/once-$verb ]] || { rm "$STATE/once-$verb"; exit 100; }
case $verb in
    update) [[ ! -e $STATE/newer ]] || mv "$STATE/newer" "$STATE/has" ;;
    download) touch "${!#%%=*}.deb" ;;
esac
END
stand_in apt-cache << 'END'
name=${!#} version=${!#}
name=${name%%=*} version=${version#*=}
newest=$(awk -v name="$name" '$1 == name { print $2 }' "$STATE/has" | tail -n 1)
case $* in
    *policy*) echo "$name:"; echo "  Candidate: ${newest:-(none)}" ;;
    *depends*) echo "  Depends: ${name%-amd64}-9.9-amd64" ;;
    *show*) ! grep -qxF "$name $version" "$STATE/has" || echo "Depends: $name-9.9-amd64 (= $version)" ;;
esac
exit 0 # also for what it does not know
END
sed -i "s/\$name-9.9-amd64 (=/\${name%-amd64}-9.9-amd64 (=/" "$work/bin/apt-cache"
stand_in apt-helper << 'END'
url=${!#} url=${@: -2:1}
date=$(awk -v url="${url%/dists*}" '$1 == url { print $2 }' "$STATE/archive")
[[ -n $date ]] && echo "Date: $(date -u -d "${date//_/ }")" > "${!#}"
END
stand_in debootstrap << 'END'
[[ ! -e $STATE/no-debootstrap && "$*" != *"$(cat "$STATE/no-mirror" 2> /dev/null || echo none)"* ]] || exit 1
root=${@: -3:1}
mkdir -p "$root"/{etc/apt/preferences.d,usr/sbin,var/tmp,proc}
END
# In the root: the commands above, and two scripts by what they are for.
stand_in chroot << 'END'
root=$1
shift 3
while [[ $1 == *=* ]]; do shift; done
case "$*" in
    *'cd /var/tmp/debs'*) cd "$root/var/tmp/debs" && exec apt-get download linux-image ;;
    *'cd "$1"'*) cd "$root$5" && exec apt-get download "$6=$7" ;;
    *'ninja -C'*) cat "$STATE/build" >&2 2> /dev/null && exit 1
        exit 0 ;;
    make*) [[ ! -e $STATE/no-make ]] && touch "$root/var/tmp/siw/drivers/infiniband/sw/siw/siw.ko" ;;
    *) exec "$@" ;;
esac
END
stand_in dpkg << 'END'
[[ $1 == -x ]] || exec /usr/bin/dpkg "$@"
[[ ! -e $STATE/no-unpack ]] || exit 2
mkdir -p "$3/boot" "$3/lib/modules/9.9-amd64/kernel" && cp "$STATE/../kernel.xz" "$3/boot/vmlinuz-9.9"
[[ ! -e $STATE/no-room ]] || xz -dc "$3/boot/vmlinuz-9.9" | head -c 20000 | xz -c > "$3/half" &&
    [[ ! -e $3/half ]] || mv "$3/half" "$3/boot/vmlinuz-9.9"
END
stand_in dpkg-deb << 'END'
[[ $1 != -f ]] || { awk '$1 == "linux-source" { print $2 }' "$STATE/has"; exit; }
mkdir -p "$STATE/src/usr/src" "$STATE/src/linux/drivers/infiniband/sw/siw"
touch "$STATE/src/linux/drivers/infiniband/sw/siw/siw_cm.c"
tar -C "$STATE/src" -cJf "$STATE/src/usr/src/linux.tar.xz" linux && tar -C "$STATE/src" -c ./usr/src/linux.tar.xz
END
stand_in modprobe <<< 'echo builtin x'
stand_in depmod <<< 'touch "$2/lib/modules/$3/modules.dep"'
stand_in cpio <<< '[[ ! -e $STATE/no-cpio ]] && cat'
stand_in unshare <<< 'exit 1'
for name in mount umount busybox; do
    stand_in "$name" <<< 'exit 1'
done

# ---- a case ---------------------------------------------------------------------------------------

bad=0
fail() {
    printf 'FAILED: %s: %s\n' "$case" "$*" >&2
    sed 's/^/    | /' out >&2 || true
    bad=1
}
case_is() {
    case=$1
    rm -rf "$work/cache" "$STATE" out
    mkdir "$STATE"
    cat > "$table" << 'END'
# A comment.
stock linux-image-amd64 6.1-2
archive 20300102T030405Z
new linux-image-amd64 7.2-1
new linux-headers-amd64 7.2-1
new gcc 16-1
new libc6 2.43-1
siw linux-source 7.2-1
END
    printf 'linux-image-amd64 6.1-2\n' > "$STATE/has"
    printf '    case %s\n' "$1"
}
later() { # what the archive of the later Debian has
    printf '%s\n' 'linux-image-amd64 7.2-1' 'linux-headers-amd64 7.2-1' 'gcc 16-1' 'libc6 2.43-1' \
        'linux-source 7.2-1' > "$STATE/has"
    echo 'http://mirror.invalid/debian 2030-01-02_03:04:05' > "$STATE/archive"
}
run() { # ARGUMENTS... - leaves all it prints in `out` and its status in `status`
    status=0
    tools/run-kernel-tests "$@" > out 2>&1 < /dev/null || status=$?
}
says() { grep -qE -- "$1" out || fail "it does not say: $1"; }
says_not() { ! grep -qE -- "$1" out || fail "it says: $1"; }
called() { grep -qE -- "$1" "$STATE/calls" || fail "it did not call: $1"; }
is_ready() { # KIND
    run --prepare --kernel "$1"
    [[ $status == 0 ]] || fail "status $status"
    says "^prepared $1\$"
    says_not SKIPPED
}
is_skipped() { # KIND WHY - in capitals, and nothing has failed
    run --kernel "$1" --build "$work/build" --only none
    [[ $status == 77 ]] || fail "status $status, not 77"
    [[ $(tail -n 1 out) == '0 passed, 0 failed, 1 skipped' ]] || fail "its last line is \"$(tail -n 1 out)\""
    says "^SKIPPED: THE TESTS ON THE KERNEL \"${1^^}\" DID NOT RUN: .*${2^^}"
    says "^skipped  $1: .*$2"
    [[ -z $(find "$work/cache" -name '*.part' 2> /dev/null) ]] || fail "it leaves $(find "$work/cache" -name '*.part')"
}

# ---- this Debian's kernel ---------------------------------------------------------------------------

case_is the_judged_kernel_is_asked_for
echo 'linux-image-amd64 6.1-3' >> "$STATE/has"
is_ready stock
called 'apt-get .*download linux-image-9.9-amd64=6.1-2$'
says_not 'not as judged'
: > "$STATE/has" # and it is kept
touch "$STATE/no-download"
is_ready stock

case_is a_kernel_that_is_not_the_judged_one_is_named
echo 'linux-image-amd64 6.1-3' > "$STATE/has"
is_ready stock
[[ $(tail -n 3 out | head -n 1) == 'not as judged: stock: linux-image-amd64 is 6.1-3, judged was 6.1-2' ]] ||
    fail "not named before the last line"
run --record --kernel stock
grep -qx 'stock linux-image-amd64 6.1-3' "$table" && grep -qx 'siw linux-source 7.2-1' "$table" || fail "$(cat "$table")"
says_not '^not as judged'

case_is lists_that_are_older_than_the_table_are_brought_up_to_date
mv "$STATE/has" "$STATE/newer"
echo 'linux-image-amd64 6.1-1' > "$STATE/has"
is_ready stock
says_not 'not as judged'

case_is old_lists_are_used_without_a_network
echo 'linux-image-amd64 6.1-1' > "$STATE/has"
touch "$STATE/no-update"
is_ready stock
says 'linux-image-amd64 is 6.1-1, judged was 6.1-2'

for word in download unpack room; do
    case_is "a_kernel_is_skipped_without_$word"
    touch "$STATE/no-$word"
    is_skipped stock 'the package of the kernel is not to be had'
    rm "$STATE/no-$word"
    is_ready stock
done

case_is a_kernel_is_skipped_that_apt_does_not_know
: > "$STATE/has"
is_skipped stock 'the package of the kernel is not to be had'

case_is half_an_initramfs_is_none
touch "$STATE/no-cpio"
is_skipped stock 'initramfs cannot be made'
rm "$STATE/no-cpio"
is_ready stock

case_is a_cache_that_cannot_be_written_skips
: > "$work/cache"
is_skipped stock 'cannot be written'

case_is packages_that_are_missing_skip
touch "$STATE/no-packages" "$STATE/no-install"
is_skipped stock 'packages are missing'

# ---- a later Debian's root --------------------------------------------------------------------------

if ((EUID != 0)); then
    case_is without_root_the_later_root_is_skipped
    is_skipped new 'needs to be root'
    exit "$bad"
fi

case_is the_judged_versions_are_asked_for
later
is_ready new
says_not 'not as judged'
grep -qxF 'Pin: version 16-1' "$work"/cache/later-*/root/etc/apt/preferences.d/judged || fail "no preference for gcc"
called 'debootstrap .* http://mirror.invalid/debian '
: > "$STATE/calls"
is_ready new
! grep -q '^debootstrap ' "$STATE/calls" || fail "made twice"

case_is what_the_archive_does_not_keep_is_named
later
sed -i 's/^gcc .*/gcc 16-2/; /^libc6 /d' "$STATE/has"
for i in 1 2 3 4 5 6 7 8 9 10 11; do
    echo "other$i 1" >> "$STATE/has"
done
is_ready new
says '^not as judged: new: gcc is 16-2, judged was 16-1$'
says '^not as judged: new: libc6 is not there, judged was 2.43-1$'
says '^ +not as judged: new: other11 is 1, judged was none$'
says '^not as judged: 3 more, named above$'
run --record --kernel new
[[ $status == 0 ]] || fail "status $status"
: > "$STATE/calls"
is_ready new # the same root
says_not 'not as judged'
! grep -q '^debootstrap ' "$STATE/calls" || fail "made again"

case_is an_archive_that_moved_on_is_taken_as_it_was
later
past=http://snapshot.debian.org/archive/debian/20300102T090405Z
printf '%s\n' 'http://mirror.invalid/debian 2030-02-01_00:00:00' "$past 2030-01-02_03:04:05" > "$STATE/archive"
is_ready new
called "debootstrap .* $past "
grep -qx 20300102T030405Z "$work"/cache/later-*/archive || fail "of when it is"

case_is and_as_it_is_where_the_past_cannot_be_had
later
printf '%s\n' 'http://mirror.invalid/debian 2030-02-01_00:00:00' "$past 2030-01-02_03:04:05" > "$STATE/archive"
echo snapshot > "$STATE/no-mirror"
is_ready new
called 'debootstrap .* http://mirror.invalid/debian '

case_is versions_that_do_not_go_together_are_not_asked_for
later
touch "$STATE/once-dist-upgrade"
is_ready new
! grep -q gcc "$work"/cache/later-*/root/etc/apt/preferences.d/judged || fail "a preference for gcc"

for word in debootstrap update install download unpack room; do
    case_is "a_root_is_skipped_without_$word"
    later
    touch "$STATE/no-$word"
    is_skipped new 'the root of a later Debian cannot be made'
    rm "$STATE/no-$word"
    is_ready new
done

case_is without_the_packages_that_make_it_a_root_is_skipped
later
touch "$STATE/no-packages" "$STATE/no-install"
is_skipped new 'packages are missing'

for word in download make; do
    case_is "soft_iwarp_is_skipped_without_$word"
    later
    is_ready new
    touch "$STATE/no-$word"
    is_skipped siw 'Soft-iWARP for 9.9-amd64 cannot be made'
    rm "$STATE/no-$word"
    is_ready siw
done

case_is a_build_without_room_is_skipped_and_one_with_a_mistake_fails
later
echo 'cc: No space left on device' > "$STATE/build"
is_skipped new 'no room to build Sluice'
echo 'x.c:1: error: no such thing' > "$STATE/build"
run --kernel new
[[ $status == 1 ]] || fail "status $status, not 1"
says '^FAILED   new: Sluice does not build'

exit "$bad"
