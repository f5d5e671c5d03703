/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * spinlock.c - waiting for a spin lock. Any thread.
 */
#include "soft/ipc/spinlock.h"

#include "soft/ipc/engine.h"

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
#define BRIEF_NS 50000u /* some hundred times what a thread that runs needs */

/* False: it was not taken in so many tries. */
static bool take_within(soft_spin *lock, unsigned tries) {
    for (unsigned n = 0; n < tries; n++) {
        if (spin_try(lock))
            return true;
        pause_briefly();
    }
    return false;
}

/* The holder may have been preempted on our CPU: give it away rather than wait for the tick. */
void soft_spin_wait(soft_spin *lock) {
    bool taken = take_within(lock, PAUSES);
    while (!taken) {
        sched_yield();
        taken = spin_try(lock);
    }
}

/* If the yield gave the CPU to other threads, the time is over behind it. */
bool soft_spin_wait_briefly(soft_spin *lock) {
    uint64_t since = soft_now_ns();
    bool taken = take_within(lock, PAUSES);
    while (!taken && soft_now_ns() - since < BRIEF_NS) {
        sched_yield();
        taken = take_within(lock, PAUSES);
    }
    return taken;
}
