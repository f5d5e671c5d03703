/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * messages.h - what other threads have put into a loop's mailbox.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_PROGRESS_MESSAGES_H
#define DATAPATH_PROGRESS_MESSAGES_H

#include "datapath/loop/loop.h"

/* Takes some; how many. */
unsigned loop_take_msgs(struct sluice_loop *l);

#endif
