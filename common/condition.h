/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * condition.h - condition variables whose limits are times of the monotonic clock, which is never set.
 *
 * Owner: who has the memory; no other thread may use it yet.
 */
#ifndef COMMON_CONDITION_H
#define COMMON_CONDITION_H

#include <pthread.h>

void condition_init(pthread_cond_t *condition);

#endif
