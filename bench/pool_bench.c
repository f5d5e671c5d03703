/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_bench.c - getting and returning buffers: from a cache, through the shared lists, and across
 * threads. Memory is not registered here: that is the device's cost and not on this path.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/cpus.h"
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

struct setting {
    size_t bytes;
    bool cached;
    unsigned depth; /* buffers in hand */
};

#define DEPTH_MAX 512

static void get_put(bench_state *state, void *arg) {
    const struct setting *setting = arg;
    struct pool *pool;
    if (pool_open(&pool, &memory_only, &pd, (uint64_t)1 << 30) != 0) {
        bench_skip(state, "no memory");
        return;
    }
    struct pool_cache *cache = setting->cached ? pool_cache_open(pool) : NULL;
    struct sluice_msg *held[DEPTH_MAX];
    for (unsigned i = 0; i < setting->depth; i++)
        held[i] = pool_get(pool, cache, setting->bytes);
    unsigned at = 0;
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
    if (pool_open(&pool, &memory_only, &pd, (uint64_t)1 << 30) != 0) {
        bench_skip(state, "no memory");
        return;
    }
    struct pool_cache *cache = pool_cache_open(pool);
    struct sluice_msg *held[DEPTH_MAX];
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

/* ---- across threads: one gets, the other returns --------------------------------------------- */

#define LANE 64

struct lane {
    struct pool *pool;
    int cpu;
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) _Atomic bool stop;
    struct sluice_msg *slot[LANE];
};

static void *put_side(void *arg) {
    struct lane *lane = arg;
    cpu_pin_self(lane->cpu);
    struct pool_cache *cache = pool_cache_open(lane->pool);
    for (uint64_t tail = 0;;) {
        if (atomic_load_explicit(&lane->head, memory_order_acquire) == tail) {
            if (atomic_load_explicit(&lane->stop, memory_order_acquire) &&
                atomic_load_explicit(&lane->head, memory_order_acquire) == tail)
                break;
            continue;
        }
        pool_put(lane->pool, cache, lane->slot[tail % LANE]);
        atomic_store_explicit(&lane->tail, ++tail, memory_order_release);
    }
    pool_cache_close(cache);
    return NULL;
}

static void cross_thread(bench_state *state, void *arg) {
    const struct setting *setting = arg;
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
    *lane = (struct lane){.cpu = cpu_b};
    if (pool_open(&lane->pool, &memory_only, &pd, (uint64_t)1 << 30) != 0) {
        bench_skip(state, "no memory");
        free(lane);
        return;
    }
    cpu_pin_self(cpu_a);
    pthread_t thread;
    pthread_create(&thread, NULL, put_side, lane);
    struct pool_cache *cache = pool_cache_open(lane->pool);
    uint64_t head = 0;
    while (bench_next(state)) {
        while (head - atomic_load_explicit(&lane->tail, memory_order_acquire) == LANE)
            ;
        lane->slot[head % LANE] = pool_get(lane->pool, cache, setting->bytes);
        atomic_store_explicit(&lane->head, ++head, memory_order_release);
    }
    atomic_store_explicit(&lane->stop, true, memory_order_release);
    pthread_join(thread, NULL);
    bench_counter(state, "floor_ns", floor.p50_ns);
    pool_cache_close(cache);
    pool_close(lane->pool);
    sched_setaffinity(0, sizeof before, &before);
    free(lane);
}

BENCH_SETUP {
    static struct setting small = {256, true, 16}, frame = {16320, true, 16},
                          shared = {256, false, 16}, large = {2 << 20, true, 4},
                          batch_32 = {256, true, 32}, batch_512 = {256, true, DEPTH_MAX};
    bench_register("pool/get_put/cache/256", get_put, &small);
    bench_register("pool/get_put/cache/16320", get_put, &frame);
    bench_register("pool/get_put/shared_lists/256", get_put, &shared);
    bench_register("pool/get_put/own_mapping/2MiB", get_put, &large);
    bench_register("pool/batch/32", batches, &batch_32);
    bench_register("pool/batch/512", batches, &batch_512);
    bench_register("pool/cross_thread/256", cross_thread, &small);
}
