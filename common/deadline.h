/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * deadline.h - a point of time as the timeout of poll(2) and epoll_wait(2).
 *
 * Pure, any thread.
 */
#ifndef COMMON_DEADLINE_H
#define COMMON_DEADLINE_H

#include <stdint.h>

#define DEADLINE_NEVER UINT64_MAX
#define DEADLINE_MS_MAX                                                                            \
    3600000 /* an hour: after that a thread may look again, and it fits an int */

/* Milliseconds from now_ns to due_ns, rounded up, so that it is not too early; -1: for ever; 0: it is due. */
static inline int deadline_timeout_ms(uint64_t due_ns, uint64_t now_ns) {
    if (due_ns == DEADLINE_NEVER)
        return -1;
    if (due_ns <= now_ns)
        return 0;
    uint64_t ms = (due_ns - now_ns - 1) / 1000000 + 1;
    return ms > DEADLINE_MS_MAX ? DEADLINE_MS_MAX : (int)ms;
}

#endif
