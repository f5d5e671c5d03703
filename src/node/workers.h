/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * workers.h - a node's worker threads: each has a loop and, while there are CPUs, one of its own, in the
 * order of the plan. A node that is driven by a test has the loops and no threads.
 *
 * Owner: the thread in sluice_open() or sluice_close().
 */
#ifndef NODE_WORKERS_H
#define NODE_WORKERS_H

#include <sluice/sluice.h>

/* All of them, or none and *e. */
int workers_start(sluice_node *n, sluice_error *e);
/* Every session has ended: the threads are joined, loops and CPUs given back. */
void workers_stop(sluice_node *n);

#endif
