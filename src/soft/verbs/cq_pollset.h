/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_pollset.h - which queue pairs of a CQ its pollers look at: what others than the CQ's own files ask of it.
 */
#ifndef SOFT_VERBS_CQ_POLLSET_H
#define SOFT_VERBS_CQ_POLLSET_H

struct soft_qp;

/* Any thread. A send was posted to a cold QP, or something came: it is looked at in every poll again. */
void soft_cq_pollset_warm(struct soft_qp *qp);

#endif
