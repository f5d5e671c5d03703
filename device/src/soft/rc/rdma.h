/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma.h - the requester of WRITE, READ and atomics, and the execution of an atomic, for requester and target.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_RDMA_H
#define SOFT_RC_RDMA_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/rc/requester.h"

static inline bool is_atomic(unsigned opcode) {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline bool is_write(unsigned opcode) {
    return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline uint64_t atomic_run(uint64_t *word, bool swap, uint64_t compare_add,
                                  uint64_t swap_to) {
    if (!swap)
        return __atomic_fetch_add(word, compare_add, __ATOMIC_SEQ_CST);
    uint64_t old = compare_add;
    __atomic_compare_exchange_n(word, &old, swap_to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}

enum soft_outcome soft_rdma(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                            const struct ibv_sge *sge, const uint8_t *inlined);
/* A WRITE of up to a slot's payload into mapped memory, done at once; false: take the long way. */
bool soft_rdma_write_now(struct soft_qp *qp, struct soft_ring *ring, const struct ibv_send_wr *wr);

#endif
