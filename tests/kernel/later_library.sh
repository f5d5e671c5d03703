#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# later_library.sh - what later headers made (kernel_later_program of tools/lib/kernel-later.sh), with the later librdmacm and
# libibverbs, on a kernel that takes no user events: the call is there and says EINVAL, and every wake is the eventfd's.
set -euo pipefail
[[ -n ${KERNEL_LATER:-} ]] || {
    echo "no root of a later Debian in the cache: nothing that a later library made"
    exit 77
}
read -r root program <<< "$KERNEL_LATER"
shared=(/dev /proc /sys /tmp /run /etc/libibverbs.d /etc/hosts)
undo() {
    local i
    for ((i = ${#shared[@]} - 1; i >= 0; i--)); do
        ! mountpoint -q "$root${shared[i]}" || umount "$root${shared[i]}"
    done
}
trap undo EXIT
for place in "${shared[@]}"; do
    mount --bind "$place" "$root$place"
done
chroot "$root" "$program" 2>&1 | tee /tmp/output
grep -q 'rdma_write_cm_event: is in librdmacm, is not in the kernel' /tmp/output || {
    echo "FAILED: this is not a later library on an earlier kernel"
    exit 1
}
