/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* grow.c - the helper thread of a pool. Owner and locks: see grow.h. */
#define _GNU_SOURCE
#include "pool/grow.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "common/thread.h"
#include "pool/internal.h"
#include "pool/limit_text.h"

#define SKIP_LOG2_MAX 10

enum grow_told { TOLD_MEMORY = 1, TOLD_HUGE = 2 };

void grow_init(struct pool *pool) {
    pthread_cond_init(&pool->grower.work, NULL);
    pthread_cond_init(&pool->grower.idle, NULL);
    CDS_INIT_LIST_HEAD(&pool->grower.wants);
}

/* ---- shortages ------------------------------------------------------------------------------- */

static void tell(struct pool *pool, uint32_t what, uint64_t need, int error) {
    char text[200];
    if ((pool->grower.told & what) || !pool->shortage || error == ENODEV) /* it was removed */
        return;
    pool->grower.told |= what;
    struct limit_text shortage = {
        .need = need,
        .bytes_max = pool->budget.bytes_max,
        .error = error,
        .locks = pool->shortage_locks,
        .huge_log2 = what == TOLD_HUGE ? pool->budget.wish.huge_log2 : 0,
    };
    limit_text_explain(text, sizeof text, &shortage);
    pool->shortage(text, pool->shortage_arg);
}

static void tell_huge(struct pool *pool) {
    int64_t missed = atomic_load(&pool->budget.report.missed);
    if (missed > 0)
        tell(pool, TOLD_HUGE, (uint64_t)missed, ENOMEM);
}

void pool_on_shortage(struct pool *pool, bool locks, void (*call)(const char *text, void *arg),
                      void *arg) {
    pthread_mutex_lock(&pool->slow);
    pool->shortage = call;
    pool->shortage_arg = arg;
    pool->shortage_locks = locks;
    tell_huge(pool); /* of the first arena */
    pthread_mutex_unlock(&pool->slow);
}

/* ---- growing --------------------------------------------------------------------------------- */

static bool is_low(struct pool *pool) {
    return pool->grower.low_water > 0 &&
           arenas_free_bytes(&pool->arenas) < pool->grower.low_water &&
           arenas_step(&pool->arenas, &pool->budget, POOL_PAGE) > 0;
}

/* One arena, with the lock given up meanwhile. */
static void grow_once(struct pool *pool) {
    struct grower *grower = &pool->grower;
    size_t bytes = arenas_step(&pool->arenas, &pool->budget, POOL_PAGE);
    pthread_mutex_unlock(&pool->slow);
    struct arena *arena = arena_open(&pool->budget, bytes);
    int error = errno;
    pthread_mutex_lock(&pool->slow);
    if (arena) {
        arenas_add(&pool->arenas, arena);
        grower->failures = 0;
        grower->told &= ~(uint32_t)TOLD_MEMORY;
        tell_huge(pool);
        atomic_fetch_add_explicit(&grower->ahead, 1, memory_order_relaxed);
    } else {
        tell(pool, TOLD_MEMORY, bytes, error);
        if (grower->failures < SKIP_LOG2_MAX)
            grower->failures++;
        grower->skip = (uint32_t)1 << grower->failures;
    }
}

/* As arenas_grow(), with the lock given up around every attempt. */
static bool add_arena(struct pool *pool, size_t min_bytes) {
    struct arenas *set = &pool->arenas;
    size_t bytes = arenas_step(set, &pool->budget, min_bytes), first = bytes;
    while (bytes > 0) {
        pthread_mutex_unlock(&pool->slow);
        struct arena *arena = arena_open(&pool->budget, bytes);
        int error = errno;
        pthread_mutex_lock(&pool->slow);
        if (arena) {
            arenas_add(set, arena);
            tell_huge(pool);
            if (bytes == first)
                pool->grower.told &= ~(uint32_t)TOLD_MEMORY;
            return true;
        }
        tell(pool, TOLD_MEMORY, bytes, error);
        bytes = arenas_smaller(set, bytes, min_bytes);
    }
    return false;
}

static bool add_large(struct pool *pool, struct grow_want *want) {
    pthread_mutex_unlock(&pool->slow);
    want->large = large_open(pool, &pool->budget, want->bytes);
    int error = errno;
    pthread_mutex_lock(&pool->slow);
    if (!want->large) {
        if (large_fits(&pool->budget, want->bytes))
            tell(pool, TOLD_MEMORY, want->bytes, error);
        return false;
    }
    pthread_mutex_lock(&pool->lock);
    larges_add(&pool->larges, want->large);
    pthread_mutex_unlock(&pool->lock);
    return true;
}

static void serve(struct pool *pool, struct grow_want *want) {
    if (want->single)
        want->served = add_large(pool, want);
    else /* another's arena may have room for this one too */
        want->served = arenas_have(&pool->arenas, (uint32_t)(want->bytes / POOL_PAGE)) ||
                       add_arena(pool, want->bytes);
    want->done = true;
}

