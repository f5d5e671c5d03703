/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * floor.h - the physical floor: what it takes to hand a cache line from one CPU to another.
 *
 * Two threads or processes, each pinned to a CPU, each spinning on a line the other writes. Half of
 * a round trip is the least any message between these CPUs can take. Depending on where two virtual
 * CPUs lie the floor has one of a few values and may change within minutes: measure it in the run
 * whose result it stands beside.
 *
 * Depends on nothing but the C library; used by the benchmarks and by the tools.
 */
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The two lines, zeroed before use; in shared memory when the sides are two processes. */
struct floor_lines {
    _Alignas(128) _Atomic uint64_t ping;
    _Alignas(128) _Atomic uint64_t pong;
};

struct floor_result {
    double p50_ns, min_ns, max_ns; /* one way, of the batches */
    int cpu_a, cpu_b;
};

/*
 * Measures between two threads of this process on these CPUs (-1, -1: any two allowed ones). Takes
 * some milliseconds, on a busy machine a second at most. 0, or -errno: EINVAL they are not two
 * allowed CPUs (with one CPU there is no floor), ETIME the other side did not get to run. The
 * caller's affinity is as before afterwards.
 */
int floor_measure(int cpu_a, int cpu_b, struct floor_result *result);

/*
 * One side of the ping-pong, for two processes that share lines and pinned themselves: side 0
 * measures and fills result, side 1 answers (result NULL). 0 or -ETIME.
 */
int floor_side(struct floor_lines *lines, int side, struct floor_result *result);

/* Pins the calling thread. 0 or -errno. */
int floor_pin(int cpu);

/* Two allowed CPUs, on different cores if there are such. False: there is only one. */
bool floor_two_cpus(int *cpu_a, int *cpu_b);

#endif
