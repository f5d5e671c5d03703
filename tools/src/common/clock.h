/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * clock.h - a clock that costs little enough to be read once a round trip.
 *
 * On x86-64, where the kernel itself keeps time by the time-stamp counter (so it is known to run
 * evenly on every CPU), that counter is read directly and scaled; elsewhere CLOCK_MONOTONIC is
 * read. Ticks are only for differences.
 *
 * Owner: clock_start() once in the main thread; then read-only.
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct tool_clock {
    bool counter;   /* the time-stamp counter, else nanoseconds */
    uint64_t scale; /* nanoseconds per tick, 32.32 fixed point */
};
extern struct tool_clock tool_clock;

/* Measures the counter against CLOCK_MONOTONIC: takes about 20 ms. */
void clock_start(void);

static inline uint64_t clock_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* in the vdso, not a system call */
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_ticks(void) {
#if defined(__x86_64__)
    if (tool_clock.counter)
        return __builtin_ia32_rdtsc();
#endif
    return clock_monotonic_ns();
}

static inline uint64_t clock_ticks_to_ns(uint64_t ticks) {
    return (uint64_t)(((unsigned __int128)ticks * tool_clock.scale) >> 32);
}

#endif
