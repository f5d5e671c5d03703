/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_piece.h - parts of a long access, and of one to private memory of the target.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_RDMA_PIECE_H
#define SOFT_RC_RDMA_PIECE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/rkey_reach.h"

#define SOFT_TOUCH_PIECE                                                                           \
    (1u << 20) /* bytes copied in one stay in the target's memory: about 0.1 ms */

/*
 * A long access to mapped memory is copied in pieces, and between two the target may revoke its key: the target waits
 * for one piece at most. The key is checked before each; `addr` is where the next byte lies, by rkey_reach(), and the
 * requester has said that it is inside. False: the whole has to be done again, another way or later, as *how says.
 */
bool soft_rdma_mapped(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                      const struct ibv_sge *sge, const uint8_t *inlined, enum rkey_reach *how,
                      uint8_t *addr);

/*
 * Gives the next piece of an access to private memory to a thread (process_copy.h). The requester stays inside until that
 * is done. False: it is outside again, and either memory here cannot be used, as wqe->status says, or no thread may
 * have the piece, and the access goes through the ring.
 */
bool soft_rdma_process(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                       const struct ibv_sge *sge, const uint8_t *inlined, uint8_t *addr);
/* qp->copy. False: the thread is not done yet. wqe->sent and wqe->status say how far it came. */
bool soft_rdma_process_over(struct soft_qp *qp, struct soft_wqe *wqe);

#endif
