/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* stall.c - threads that do nothing but look whether they are woken in time. */
#define _GNU_SOURCE
#include "stall.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

static struct watcher {
    pthread_t thread;
    uint64_t late_ns; /* its thread's, until that was joined */
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
        if (now - due >= STALL_LEAST_NS)
            watcher->late_ns += now - due;
        if (now > due)
            due = now;
    }
    return NULL;
}

void stall_begin(void) {
    cpu_set_t allowed, one;
    atomic_store(&over, 0);
    count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < STALL_CPUS; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        struct watcher *watcher = &watchers[count];
        watcher->late_ns = 0;
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

uint64_t stall_end(void) {
    uint64_t worst = 0;
    atomic_store(&over, 1);
    for (int i = 0; i < count; i++) {
        pthread_join(watchers[i].thread, NULL);
        if (watchers[i].late_ns > worst)
            worst = watchers[i].late_ns;
    }
    count = 0;
    return worst;
}
