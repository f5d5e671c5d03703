/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_bench.c - getting and returning buffers: from a cache, through the shared lists, and across
 * threads; beside malloc and, where it is installed, mimalloc. Memory is not registered here:
 * that is the device's cost and not on this path.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "floor.h"
#include "pool/pool.h"
#include "shim.h"

static void *map(size_t bytes) {
    void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return addr == MAP_FAILED ? NULL : addr;
}
static void unmap(void *addr, size_t bytes) {
    munmap(addr, bytes);
}
static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, int access) {
    (void)pd, (void)addr, (void)length, (void)access;
    return calloc(1, sizeof(struct ibv_mr));
}
static int dereg(struct ibv_mr *mr) {
    free(mr);
    return 0;
}
static const struct fabric_ops memory_only = {
    .reg_mr = reg, .dereg_mr = dereg, .mem_alloc = map, .mem_free = unmap};
static struct ibv_pd pd;

static int open_pool(struct pool **out) {
    struct pool_config config = {&memory_only, &pd, (uint64_t)1 << 30, {.numa = HUGEPAGES_NO_NUMA}};
    hugepages_from_environment(&config.wish);
    return pool_open(out, &config);
}

struct setting {
    size_t bytes;
    bool cached;
    unsigned depth; /* buffers in hand */
    bool awaited;   /* somebody waits for a large buffer meanwhile */
};

#define DEPTH_MAX 512

static void get_put(bench_state *state, void *arg) {
    const struct setting *setting = arg;
    struct pool *pool;
    if (open_pool(&pool) != 0) {
        bench_fail(state, "no memory");
        return;
    }
    struct pool_cache *cache = setting->cached ? pool_cache_open(pool) : NULL;
    struct pool_buffer *held[DEPTH_MAX];
    for (unsigned i = 0; i < setting->depth; i++)
        held[i] = pool_get(pool, cache, setting->bytes);
    unsigned at = 0;
    if (setting->awaited)
        pool_wait(pool, (size_t)1 << 20);
    while (bench_next(state)) {
        pool_put(pool, cache, held[at]);
        held[at] = pool_get(pool, cache, setting->bytes);
        at = at + 1 == setting->depth ? 0 : at + 1;
    }
    for (unsigned i = 0; i < setting->depth; i++)
        pool_put(pool, cache, held[i]);
    if (cache)
        pool_cache_close(cache);
    pool_close(pool);
}

/* Gets a batch, then returns it: what the edges of the magazines cost. */
static void batches(bench_state *state, void *arg) {
    const struct setting *setting = arg;
    struct pool *pool;
    if (open_pool(&pool) != 0) {
        bench_fail(state, "no memory");
        return;
    }
    struct pool_cache *cache = pool_cache_open(pool);
    struct pool_buffer *held[DEPTH_MAX];
    while (bench_next(state)) {
        for (unsigned i = 0; i < setting->depth; i++)
            held[i] = pool_get(pool, cache, setting->bytes);
        for (unsigned i = 0; i < setting->depth; i++)
            pool_put(pool, cache, held[i]);
    }
    bench_items(state, bench_iterations(state) * setting->depth);
    pool_cache_close(cache);
    pool_close(pool);
}

/* More than the magazines hold, each time: every get and put ends in the shared lists or the arenas. */
static void misses(bench_state *state, void *arg) {
    const struct setting *setting = arg;
    struct pool *pool;
    if (open_pool(&pool) != 0) {
        bench_fail(state, "no memory");
        return;
    }
    struct pool_buffer *held[DEPTH_MAX];
    while (bench_next(state)) {
        struct pool_cache *cache = pool_cache_open(pool);
        for (unsigned i = 0; i < setting->depth; i++)
            held[i] = pool_get(pool, cache, setting->bytes);
        for (unsigned i = 0; i < setting->depth; i++)
            pool_put(pool, cache, held[i]);
        pool_cache_close(cache);
    }
    bench_items(state, bench_iterations(state) * setting->depth);
    pool_close(pool);
}

/* ---- any allocator, to be compared ------------------------------------------------------------ */

struct allocator {
    const char *name;
    void *(*open)(struct pool *pool); /* what get and put are given; NULL: itself */
    void *(*get)(struct pool *pool, void *cache, size_t bytes);
    void (*put)(struct pool *pool, void *cache, void *buffer);
    void (*close)(void *cache);
};

