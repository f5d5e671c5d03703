/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_target.h - the target of one-sided requests that come through the ring, and the answers to our own.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_RDMA_TARGET_H
#define SOFT_RC_RDMA_TARGET_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/object/ring.h"

struct soft_qp;
struct soft_wqe;

bool soft_rdma_target_take(struct soft_qp *qp, struct soft_ring *ring, unsigned index, unsigned op,
                           unsigned flags, unsigned len);
enum soft_nak soft_rdma_target_execute(struct soft_qp *qp, unsigned op,
                                       const struct soft_reth *reth,
                                       const struct soft_atomic *atomic);
bool soft_rdma_target_transmit(struct soft_qp *qp); /* true: something was written */
/* An atomic of a peer's. False: the target unmapped the memory. */
bool soft_atomic_guarded(uint64_t *at, bool swap, uint64_t compare_add, uint64_t swap_to,
                         uint64_t *before);

/* Bytes of an answer into the local buffers of its request, from at on. False: a key is not good. */
bool soft_scatter_local(struct soft_qp *qp, const struct soft_wqe *wqe, const struct ibv_sge *sge,
                        uint64_t at, const void *data, uint64_t bytes);

#endif
