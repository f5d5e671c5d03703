/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * entry.h - one registration of application memory, and the state word with its pins.
 *
 * The word counts pins and hits together, so that a lookup changes one word and not two. No lookup finds a dead
 * registration any more, whatever table still names it: that is what ends it at once,
 * without waiting for any thread. The thread that takes away its last pin, or kills it without any, ends it.
 *
 * Entries are used again at once, also while a lookup that found one in an old table is
 * about to pin it: so the lookup checks the range afterwards, which is constant while the entry is pinned.
 *
 * Owner: the registration cache.
 */
#ifndef POOL_REGCACHE_ENTRY_H
#define POOL_REGCACHE_ENTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ibv_mr;

#define REGCACHE_ENTRY_PIN ((uint64_t)1)
#define REGCACHE_ENTRY_PINS_MAX ((uint64_t)1 << 27) /* this bit: so many, no more of them */
#define REGCACHE_ENTRY_FREE ((uint64_t)1 << 28)     /* not in use, or being ended */
#define REGCACHE_ENTRY_DEAD ((uint64_t)1 << 29)     /* ended with its last pin */
#define REGCACHE_ENTRY_USE ((uint64_t)UINT32_MAX)   /* all of these */
#define REGCACHE_ENTRY_HIT ((uint64_t)1 << 32)
#define REGCACHE_ENTRY_HITS_FULL ((uint64_t)1 << 48) /* so many are counted elsewhere */

struct regcache_entry {
    _Atomic uint64_t state;
    _Atomic uintptr_t start, end;
    struct ibv_mr *mr; /* the cache's `registering`; NULL: none any more */
    uint32_t lkey;
    _Atomic uint32_t used; /* the tick of the last hit */
} __attribute__((aligned(64)));

/* False: it is dead. *hits: to be counted elsewhere. */
static inline bool regcache_entry_pin(struct regcache_entry *reg, uint64_t *hits) {
    uint64_t state = atomic_load_explicit(&reg->state, memory_order_relaxed), next;
    do {
        if (state & (REGCACHE_ENTRY_DEAD | REGCACHE_ENTRY_FREE | REGCACHE_ENTRY_PINS_MAX))
            return false;
        next = state + REGCACHE_ENTRY_HIT + REGCACHE_ENTRY_PIN;
    } while (!atomic_compare_exchange_weak(&reg->state, &state, next & ~REGCACHE_ENTRY_HITS_FULL));
    *hits = (next & REGCACHE_ENTRY_HITS_FULL) / REGCACHE_ENTRY_HIT;
    return true;
}

/* True: that was the last pin of a dead one. */
static inline bool regcache_entry_unpin(struct regcache_entry *reg) {
    return (atomic_fetch_sub(&reg->state, REGCACHE_ENTRY_PIN) & REGCACHE_ENTRY_USE) ==
           (REGCACHE_ENTRY_DEAD | REGCACHE_ENTRY_PIN);
}

/* True: no thread has it pinned. */
static inline bool regcache_entry_kill(struct regcache_entry *reg) {
    return (atomic_fetch_or(&reg->state, REGCACHE_ENTRY_DEAD) & REGCACHE_ENTRY_USE) == 0;
}

/* For a dead one without pins: true for one caller only, which ends it. */
static inline bool regcache_entry_claim(struct regcache_entry *reg) {
    uint64_t state = atomic_load_explicit(&reg->state, memory_order_relaxed);
    do {
        if ((state & REGCACHE_ENTRY_USE) != REGCACHE_ENTRY_DEAD)
            return false;
    } while (!atomic_compare_exchange_weak(&reg->state, &state, state | REGCACHE_ENTRY_FREE));
    return true;
}

static inline bool regcache_entry_is(const struct regcache_entry *reg, uint64_t use) {
    return (atomic_load_explicit(&reg->state, memory_order_relaxed) & REGCACHE_ENTRY_USE) == use;
}

static inline uint64_t regcache_entry_hits(const struct regcache_entry *reg) {
    return atomic_load_explicit(&reg->state, memory_order_relaxed) / REGCACHE_ENTRY_HIT;
}

static inline uintptr_t regcache_entry_start(const struct regcache_entry *reg) {
    return atomic_load_explicit(&reg->start, memory_order_relaxed);
}

static inline uintptr_t regcache_entry_end(const struct regcache_entry *reg) {
    return atomic_load_explicit(&reg->end, memory_order_relaxed);
}

static inline bool regcache_entry_covers(const struct regcache_entry *reg, uintptr_t start,
                                         uintptr_t end) {
    return regcache_entry_start(reg) <= start && regcache_entry_end(reg) >= end;
}

/*
 * Pins one that was seen to cover a range, unless it is another registration's by now: *last, it died meanwhile
 * and this was its last pin.
 */
static inline bool regcache_entry_hold(struct regcache_entry *reg, uintptr_t start, uintptr_t end,
                                       uint64_t *hits, bool *last) {
    *last = false;
    if (!regcache_entry_pin(reg, hits))
        return false;
    if (regcache_entry_covers(reg, start, end)) /* now it stays as it is */
        return true;
    --*hits; /* that was none; may be below 0, as long as both are added up */
    *last = regcache_entry_unpin(reg);
    return false;
}

#endif
