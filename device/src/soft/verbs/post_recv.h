/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post_recv.h - posting receives to a QP, and to the queue that a QP or an SRQ has.
 *
 * Owner: the lock of the QP or SRQ.
 */
#ifndef SOFT_VERBS_POST_RECV_H
#define SOFT_VERBS_POST_RECV_H

#include <infiniband/verbs.h>

struct soft_recv_queue;

/* Posts *wr and what follows; on an error *wr is the first that was not posted. */
int soft_recv_push(struct soft_recv_queue *rq, struct ibv_recv_wr **wr);
int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
