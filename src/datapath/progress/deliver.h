/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * deliver.h - events: to a session's handler, or into the array of the thread that polls.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_PROGRESS_DELIVER_H
#define DATAPATH_PROGRESS_DELIVER_H

#include "datapath/loop/loop.h"

/* Delivers outcomes, notices and wakes as far as there is room; returns how many. */
unsigned event_deliver(struct sluice_loop *l);
unsigned event_listeners(struct sluice_loop *l); /* those whose device is gone */

#endif
