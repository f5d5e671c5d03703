/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_pollset.h - which queue pairs of a CQ its pollers look at. See cq_pollset.c.
 */
#ifndef SOFT_OBJECT_CQ_POLLSET_H
#define SOFT_OBJECT_CQ_POLLSET_H

#include <stdbool.h>

struct soft_cq;
struct soft_qp;

#define SOFT_MANY 32u /* QPs of a CQ: up to here all are looked at in every poll */

/* Any thread. A send was posted to a cold QP, or something came for it: every poll looks at it again. */
void soft_cq_pollset_warm(struct soft_qp *qp);

/* Those that began to be used since the last poll. The poll lock is held. */
void soft_cq_pollset_take_warm(struct soft_cq *cq);
/* The poll lock is held. */
void soft_cq_pollset_warm_up(struct soft_cq *cq, unsigned at);
void soft_cq_pollset_cool(struct soft_cq *cq);
void soft_cq_pollset_listen(struct soft_cq *cq); /* there are more than SOFT_MANY */
bool soft_cq_pollset_listen_to(struct soft_cq *cq, unsigned at);
/* One of the hot part, which the CQ's set of sockets tells of (iwarp/cq_set.h): no poll looks at it until it is warm again. */
void soft_cq_pollset_set_aside(struct soft_cq *cq, unsigned at);
bool soft_cq_pollset_is_aside(const struct soft_cq *cq, unsigned at);
/* The poll lock is not held. */
int soft_cq_pollset_add(struct soft_cq *cq, struct soft_qp *qp);
void soft_cq_pollset_remove(struct soft_cq *cq, struct soft_qp *qp, bool purge);

#endif
