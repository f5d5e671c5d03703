/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * window.h - binding memory windows and taking them back, as work requests and messages ask.
 *
 * Owner: the lock of the QP on which it is bound.
 */
#ifndef SOFT_RC_WINDOW_H
#define SOFT_RC_WINDOW_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soft_mw;
struct soft_qp;
struct soft_wqe;

enum ibv_wc_status soft_mw_bind(struct soft_qp *qp, const struct soft_wqe *wqe);
/* SEND_WITH_INV and LOCAL_INV: false while the peer is still inside; to be called again, until it sets the status. */
bool soft_mw_invalidate(struct soft_qp *qp, uint32_t rkey, enum ibv_wc_status *status);
bool soft_mw_invalidate_local(struct soft_qp *qp, struct soft_wqe *wqe);
void soft_mw_forget(struct soft_qp *qp); /* control lock: the QP is not what they were bound on */
/* The window belongs to no QP any more, and no QP begins to use it. */
void soft_mw_detach(struct soft_mw *mw, struct soft_qp *qp);

#endif