static void *ours_open(struct pool *pool) {
    return pool_cache_open(pool);
}
static void *ours_get(struct pool *pool, void *cache, size_t bytes) {
    return pool_get(pool, cache, bytes);
}
static void ours_put(struct pool *pool, void *cache, void *buffer) {
    pool_put(pool, cache, buffer);
}
static void ours_close(void *cache) {
    pool_cache_close(cache);
}
static const struct allocator ours = {"pool", ours_open, ours_get, ours_put, ours_close};

static void *malloc_get(struct pool *pool, void *cache, size_t bytes) {
    (void)pool, (void)cache;
    return malloc(bytes);
}
static void malloc_put(struct pool *pool, void *cache, void *buffer) {
    (void)pool, (void)cache;
    free(buffer);
}
static const struct allocator systems = {"malloc", NULL, malloc_get, malloc_put, NULL};

/* Loaded, not linked: it would take malloc's place. */
static void *(*mi_malloc_call)(size_t);
static void (*mi_free_call)(void *);

static void *mimalloc_get(struct pool *pool, void *cache, size_t bytes) {
    (void)pool, (void)cache;
    return mi_malloc_call(bytes);
}
static void mimalloc_put(struct pool *pool, void *cache, void *buffer) {
    (void)pool, (void)cache;
    mi_free_call(buffer);
}
static const struct allocator mimallocs = {"mimalloc", NULL, mimalloc_get, mimalloc_put, NULL};

static bool load_mimalloc(void) {
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    *(void **)&mi_malloc_call = dlsym(library, "mi_malloc");
    *(void **)&mi_free_call = dlsym(library, "mi_free");
    return mi_malloc_call && mi_free_call;
}

struct contest {
    const struct allocator *who;
    size_t bytes;
    unsigned depth;
};

static bool contest_pool(bench_state *state, struct pool **pool) {
    if (open_pool(pool) == 0)
        return true;
    bench_fail(state, "no memory");
    return false;
}

/* One buffer got and returned, `depth` of them in hand. */
static void same_thread(bench_state *state, void *arg) {
    const struct contest *c = arg;
    const struct allocator *who = c->who;
    struct pool *pool;
    if (!contest_pool(state, &pool))
        return;
    void *cache = who->open ? who->open(pool) : NULL;
    void *held[DEPTH_MAX];
    for (unsigned i = 0; i < c->depth; i++)
        held[i] = who->get(pool, cache, c->bytes);
    unsigned at = 0;
    while (bench_next(state)) {
        who->put(pool, cache, held[at]);
        held[at] = who->get(pool, cache, c->bytes);
        bench_keep(held[at]);
        at = at + 1 == c->depth ? 0 : at + 1;
    }
    bench_counter(state, "median_ns", bench_ns(state));
    for (unsigned i = 0; i < c->depth; i++)
        who->put(pool, cache, held[i]);
    if (who->close)
        who->close(cache);
    pool_close(pool);
}

/* ---- across threads: one gets, the other returns --------------------------------------------- */

#define LANE 64

struct lane {
    const struct contest *contest;
    struct pool *pool;
    int cpu;
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) _Atomic bool stop;
    void *slot[LANE];
};

static void *put_side(void *arg) {
    struct lane *lane = arg;
    const struct allocator *who = lane->contest->who;
    floor_pin(lane->cpu);
    void *cache = who->open ? who->open(lane->pool) : NULL;
    for (uint64_t tail = 0;;) {
        if (atomic_load_explicit(&lane->head, memory_order_acquire) == tail) {
            if (atomic_load_explicit(&lane->stop, memory_order_acquire) &&
                atomic_load_explicit(&lane->head, memory_order_acquire) == tail)
                break;
            continue;
        }
        who->put(lane->pool, cache, lane->slot[tail % LANE]);
        atomic_store_explicit(&lane->tail, ++tail, memory_order_release);
    }
    if (who->close)
        who->close(cache);
    return NULL;
}

/* The other thread gets and returns for itself: what two that have nothing in common cost each other. */
static void *busy_side(void *arg) {
    struct lane *lane = arg;
    const struct allocator *who = lane->contest->who;
    floor_pin(lane->cpu);
    void *cache = who->open ? who->open(lane->pool) : NULL;
    while (!atomic_load_explicit(&lane->stop, memory_order_relaxed)) {
        void *buffer = who->get(lane->pool, cache, lane->contest->bytes);
        bench_keep(buffer);
        who->put(lane->pool, cache, buffer);
    }
    if (who->close)
        who->close(cache);
    return NULL;
}

