/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * short.c - with SLUICE_TEST_SHORT in the environment a test that exists in both modes runs in one of them: handlers,
 * whose threads sleep and are woken. tools/run-kernel-tests sets it where another run does all.
 */
#include "support/test.h"

#include <stdlib.h>

__attribute__((constructor)) static void leave_out(void) {
    if (getenv("SLUICE_TEST_SHORT"))
        cmocka_set_skip_filter("*/polled");
}
