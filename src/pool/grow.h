/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * grow.h - a thread that adds arenas before they are needed.
 *
 * Mapping and registering memory takes long, and more so the larger it is. When the free bytes of the
 * arenas fall below a mark, a helper thread, started at that moment, adds the next arena: it holds no
 * lock while it registers. In a pool with a helper no other thread maps or registers: a thread that finds
 * no memory tells the helper its need and waits, which takes as long in any case. Only a pool that
 * has no helper (a test's, or one whose thread could not be started) grows on the calling thread.
 *
 * Owner: the pool; everything here under its slow lock.
 */
#ifndef POOL_GROW_H
#define POOL_GROW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>

struct large;
struct pool;

/* The need of a waiting thread; on its stack. */
struct grow_want {
    struct cds_list_head link;
    size_t bytes;
    bool single;       /* a mapping for one buffer, else an arena with a run of so many bytes */
    bool done, served; /* looked at; there it is */
    struct large *large;
};

struct grower {
    uint64_t low_water; /* bytes; 0: no helper */
    pthread_t thread;
    pthread_cond_t work, idle;
    bool started, stop, asked, busy;
    struct cds_list_head wants;
    uint32_t told;           /* enum grow_told: not again before it went well */
    uint32_t failures, skip; /* growth that fails is tried again ever more seldom */
    _Atomic uint64_t ahead, in_need;
};

void grow_init(struct pool *pool);
void grow_check(struct pool *pool); /* pages were taken: is it time? */
bool grow_wait(struct pool *pool);  /* until the helper is idle; false: it was */
void grow_stop(struct pool *pool);  /* without the lock: ends the thread */

/* An arena with a run of bytes is there, which others may take first. False: there is no more. */
bool grow_arena(struct pool *pool, size_t bytes);
/* A mapping for a buffer of so many bytes, among the pool's. NULL: there is no more. */
struct large *grow_large(struct pool *pool, size_t bytes);

#endif
