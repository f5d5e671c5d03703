/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * acks.h - telling a peer which of its frames arrived, where it keeps them until it knows (PRIVATE_DATA_FEATURE_RESUME).
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_RX_ACKS_H
#define DATAPATH_RX_ACKS_H

#include "datapath/loop/loop.h"

/* A plain message came. */
void acks_arrived(struct sluice_loop *l, struct connection *c);
/* Frames came, and what there was to post is posted: what is still owed is told now, or is noted. */
void acks_flush(struct sluice_loop *l, struct connection *c);
/* Tells what was owed for long enough; l->now_ns was just read. */
void acks_check(struct sluice_loop *l);
/* The connection ends: nothing is owed any more. */
void acks_forget(struct connection *c);

#endif
