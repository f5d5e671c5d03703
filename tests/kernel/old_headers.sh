#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# old_headers.sh - what older headers made (kernel_old_programs of tools/lib/kernel-later.sh), on a later kernel with the later
# librdmacm: calls that the headers did not have are found all the same, and every wake is a user event.
set -euo pipefail
old=$SLUICE_BIN_DIR/../old
[[ -x $old/kernel_wakeup_test ]] || {
    echo "this machine had no build in build/release: nothing that older headers made"
    exit 77
}
LD_LIBRARY_PATH=$old exec "$old/kernel_wakeup_test"
