/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * region_memory.h - memory that peers map: soft_mem_alloc() of soft.h, and the device's own.
 *
 * It lies in a memfd that is sealed against resizing, so that no process can make a mapping fault. Peers of the same user
 * map it; what a registration inside of it sends is moved by one copy instead of two.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_RC_REGION_MEMORY_H
#define SOFT_RC_REGION_MEMORY_H

#include <stddef.h>

/* Memory that the device itself uses: the region's index, or -1 and errno. Control lock. */
int soft_region_memory(size_t bytes);
void soft_region_memory_end(int index);

/* A forked child has the memory, and no peer maps it. */
void soft_region_memory_forked(void);

#endif
