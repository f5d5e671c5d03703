/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * index.c - tables that are written while no lookup sees them, and the thread that knows when.
 *
 * `version` counts what was shown. A table that is shown no more has the version that took its place.
 * `passed` is a version for which a grace period began after it was shown, and is over: no lookup reads a table that
 * was not shown from that version on. liburcu orders that; the thread sanitizer is told of it.
 */
#define _GNU_SOURCE
#include "common/sanitize.h"

/*
 * Entering and leaving a read-side section inline instead of by a call: liburcu marks both as short enough
 * (under ten lines, LGPL section 5) to be compiled into code of any licence. No other part of it is used so.
 * It aligns its own records less than it says, which the sanitizer for undefined behaviour would report.
 */
#ifndef SANITIZE_ADDRESS
#define _LGPL_SOURCE
#endif
#include "pool/regcache/index.h"

#include <stdlib.h>
#include <string.h>
#include <urcu/urcu-bp.h>

#include "common/thread.h"

/* ---- lookups ------------------------------------------------------------------------------------ */

static struct regcache_entry *search(struct regcache_index *table,
                                     const struct regcache_index_table *shown, uintptr_t start,
                                     uintptr_t end, uint64_t *hits, bool *last) {
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
    struct regcache_entry *reg = &table->places[shown->place[low]];
    return regcache_entry_covers(reg, start, end) &&
                   regcache_entry_hold(reg, start, end, hits, last)
               ? reg
               : NULL;
}

struct regcache_entry *regcache_index_lookup(struct regcache_index *table, uintptr_t start,
                                             uintptr_t end, bool *locked, uint64_t *hits) {
    bool last = false;
    urcu_bp_read_lock();
    const struct regcache_index_table *shown =
        atomic_load_explicit(&table->shown, memory_order_acquire);
    struct regcache_entry *reg = shown ? search(table, shown, start, end, hits, &last) : NULL;
    *locked = !shown;
    SANITIZE_RELEASE(&table->passed); /* to the thread that waits for grace periods */
    urcu_bp_read_unlock();
    if (__builtin_expect(last, 0)) {
        pthread_mutex_lock(&table->lock);
        regcache_index_leave(table);
        pthread_mutex_unlock(&table->lock);
    }
    return reg;
}

struct regcache_entry *regcache_index_lookup_locked(struct regcache_index *table, uintptr_t start,
                                                    uintptr_t end, uint64_t *hits) {
    pthread_mutex_lock(&table->lock);
    struct regcache_entry *reg = regcache_index_at(table, regcache_index_find(table, start));
    if (reg && !(regcache_entry_covers(reg, start, end) && regcache_entry_pin(reg, hits)))
        reg = NULL;
    pthread_mutex_unlock(&table->lock);
    return reg;
}

/* ---- the order: the lock ------------------------------------------------------------------------ */

