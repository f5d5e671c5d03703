/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma.h - what requester (rdma.c) and target (rdma_target.c) of WRITE, READ and atomics share.
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_RDMA_H
#define SOFT_RC_RDMA_H

#include "soft/verbs/object.h"

static inline bool is_atomic(unsigned opcode) {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline uint64_t atomic_run(uint64_t *word, bool swap, uint64_t compare_add,
                                  uint64_t swap_to) {
    if (!swap)
        return __atomic_fetch_add(word, compare_add, __ATOMIC_SEQ_CST);
    uint64_t old = compare_add;
    __atomic_compare_exchange_n(word, &old, swap_to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}

/* Bytes of an answer into the local buffers of its request, from at on. False: a key is not good. */
bool soft_scatter_local(struct soft_qp *qp, const struct soft_wqe *wqe, const struct ibv_sge *sge,
                        uint64_t at, const void *data, uint64_t bytes);

#endif
