/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * index.h - which registration covers an address: looked up under RCU, by any number of threads.
 *
 * Registrations never overlap, so an interval tree would be a search tree of their ends; sorted in an
 * array they are the same, and are found with fewer cache lines. Whoever changes the order holds the lock
 * and writes a table of it that nobody sees yet, which is then shown with one store. A lookup reads the
 * table that is shown, inside of a read-side section of liburcu's bp flavour: the threads are the
 * application's, and that flavour registers them by itself, with their first lookup.
 *
 * A table that a lookup may be looking at is written again only after a grace period. A thread of its own
 * waits for those ("sluice-grace"), only when tables run short, and nobody ever waits for it: not the
 * application, which may call from inside of a read-side section of its own, and not the thread that
 * reads the kernel's events, whom an unmapping thread inside of such a section waits for. Without a
 * table that may be written nothing is shown, and lookups take the lock until there is one. Neither
 * ending a registration nor using its place again waits for a grace period: see entry.h. The same thread ends
 * those that nobody else does, because their memory went away.
 *
 * Owner: the registration cache. regtable_stop() waits for the grace period that runs, so it must not be
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

#define REGTABLE_ENTRIES 1024 /* in a table */
#define REGTABLE_TABLES 8

struct regtable_shown {
    uint64_t retired; /* lock: the version from which on no lookup comes to it */
    uint32_t count;
    uint16_t place[REGTABLE_ENTRIES];
    uintptr_t end[REGTABLE_ENTRIES]; /* ascending */
};

struct regtable {
    struct regtable_shown *_Atomic shown; /* NULL: look under the lock */
    struct reg *places;                   /* REGTABLE_ENTRIES */
    _Atomic bool left;    /* a dead one without a pin is to be ended; set under the lock */
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t wake, settled;
    uint64_t version; /* how often another table, or none, was shown */
    uint64_t passed;  /* lookups from before this version are over */
    uint32_t count, unused_count;
    uint16_t order[REGTABLE_ENTRIES];  /* places, by address: the truth */
    uint16_t unused[REGTABLE_ENTRIES]; /* the other places, but for those taken */
    bool wanted, stop, started;
    struct regtable_shown tables[REGTABLE_TABLES];
    pthread_t thread;
    void (*reap)(void *arg);
    void *reap_arg;
};

bool regtable_open(struct regtable *table); /* false: no memory */
/*
 * Before anything is entered. reap is called by the thread, without the lock, when there are dead ones to end.
 * 0 or an errno: no thread.
 */
int regtable_start(struct regtable *table, void (*reap)(void *arg), void *arg);
void regtable_stop(struct regtable *table); /* the thread ends */
void regtable_close(struct regtable *table);

/*
 * The registration that covers [start, end), pinned; NULL: none, or *locked: nothing is shown, ask
 * regtable_look_locked(). *hits is 0 before, and is to be added elsewhere after, also where there is none: see
 * reg_pin() and reg_hold().
 */
struct reg *regtable_look(struct regtable *table, uintptr_t start, uintptr_t end, bool *locked,
                          uint64_t *hits);
struct reg *regtable_look_locked(struct regtable *table, uintptr_t start, uintptr_t end,
                                 uint64_t *hits);

/* ---- the lock is held --------------------------------------------------------------------------- */

/* The first that ends behind an address; the count if there is none. */
uint32_t regtable_find(const struct regtable *table, uintptr_t addr);
struct reg *regtable_at(struct regtable *table, uint32_t i); /* NULL: not so many */
/* The least recently used one without a pin, when it is `tick` now; the count if there is none. */
uint32_t regtable_oldest(const struct regtable *table, uint32_t tick);
/* What overlaps or adjoins makes the range larger, as long as it has no more than so many bytes. */
void regtable_widen(struct regtable *table, uintptr_t *start, uintptr_t *end, uint64_t most);
/* A place for a registration, FREE and DEAD; `unused_count` is not 0. */
struct reg *regtable_take(struct regtable *table);
void regtable_give(struct regtable *table, struct reg *reg);
/* Takes one out and kills it. True: nobody has it pinned, so the caller ends it. */
bool regtable_unlink(struct regtable *table, uint32_t i);
/* Enters one that overlaps no other. It is found from regtable_show() on. */
void regtable_link(struct regtable *table, struct reg *reg);
void regtable_show(struct regtable *table);
void regtable_leave(struct regtable *table); /* a dead one is left to the thread */
/*
 * Lookups that begin from now on wait for the lock; what was shown before is shown again by the second
 * call, less what was unlinked in between.
 */
struct regtable_shown *regtable_withdraw(struct regtable *table);
void regtable_restore(struct regtable *table, struct regtable_shown *shown);

/* ---- for tests ------------------------------------------------------------------------------------ */

void regtable_settle(struct regtable *table); /* waits for a grace period from now on */

#endif
