/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpsc_queue_bench.c - handing records to another thread: posting and taking alone, a hand-over one way
 * between two pinned threads beside the cache-line floor, and a stream.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mpsc_queue.h"
#include "floor.h"
#include "shim.h"

static void empty(bench_state *state, void *arg) {
    (void)arg;
    struct mpsc_queue box;
    mpsc_queue_init(&box);
    while (bench_next(state))
        bench_keep(mpsc_queue_take(&box));
}

static void post_take(bench_state *state, void *arg) {
    (void)arg;
    struct mpsc_queue box;
    struct mpsc_queue_item item = {0};
    mpsc_queue_init(&box);
    while (bench_next(state)) {
        mpsc_queue_post(&box, &item);
        bench_keep(mpsc_queue_take(&box));
    }
}

/* ---- two threads ----------------------------------------------------------------------------- */

#define WINDOW 64

struct pair {
    struct mpsc_queue there, back;
    struct mpsc_queue_item stop, items[WINDOW];
    _Alignas(64) _Atomic uint64_t taken;
    int cpu;
};

enum { ECHO, COUNT, STOP };

/* Sends ECHO records back, counts COUNT records, ends with STOP. */
static void *other_side(void *arg) {
    struct pair *pair = arg;
    floor_pin(pair->cpu);
    uint64_t taken = 0;
    for (;;) {
        struct mpsc_queue_item *item = mpsc_queue_take(&pair->there);
        if (!item)
            continue;
        if (item->verb == STOP)
            return NULL;
        if (item->verb == ECHO)
            mpsc_queue_post(&pair->back, item);
        else
            atomic_store_explicit(&pair->taken, ++taken, memory_order_release);
    }
}

static struct pair *pair_open(bench_state *state, pthread_t *thread, struct floor_result *floor,
                              cpu_set_t *before) {
    int cpu_a, cpu_b;
    if (!floor_two_cpus(&cpu_a, &cpu_b) || floor_measure(cpu_a, cpu_b, floor) != 0 ||
        sched_getaffinity(0, sizeof *before, before) != 0) {
        bench_skip(state, "needs two CPUs that are not busy");
        return NULL;
    }
    struct pair *pair = aligned_alloc(_Alignof(struct pair), sizeof *pair);
    if (!pair)
        return NULL;
    memset(pair, 0, sizeof *pair);
    mpsc_queue_init(&pair->there);
    mpsc_queue_init(&pair->back);
    pair->cpu = cpu_b;
    floor_pin(cpu_a);
    pthread_create(thread, NULL, other_side, pair);
    return pair;
}

static void pair_close(struct pair *pair, pthread_t thread, const cpu_set_t *before) {
    pair->stop.verb = STOP;
    mpsc_queue_post(&pair->there, &pair->stop);
    pthread_join(thread, NULL);
    sched_setaffinity(0, sizeof *before, before);
    free(pair);
}

/* An iteration is a round trip: two hand-overs. */
static void round_trip(bench_state *state, void *arg) {
    (void)arg;
    pthread_t thread;
    struct floor_result floor = {0};
    cpu_set_t before;
    struct pair *pair = pair_open(state, &thread, &floor, &before);
    if (!pair)
        return;
    pair->items[0].verb = ECHO;
    while (bench_next(state)) {
        mpsc_queue_post(&pair->there, &pair->items[0]);
        while (!mpsc_queue_take(&pair->back))
            ;
    }
    bench_counter(state, "one_way_ns", bench_ns(state) / 2);
    bench_floor(state, floor.p50_ns, 2);
    pair_close(pair, thread, &before);
}

static void stream(bench_state *state, void *arg) {
    (void)arg;
    pthread_t thread;
    struct floor_result floor = {0};
    cpu_set_t before;
    struct pair *pair = pair_open(state, &thread, &floor, &before);
    if (!pair)
        return;
    uint64_t posted = 0;
    while (bench_next(state)) {
        while (posted - atomic_load_explicit(&pair->taken, memory_order_acquire) == WINDOW)
            ;
        struct mpsc_queue_item *item = &pair->items[posted++ % WINDOW];
        item->verb = COUNT;
        mpsc_queue_post(&pair->there, item);
    }
    bench_items(state, bench_iterations(state));
    bench_counter(state, "floor_ns", floor.p50_ns);
    pair_close(pair, thread, &before);
}

BENCH_SETUP {
    bench_register("mpsc_queue/take_empty", empty, NULL);
    bench_register("mpsc_queue/post_take/one_thread", post_take, NULL);
    bench_register("mpsc_queue/round_trip/two_threads", round_trip, NULL);
    bench_register("mpsc_queue/stream/two_threads", stream, NULL);
}