static void serve_all(struct pool *pool) {
    struct grower *grower = &pool->grower;
    while (!cds_list_empty(&grower->wants)) {
        struct grow_want *want = cds_list_first_entry(&grower->wants, struct grow_want, link);
        cds_list_del(&want->link);
        serve(pool, want);
        pthread_cond_broadcast(&grower->idle);
    }
}

/* It is started by the thread that finds little memory, maybe a worker, whose CPU it must not share. */
static void leave_the_workers_cpu(void) {
    cpu_set_t set;
    if (sched_getaffinity(getpid(), sizeof set, &set) == 0)
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *grow_main(void *arg) {
    struct pool *pool = arg;
    leave_the_workers_cpu();
    struct grower *grower = &pool->grower;
    pthread_mutex_lock(&pool->slow);
    while (!grower->stop) {
        if (!grower->asked) {
            pthread_cond_wait(&grower->work, &pool->slow);
            continue;
        }
        grower->busy = true;
        serve_all(pool);
        while (!grower->stop && cds_list_empty(&grower->wants) && is_low(pool) &&
               atomic_load(&pool->budget.pd)) {
            grow_once(pool);
            if (grower->failures > 0)
                break;
        }
        if (!cds_list_empty(&grower->wants))
            continue;
        grower->asked = grower->busy = false;
        pthread_cond_broadcast(&grower->idle);
        pthread_mutex_unlock(&pool->slow);
        pool_wake(pool);
        pthread_mutex_lock(&pool->slow);
    }
    pthread_mutex_unlock(&pool->slow);
    return NULL;
}

static void start(struct pool *pool) {
    if (thread_start(&pool->grower.thread, "sluice-mem", grow_main, pool) != 0) {
        pool->grower.low_water = 0; /* then every thread grows the pool on demand */
        return;
    }
    pool->grower.started = true;
}

void grow_check(struct pool *pool) {
    struct grower *grower = &pool->grower;
    if (grower->asked || !is_low(pool))
        return;
    if (grower->skip > 0) {
        grower->skip--;
        return;
    }
    if (!grower->started)
        start(pool);
    if (!grower->started)
        return;
    grower->asked = true;
    pthread_cond_signal(&grower->work);
}

/* True: the helper looked at it. False: there is no helper. */
static bool ask(struct pool *pool, struct grow_want *want) {
    struct grower *grower = &pool->grower;
    if (grower->low_water > 0 && !grower->started)
        start(pool);
    if (grower->low_water == 0 || !grower->started || grower->stop)
        return false;
    cds_list_add_tail(&want->link, &grower->wants);
    grower->asked = true;
    pthread_cond_signal(&grower->work);
    while (!want->done)
        pthread_cond_wait(&grower->idle, &pool->slow);
    return true;
}

bool grow_arena(struct pool *pool, size_t bytes) {
    struct grow_want want = {.bytes = page_round(bytes)};
    if (arenas_step(&pool->arenas, &pool->budget, want.bytes) == 0)
        return false;
    if (!ask(pool, &want)) {
        int error = arenas_grow(&pool->arenas, &pool->budget, want.bytes);
        want.served = error == 0;
        if (error != 0)
            tell(pool, TOLD_MEMORY, want.bytes, -error);
    }
    tell_huge(pool);
    if (!want.served)
        return false;
    atomic_fetch_add_explicit(&pool->grower.in_need, 1, memory_order_relaxed);
    pthread_mutex_lock(&pool->lock);
    pool->waits_for.news = true; /* what is left of it */
    pthread_mutex_unlock(&pool->lock);
    return true;
}

struct large *grow_large(struct pool *pool, size_t bytes) {
    struct grow_want want = {.bytes = bytes, .single = true};
    if (!large_fits(&pool->budget, bytes))
        return NULL;
    if (!ask(pool, &want))
        add_large(pool, &want);
    return want.large;
}

bool grow_wait(struct pool *pool) {
    if (!pool->grower.asked)
        return false;
    while (pool->grower.asked)
        pthread_cond_wait(&pool->grower.idle, &pool->slow);
    return true;
}

void grow_stop(struct pool *pool) {
    pthread_mutex_lock(&pool->slow);
    pool->grower.stop = true;
    pthread_cond_signal(&pool->grower.work);
    bool started = pool->grower.started;
    pthread_mutex_unlock(&pool->slow);
    if (started)
        pthread_join(pool->grower.thread, NULL);
    pthread_cond_destroy(&pool->grower.work);
    pthread_cond_destroy(&pool->grower.idle);
}

void pool_grow_ahead(struct pool *pool, uint64_t low_water) {
    pthread_mutex_lock(&pool->slow);
    pool->grower.low_water = low_water;
    grow_check(pool);
    pthread_mutex_unlock(&pool->slow);
}
