/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup_bench.c - signalling an owner that is awake, and waking one that sleeps.
 *
 * A wake is timed from before the signal until the woken thread's answer in memory is seen, in turns
 * with the same wake through a bare eventfd and epoll: x_bare is the ratio of the two medians of
 * one run. Waker and sleeper have a CPU each.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/wakeup.h"
#include "base/env.h"
#include "floor.h"
#include "shim.h"

struct kind {
    const struct fabric_ops *fabric;
    bool cm;
};
static struct kind event_fd = {&fabric_system, false}, soft = {&fabric_soft, true},
                   kernel = {&fabric_system, true};

static void signal_awake(bench_state *state, void *arg) {
    const struct kind *kind = arg;
    struct wakeup wakeup;
    if (wakeup_open(&wakeup, kind->fabric, kind->cm) != 0) {
        bench_fail(state, "no wakeup");
        return;
    }
    while (bench_next(state))
        wakeup_signal(&wakeup, 1, 1);
    wakeup_close(&wakeup);
}

/* False: no wakeup, or the kernel (or librdmacm) has no user events and it would be the eventfd. */
static bool open_as(struct wakeup *wakeup, const struct kind *kind) {
    if (wakeup_open(wakeup, kind->fabric, kind->cm) != 0)
        return false;
    if (kind->cm && !wakeup->channel) {
        wakeup_close(wakeup);
        return false;
    }
    return true;
}

/* The kernel's are the only ones that a machine may lack. */
static void no_wakeup(bench_state *state, const struct kind *kind) {
    if (kind == &kernel)
        bench_skip(state, "no user events");
    else
        bench_fail(state, "no wakeup");
}

/* What the ringer alone pays for a ring that makes the system call. */
static void signal_armed(bench_state *state, void *arg) {
    const struct kind *kind = arg;
    struct wakeup wakeup;
    if (!open_as(&wakeup, kind)) {
        no_wakeup(state, kind);
        return;
    }
    while (bench_next(state)) {
        wakeup_arm(&wakeup);
        wakeup_signal(&wakeup, 1, 1);
        wakeup_disarm(&wakeup);
        wakeup_drain(&wakeup, EPOLLIN);
    }
    wakeup_close(&wakeup);
}

/* ---- waking ---------------------------------------------------------------------------------- */

enum { BARE, BELL, STOP };
#define SAMPLES_MAX 4096

struct sleeper {
    struct wakeup wakeup;
    int bare_fd, wakeup_epoll, bare_epoll;
    int cpu;
    _Alignas(128) _Atomic uint32_t mode; /* how the next sleep is woken */
    _Atomic uint64_t order;              /* work: the number of the turn */
    _Alignas(128) _Atomic uint64_t done;
    _Atomic uint64_t about_to_sleep;
};

static void sleep_bare(struct sleeper *s, uint64_t turn) {
    struct epoll_event event;
    uint64_t count;
    atomic_store(&s->about_to_sleep, turn);
    while (atomic_load(&s->order) != turn)
        epoll_wait(s->bare_epoll, &event, 1, -1);
    atomic_store_explicit(&s->done, turn, memory_order_release);
    if (read(s->bare_fd, &count, sizeof count) < 0)
        return;
}

static void sleep_once(struct sleeper *s, uint64_t turn) {
    struct epoll_event event;
    atomic_store(&s->about_to_sleep, turn);
    for (;;) {
        wakeup_arm(&s->wakeup);
        bool nothing = atomic_load(&s->order) != turn;
        if (nothing)
            epoll_wait(s->wakeup_epoll, &event, 1, -1);
        wakeup_disarm(&s->wakeup);
        if (atomic_load(&s->order) == turn)
            break;
        wakeup_drain(&s->wakeup, EPOLLIN);
    }
    atomic_store_explicit(&s->done, turn, memory_order_release);
    wakeup_drain(&s->wakeup, EPOLLIN);
}

static void *sleeper_main(void *arg) {
    struct sleeper *s = arg;
    floor_pin(s->cpu);
    for (uint64_t turn = 1;; turn++) {
        while (atomic_load(&s->about_to_sleep) != turn - 1)
            ;
        uint32_t mode = turn % 2 ? BELL : BARE;
        if (atomic_load(&s->mode) == STOP)
            return NULL;
        if (mode == BELL)
            sleep_once(s, turn);
        else
            sleep_bare(s, turn);
        if (atomic_load(&s->mode) == STOP)
            return NULL;
    }
}

