/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_pollset.h - which queue pairs of a CQ its pollers look at: the call for files other than the CQ's own.
 */
#ifndef SOFT_VERBS_CQ_POLLSET_H
#define SOFT_VERBS_CQ_POLLSET_H

struct soft_cq;
struct soft_qp;

/* Any thread. A send was posted to a cold QP, or something came for it: every poll looks at it again. */
void soft_cq_pollset_warm(struct soft_qp *qp);

/* Those that began to be used since the last poll. The poll lock is held. */
void soft_cq_pollset_take_warm(struct soft_cq *cq);

#endif
