/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * spinlock.c - waiting for a spin lock. Any thread.
 */
#include "soft/ipc/spinlock.h"

void soft_spin_wait(soft_spin *lock) {
    /* The holder may have been preempted on our CPU: give it away rather than wait for the tick. */
    for (unsigned tries = 0; !spin_try(lock); tries++) {
        if (tries < 64)
            __builtin_ia32_pause();
        else
            sched_yield();
    }
}
