/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_piece.c - copying a part of a long WRITE or READ, between buffers here and memory of the target.
 *
 * Private memory of a process of our uid is reached with process_vm_writev and process_vm_readv, once
 * a probe has shown that the kernel lets us and that the pid is the process we talk to.
 *
 * Owner: the QP's lock.
 */
#define _GNU_SOURCE
#include "soft/rc/rdma_piece.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#include "soft/ipc/peer_internal.h"
#include "soft/rc/rdma.h"
#include "soft/rc/store_ordered.h"
#include "soft/verbs/mr.h"

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

/*
 * Private memory of a process of our uid, through the kernel. Fails with REM_OP_ERR when the
 * target has unmapped what it registered. A target that died is one that does not answer.
 */
static enum ibv_wc_status copy_process(struct soft_qp *qp, bool write, struct iovec *iov,
                                       unsigned n, uint8_t *addr, size_t left) {
    while (left) {
        struct iovec remote = {addr, left};
        ssize_t got = write ? process_vm_writev(qp->link_peer->pid, iov, n, &remote, 1, 0)
                            : process_vm_readv(qp->link_peer->pid, iov, n, &remote, 1, 0);
        if (got <= 0)
            return got < 0 && errno == ESRCH ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_OP_ERR;
        left -= (size_t)got;
        addr += got;
        while (n && (size_t)got >= iov->iov_len) {
            got -= (ssize_t)iov->iov_len;
            iov++;
            n--;
        }
        if (n && got) {
            iov->iov_base = (uint8_t *)iov->iov_base + got;
            iov->iov_len -= (size_t)got;
        }
    }
    return IBV_WC_SUCCESS;
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

enum ibv_wc_status soft_rdma_piece(struct soft_qp *qp, const struct soft_wqe *wqe,
                                   const struct ibv_sge *sge, const uint8_t *inlined,
                                   enum rkey_reach how, uint32_t at, uint32_t n, uint8_t *addr) {
    struct iovec iov[SOFT_MAX_SGE];
    bool write = is_write(wqe->opcode);
    unsigned count = local_piece(qp, wqe, sge, inlined, at, n, iov);
    if (count == 0)
        return IBV_WC_LOC_PROT_ERR;
    if (how == REACH_PROCESS)
        return copy_process(qp, write, iov, count, addr, n);
    copy_mapped(write, iov, count, addr, at + n == wqe->total);
    return IBV_WC_SUCCESS;
}
