/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll_sockets.h - polling of a CQ with more than a few sockets (iwarp/cq_set.h).
 *
 * Owner: the CQ's poll lock.
 */
#ifndef SOFT_VERBS_POLL_SOCKETS_H
#define SOFT_VERBS_POLL_SOCKETS_H

#include <infiniband/verbs.h>

struct soft_cq;

/* Serves queue pairs whose socket has something to read: those that an earlier poll left first. */
int soft_progress_sockets(struct soft_cq *cq, struct ibv_wc *wc, int ne);
/* After a poll: those of the hot part that are only read when the set tells so. */
void soft_put_sockets_aside(struct soft_cq *cq);

#endif
