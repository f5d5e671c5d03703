/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll_sockets.h - polling of a CQ with sockets (iwarp/cq_set.h).
 *
 * Owner: the CQ's poll lock.
 */
#ifndef SOFT_VERBS_POLL_SOCKETS_H
#define SOFT_VERBS_POLL_SOCKETS_H

#include <infiniband/verbs.h>

#include "soft/iwarp/cq_set.h"

struct soft_cq;
struct soft_qp;

/* Of a crowd. Serves queue pairs whose socket has something to read: those that an earlier poll left first. */
int soft_progress_sockets(struct soft_cq *cq, struct ibv_wc *wc, int ne);
/*
 * Makes the queue pairs hot that have something to read, and marks them for the poller. Returns how many are in due[];
 * they live while the poll_lock is held.
 */
unsigned soft_look_at_sockets(struct soft_cq *cq, struct soft_qp *due[SOFT_TCP_LOOK]);
/* After a poll: those of the hot part that are only read when the set tells so. */
void soft_put_sockets_aside(struct soft_cq *cq);

#endif
