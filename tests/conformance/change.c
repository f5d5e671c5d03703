/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * change.c - an ordinary verbs program that changes what it has made: the size of a CQ with completions in it,
 * and a memory region that its peer writes to. Both ends are its own. Nothing of Sluice is in it.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(expr)                                                                                \
    do {                                                                                           \
        if (!(expr)) {                                                                             \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #expr, errno);                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { MESSAGES = 5, BYTES = 4096, REMOTE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *scq, *rcq;
static struct ibv_qp *qp[2]; /* of the sender, of the receiver */
static uint8_t from[BYTES], to[2][BYTES];
static struct ibv_mr *source, *target;

static void connect_to(struct ibv_qp *own, struct ibv_qp *other) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    CHECK(ibv_modify_qp(own, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = other->qp_num,
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer = 12,
                                .ah_attr = {.is_global = 1, .port_num = 1}};
    CHECK(ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid) == 0);
    CHECK(ibv_modify_qp(own, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(own, &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void begin(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    ctx = ibv_open_device(list[0]);
    CHECK(ctx);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(ctx);
    scq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
    rcq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
    CHECK(pd && scq && rcq);
    struct ibv_qp_init_attr init = {
        .send_cq = scq,
        .recv_cq = rcq,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1};
    for (int i = 0; i < 2; i++)
        CHECK((qp[i] = ibv_create_qp(pd, &init)));
    connect_to(qp[0], qp[1]);
    connect_to(qp[1], qp[0]);
    source = ibv_reg_mr(pd, from, BYTES, IBV_ACCESS_LOCAL_WRITE);
    target = ibv_reg_mr(pd, to[0], BYTES, IBV_ACCESS_LOCAL_WRITE);
    CHECK(source && target);
}

static void end(void) {
    CHECK(ibv_destroy_qp(qp[0]) == 0 && ibv_destroy_qp(qp[1]) == 0);
    CHECK(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(target) == 0);
    CHECK(ibv_destroy_cq(scq) == 0 && ibv_destroy_cq(rcq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
}

static struct ibv_wc wait_for(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int n = 0;
    while (n == 0)
        n = ibv_poll_cq(cq, 1, &wc);
    CHECK(n == 1);
    return wc;
}

/* The sends have been answered, so what they brought lies in the receiver's CQ. */
static void size_of_a_cq(void) {
    struct ibv_sge in = {(uintptr_t)to[0], 64, target->lkey},
                   out = {(uintptr_t)from, 64, source->lkey};
    for (uint64_t i = 0; i < MESSAGES; i++) {
        struct ibv_recv_wr recv = {.wr_id = i, .sg_list = &in, .num_sge = 1}, *bad_recv;
        struct ibv_send_wr send = {.wr_id = i,
                                   .sg_list = &out,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND},
                           *bad_send;
        CHECK(ibv_post_recv(qp[1], &recv, &bad_recv) == 0);
        CHECK(ibv_post_send(qp[0], &send, &bad_send) == 0);
    }
    for (int i = 0; i < MESSAGES; i++)
        CHECK(wait_for(scq).status == IBV_WC_SUCCESS);
    CHECK(ibv_resize_cq(rcq, MESSAGES - 1) == EINVAL && rcq->cqe >= 16);
    CHECK(ibv_resize_cq(rcq, MESSAGES) == 0 && rcq->cqe >= MESSAGES);
    CHECK(ibv_resize_cq(rcq, 64) == 0 && rcq->cqe >= 64);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        struct ibv_wc wc = wait_for(rcq);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
    }
    CHECK(ibv_resize_cq(rcq, 1) == 0 && rcq->cqe >= 1);
}

static enum ibv_wc_status write_to(void *at, uint8_t byte) {
    memset(from, byte, 64);
    struct ibv_sge out = {(uintptr_t)from, 64, source->lkey};
    struct ibv_send_wr wr = {.sg_list = &out,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .wr.rdma = {(uintptr_t)at, target->rkey}},
                       *bad;
    CHECK(ibv_post_send(qp[0], &wr, &bad) == 0);
    return wait_for(scq).status;
}

static void memory_of_a_region(void) {
    const int access = IBV_REREG_MR_CHANGE_ACCESS, memory = IBV_REREG_MR_CHANGE_TRANSLATION;
    CHECK(ibv_rereg_mr(target, memory, NULL, NULL, BYTES, 0) == IBV_REREG_MR_ERR_INPUT);
    CHECK(ibv_rereg_mr(target, access, NULL, NULL, 0, REMOTE) == 0);
    CHECK(write_to(to[0], 1) == IBV_WC_SUCCESS && to[0][63] == 1);
    CHECK(ibv_rereg_mr(target, memory, NULL, (void *)64, BYTES, 0) == IBV_REREG_MR_ERR_CMD);
    CHECK(write_to(to[0], 2) == IBV_WC_SUCCESS && to[0][63] == 2); /* as it was */
    CHECK(ibv_rereg_mr(target, memory, NULL, to[1], 64, 0) == 0);
    CHECK(target->addr == to[1] && target->length == 64);
    CHECK(write_to(to[1], 3) == IBV_WC_SUCCESS && to[1][63] == 3 && to[0][63] == 2);
    struct ibv_pd *other = ibv_alloc_pd(ctx);
    CHECK(other && ibv_rereg_mr(target, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0) == 0);
    CHECK(target->pd == other && ibv_dealloc_pd(other) == EBUSY);
    CHECK(ibv_rereg_mr(target, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) == 0);
    CHECK(ibv_dealloc_pd(other) == 0);
    CHECK(write_to(to[1], 4) == IBV_WC_SUCCESS && to[1][63] == 4);
    CHECK(write_to(to[0], 5) == IBV_WC_REM_ACCESS_ERR && to[0][63] == 2);
}

int main(void) {
    begin();
    size_of_a_cq();
    memory_of_a_region();
    end();
    printf("a CQ's size and an MR's memory were changed\n");
    return 0;
}
