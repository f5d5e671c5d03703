/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * srq.h - posting to a shared receive queue.
 */
#ifndef SOFT_VERBS_SRQ_H
#define SOFT_VERBS_SRQ_H

#include <infiniband/verbs.h>

int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
