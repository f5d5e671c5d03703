/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_piece.h - a part of a long access, or of one to private memory of the target.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_RDMA_PIECE_H
#define SOFT_RC_RDMA_PIECE_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "soft/rc/rkey_reach.h"
#include "soft/verbs/qp.h"

/*
 * Copies n bytes, from byte `at` of the work request's local buffers on; `addr` is where they lie at the target, by
 * rkey_reach(): REACH_MAPPED or REACH_PROCESS. The requester has said that it is inside.
 */
enum ibv_wc_status soft_rdma_piece(struct soft_qp *qp, const struct soft_wqe *wqe,
                                   const struct ibv_sge *sge, const uint8_t *inlined,
                                   enum rkey_reach how, uint32_t at, uint32_t n, uint8_t *addr);

#endif
