/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stall.h - for how long the machine did not run a thread that wanted to run, while a test measured what is
 * promised by the clock. A promise of so many milliseconds is kept by a program that is run: a CPU
 * that was taken away from all of us for half a second, by a hypervisor or by somebody's build, is neither
 * its fault nor its merit.
 *
 * One thread of a test measures at a time. Between begin and end no process is forked.
 */
#ifndef SLUICE_TESTS_STALL_H
#define SLUICE_TESTS_STALL_H

#include <stdint.h>

/* Starts a thread on each CPU that this process may use (the first STALL_CPUS), which wakes every millisecond. */
void stall_begin(void);

/*
 * Ends them; returns nanoseconds: how late the threads of the worst CPU were in all, counting only
 * what no turn of a scheduler explains, STALL_LEAST_NS and more at once.
 */
uint64_t stall_end(void);

enum { STALL_CPUS = 16 };
#define STALL_LEAST_NS 20000000u

#endif
