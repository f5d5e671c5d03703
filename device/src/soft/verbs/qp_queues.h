/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_queues.h - what a queue pair has for which so much was asked, by the profile in force, and its memory.
 */
#ifndef SOFT_VERBS_QP_QUEUES_H
#define SOFT_VERBS_QP_QUEUES_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct soft_qp;

/* The sizes that it gets; *cap becomes the same, except where the profile rounds silently. Any thread. */
struct ibv_qp_cap soft_qp_grant(struct ibv_qp_cap *cap, bool shared);
/* 0 or ENOMEM; soft_qp_queues_free() takes what there is. No other thread knows the QP yet, or any more. */
int soft_qp_queues_alloc(struct soft_qp *qp, const struct ibv_qp_cap *cap);
void soft_qp_queues_free(struct soft_qp *qp);

#endif
