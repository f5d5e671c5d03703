/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* assert.c - the end of a process in which an invariant does not hold. */
#include "common/assert.h"

#include <stdio.h>
#include <stdlib.h>

void assert_failed(const char *condition, const char *function) {
    fprintf(stderr, "sluice: assertion failed in %s(): %s\n", function, condition);
    abort();
}
