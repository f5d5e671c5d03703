#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# instructions_test.sh - a message costs no more instructions than recorded, and no lock: bench/cost.
set -euo pipefail
[ -z "${SLUICE_SANITIZE:-}" ] || {
    echo "SKIPPED: A SANITIZER'S INSTRUCTIONS ARE NOT THE LIBRARY'S" >&2
    exit 77
}
bin=${SLUICE_BIN_DIR:?SLUICE_BIN_DIR is not set}
[ -x "$bin/../bench/lib-cost" ] || {
    echo "SKIPPED: BUILT WITHOUT THE BENCHMARKS (SLUICE_BENCH)" >&2
    exit 77
}
exec "$(dirname "$0")/../../bench/cost" --judged --bin "$bin/../bench"