static uint64_t now(void) {
    return env_now(&env_default);
}

/* Wakes the sleeper for one turn and returns how long it took to answer. */
static uint64_t wake(struct sleeper *s, uint64_t turn) {
    while (atomic_load(&s->about_to_sleep) != turn)
        ;
    for (uint64_t settled = now() + 30000; now() < settled;) /* it is in epoll_wait by then */
        ;
    uint64_t start = now();
    atomic_store(&s->order, turn);
    if (turn % 2) {
        wakeup_signal(&s->wakeup, 1, turn);
    } else {
        uint64_t one = 1;
        if (write(s->bare_fd, &one, sizeof one) != sizeof one)
            return 0;
    }
    while (atomic_load_explicit(&s->done, memory_order_acquire) != turn)
        ;
    return now() - start;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double median(uint64_t *samples, unsigned count) {
    qsort(samples, count, sizeof samples[0], compare);
    return count ? (double)samples[count / 2] : 0;
}

static bool sleeper_open(struct sleeper *s, const struct kind *kind) {
    memset(s, 0, sizeof *s);
    if (!open_as(&s->wakeup, kind))
        return false;
    s->bare_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->wakeup_epoll = epoll_create1(EPOLL_CLOEXEC);
    s->bare_epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event interest = {.events = EPOLLIN};
    return wakeup_add_to(&s->wakeup, s->wakeup_epoll, NULL) == 0 &&
           epoll_ctl(s->bare_epoll, EPOLL_CTL_ADD, s->bare_fd, &interest) == 0;
}

static void sleeper_close(struct sleeper *s) {
    wakeup_close(&s->wakeup);
    close(s->bare_fd);
    close(s->wakeup_epoll);
    close(s->bare_epoll);
    free(s);
}

static void wake_sleeper(bench_state *state, void *arg) {
    const struct kind *kind = arg;
    static uint64_t bell_ns[SAMPLES_MAX], bare_ns[SAMPLES_MAX];
    struct sleeper *s = aligned_alloc(_Alignof(struct sleeper), sizeof *s);
    if (!s || !sleeper_open(s, kind)) {
        no_wakeup(state, kind);
        free(s);
        return;
    }
    cpu_set_t before;
    int cpu_a;
    if (!floor_two_cpus(&cpu_a, &s->cpu) || sched_getaffinity(0, sizeof before, &before) != 0) {
        bench_skip(state, "needs two CPUs");
        sleeper_close(s);
        return;
    }
    floor_pin(cpu_a);
    pthread_t thread;
    pthread_create(&thread, NULL, sleeper_main, s);
    uint64_t turn = 0;
    unsigned count = 0;
    while (bench_next(state)) {
        uint64_t ns = wake(s, ++turn);
        bell_ns[count % SAMPLES_MAX] = ns;
        bare_ns[count++ % SAMPLES_MAX] = wake(s, ++turn);
        bench_time(state, ns);
    }
    /* Release the sleeper from the turn it has begun. */
    while (atomic_load(&s->about_to_sleep) != turn + 1)
        ;
    atomic_store(&s->mode, STOP);
    wake(s, turn + 1);
    pthread_join(thread, NULL);
    if (count > SAMPLES_MAX)
        count = SAMPLES_MAX;
    double wakeup = median(bell_ns, count), bare = median(bare_ns, count);
    bench_counter(state, "p50_ns", wakeup);
    bench_counter(state, "bare_p50_ns", bare);
    if (bare > 0)
        bench_counter(state, "x_bare", wakeup / bare);
    bench_counter(state, "user_events", (double)s->wakeup.writes);
    bench_counter(state, "by_eventfd", (double)s->wakeup.fallbacks);
    sched_setaffinity(0, sizeof before, &before);
    sleeper_close(s);
}

BENCH_SETUP {
    bench_register("wakeup/signal_awake", signal_awake, &event_fd);
    bench_register("wakeup/signal_and_drain/eventfd", signal_armed, &event_fd);
    bench_register("wakeup/signal_and_drain/soft_user_event", signal_armed, &soft);
    bench_register("wakeup/signal_and_drain/kernel_user_event", signal_armed, &kernel);
    bench_register_timed("wakeup/wake/eventfd", wake_sleeper, &event_fd);
    bench_register_timed("wakeup/wake/soft_user_event", wake_sleeper, &soft);
    bench_register_timed("wakeup/wake/kernel_user_event", wake_sleeper, &kernel);
}
