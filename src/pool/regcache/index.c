/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * index.c - tables that are written while nobody sees them, and the thread that knows when.
 *
 * `version` counts what was shown. A table that is shown no more has the version that took its place.
 * `passed` is a version for which a grace period began after it was shown, and is over: what was not shown
 * from it on, nobody looks at. The seal of that is liburcu's; the thread sanitizer is told of it.
 */
#define _GNU_SOURCE
#include "base/sanitize.h"

/*
 * Entering and leaving a read-side section inline instead of by a call: liburcu marks both as short enough
 * (under ten lines, LGPL section 5) to be compiled into code of any licence. Nothing else of it is used so.
 * It aligns its own records less than it says, which the sanitizer for undefined behaviour would tell.
 */
#ifndef SANITIZE_ADDRESS
#define _LGPL_SOURCE
#endif
#include "pool/regcache/index.h"

#include <stdlib.h>
#include <string.h>
#include <urcu/urcu-bp.h>

#include "base/thread.h"

/* ---- lookups ------------------------------------------------------------------------------------ */

static struct reg *search(struct regtable *table, const struct regtable_shown *shown,
                          uintptr_t start, uintptr_t end, uint64_t *hits, bool *last) {
    uint32_t low = 0, high = shown->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (shown->end[middle] <= start)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == shown->count || shown->end[low] < end)
        return NULL;
    struct reg *reg = &table->places[shown->place[low]];
    return reg_covers(reg, start, end) && reg_hold(reg, start, end, hits, last) ? reg : NULL;
}

struct reg *regtable_look(struct regtable *table, uintptr_t start, uintptr_t end, bool *locked,
                          uint64_t *hits) {
    bool last = false;
    urcu_bp_read_lock();
    const struct regtable_shown *shown = atomic_load_explicit(&table->shown, memory_order_acquire);
    struct reg *reg = shown ? search(table, shown, start, end, hits, &last) : NULL;
    *locked = !shown;
    SANITIZE_RELEASE(&table->passed); /* to the thread that waits for grace periods */
    urcu_bp_read_unlock();
    if (__builtin_expect(last, 0)) {
        pthread_mutex_lock(&table->lock);
        regtable_leave(table);
        pthread_mutex_unlock(&table->lock);
    }
    return reg;
}

struct reg *regtable_look_locked(struct regtable *table, uintptr_t start, uintptr_t end,
                                 uint64_t *hits) {
    pthread_mutex_lock(&table->lock);
    struct reg *reg = regtable_at(table, regtable_find(table, start));
    if (reg && !(reg_covers(reg, start, end) && reg_pin(reg, hits)))
        reg = NULL;
    pthread_mutex_unlock(&table->lock);
    return reg;
}

/* ---- the order: the lock ------------------------------------------------------------------------ */

