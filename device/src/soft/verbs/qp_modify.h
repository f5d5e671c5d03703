/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_modify.h - transitions of queue pairs that no application asked for; the call is in soft.h.
 */
#ifndef SOFT_VERBS_QP_MODIFY_H
#define SOFT_VERBS_QP_MODIFY_H

struct soft_qp;

void soft_qp_to_error(struct soft_qp *qp); /* control lock: and flushed */

#endif
