/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ownership.h - what the ownership of loops (loop.h) needs from the system.
 */
#ifndef DATAPATH_LOOP_OWNERSHIP_H
#define DATAPATH_LOOP_OWNERSHIP_H

#include <stdbool.h>

void ownership_init(void); /* registers for membarrier, once; any thread */
void ownership_forked(
    void); /* this is a child of fork(): its only thread is in no loop of its own */
bool ownership_one_cpu(void); /* the process may run on one CPU only */

#endif
