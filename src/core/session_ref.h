/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_ref.h - one 64-bit word through which a thread that does not own a session accesses it.
 *
 *    63..32 generation   31 FREE  30 OPEN  29 WRITABLE_WAIT  28 HANGUP  27 ASKED  26 ANSWERED  25 ANSWER
 *    24 REQUESTS  23 MOVING  22 ASKS_MOVE  21..17 users   16..0 messages accepted from other threads and without outcome yet
 *
 * A handle is checked and the session pinned in one compare-and-swap: the generation must match,
 * and while `users` or the message count is not zero, or a posted message (WRITABLE_WAIT, HANGUP, ANSWER,
 * REQUESTS) was not taken yet, the slot is not freed. So a stale handle can never reach the next session of the
 * slot, and a message that is in some mailbox always belongs to the session that lives.
 *
 * `users` covers a call from its check until it has signalled the wakeup, so that a loop is never
 * closed under a thread about to write to its descriptors.
 *
 * ANSWER marks a message on its way to the CM thread (the answer to a request, or the dial itself),
 * WRITABLE_WAIT, HANGUP, REQUESTS and ASKS_MOVE one on its way to the loop. From HANGUP on nothing new is accepted from any
 * thread; the loop clears OPEN with it.
 *
 * MOVING: its mailbox is being exchanged for another loop's (session/hand_over.c), and no thread comes in meanwhile.
 *
 * Owner: none; every access is atomic. Only the loop sets OPEN and FREE and moves the generation.
 */
#ifndef CORE_SESSION_REF_H
#define CORE_SESSION_REF_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint64_t session_ref;

#define SESSION_REF_FREE (1ull << 31)
#define SESSION_REF_OPEN (1ull << 30)
#define SESSION_REF_WRITABLE_WAIT (1ull << 29)
#define SESSION_REF_HANGUP (1ull << 28)
#define SESSION_REF_ASKED (1ull << 27)
#define SESSION_REF_ANSWERED (1ull << 26)
#define SESSION_REF_ANSWER (1ull << 25)
#define SESSION_REF_REQUESTS (1ull << 24)
#define SESSION_REF_MOVING (1ull << 23)
#define SESSION_REF_ASKS_MOVE (1ull << 22)
#define SESSION_REF_USER (1ull << 17)
#define SESSION_REF_USERS (0x1full << 17)
#define SESSION_REF_COUNT (SESSION_REF_USER - 1)
#define SESSION_REF_BUSY                                                                           \
    (SESSION_REF_WRITABLE_WAIT | SESSION_REF_HANGUP | SESSION_REF_ANSWER | SESSION_REF_REQUESTS |  \
     SESSION_REF_MOVING | SESSION_REF_ASKS_MOVE | SESSION_REF_USERS | SESSION_REF_COUNT)

static inline uint32_t session_ref_generation(uint64_t word) {
    return (uint32_t)(word >> 32);
}

/*
 * Pins the session if it is the one of this generation and all of `need` is set, and it is not hung up where
 * something is needed; `add` goes in with the pin. False: stale, or not in that state. session_ref_put() must
 * follow.
 */
static inline bool session_ref_tryget(session_ref *g, uint32_t generation, uint64_t need,
                                      uint64_t add) {
    uint64_t word = atomic_load_explicit(g, memory_order_relaxed);
    for (;;) {
        if (session_ref_generation(word) != generation || (word & SESSION_REF_FREE) ||
            (word & need) != need || (need && (word & SESSION_REF_HANGUP)))
            return false;
        if ((word & (SESSION_REF_MOVING | SESSION_REF_USERS)) >= SESSION_REF_USERS) {
            /* 31 threads inside at once, or one that lets none in: they are about to leave. */
            sched_yield();
            word = atomic_load_explicit(g, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(g, &word, word + add + SESSION_REF_USER,
                                                         memory_order_acq_rel,
                                                         memory_order_relaxed)) {
            return true;
        }
    }
}

static inline void session_ref_put(session_ref *g) {
    atomic_fetch_sub_explicit(g, SESSION_REF_USER, memory_order_release);
}

/* Sets a bit; true if this call was the one that set it. */
static inline bool session_ref_set(session_ref *g, uint64_t bit) {
    return !(atomic_fetch_or_explicit(g, bit, memory_order_acq_rel) & bit);
}

static inline void session_ref_clear(session_ref *g, uint64_t bit) {
    atomic_fetch_and_explicit(g, ~bit, memory_order_acq_rel);
}

static inline uint64_t session_ref_count(session_ref *g) {
    return atomic_load_explicit(g, memory_order_relaxed) & SESSION_REF_COUNT;
}

/* session_ref_count(), but above SESSION_REF_COUNT, and so above every window, where the session was hung up. */
static inline uint64_t session_ref_count_open(session_ref *g) {
    return atomic_load_explicit(g, memory_order_relaxed) & (SESSION_REF_COUNT | SESSION_REF_HANGUP);
}

static inline bool session_ref_hungup(session_ref *g) {
    return atomic_load_explicit(g, memory_order_relaxed) & SESSION_REF_HANGUP;
}

/* MOVING, if no thread is inside, and nothing is on its way to the loop: so many were accepted, and it has taken them. */
static inline bool session_ref_begin_move(session_ref *g, uint64_t taken) {
    uint64_t word = atomic_load_explicit(g, memory_order_acquire);
    return (word & SESSION_REF_BUSY) == taken &&
           atomic_compare_exchange_strong_explicit(g, &word, word | SESSION_REF_MOVING,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static inline void session_ref_end_move(session_ref *g) {
    atomic_fetch_and_explicit(g, ~SESSION_REF_MOVING, memory_order_release);
}

/* Frees the slot if no thread is inside and nothing is on its way: the next generation, FREE. */
static inline bool session_ref_tryfree(session_ref *g) {
    uint64_t word = atomic_load_explicit(g, memory_order_acquire);
    if (word & SESSION_REF_BUSY)
        return false;
    uint32_t next = session_ref_generation(word) + 1;
    uint64_t closed = (uint64_t)(next ? next : 1) << 32 | SESSION_REF_FREE;
    return atomic_compare_exchange_strong_explicit(g, &word, closed, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

#endif
