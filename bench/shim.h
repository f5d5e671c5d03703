/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim.h - Google Benchmark for C.
 *
 * shim.cc has main() and all flags of Google Benchmark. Each file of benchmarks registers its cases
 * in a BENCH_SETUP block; a case is a function that loops while bench_next() is true:
 *
 *   static void get_put(bench_state *state, void *arg) {
 *       while (bench_next(state))
 *           ...;
 *       bench_floor(state, floor_ns, 1);
 *   }
 *   BENCH_SETUP {
 *       bench_register("pool/get_put", get_put, NULL);
 *   }
 *
 * Time is wall-clock time, since most cases have a second thread on another CPU.
 */
#ifndef BENCH_SHIM_H
#define BENCH_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_state bench_state;
typedef void bench_fn(bench_state *state, void *arg);

/* Runs once, from main(), before any case. One a file. */
#define BENCH_SETUP                                                                                \
    static void bench_setup(void);                                                                 \
    __attribute__((constructor)) static void bench_setup_register(void) {                          \
        bench_add_setup(bench_setup);                                                              \
    }                                                                                              \
    static void bench_setup(void)
void bench_add_setup(void (*setup)(void));

void bench_register(const char *name, bench_fn *fn, void *arg);
/* The case measures itself: one bench_time() an iteration. */
void bench_register_timed(const char *name, bench_fn *fn, void *arg);
/* A fixed number of iterations, for cases that must not be repeated at will. */
void bench_register_count(const char *name, bench_fn *fn, void *arg, uint64_t iterations);

bool bench_next(bench_state *state);
uint64_t bench_iterations(bench_state *state); /* done, after the loop; planned, within it */
void bench_pause(bench_state *state);          /* clock stopped: costs about a microsecond */
void bench_resume(bench_state *state);
void bench_time(bench_state *state, uint64_t ns);
void bench_items(bench_state *state, uint64_t items); /* prints items_per_second */
void bench_bytes(bench_state *state, uint64_t bytes); /* prints bytes_per_second */
void bench_counter(bench_state *state, const char *name, double value);
/*
 * After the loop: nanoseconds an iteration, the median over batches of iterations, which unlike the
 * mean says nothing of preemptions. Pauses are included.
 */
double bench_ns(bench_state *state);
/* Counters floor_ns and x_floor: what an iteration took over this many floors. */
void bench_floor(bench_state *state, double floor_ns, double floors);
/* Ends a case; return from it at once. It cannot run on this machine, or: it should, and went wrong. */
void bench_skip(bench_state *state, const char *why);
void bench_fail(bench_state *state, const char *why); /* main() ends with status 1 */

/* Keeps the compiler from dropping a result. */
static inline void bench_keep(const void *value) {
    __asm__ volatile("" : : "g"(value) : "memory");
}

#ifdef __cplusplus
}
#endif
#endif
