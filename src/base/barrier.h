/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * barrier.h - a full memory barrier on every thread of the process, so that the side that runs often
 * can do without one. Where the kernel cannot, barrier_needed is true and that side fences itself.
 *
 * Any thread.
 */
#ifndef BASE_BARRIER_H
#define BASE_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>

#define BARRIER_PAUSE_NS                                                                           \
    1000000 /* the first thread that finds membarrier() gone waits; later ones wait with it */

extern _Atomic bool barrier_needed; /* from barrier_init() on it can only become true */

void barrier_init(void); /* before any use; as often as one likes */
/* When it returns, every thread has passed a full barrier after the call began. */
void barrier_everywhere(void);

/* The side that runs often, between its store and its load. */
static inline void barrier_here(void) {
    if (__builtin_expect(atomic_load_explicit(&barrier_needed, memory_order_relaxed), 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
}

#endif
