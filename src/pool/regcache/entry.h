/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * entry.h - one registration of application memory, and the word that says who has it.
 *
 * The word counts pins and hits together, so that a lookup changes one word and not two. A dead
 * registration is found by nobody any more, whatever table still names it: that is what ends it at once,
 * without waiting for anybody. Who takes away its last pin, or kills it without any, ends it.
 *
 * Places of registrations are used again at once, also while a lookup that found one in an old table is
 * about to pin it: so who pins looks at the range afterwards, which is constant while it is pinned.
 *
 * Owner: the registration cache.
 */
#ifndef POOL_REGCACHE_ENTRY_H
#define POOL_REGCACHE_ENTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ibv_mr;

#define REG_PIN ((uint64_t)1)
#define REG_PINS_MAX ((uint64_t)1 << 27) /* this bit: so many, no more of them */
#define REG_FREE ((uint64_t)1 << 28)     /* not in use, or being ended */
#define REG_DEAD ((uint64_t)1 << 29)     /* ended with its last pin */
#define REG_USE ((uint64_t)UINT32_MAX)   /* all of these */
#define REG_HIT ((uint64_t)1 << 32)
#define REG_HITS_FULL ((uint64_t)1 << 48) /* so many are counted elsewhere */

struct reg {
    _Atomic uint64_t state;
    _Atomic uintptr_t start, end;
    struct ibv_mr *mr; /* the cache's `registering`; NULL: none any more */
    uint32_t lkey;
    _Atomic uint32_t used; /* the tick of the last hit */
} __attribute__((aligned(64)));

/* False: it is dead. *hits: to be counted elsewhere. */
static inline bool reg_pin(struct reg *reg, uint64_t *hits) {
    uint64_t state = atomic_load_explicit(&reg->state, memory_order_relaxed), next;
    do {
        if (state & (REG_DEAD | REG_FREE | REG_PINS_MAX))
            return false;
        next = state + REG_HIT + REG_PIN;
    } while (!atomic_compare_exchange_weak(&reg->state, &state, next & ~REG_HITS_FULL));
    *hits = (next & REG_HITS_FULL) / REG_HIT;
    return true;
}

/* True: that was the last pin of a dead one. */
static inline bool reg_unpin(struct reg *reg) {
    return (atomic_fetch_sub(&reg->state, REG_PIN) & REG_USE) == (REG_DEAD | REG_PIN);
}

/* True: nobody has it pinned. */
static inline bool reg_kill(struct reg *reg) {
    return (atomic_fetch_or(&reg->state, REG_DEAD) & REG_USE) == 0;
}

/* Whoever gets true ends a dead one without pins, nobody else does. */
static inline bool reg_claim(struct reg *reg) {
    uint64_t state = atomic_load_explicit(&reg->state, memory_order_relaxed);
    do {
        if ((state & REG_USE) != REG_DEAD)
            return false;
    } while (!atomic_compare_exchange_weak(&reg->state, &state, state | REG_FREE));
    return true;
}

static inline bool reg_is(const struct reg *reg, uint64_t use) {
    return (atomic_load_explicit(&reg->state, memory_order_relaxed) & REG_USE) == use;
}

static inline uint64_t reg_hits(const struct reg *reg) {
    return atomic_load_explicit(&reg->state, memory_order_relaxed) / REG_HIT;
}

static inline uintptr_t reg_start(const struct reg *reg) {
    return atomic_load_explicit(&reg->start, memory_order_relaxed);
}

static inline uintptr_t reg_end(const struct reg *reg) {
    return atomic_load_explicit(&reg->end, memory_order_relaxed);
}

static inline bool reg_covers(const struct reg *reg, uintptr_t start, uintptr_t end) {
    return reg_start(reg) <= start && reg_end(reg) >= end;
}

/*
 * Pins one that was seen to cover a range, unless it is another registration's by now: *last, it died meanwhile
 * and this was its last pin.
 */
static inline bool reg_hold(struct reg *reg, uintptr_t start, uintptr_t end, uint64_t *hits,
                            bool *last) {
    *last = false;
    if (!reg_pin(reg, hits))
        return false;
    if (reg_covers(reg, start, end)) /* now it stays as it is */
        return true;
    --*hits; /* that was none; may be below 0, as long as both are added up */
    *last = reg_unpin(reg);
    return false;
}

#endif
