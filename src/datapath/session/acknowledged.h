/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * acknowledged.h - the end of frames that are kept until the peer has acknowledged them (tx/unacked.h).
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_ACKNOWLEDGED_H
#define DATAPATH_SESSION_ACKNOWLEDGED_H

#include "datapath/loop/loop.h"

/* A completion of that entry of the send queue. The entry ends unless it waits for more; `status` is its outcome if the device failed. */
void acknowledged_completed(struct sluice_loop *l, struct connection *c, const struct ibv_wc *wc,
                            uint32_t at, sluice_status status);
/* Something arrived, or is to be sent: ends what was acknowledged, posts, and tells the peer what it is owed. */
void acknowledged_flush(struct sluice_loop *l, struct session *s);
/* The device is done with the queue pair: what is no numbered frame ends with this status; EUNKNOWN: but for operations. */
void acknowledged_others(struct sluice_loop *l, struct connection *c, sluice_status status);
/* An entry of the send queue ends, wherever it is there; what is left of it is empty. */
void acknowledged_end(struct sluice_loop *l, struct connection *c, struct sq_entry *entry,
                      sluice_status status);
/* The device is done with the queue pair: ends what the peer has said that it has. */
void acknowledged_last(struct sluice_loop *l, struct connection *c);

#endif
