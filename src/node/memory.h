/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * memory.h - a node's memory: the budget is checked before anything is allocated, then there are two
 * pools, one for allocating and sending and one for receiving, which together never register more
 * than memory_bytes_max. The statistics page, which shows them, comes and goes with them.
 *
 * Owner: the thread in sluice_open() or sluice_close().
 */
#ifndef NODE_MEMORY_H
#define NODE_MEMORY_H

#include <sluice/sluice.h>

/* When the device is open and the plan is made. 0, or a status with *e: nothing is open then. */
int node_memory_open(sluice_node *n, sluice_error *e);
/* When nothing uses it any more. */
void node_memory_close(sluice_node *n);

#endif
