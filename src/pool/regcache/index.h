/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * index.h - which registration covers an address: looked up under RCU, by any number of threads.
 *
 * Registrations never overlap, so an interval tree would be a search tree of their ends; sorted in an
 * array they are the same, and are found with fewer cache lines. A thread that changes the order holds the lock
 * and writes a table of it that no lookup sees yet, which is then shown with one store. A lookup reads the
 * table that is shown, inside of a read-side section of liburcu's bp flavour: the threads are the
 * application's, and that flavour registers them by itself, with their first lookup.
 *
 * A table that a lookup may be reading is written again only after a grace period. A thread of its own
 * waits for those ("sluice-grace"), only when tables run short, and no thread ever waits for it: not the
 * application, which may call from inside of a read-side section of its own, and not the thread that
 * reads the kernel's events, for which an unmapping thread inside of such a section waits. Without a
 * table that may be written none is shown, and lookups take the lock until there is one. Neither
 * ending a registration nor using its entry again waits for a grace period: see entry.h. The same thread ends
 * those that no other thread ends, because their memory was unmapped.
 *
 * Owner: the registration cache. regcache_index_stop() waits for the grace period that runs, so it must not be
 * called inside of a read-side section.
 */
#ifndef POOL_REGCACHE_INDEX_H
#define POOL_REGCACHE_INDEX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/regcache/entry.h"

#define REGCACHE_INDEX_ENTRIES 1024 /* in a table */
#define REGCACHE_INDEX_TABLES 8

struct regcache_index_table {
    uint64_t retired; /* lock: the version from which on no lookup comes to it */
    uint32_t count;
    uint16_t place[REGCACHE_INDEX_ENTRIES];
    uintptr_t end[REGCACHE_INDEX_ENTRIES]; /* ascending */
};

struct regcache_index {
    struct regcache_index_table *_Atomic shown; /* NULL: look under the lock */
    struct regcache_entry *places;              /* REGCACHE_INDEX_ENTRIES */
    _Atomic bool left;    /* a dead one without a pin is to be ended; set under the lock */
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t wake;
    uint64_t version; /* how often another table, or none, was shown */
    uint64_t passed;  /* lookups from before this version are over */
    uint32_t count, unused_count;
    uint16_t order[REGCACHE_INDEX_ENTRIES];  /* places, by address: the truth */
    uint16_t unused[REGCACHE_INDEX_ENTRIES]; /* the other places, but for those taken */
    bool wanted, stop, started;
    struct regcache_index_table tables[REGCACHE_INDEX_TABLES];
    pthread_t thread;
    void (*reap)(void *arg);
    void *reap_arg;
};

bool regcache_index_open(struct regcache_index *table); /* false: no memory */
/*
 * Before anything is entered. reap is called by the thread, without the lock, when there are dead ones to end.
 * 0 or an errno: no thread.
 */
int regcache_index_start(struct regcache_index *table, void (*reap)(void *arg), void *arg);
void regcache_index_stop(struct regcache_index *table); /* the thread ends */
void regcache_index_close(struct regcache_index *table);

/*
 * The registration that covers [start, end), pinned; NULL: none, or *locked: nothing is shown, ask
 * regcache_index_lookup_locked(). *hits is 0 before, and is to be added elsewhere after, also where there is none: see
 * regcache_entry_pin() and regcache_entry_hold().
 */
struct regcache_entry *regcache_index_lookup(struct regcache_index *table, uintptr_t start,
                                             uintptr_t end, bool *locked, uint64_t *hits);
struct regcache_entry *regcache_index_lookup_locked(struct regcache_index *table, uintptr_t start,
                                                    uintptr_t end, uint64_t *hits);

/* ---- the lock is held --------------------------------------------------------------------------- */

/* The first that ends behind an address; the count if there is none. */
uint32_t regcache_index_find(const struct regcache_index *table, uintptr_t addr);
struct regcache_entry *regcache_index_at(struct regcache_index *table,
                                         uint32_t i); /* NULL: not so many */
/* The least recently used one without a pin, when it is `tick` now; the count if there is none. */
uint32_t regcache_index_oldest(const struct regcache_index *table, uint32_t tick);
/* Widens the range by entries that overlap or adjoin it, as long as it has no more than so many bytes. */
void regcache_index_widen(struct regcache_index *table, uintptr_t *start, uintptr_t *end,
                          uint64_t most);
/* A place for a registration, FREE and DEAD; `unused_count` is not 0. */
struct regcache_entry *regcache_index_take(struct regcache_index *table);
void regcache_index_give(struct regcache_index *table, struct regcache_entry *reg);
/* Takes one out and kills it. True: no thread has it pinned, so the caller ends it. */
bool regcache_index_unlink(struct regcache_index *table, uint32_t i);
/* Enters one that overlaps no other. It is found from regcache_index_show() on. */
void regcache_index_link(struct regcache_index *table, struct regcache_entry *reg);
void regcache_index_show(struct regcache_index *table);
void regcache_index_leave(struct regcache_index *table); /* a dead one is left to the thread */
/*
 * Lookups that begin from now on wait for the lock; what was shown before is shown again by the second
 * call, less what was unlinked in between.
 */
struct regcache_index_table *regcache_index_withdraw(struct regcache_index *table);
void regcache_index_restore(struct regcache_index *table, struct regcache_index_table *shown);
/* Lock held: the thread waits for a grace period that begins from now on. */
void regcache_index_want_grace(struct regcache_index *table);

#endif
