/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_ex.c - extended QPs: work requests built call by call (ibv_wr_start and what follows).
 *
 * A batch is built in memory of its own and posted as one list by ibv_wr_complete: all of it or
 * nothing. It belongs to one thread from start to complete or abort; others wait. The first mistake
 * in a batch is kept, and complete returns it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/soft.h"
#include "soft/verbs/internal.h"

struct soft_batch {
    soft_spin lock;
    int err;
    uint32_t count, max_wr, max_sge, max_inline;
    struct ibv_send_wr *wr;
    struct ibv_sge *sge;
    uint8_t *inlined;
    uint64_t ops;
};

static struct soft_batch *batch_of(struct ibv_qp_ex *qp) {
    return ((struct soft_qp *)qp)->batch;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

/* Where a request goes that cannot go into the batch: the setters behind it need something to set. */
static struct ibv_send_wr *fail(struct soft_batch *b, int err) {
    if (!b->err)
        b->err = err;
    return &b->wr[b->max_wr];
}

static struct ibv_send_wr *add(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode) {
    struct soft_batch *b = batch_of(qp);
    struct ibv_send_wr *wr = b->err || b->count == b->max_wr ? fail(b, ENOMEM) : &b->wr[b->count++];
    *wr = (struct ibv_send_wr){
        .wr_id = qp->wr_id, .opcode = opcode, .send_flags = qp->wr_flags & ~IBV_SEND_INLINE};
    if (b->count > 1 && !b->err)
        wr[-1].next = wr;
    return wr;
}

static void wr_send(struct ibv_qp_ex *qp) {
    add(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm) {
    add(qp, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey) {
    add(qp, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static void remote(struct ibv_send_wr *wr, uint32_t rkey, uint64_t addr) {
    wr->wr.rdma.remote_addr = addr;
    wr->wr.rdma.rkey = rkey;
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr) {
    remote(add(qp, IBV_WR_RDMA_WRITE), rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, __be32 imm) {
    struct ibv_send_wr *wr = add(qp, IBV_WR_RDMA_WRITE_WITH_IMM);
    remote(wr, rkey, addr);
    wr->imm_data = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr) {
    remote(add(qp, IBV_WR_RDMA_READ), rkey, addr);
}

static void atomic(struct ibv_send_wr *wr, uint32_t rkey, uint64_t addr, uint64_t compare_add,
                   uint64_t swap) {
    wr->wr.atomic.remote_addr = addr;
    wr->wr.atomic.rkey = rkey;
    wr->wr.atomic.compare_add = compare_add;
    wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t compare,
                              uint64_t swap) {
    atomic(add(qp, IBV_WR_ATOMIC_CMP_AND_SWP), rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t sum) {
    atomic(add(qp, IBV_WR_ATOMIC_FETCH_AND_ADD), rkey, addr, sum, 0);
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey) {
    add(qp, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *info) {
    struct ibv_send_wr *wr = add(qp, IBV_WR_BIND_MW);
    wr->bind_mw.mw = mw;
    wr->bind_mw.rkey = rkey;
    wr->bind_mw.bind_info = *info;
}

/* ---- setters, of the last request -------------------------------------------------------------------------- */

static struct ibv_send_wr *last(struct soft_batch *b) {
    return b->err || !b->count ? fail(b, EINVAL) : &b->wr[b->count - 1];
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey) {
    struct ibv_send_wr *wr = last(batch_of(qp));
    wr->wr.ud.ah = ah;
    wr->wr.ud.remote_qpn = qpn;
    wr->wr.ud.remote_qkey = qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list) {
    struct soft_batch *b = batch_of(qp);
    struct ibv_send_wr *wr = last(b);
    if (count > b->max_sge)
        wr = fail(b, EINVAL);
    if (b->err)
        return;
    wr->sg_list = &b->sge[(size_t)(b->count - 1) * b->max_sge];
    wr->num_sge = (int)count;
    if (count)
        memcpy(wr->sg_list, list, count * sizeof *list);
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length) {
    struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};
    wr_set_sge_list(qp, 1, &sge);
}

/* Copied now: the caller's buffers are free when this returns. */
static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count,
                                    const struct ibv_data_buf *list) {
    struct soft_batch *b = batch_of(qp);
    struct ibv_send_wr *wr = last(b);
    size_t total = 0;
    for (size_t i = 0; i < count && !b->err; i++) {
        uint8_t *to = &b->inlined[(size_t)(b->count - 1) * b->max_inline];
        if (list[i].length > b->max_inline - total) {
            fail(b, EINVAL);
        } else if (list[i].length) {
            memcpy(to + total, list[i].addr, list[i].length);
            total += list[i].length;
        }
    }
    if (b->err)
        return;
    wr->sg_list = &b->sge[(size_t)(b->count - 1) * b->max_sge];
    wr->sg_list[0] =
        (struct ibv_sge){.addr = (uintptr_t)&b->inlined[(size_t)(b->count - 1) * b->max_inline],
                         .length = (uint32_t)total};
    wr->num_sge = 1;
    wr->send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length) {
    struct ibv_data_buf buf = {.addr = addr, .length = length};
    wr_set_inline_data_list(qp, 1, &buf);
}

/* ---- the batch --------------------------------------------------------------------------------------------- */

static void wr_start(struct ibv_qp_ex *qp) {
    struct soft_batch *b = batch_of(qp);
    spin_lock(&b->lock);
    b->count = 0;
    b->err = 0;
}

static int wr_complete(struct ibv_qp_ex *qp) {
    struct soft_batch *b = batch_of(qp);
    int rc = b->err;
    if (rc == 0 && b->count)
        rc = soft_post_all((struct soft_qp *)qp, b->wr);
    spin_unlock(&b->lock);
    return rc;
}

static void wr_abort(struct ibv_qp_ex *qp) {
    spin_unlock(&batch_of(qp)->lock);
}

/* ---- creation ------------------------------------------------------------------------------------------------ */

/* The operations that a QP of this type can do, of those that have calls. */
static uint64_t ops_of(enum ibv_qp_type type) {
    const uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const uint64_t writes = sends | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                            IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
                            IBV_QP_EX_WITH_SEND_WITH_INV;
    if (soft_profile()->iwarp) /* its driver has no such calls */
        return 0;
    switch (type) {
    case IBV_QPT_RC:
        return writes | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
               IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    case IBV_QPT_UC:
        return writes;
    case IBV_QPT_UD:
        return sends;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_QPT_DRIVER:
        break;
    }
    return 0;
}

static struct soft_batch *batch_make(const struct soft_qp *qp, uint64_t ops) {
    struct soft_batch *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->ops = ops;
    b->max_wr = qp->sq_max_wr;
    b->max_sge = qp->sq_max_sge;
    b->max_inline = qp->max_inline;
    size_t n = (size_t)b->max_wr + 1; /* and one for what does not fit */
    b->wr = calloc(n, sizeof *b->wr);
    b->sge = malloc(n * b->max_sge * sizeof *b->sge);
    b->inlined = malloc(n * (b->max_inline ? b->max_inline : 1));
    if (b->wr && b->sge && b->inlined)
        return b;
    free(b->wr);
    free(b->sge);
    free(b->inlined);
    free(b);
    return NULL;
}

int soft_qp_extend(struct ibv_qp *ibqp, uint64_t ops) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    if (ops & ~ops_of(ibqp->qp_type))
        return EOPNOTSUPP;
    qp->batch = batch_make(qp, ops);
    if (!qp->batch)
        return ENOMEM;
    struct ibv_qp_ex *ex = &qp->ibv_ex;
    ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
    ex->wr_bind_mw = wr_bind_mw;
    ex->wr_local_inv = wr_local_inv;
    ex->wr_rdma_read = wr_rdma_read;
    ex->wr_rdma_write = wr_rdma_write;
    ex->wr_rdma_write_imm = wr_rdma_write_imm;
    ex->wr_send = wr_send;
    ex->wr_send_imm = wr_send_imm;
    ex->wr_send_inv = wr_send_inv;
    ex->wr_set_ud_addr = wr_set_ud_addr;
    ex->wr_set_inline_data = wr_set_inline_data;
    ex->wr_set_inline_data_list = wr_set_inline_data_list;
    ex->wr_set_sge = wr_set_sge;
    ex->wr_set_sge_list = wr_set_sge_list;
    ex->wr_start = wr_start;
    ex->wr_complete = wr_complete;
    ex->wr_abort = wr_abort;
    return 0;
}

/* Present when the device has groups. */
__attribute__((weak)) void soft_block_self_mcast(struct ibv_qp *qp);

static uint32_t flags_of(const struct ibv_qp_init_attr_ex *attr) {
    return attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr->create_flags : 0;
}

static void apply_flags(struct ibv_qp *qp, const struct ibv_qp_init_attr_ex *attr) {
    if (flags_of(attr) & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)
        soft_block_self_mcast(qp);
}

/* The part of an extended description that a plain QP understands; 0, or an errno for the rest of it. */
static int plain_part(const struct ibv_qp_init_attr_ex *attr, struct ibv_qp_init_attr *plain,
                      uint64_t *ops) {
    const uint32_t known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const uint32_t flags = soft_block_self_mcast ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
    if ((attr->comp_mask & ~known) || (flags_of(attr) & ~flags))
        return EOPNOTSUPP;
    *ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? attr->send_ops_flags : 0;
    if (*ops & ~ops_of(attr->qp_type))
        return EOPNOTSUPP;
    *plain = (struct ibv_qp_init_attr){.qp_context = attr->qp_context,
                                       .send_cq = attr->send_cq,
                                       .recv_cq = attr->recv_cq,
                                       .srq = attr->srq,
                                       .cap = attr->cap,
                                       .qp_type = attr->qp_type,
                                       .sq_sig_all = attr->sq_sig_all};
    return 0;
}

struct ibv_qp *soft_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr) {
    UNCANCELLED;
    struct ibv_qp_init_attr plain;
    struct ibv_qp *qp = NULL;
    uint64_t ops;
    int err = plain_part(attr, &plain, &ops);
    if (!err && (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != ctx))
        err = EINVAL;
    if (!err) {
        qp = soft_create_qp(attr->pd, &plain);
        if (!qp)
            return NULL;
        apply_flags(qp, attr);
        err = ops ? soft_qp_extend(qp, ops) : 0;
    }
    if (err) {
        if (qp)
            soft_destroy_qp(qp);
        errno = err;
        return NULL;
    }
    attr->cap = plain.cap;
    return qp;
}

struct ibv_qp_ex *soft_qp_to_qp_ex(struct ibv_qp *qp) {
    return soft_qp_of(qp)->batch ? &soft_qp_of(qp)->ibv_ex : NULL;
}

void soft_batch_free(struct soft_qp *qp) {
    struct soft_batch *b = qp->batch;
    if (!b)
        return;
    free(b->wr);
    free(b->sge);
    free(b->inlined);
    free(b);
    qp->batch = NULL;
}

/* ---- on an id ------------------------------------------------------------------------------------------------ */

int soft_cm_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr) {
    UNCANCELLED;
    struct ibv_qp_init_attr plain;
    uint64_t ops = 0;
    int err = attr ? plain_part(attr, &plain, &ops) : EINVAL;
    struct ibv_pd *pd = !err && attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
    if (!err && soft_cm_create_qp(id, pd, &plain) != 0)
        return -1;
    if (!err)
        apply_flags(id->qp, attr);
    if (!err && ops) {
        err = soft_qp_extend(id->qp, ops);
        if (err)
            soft_cm_destroy_qp(id);
    }
    if (err) {
        errno = err;
        return -1;
    }
    attr->send_cq = plain.send_cq;
    attr->recv_cq = plain.recv_cq;
    attr->srq = plain.srq;
    attr->cap = plain.cap;
    return 0;
}

int soft_cm_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr) {
    UNCANCELLED;
    const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    if (!attr || (attr->comp_mask & ~known) ||
        ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)) {
        errno = attr ? EOPNOTSUPP : EINVAL;
        return -1;
    }
    struct ibv_pd *pd = attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL;
    struct ibv_srq_init_attr plain = {.srq_context = attr->srq_context, .attr = attr->attr};
    if (soft_cm_create_srq(id, pd, &plain) != 0)
        return -1;
    attr->attr = plain.attr;
    return 0;
}
