/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* stall.c - threads that do nothing but look whether they are woken in time. */
#define _GNU_SOURCE
#include "support/stall.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { STALLS_MAX = 256 }; /* of a CPU; more of them are not counted */

struct stall {
    uint64_t from, to;
};

static struct watcher {
    pthread_t thread;
    unsigned count; /* both its thread's, until that was joined */
    struct stall stalls[STALLS_MAX];
} watchers[STALL_CPUS];
static int count;
static _Atomic int over;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *watch(void *arg) {
    struct watcher *watcher = arg;
    uint64_t due = now_ns();
    while (!atomic_load(&over)) {
        due += 1000000;
        struct timespec at = {.tv_sec = (time_t)(due / 1000000000u),
                              .tv_nsec = (long)(due % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
            ;
        uint64_t now = now_ns();
        if (now > due && now - due >= STALL_LEAST_NS && watcher->count < STALLS_MAX)
            watcher->stalls[watcher->count++] = (struct stall){due, now};
        if (now > due)
            due = now;
    }
    return NULL;
}

void stall_begin(void) {
    cpu_set_t allowed, one;
    (void)stall_end(); /* of a test that failed in between */
    atomic_store(&over, 0);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < STALL_CPUS; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        struct watcher *watcher = &watchers[count];
        watcher->count = 0;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_attr_t attr;
        if (pthread_attr_init(&attr) != 0)
            return;
        if (pthread_attr_setaffinity_np(&attr, sizeof one, &one) == 0 &&
            pthread_create(&watcher->thread, &attr, watch, watcher) == 0)
            count++;
        pthread_attr_destroy(&attr);
    }
}

static int by_begin(const void *a, const void *b) {
    const struct stall *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

uint64_t stall_end(void) {
    static struct stall all[STALL_CPUS * STALLS_MAX];
    unsigned stalls = 0;
    atomic_store(&over, 1);
    for (int i = 0; i < count; i++) {
        pthread_join(watchers[i].thread, NULL);
        for (unsigned k = 0; k < watchers[i].count; k++)
            all[stalls++] = watchers[i].stalls[k];
    }
    count = 0;
    qsort(all, stalls, sizeof all[0], by_begin);
    uint64_t sum = 0, counted = 0; /* up to when */
    for (unsigned i = 0; i < stalls; i++) {
        uint64_t from = all[i].from > counted ? all[i].from : counted;
        if (all[i].to > from) {
            sum += all[i].to - from;
            counted = all[i].to;
        }
    }
    return sum;
}
