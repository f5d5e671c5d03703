/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mw.h - memory windows of type 2: a key of its own inside an MR, given and taken by work requests.
 *
 * Owner: a bound window, the lock of its QP; allocation, the control lock.
 */
#ifndef SOFT_VERBS_MW_H
#define SOFT_VERBS_MW_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/verbs/mr.h"

struct soft_qp;
struct soft_wqe;

struct soft_mw {
    struct ibv_mw ibv;
    uint8_t zero[64];
    uint32_t generation;
    struct soft_mr as_mr; /* what the key table and the target path see while it is bound */
    struct soft_mr *mr;   /* NULL: not bound; the lock of the QP */
    /* A type 2 window serves the QP it was bound on. Changed under its lock, looked at by others. */
    struct soft_qp *_Atomic qp;
};

#define soft_mw_of(p) ((struct soft_mw *)(p))

struct ibv_mw *soft_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int soft_dealloc_mw(struct ibv_mw *mw);
int soft_mw_check(struct soft_qp *qp, const struct ibv_send_wr *wr);
enum ibv_wc_status soft_mw_bind(struct soft_qp *qp, const struct soft_wqe *wqe);
/* SEND_WITH_INV and LOCAL_INV: false while the peer is still inside; to be called again, until it sets the status. */
bool soft_mw_invalidate(struct soft_qp *qp, uint32_t rkey, enum ibv_wc_status *status);
bool soft_mw_invalidate_local(struct soft_qp *qp, struct soft_wqe *wqe);
void soft_mw_forget(struct soft_qp *qp); /* control lock: the QP is not what they were bound on */

#endif
