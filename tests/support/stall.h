/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stall.h - for how long the machine did not run threads that wanted to run, while a test measured what is
 * promised by the clock. A promise of so many milliseconds is kept by a program that is run: a CPU that a
 * hypervisor or somebody's build took away for half a second is neither its fault nor its merit.
 *
 * One thread of a test measures at a time. A process forked between begin and end has no such threads and
 * calls neither, until it runs another program.
 */
#ifndef TESTS_SUPPORT_STALL_H
#define TESTS_SUPPORT_STALL_H

#include <stdint.h>

/* Starts a thread on each CPU that this process may use (the first STALL_CPUS), woken every millisecond. */
void stall_begin(void);

/*
 * Ends them; returns nanoseconds: for how long one CPU or another did not run its thread. What is
 * measured may need first the one and then the other. Counted is only what no turn of a scheduler explains,
 * STALL_LEAST_NS and more at once.
 */
uint64_t stall_end(void);

enum { STALL_CPUS = 16 };
#define STALL_LEAST_NS 10000000u

#endif
