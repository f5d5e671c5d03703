/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp.h - the parts of a queue pair's end that its destruction and its transitions share.
 */
#ifndef SOFT_VERBS_QP_H
#define SOFT_VERBS_QP_H

#include <stdbool.h>

struct soft_qp;

/*
 * Control lock. Out of the lists of both CQs; purge: with its completions, which on some devices stay, even of a queue
 * pair that is no more.
 */
void soft_qp_leave_cqs(struct soft_qp *qp, bool purge);
/*
 * Control lock, given up meanwhile. When it returns, the peer has left memory here; until then the QP can be
 * found, so that a thread that deregisters that memory waits for the peer as well.
 */
void soft_qp_end_traffic(struct soft_qp *qp);

#endif
