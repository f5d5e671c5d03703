/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * floor.c - the cache-line ping-pong.
 *
 * Batches of round trips; the median over the batches is the figure, because a batch in which a
 * side was preempted says nothing about the hardware. Every wait has a limit: on a crowded machine
 * the measurement fails, it never hangs.
 */
#define _GNU_SOURCE
#include "floor.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    WARM_UP = 1000,
    BATCHES = 61,
    BATCH = 300, /* short, so that most batches see no preemption on a busy machine */
    ROUNDS = WARM_UP + BATCHES * BATCH,
    LIMIT_MS = 1000,
};

static uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Spins until the line says value. The clock is read seldom: it must not disturb the spin. */
static bool await(_Atomic uint64_t *line, uint64_t value, uint64_t limit_ns) {
    for (uint32_t spins = 1; atomic_load_explicit(line, memory_order_acquire) != value; spins++)
        if (spins % 65536 == 0 && now_ns() > limit_ns)
            return false;
    return true;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(struct floor_lines *lines, struct floor_result *result, uint64_t limit_ns) {
    double batch_ns[BATCHES];
    uint64_t round = 0;
    for (int batch = -1; batch < BATCHES; batch++) {
        uint64_t start = now_ns();
        for (int i = 0; i < (batch < 0 ? WARM_UP : BATCH); i++) {
            round++;
            atomic_store_explicit(&lines->ping, round, memory_order_release);
            if (!await(&lines->pong, round, limit_ns))
                return -ETIME;
        }
        if (batch >= 0)
            batch_ns[batch] = (double)(now_ns() - start) / (2.0 * BATCH);
    }
    qsort(batch_ns, BATCHES, sizeof batch_ns[0], compare);
    result->p50_ns = batch_ns[BATCHES / 2];
    result->min_ns = batch_ns[0];
    result->max_ns = batch_ns[BATCHES - 1];
    return 0;
}

static int answer(struct floor_lines *lines, uint64_t limit_ns) {
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (!await(&lines->ping, round, limit_ns))
            return -ETIME;
        atomic_store_explicit(&lines->pong, round, memory_order_release);
    }
    return 0;
}

int floor_side(struct floor_lines *lines, int side, struct floor_result *result) {
    uint64_t limit_ns = now_ns() + (uint64_t)LIMIT_MS * 1000000u;
    return side == 0 ? measure(lines, result, limit_ns) : answer(lines, limit_ns);
}

/* ---- two threads ----------------------------------------------------------------------------- */

int floor_pin(int cpu) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(cpu, &mask);
    return -pthread_setaffinity_np(pthread_self(), sizeof mask, &mask);
}

struct other {
    struct floor_lines *lines;
    int cpu, result;
};

static void *other_side(void *arg) {
    struct other *other = arg;
    other->result = floor_pin(other->cpu);
    if (other->result == 0)
        other->result = floor_side(other->lines, 1, NULL);
    return NULL;
}

static int core_of(int cpu) {
    char path[96], line[64] = "";
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    int first = -1;
    if (fgets(line, sizeof line, file))
        first = atoi(line); /* the lowest thread of the core names it */
    fclose(file);
    return first;
}

bool floor_two_cpus(int *cpu_a, int *cpu_b) {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return false;
    int first = -1, second = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask))
            continue;
        if (first < 0) {
            first = cpu;
        } else if (core_of(cpu) != core_of(first)) {
            second = cpu;
            break;
        } else if (second < 0) {
            second = cpu; /* a sibling, unless another core turns up */
        }
    }
    if (second < 0)
        return false;
    *cpu_a = first;
    *cpu_b = second;
    return true;
}

int floor_measure(int cpu_a, int cpu_b, struct floor_result *result) {
    if (cpu_a < 0 && cpu_b < 0 && !floor_two_cpus(&cpu_a, &cpu_b))
        return -EINVAL;
    if (cpu_a < 0 || cpu_b < 0 || cpu_a == cpu_b || cpu_a >= CPU_SETSIZE || cpu_b >= CPU_SETSIZE)
        return -EINVAL;
    cpu_set_t before;
    int error = pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    if (error != 0)
        return -error;
    struct floor_lines *lines = aligned_alloc(_Alignof(struct floor_lines), sizeof *lines);
    if (!lines)
        return -ENOMEM;
    atomic_init(&lines->ping, 0);
    atomic_init(&lines->pong, 0);
    struct other other = {lines, cpu_b, 0};
    pthread_t thread;
    error = floor_pin(cpu_a);
    if (error == 0)
        error = -pthread_create(&thread, NULL, other_side, &other);
    if (error == 0) {
        *result = (struct floor_result){.cpu_a = cpu_a, .cpu_b = cpu_b};
        error = floor_side(lines, 0, result);
        pthread_join(thread, NULL);
        if (other.result != 0)
            error = other.result;
    }
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    free(lines);
    return error;
}
