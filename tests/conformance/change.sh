#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# change.sh - ibv_resize_cq and ibv_rereg_mr, which no program of the distribution calls, from an ordinary one.
set -uo pipefail
# shellcheck source=tests/conformance/util.sh
. "$(dirname "${BASH_SOURCE[0]}")/util.sh"
need timeout

cases() {
    one "$bin/../tests/conformance_change"
}
both cases
finish
