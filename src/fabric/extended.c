/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* extended.c - small frames by extended verbs. Any thread; a QP's sends are one thread's. */
#include "fabric/extended.h"

#include <string.h>

#include "common/uncancelled.h"

#define HEADER 24u
#define NO_VENDOR 0xffffffu /* what Soft-RoCE reports */

/* What the library posts: a driver makes the entries of the send queue as large as these need. */
static const uint64_t operations =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
    IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;

struct ibv_qp *extended_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    struct ibv_qp_init_attr_ex all = {.qp_context = attr->qp_context,
                                      .send_cq = attr->send_cq,
                                      .recv_cq = attr->recv_cq,
                                      .srq = attr->srq,
                                      .cap = attr->cap,
                                      .qp_type = attr->qp_type,
                                      .sq_sig_all = attr->sq_sig_all,
                                      .comp_mask =
                                          IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                      .pd = pd,
                                      .send_ops_flags = operations};
    struct ibv_qp *qp = ibv_create_qp_ex(pd->context, &all);
    if (qp)
        attr->cap = all.cap;
    return qp;
}

static struct ibv_qp_ex *begin(struct ibv_qp *qp, bool signalled, uint64_t wr_id) {
    struct ibv_qp_ex *ex = (struct ibv_qp_ex *)(void *)qp; /* which begins with it */
    ibv_wr_start(ex);
    ex->wr_id = wr_id;
    /* Soft-RoCE's driver copies the data, and tells its kernel only by the flag where they are. */
    ex->wr_flags = IBV_SEND_INLINE | (signalled ? IBV_SEND_SIGNALED : 0u);
    ibv_wr_send(ex);
    return ex;
}

static int post_pieces(struct ibv_qp *qp, uint64_t word0, uint64_t word1, const uint8_t *from,
                       uint32_t bytes, uint64_t wr_id) {
    uint64_t header[HEADER / sizeof(uint64_t)] = {word0, word1, 0};
    uint32_t size = bytes & ~FABRIC_FRAMED_SIGNALED;
    const struct ibv_data_buf pieces[] = {{header, HEADER}, {(void *)(uintptr_t)from, size}};
    struct ibv_qp_ex *ex = begin(qp, bytes != size, wr_id);
    ibv_wr_set_inline_data_list(ex, size > 0 ? 2 : 1, pieces);
    return ibv_wr_complete(ex);
}

/* As one piece. The driver that this is for tells its kernel by a write(). */
static int post_whole(struct ibv_qp *qp, uint64_t word0, uint64_t word1, const uint8_t *from,
                      uint32_t bytes, uint64_t wr_id) {
    UNCANCELLED;
    uint64_t whole[(HEADER + FABRIC_FRAMED) / sizeof(uint64_t)];
    uint32_t size = bytes & ~FABRIC_FRAMED_SIGNALED;
    whole[0] = word0;
    whole[1] = word1;
    whole[2] = 0;
    if (size > 0)
        memcpy(whole + 3, from, size);
    struct ibv_qp_ex *ex = begin(qp, bytes != size, wr_id);
    ibv_wr_set_inline_data(ex, whole, HEADER + size);
    return ibv_wr_complete(ex);
}

/* The driver of Soft-RoCE in rdma-core 44 says of a list that it has no bytes. */
fabric_post_framed *extended_post_framed_of(const struct ibv_device_attr *attr) {
    return attr->vendor_id == NO_VENDOR ? post_whole : post_pieces;
}

uint32_t extended_framed_most(uint32_t inline_most) {
    uint32_t most = inline_most > HEADER ? inline_most - HEADER : 0;
    return most < FABRIC_FRAMED ? most : FABRIC_FRAMED;
}
