/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * no_membarrier.h - a process to which the kernel gives no membarrier(2), as containers do.
 */
#ifndef TESTS_SUPPORT_NO_MEMBARRIER_H
#define TESTS_SUPPORT_NO_MEMBARRIER_H

#include <stdbool.h>

/* For all its threads, from now on. False: this kernel or sandbox has no filters of system calls. */
bool no_membarrier(void);

#endif
