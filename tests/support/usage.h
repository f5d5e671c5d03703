/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * usage.h - what this process has in use, as proc(5) tells it.
 */
#ifndef TESTS_SUPPORT_USAGE_H
#define TESTS_SUPPORT_USAGE_H

#include <stddef.h>
#include <stdint.h>

/* Entries of a folder: of /proc/self/fd and /proc/self/task. */
unsigned usage_entries(const char *path);
/* Bytes of its memory that are resident. */
size_t usage_resident(void);
/* Processor time of all its threads so far. */
uint64_t usage_processor_ns(void);

#endif
