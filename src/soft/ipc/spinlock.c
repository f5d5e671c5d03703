/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * spinlock.c - waiting for a spin lock. Any thread.
 */
#include "soft/ipc/spinlock.h"

#include <limits.h>

#ifdef __SANITIZE_THREAD__
char soft_tsan_word[1024];
#endif

/* Leaves the core to the other hardware thread, for some ten cycles. */
static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* the yield instruction does nothing on most of them */
#else
    __asm__ volatile("" ::: "memory");
#endif
}

#define PAUSES 64u
#define YIELDS 4u

/* False: it was not taken in so many tries. */
static bool take_within(soft_spin *lock, unsigned tries) {
    /* The holder may have been preempted on our CPU: give it away rather than wait for the tick. */
    for (unsigned n = 0; n < tries; n++) {
        if (spin_try(lock))
            return true;
        if (n < PAUSES)
            pause_briefly();
        else
            sched_yield();
    }
    return false;
}

void soft_spin_wait(soft_spin *lock) {
    while (!take_within(lock, UINT_MAX))
        ;
}

bool soft_spin_wait_briefly(soft_spin *lock) {
    return take_within(lock, PAUSES + YIELDS);
}
