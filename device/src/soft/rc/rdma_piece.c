/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_piece.c - copying parts of a long WRITE or READ, between buffers here and memory of the target.
 *
 * Owner: the QP's lock.
 */
#include "soft/rc/rdma_piece.h"

#include <stdbool.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/mr.h"
#include "soft/rc/process_copy.h"
#include "soft/rc/rdma.h"
#include "soft/rc/store_ordered.h"

/* Bytes at .. at + n of the local buffers. 0: a key is not good, or they are shorter. */
static unsigned local_piece(const struct soft_qp *qp, const struct soft_wqe *wqe,
                            const struct ibv_sge *sge, const uint8_t *inlined, uint32_t at,
                            uint32_t n, struct iovec *iov) {
    int access = is_write(wqe->opcode) ? 0 : IBV_ACCESS_LOCAL_WRITE;
    unsigned count = 0;
    if (inlined) {
        iov[0] = (struct iovec){(void *)(uintptr_t)(inlined + at), n};
        return 1;
    }
    for (unsigned i = 0; i < wqe->num_sge && n; i++) {
        if (at >= sge[i].length) {
            at -= sge[i].length;
            continue;
        }
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        uint8_t *from = mr ? soft_mr_range(mr, sge[i].addr, sge[i].length, access) : NULL;
        uint32_t here = sge[i].length - at < n ? sge[i].length - at : n;
        if (!from)
            return 0;
        iov[count++] = (struct iovec){from + at, here};
        n -= here;
        at = 0;
    }
    return n ? 0 : count;
}

static void copy_mapped(bool write, const struct iovec *iov, unsigned n, uint8_t *addr, bool last) {
    for (unsigned i = 0; i < n; i++) {
        if (write)
            store_ordered(addr, iov[i].iov_base, iov[i].iov_len, last && i + 1 == n);
        else
            memcpy(iov[i].iov_base, addr, iov[i].iov_len);
        addr += iov[i].iov_len;
    }
}

static enum ibv_wc_status mapped_piece(struct soft_qp *qp, const struct soft_wqe *wqe,
                                       const struct ibv_sge *sge, const uint8_t *inlined,
                                       uint32_t at, uint32_t n, uint8_t *addr) {
    struct iovec iov[SOFT_MAX_SGE];
    unsigned count = local_piece(qp, wqe, sge, inlined, at, n, iov);
    if (count == 0)
        return IBV_WC_LOC_PROT_ERR;
    copy_mapped(is_write(wqe->opcode), iov, count, addr, at + n == wqe->total);
    return IBV_WC_SUCCESS;
}

static uint32_t next_piece(const struct soft_wqe *wqe, uint32_t at) {
    return wqe->total - at < SOFT_TOUCH_PIECE ? wqe->total - at : SOFT_TOUCH_PIECE;
}

bool soft_rdma_mapped(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                      const struct ibv_sge *sge, const uint8_t *inlined, enum rkey_reach *how,
                      uint8_t *addr) {
    const struct soft_wqe_remote *to = soft_wqe_remote(qp, wqe);
    uint32_t at = wqe->sent;
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    for (;;) {
        uint32_t n = next_piece(wqe, at);
        status = mapped_piece(qp, wqe, sge, inlined, at, n, addr);
        at += n;
        if (status != IBV_WC_SUCCESS || at == wqe->total)
            break;
        rkey_reach_end(ring);
        rkey_reach_begin(qp, ring);
        *how = rkey_reach(qp, wqe->opcode, to->addr + at, to->rkey, wqe->total - at, &addr);
        if (*how != REACH_MAPPED || ld(ring->rx.down) != 0)
            return false;
    }
    wqe->status = (uint8_t)status;
    return true;
}

bool soft_rdma_process(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                       const struct ibv_sge *sge, const uint8_t *inlined, uint8_t *addr) {
    struct iovec iov[SOFT_MAX_SGE];
    struct process_piece piece = {.write = is_write(wqe->opcode),
                                  .inlined = inlined != NULL,
                                  .iov = iov,
                                  .addr = addr,
                                  .bytes = next_piece(wqe, wqe->sent)};
    piece.count = local_piece(qp, wqe, sge, inlined, wqe->sent, piece.bytes, iov);
    if (piece.count == 0)
        wqe->status = IBV_WC_LOC_PROT_ERR;
    else if (soft_process_copy_give(qp, &piece))
        return true;
    rkey_reach_end(ring);
    return false;
}

bool soft_rdma_process_over(struct soft_qp *qp, struct soft_wqe *wqe) {
    uint32_t bytes;
    switch (soft_process_copy_take(qp, &bytes)) {
    case PROCESS_COPY_UNDER_WAY:
        return false;
    case PROCESS_COPY_DONE:
        wqe->sent += bytes;
        break;
    case PROCESS_COPY_FAULT:
        wqe->status = IBV_WC_REM_OP_ERR;
        break;
    case PROCESS_COPY_DEAD: /* one that does not answer */
        wqe->status = IBV_WC_RETRY_EXC_ERR;
        break;
    case PROCESS_COPY_CLOSED:
        wqe->sent = 0; /* all of it through the ring */
        break;
    }
    return true;
}
