/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* memory_file.h - files of memory, which processes share by their descriptors. No state, any thread. */
#ifndef COMMON_MEMORY_FILE_H
#define COMMON_MEMORY_FILE_H

#include <stddef.h>

/*
 * A file of so many bytes, all 0, closed on exec, that can be sealed; flags: MFD_HUGETLB and its sizes, or 0. Returns
 * a descriptor, or -1 and errno: EFBIG above RLIMIT_FSIZE. The kernel says that with a signal (SIGXFSZ), which ends
 * the process; so the limit is asked for first.
 */
int memory_file_create(const char *name, size_t bytes, unsigned flags);

#endif
