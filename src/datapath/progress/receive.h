/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive.h - frames that arrive.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_PROGRESS_RECEIVE_H
#define DATAPATH_PROGRESS_RECEIVE_H

#include "datapath/loop/loop.h"

void receive_completed(struct sluice_loop *l, const struct ibv_wc *wc);
/* Looks at held frames again; returns how many it got through. */
unsigned receive_held(struct sluice_loop *l, struct session *s);

#endif
