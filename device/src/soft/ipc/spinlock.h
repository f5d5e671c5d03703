/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * spinlock.h - spin locks and fences of the data path, and their annotations for the thread sanitizer.
 *
 * No system call that may block is made with a spin lock held. The order of locks is in object/device.h.
 */
#ifndef SOFT_IPC_SPINLOCK_H
#define SOFT_IPC_SPINLOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/assert.h"

/* relaxed access to an atomic field, by the holder of its lock or as a hint without it */
#define ld(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define st(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* Full barrier; thread sanitizer knows no fences, a locked operation it knows. */
static inline void soft_fence(void) {
#ifdef __SANITIZE_THREAD__
    static _Atomic int word;
    atomic_fetch_add(&word, 0);
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    static _Atomic int word;
    atomic_fetch_add(&word, 0);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Order of stores among stores, of loads among loads: what thread sanitizer cannot see either. */
#ifdef __SANITIZE_THREAD__
#define soft_fence_release() atomic_signal_fence(memory_order_seq_cst)
#define soft_fence_acquire() atomic_signal_fence(memory_order_seq_cst)
#else
#define soft_fence_release() atomic_thread_fence(memory_order_release)
#define soft_fence_acquire() atomic_thread_fence(memory_order_acquire)
#endif

/*
 * Both ends of a ring may lie in one process, at two addresses: thread sanitizer cannot know that
 * they are the same words. These tell it, per QP number that is published to.
 */
#ifdef __SANITIZE_THREAD__
extern char soft_tsan_word[1024];
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define soft_tsan_publish(qpn) __tsan_release(&soft_tsan_word[(qpn) % 1024])
#define soft_tsan_observe(qpn) __tsan_acquire(&soft_tsan_word[(qpn) % 1024])
#else
#define soft_tsan_publish(qpn) ((void)(qpn))
#define soft_tsan_observe(qpn) ((void)(qpn))
#endif

/* ---- spin lock -------------------------------------------------------------------------------- */

typedef _Atomic uint32_t soft_spin;

static inline bool spin_try(soft_spin *lock) {
    return atomic_load_explicit(lock, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(lock, 1, memory_order_acquire) == 0;
}

/* Out of line: the data path shall need no stack for them. */
void soft_spin_wait(soft_spin *lock);
bool soft_spin_wait_briefly(soft_spin *lock); /* 50 us; false: it is still taken */

static inline void spin_lock(soft_spin *lock) {
    if (__builtin_expect(!spin_try(lock), 0))
        soft_spin_wait(lock);
}

static inline void spin_unlock(soft_spin *lock) {
    atomic_store_explicit(lock, 0, memory_order_release);
}

/* The caller holds it; only that some thread holds it can be checked. */
static inline void spin_assert_held(const soft_spin *lock) {
    ASSERT(atomic_load_explicit(lock, memory_order_relaxed) != 0);
    (void)lock;
}

#endif
