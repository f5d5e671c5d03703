/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_share.h - how the entries of a loop's completion queue are divided among its connections.
 *
 * A completion queue that overflows is lost, and with it every session of its loop. So each connection has as many entries as it can
 * have completions at a time: one for each work request of its send queue, and one for each receive of its own.
 *
 * Each of sessions_max sessions is promised a least share, whatever its options are. A node does not open for more sessions than a
 * queue has least shares (node/memory.c). What the promised shares leave over goes to the sessions that come first: while there
 * is much of it they have queues of full depth, and then shallower ones. A connection keeps its share for life.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_LOOP_CQ_SHARE_H
#define DATAPATH_LOOP_CQ_SHARE_H

#include "datapath/loop/loop.h"

/* Entries that a session is promised. Any thread. */
uint32_t cq_share_least(const struct ibv_device_attr *attr);
/* Entries of a send queue of full depth. Any thread. */
uint32_t cq_share_sends(const struct ibv_device_attr *attr);
/* Entries of the completion queue of a loop. Any thread. */
int cq_share_entries(const sluice_node *n);
/* Shared receives of a new loop, at most: as far as no promised share is taken for them. */
uint32_t cq_share_receives(const struct sluice_loop *l);

/*
 * Takes a share: decides the depth of the connection's send queue, and with `own` that of its receive queue and how many credits of
 * it the peer can have. False: this connection is one more than sessions_max, and there is nothing left over.
 */
bool cq_share_take(struct sluice_loop *l, struct connection *c, bool own);
void cq_share_give_back(struct sluice_loop *l, struct connection *c);

#endif