static void hand_over(bench_state *state, struct lane *lane) {
    const struct contest *c = lane->contest;
    void *cache = c->who->open ? c->who->open(lane->pool) : NULL;
    uint64_t head = 0;
    while (bench_next(state)) {
        while (head - atomic_load_explicit(&lane->tail, memory_order_acquire) == LANE)
            ;
        lane->slot[head % LANE] = c->who->get(lane->pool, cache, c->bytes);
        atomic_store_explicit(&lane->head, ++head, memory_order_release);
    }
    while (atomic_load_explicit(&lane->tail, memory_order_acquire) != head)
        ;
    if (c->who->close)
        c->who->close(cache);
}

static void both_busy(bench_state *state, struct lane *lane) {
    const struct contest *c = lane->contest;
    void *cache = c->who->open ? c->who->open(lane->pool) : NULL;
    while (bench_next(state)) {
        void *buffer = c->who->get(lane->pool, cache, c->bytes);
        bench_keep(buffer);
        c->who->put(lane->pool, cache, buffer);
    }
    if (c->who->close)
        c->who->close(cache);
}

static void two_threads(bench_state *state, const struct contest *contest, void *(*other)(void *),
                        void (*mine)(bench_state *, struct lane *)) {
    int cpu_a, cpu_b;
    struct floor_result floor = {0};
    cpu_set_t before;
    if (!floor_two_cpus(&cpu_a, &cpu_b) || floor_measure(cpu_a, cpu_b, &floor) != 0 ||
        sched_getaffinity(0, sizeof before, &before) != 0) {
        bench_skip(state, "needs two CPUs that are not busy");
        return;
    }
    struct lane *lane = aligned_alloc(_Alignof(struct lane), sizeof *lane);
    if (!lane)
        return;
    *lane = (struct lane){.contest = contest, .cpu = cpu_b};
    if (!contest_pool(state, &lane->pool)) {
        free(lane);
        return;
    }
    floor_pin(cpu_a);
    pthread_t thread;
    pthread_create(&thread, NULL, other, lane);
    mine(state, lane);
    atomic_store_explicit(&lane->stop, true, memory_order_release);
    pthread_join(thread, NULL);
    bench_counter(state, "median_ns", bench_ns(state));
    bench_counter(state, "floor_ns", floor.p50_ns);
    pool_close(lane->pool);
    sched_setaffinity(0, sizeof before, &before);
    free(lane);
}

static void cross_thread(bench_state *state, void *arg) {
    two_threads(state, arg, put_side, hand_over);
}
static void contention(bench_state *state, void *arg) {
    two_threads(state, arg, busy_side, both_busy);
}

static void register_contest(const struct allocator *who, struct contest list[4]) {
    char name[64];
    list[0] = (struct contest){who, 256, 16};
    list[1] = (struct contest){who, 16320, 16};
    list[2] = (struct contest){who, 256, 1};
    list[3] = (struct contest){who, 64, 16};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "pool/same_thread/%zu/in_hand:%u/%s", list[i].bytes,
                 list[i].depth, who->name);
        bench_register(name, same_thread, &list[i]);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "pool/cross_thread/%zu/%s", list[i].bytes, who->name);
        bench_register(name, cross_thread, &list[i]);
    }
    snprintf(name, sizeof name, "pool/contention/256/%s", who->name);
    bench_register(name, contention, &list[0]);
}

BENCH_SETUP {
    static struct setting shared = {256, false, 16, false}, large = {2 << 20, true, 4, false},
                          awaited = {256, true, 16, true}, batch_32 = {256, true, 32, false},
                          batch_512 = {256, true, DEPTH_MAX, false};
    static struct contest with_pool[4], with_malloc[4];
    register_contest(&ours, with_pool);
    register_contest(&systems, with_malloc);
    static struct contest with_mimalloc[4];
    if (load_mimalloc())
        register_contest(&mimallocs, with_mimalloc);
    bench_register("pool/get_put/shared_lists/256", get_put, &shared);
    bench_register("pool/get_put/own_mapping/2MiB", get_put, &large);
    bench_register("pool/get_put/awaited/256", get_put, &awaited);
    bench_register("pool/batch/32", batches, &batch_32);
    bench_register("pool/batch/512", batches, &batch_512);
    bench_register("pool/miss/32", misses, &batch_32);
}