uint32_t regcache_index_find(const struct regcache_index *table, uintptr_t addr) {
    uint32_t low = 0, high = table->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (regcache_entry_end(&table->places[table->order[middle]]) <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct regcache_entry *regcache_index_at(struct regcache_index *table, uint32_t i) {
    return i < table->count ? &table->places[table->order[i]] : NULL;
}

void regcache_index_widen(struct regcache_index *table, uintptr_t *start, uintptr_t *end,
                          uint64_t most) {
    uint32_t i = regcache_index_find(table, *start > 0 ? *start - 1 : 0);
    uintptr_t low = *start, high = *end;
    for (struct regcache_entry *reg;
         (reg = regcache_index_at(table, i)) != NULL && regcache_entry_start(reg) <= high; i++) {
        low = regcache_entry_start(reg) < low ? regcache_entry_start(reg) : low;
        high = regcache_entry_end(reg) > high ? regcache_entry_end(reg) : high;
    }
    if (high - low <= most) {
        *start = low;
        *end = high;
    }
}

uint32_t regcache_index_oldest(const struct regcache_index *table, uint32_t tick) {
    uint32_t best = table->count, best_age = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct regcache_entry *reg = &table->places[table->order[i]];
        uint32_t age = tick - atomic_load_explicit(&reg->used, memory_order_relaxed);
        if (regcache_entry_is(reg, 0) && (best == table->count || age > best_age)) {
            best_age = age;
            best = i;
        }
    }
    return best;
}

bool regcache_index_unlink(struct regcache_index *table, uint32_t i) {
    struct regcache_entry *reg = regcache_index_at(table, i);
    memmove(&table->order[i], &table->order[i + 1],
            (table->count - i - 1) * sizeof table->order[0]);
    table->count--;
    return regcache_entry_kill(reg);
}

void regcache_index_link(struct regcache_index *table, struct regcache_entry *reg) {
    uint32_t at = regcache_index_find(table, regcache_entry_start(reg));
    memmove(&table->order[at + 1], &table->order[at], (table->count - at) * sizeof table->order[0]);
    table->order[at] = (uint16_t)(reg - table->places);
    table->count++;
}

struct regcache_entry *regcache_index_take(struct regcache_index *table) {
    struct regcache_entry *reg = &table->places[table->unused[--table->unused_count]];
    atomic_store(&reg->state, REGCACHE_ENTRY_DEAD | REGCACHE_ENTRY_FREE);
    return reg;
}

void regcache_index_give(struct regcache_index *table, struct regcache_entry *reg) {
    table->unused[table->unused_count++] = (uint16_t)(reg - table->places);
    atomic_store(&reg->state, REGCACHE_ENTRY_FREE);
}

/* ---- what is shown: the lock -------------------------------------------------------------------- */

void regcache_index_want_grace(struct regcache_index *table) {
    if (!table->wanted) {
        table->wanted = true;
        pthread_cond_signal(&table->wake);
    }
}

/* A table that no lookup reads, and how many there are. */
static struct regcache_index_table *spare(struct regcache_index *table, uint32_t *count) {
    struct regcache_index_table *found = NULL;
    const struct regcache_index_table *shown =
        atomic_load_explicit(&table->shown, memory_order_relaxed);
    *count = 0;
    for (uint32_t i = 0; i < REGCACHE_INDEX_TABLES; i++)
        if (&table->tables[i] != shown && table->tables[i].retired <= table->passed) {
            found = &table->tables[i];
            ++*count;
        }
    return found;
}

void regcache_index_show(struct regcache_index *table) {
    uint32_t count;
    struct regcache_index_table *before = atomic_load_explicit(&table->shown, memory_order_relaxed);
    struct regcache_index_table *next = spare(table, &count);
    if (next) {
        next->count = table->count;
        memcpy(next->place, table->order, table->count * sizeof table->order[0]);
        for (uint32_t i = 0; i < table->count; i++)
            next->end[i] = regcache_entry_end(&table->places[table->order[i]]);
    }
    atomic_store_explicit(&table->shown, next, memory_order_release);
    table->version++;
    if (before)
        before->retired = table->version;
    if (count <= REGCACHE_INDEX_TABLES / 2) /* before there is none */
        regcache_index_want_grace(table);
}

struct regcache_index_table *regcache_index_withdraw(struct regcache_index *table) {
    return atomic_exchange(&table->shown, NULL);
}

void regcache_index_restore(struct regcache_index *table, struct regcache_index_table *shown) {
    atomic_store_explicit(&table->shown, shown, memory_order_release);
}

void regcache_index_leave(struct regcache_index *table) {
    atomic_store(&table->left, true);
    pthread_cond_signal(&table->wake);
}

/* ---- grace periods ------------------------------------------------------------------------------ */

static void *grace_main(void *arg) {
    struct regcache_index *table = arg;
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
            regcache_index_show(table);
    }
    pthread_mutex_unlock(&table->lock);
    return NULL;
}

bool regcache_index_open(struct regcache_index *table) {
    *table = (struct regcache_index){.unused_count = REGCACHE_INDEX_ENTRIES};
    table->places = aligned_alloc(_Alignof(struct regcache_entry),
                                  REGCACHE_INDEX_ENTRIES * sizeof *table->places);
    if (!table->places)
        return false;
    memset(table->places, 0, REGCACHE_INDEX_ENTRIES * sizeof *table->places);
    for (uint32_t i = 0; i < REGCACHE_INDEX_ENTRIES; i++) {
        table->unused[i] = (uint16_t)i;
        atomic_init(&table->places[i].state, REGCACHE_ENTRY_FREE);
    }
    atomic_init(&table->shown, &table->tables[0]);
    pthread_mutex_init(&table->lock, NULL);
    pthread_cond_init(&table->wake, NULL);
    return true;
}

int regcache_index_start(struct regcache_index *table, void (*reap)(void *arg), void *arg) {
    table->reap = reap;
    table->reap_arg = arg;
    int error = thread_start(&table->thread, "sluice-grace", grace_main, table);
    table->started = error == 0;
    return error;
}

void regcache_index_stop(struct regcache_index *table) {
    pthread_mutex_lock(&table->lock);
    table->stop = true;
    pthread_cond_signal(&table->wake);
    pthread_mutex_unlock(&table->lock);
    if (table->started)
        pthread_join(table->thread, NULL);
    table->started = false;
}

void regcache_index_close(struct regcache_index *table) {
    pthread_cond_destroy(&table->wake);
    pthread_mutex_destroy(&table->lock);
    free(table->places);
}
