/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* condition.c - see condition.h. None of these calls fails: Linux has the clock, and the attributes need no memory. */
#include "common/condition.h"

#include <time.h>

void condition_init(pthread_cond_t *condition) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attr);
    pthread_condattr_destroy(&attr);
}
