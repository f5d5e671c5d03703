/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ownership.h - what the ownership of loops (loop.h) needs from the system.
 */
#ifndef DATAPATH_LOOP_OWNERSHIP_H
#define DATAPATH_LOOP_OWNERSHIP_H

#include <stdbool.h>

struct sluice_loop;

void ownership_init(void); /* registers for membarrier, once; any thread */
void ownership_forked(
    void); /* this is a child of fork(): its only thread is in no loop of its own */
bool ownership_one_cpu(void); /* the process may run on one CPU only */

/* wait.c and loop.c */
int loop_drain_completions(struct sluice_loop *l); /* fetches and acknowledges CQ events; errno */
void loop_clear_stats(struct sluice_loop *l);

#endif