uint32_t regtable_find(const struct regtable *table, uintptr_t addr) {
    uint32_t low = 0, high = table->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (reg_end(&table->places[table->order[middle]]) <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct reg *regtable_at(struct regtable *table, uint32_t i) {
    return i < table->count ? &table->places[table->order[i]] : NULL;
}

void regtable_widen(struct regtable *table, uintptr_t *start, uintptr_t *end, uint64_t most) {
    uint32_t i = regtable_find(table, *start > 0 ? *start - 1 : 0);
    uintptr_t low = *start, high = *end;
    for (struct reg *reg; (reg = regtable_at(table, i)) != NULL && reg_start(reg) <= high; i++) {
        low = reg_start(reg) < low ? reg_start(reg) : low;
        high = reg_end(reg) > high ? reg_end(reg) : high;
    }
    if (high - low <= most) {
        *start = low;
        *end = high;
    }
}

uint32_t regtable_oldest(const struct regtable *table, uint32_t tick) {
    uint32_t best = table->count, best_age = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct reg *reg = &table->places[table->order[i]];
        uint32_t age = tick - atomic_load_explicit(&reg->used, memory_order_relaxed);
        if (reg_is(reg, 0) && (best == table->count || age > best_age)) {
            best_age = age;
            best = i;
        }
    }
    return best;
}

bool regtable_unlink(struct regtable *table, uint32_t i) {
    struct reg *reg = regtable_at(table, i);
    memmove(&table->order[i], &table->order[i + 1],
            (table->count - i - 1) * sizeof table->order[0]);
    table->count--;
    return reg_kill(reg);
}

void regtable_link(struct regtable *table, struct reg *reg) {
    uint32_t at = regtable_find(table, reg_start(reg));
    memmove(&table->order[at + 1], &table->order[at], (table->count - at) * sizeof table->order[0]);
    table->order[at] = (uint16_t)(reg - table->places);
    table->count++;
}

struct reg *regtable_take(struct regtable *table) {
    struct reg *reg = &table->places[table->unused[--table->unused_count]];
    atomic_store(&reg->state, REG_DEAD | REG_FREE);
    return reg;
}

void regtable_give(struct regtable *table, struct reg *reg) {
    table->unused[table->unused_count++] = (uint16_t)(reg - table->places);
    atomic_store(&reg->state, REG_FREE);
}

/* ---- what is shown: the lock -------------------------------------------------------------------- */

static void want_grace(struct regtable *table) {
    if (!table->wanted) {
        table->wanted = true;
        pthread_cond_signal(&table->wake);
    }
}

/* A table nobody looks at, and how many there are. */
static struct regtable_shown *spare(struct regtable *table, uint32_t *count) {
    struct regtable_shown *found = NULL;
    const struct regtable_shown *shown = atomic_load_explicit(&table->shown, memory_order_relaxed);
    *count = 0;
    for (uint32_t i = 0; i < REGTABLE_TABLES; i++)
        if (&table->tables[i] != shown && table->tables[i].retired <= table->passed) {
            found = &table->tables[i];
            ++*count;
        }
    return found;
}

void regtable_show(struct regtable *table) {
    uint32_t count;
    struct regtable_shown *before = atomic_load_explicit(&table->shown, memory_order_relaxed);
    struct regtable_shown *next = spare(table, &count);
    if (next) {
        next->count = table->count;
        memcpy(next->place, table->order, table->count * sizeof table->order[0]);
        for (uint32_t i = 0; i < table->count; i++)
            next->end[i] = reg_end(&table->places[table->order[i]]);
    }
    atomic_store_explicit(&table->shown, next, memory_order_release);
    table->version++;
    if (before)
        before->retired = table->version;
    if (count <= REGTABLE_TABLES / 2) /* before there is none */
        want_grace(table);
}

struct regtable_shown *regtable_withdraw(struct regtable *table) {
    return atomic_exchange(&table->shown, NULL);
}

void regtable_restore(struct regtable *table, struct regtable_shown *shown) {
    atomic_store_explicit(&table->shown, shown, memory_order_release);
}

void regtable_leave(struct regtable *table) {
    atomic_store(&table->left, true);
    pthread_cond_signal(&table->wake);
}

/* ---- grace periods ------------------------------------------------------------------------------ */

static void *grace_main(void *arg) {
    struct regtable *table = arg;
    pthread_mutex_lock(&table->lock);
    for (;;) {
        while (!table->wanted && !table->stop && !atomic_load(&table->left))
            pthread_cond_wait(&table->wake, &table->lock);
        if (table->stop)
            break;
        if (atomic_exchange(&table->left, false)) {
            pthread_mutex_unlock(&table->lock);
            table->reap(table->reap_arg);
            pthread_mutex_lock(&table->lock);
            continue;
        }
        table->wanted = false;
        uint64_t version = table->version;
        pthread_mutex_unlock(&table->lock);
        urcu_bp_synchronize_rcu();
        SANITIZE_ACQUIRE(&table->passed);
        pthread_mutex_lock(&table->lock);
        table->passed = version;
        if (!atomic_load_explicit(&table->shown, memory_order_relaxed))
            regtable_show(table);
        pthread_cond_broadcast(&table->settled);
    }
    pthread_mutex_unlock(&table->lock);
    return NULL;
}

void regtable_settle(struct regtable *table) {
    pthread_mutex_lock(&table->lock);
    uint64_t version = table->version;
    while (table->passed < version) {
        want_grace(table);
        pthread_cond_wait(&table->settled, &table->lock);
    }
    pthread_mutex_unlock(&table->lock);
}

bool regtable_open(struct regtable *table) {
    *table = (struct regtable){.unused_count = REGTABLE_ENTRIES};
    table->places = aligned_alloc(_Alignof(struct reg), REGTABLE_ENTRIES * sizeof *table->places);
    if (!table->places)
        return false;
    memset(table->places, 0, REGTABLE_ENTRIES * sizeof *table->places);
    for (uint32_t i = 0; i < REGTABLE_ENTRIES; i++) {
        table->unused[i] = (uint16_t)i;
        atomic_init(&table->places[i].state, REG_FREE);
    }
    atomic_init(&table->shown, &table->tables[0]);
    pthread_mutex_init(&table->lock, NULL);
    pthread_cond_init(&table->wake, NULL);
    pthread_cond_init(&table->settled, NULL);
    return true;
}

int regtable_start(struct regtable *table, void (*reap)(void *arg), void *arg) {
    table->reap = reap;
    table->reap_arg = arg;
    int error = thread_start(&table->thread, "sluice-grace", grace_main, table);
    table->started = error == 0;
    return error;
}

void regtable_stop(struct regtable *table) {
    pthread_mutex_lock(&table->lock);
    table->stop = true;
    pthread_cond_signal(&table->wake);
    pthread_mutex_unlock(&table->lock);
    if (table->started)
        pthread_join(table->thread, NULL);
    table->started = false;
}

void regtable_close(struct regtable *table) {
    pthread_cond_destroy(&table->settled);
    pthread_cond_destroy(&table->wake);
    pthread_mutex_destroy(&table->lock);
    free(table->places);
}
