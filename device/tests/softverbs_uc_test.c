/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_uc_test.c - unreliable connections: sends and writes that complete when they were handed over,
 * and what is dropped instead of refused.
 */
#include "support/softverbs_datagram.h"
#include "soft/fault/inject.h"
#include "soft/fault/plan.h"
#include "soft/object/mw.h"
#include "soft/object/ring.h"

#define UC_RTR_MASK (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

static void uc_connect(struct sv_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    must(soft_modify_qp(e->qp, &attr, SV_INIT_MASK) == 0);
    attr = sv_attr(e, IBV_QPS_RTR, dest);
    must(soft_modify_qp(e->qp, &attr, UC_RTR_MASK) == 0);
    attr = sv_attr(e, IBV_QPS_RTS, 0);
    must(soft_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
}

static void uc_pair(struct sv_end *a, struct sv_end *b, struct sv_options o) {
    o.type = IBV_QPT_UC;
    sv_open(a, o);
    sv_open(b, o);
    uc_connect(a, b->qp->qp_num);
    uc_connect(b, a->qp->qp_num);
}

static struct ibv_wc put(struct sv_end *a, enum ibv_wr_opcode opcode, struct ibv_mr *mr,
                         size_t bytes, uint32_t rkey) {
    struct ibv_sge sge = sv_sge(a, 0, bytes);
    struct ibv_send_wr wr = {.wr_id = 77,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = 0x1234,
                             .wr.rdma = {(uintptr_t)mr->addr, rkey}},
                       *bad;
    must(ibv_post_send(a->qp, &wr, &bad) == 0);
    return sv_poll(a->scq);
}

static struct sv_end a, b;

static int both_open(void **state) {
    (void)state;
    uc_pair(&a, &b, SV_OPTIONS(0));
    return 0;
}

static int both_closed(void **state) {
    (void)state;
    sv_unpair(&a, &b);
    return 0;
}

TEST(sends_of_every_size_arrive) {
    static const size_t sizes[] = {0, 1, 64, 112, 113, 448, 449, 5000, 60000};
    for (int mapped = 0; mapped < 2; mapped++) {
        struct sv_end a, b;
        uc_pair(&a, &b, SV_OPTIONS(.mapped = mapped != 0));
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            sv_fill(a.buf, sizes[i], i);
            must(sv_recv(&b, i, 0, 65536) == 0);
            must(sv_send(&a, i, 0, sizes[i], IBV_SEND_SIGNALED) == 0);
            struct ibv_wc wc = sv_poll(a.scq);
            sv_right(wc, wc.opcode == IBV_WC_SEND && wc.wr_id == i);
            memset(a.buf, 0, sizes[i]); /* complete: the memory is ours again */
            wc = sv_poll(b.rcq);
            sv_right(wc, wc.opcode == IBV_WC_RECV && wc.wr_id == i && wc.byte_len == sizes[i]);
            sv_check(b.buf, sizes[i], i);
        }
        sv_unpair(&a, &b);
    }
}

#define PAIRED(name) TEST_WITH(both_open, both_closed, name)

PAIRED(without_a_receive_a_message_is_dropped) {
    sv_wait_linked(&a);
    a.buf[0] = 1;
    must(sv_send(&a, 1, 0, 1, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(a.scq).status == IBV_WC_SUCCESS); /* at once: nobody polled over there */
    sv_until(ud_dropped(&b, SOFT_DROP_NO_RECEIVE, 1));
    must(sv_send(&a, 2, 0, 5000, IBV_SEND_SIGNALED) == 0); /* of many parts: all of them */
    must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
    must(sv_recv(&b, 1, 0, 64) == 0); /* nor is it for a receive that comes later */
    assert_int_equal(ud_drops(&b, SOFT_DROP_NO_RECEIVE), 2);
    a.buf[0] = 3;
    must(sv_send(&a, 3, 0, 1, 0) == 0);
    must_data(sv_poll(b.rcq).byte_len == 1);
    must_data_equal(b.buf[0], 3);
}

PAIRED(too_long_is_dropped_and_the_receive_serves_the_next) {
    must(sv_recv(&b, 1, 0, 700) == 0);
    must(sv_send(&a, 1, 0, 5000, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
    sv_until(ud_dropped(&b, SOFT_DROP_TOO_LONG, 1));
    must(sv_send(&a, 2, 0, 700, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = sv_poll(b.rcq);
    sv_right(wc, wc.byte_len == 700);
}

TEST(writes_arrive_and_with_imm_take_a_receive) {
    for (int mapped = 0; mapped < 2; mapped++) {
        struct sv_end a, b;
        uc_pair(&a, &b, SV_OPTIONS(.mapped = mapped != 0));
        struct ibv_mr *mr =
            soft_reg_mr(b.pd, b.buf, 30000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        must(mr);
        sv_fill(a.buf, 20000, 3);
        must(put(&a, IBV_WR_RDMA_WRITE, mr, 20000, mr->rkey).status == IBV_WC_SUCCESS);
        must(sv_recv(&b, 9, 40000, 64) == 0);
        struct ibv_wc wc = put(&a, IBV_WR_RDMA_WRITE_WITH_IMM, mr, 20000, mr->rkey);
        sv_right(wc, wc.opcode == IBV_WC_RDMA_WRITE && wc.wr_id == 77);
        wc = sv_poll(b.rcq);
        sv_right(wc, wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 20000 &&
                         wc.imm_data == 0x1234 && wc.wr_id == 9);
        sv_check(b.buf, 20000, 3);
        must(soft_dereg_mr(mr) == 0);
        sv_unpair(&a, &b);
    }
}

PAIRED(a_refused_write_is_dropped_and_harms_neither_side) {
    struct ibv_mr *mr = soft_reg_mr(b.pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
    must(mr);
    memset(b.buf, 0x55, 4096);
    must(put(&a, IBV_WR_RDMA_WRITE, mr, 4096, mr->rkey).status == IBV_WC_SUCCESS);
    must(put(&a, IBV_WR_RDMA_WRITE, mr, 8, 0x7fff0000).status == IBV_WC_SUCCESS);
    must(sv_recv(&b, 1, 8192, 64) == 0);
    must(sv_send(&a, 1, 0, 8, 0) == 0);
    must(sv_poll(b.rcq).status == IBV_WC_SUCCESS);
    for (int i = 0; i < 4096; i++)
        must_data(b.buf[i] == 0x55);
    assert_int_equal(ud_drops(&a, SOFT_DROP_REFUSED) + ud_drops(&b, SOFT_DROP_REFUSED), 2);
    must(soft_dereg_mr(mr) == 0);
}

PAIRED(reads_and_atomics_are_refused_when_posted) {
    static const enum ibv_wr_opcode others[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                                                IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_TSO};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        struct ibv_sge sge = sv_sge(&a, 0, 8);
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = others[i]}, *bad = NULL;
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
        assert_ptr_equal(bad, &wr);
    }
}

TEST(a_peer_that_is_not_there_costs_nothing_but_the_messages) {
    struct sv_end a, b;
    sv_open(&a, SV_OPTIONS(.type = IBV_QPT_UC));
    uc_connect(&a, 0xfffffe);
    must(sv_send(&a, 1, 0, 8, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
    assert_int_equal(ud_drops(&a, SOFT_DROP_NOBODY), 1);
    sv_close(&a);
    uc_pair(&a, &b, SV_OPTIONS(0));
    sv_wait_linked(&a);
    must(sv_to(&b, IBV_QPS_ERR) == 0);
    for (int i = 0; i < 200; i++) {
        must(sv_send(&a, 1, 0, 1000, IBV_SEND_SIGNALED) == 0);
        must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
    }
    assert_int_equal(ud_drops(&a, SOFT_DROP_NOBODY), 200);
    sv_unpair(&a, &b);
    sv_open(&a, SV_OPTIONS(.type = IBV_QPT_UC));
    sv_open(&b, SV_OPTIONS(.type = IBV_QPT_RC));
    uc_connect(&a, b.qp->qp_num); /* it never gets to RTR: what waits is dropped in the end */
    must(sv_send(&a, 1, 0, 8, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
    assert_int_equal(ud_drops(&a, SOFT_DROP_NO_ROOM), 1);
    sv_unpair(&a, &b);
}

PAIRED(bad_local_memory_ends_its_own_side_only) {
    struct ibv_sge sge = sv_sge(&a, 0, 8);
    sge.lkey ^= 0x10000;
    struct ibv_send_wr wr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
                       *bad;
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(ibv_post_send(a.qp, &wr, &bad) == 0);
    struct ibv_wc wc = sv_poll(a.scq);
    must(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 4);
    must(sv_send(&a, 5, 0, 8, 0) == 0 && sv_poll(a.scq).status == IBV_WC_WR_FLUSH_ERR);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    must(soft_query_qp(b.qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RTS);
    must(init.qp_type == IBV_QPT_UC);
}

TEST(transitions_are_those_of_its_type) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.type = IBV_QPT_UC));
    must(sv_to_init(&e) == 0);
    assert_int_equal(sv_to_rtr(&e, e.qp->qp_num), EINVAL); /* RNR timer and depth are RC's */
    struct ibv_qp_attr attr = sv_attr(&e, IBV_QPS_RTR, e.qp->qp_num);
    must(soft_modify_qp(e.qp, &attr, UC_RTR_MASK) == 0);
    assert_int_equal(sv_to_rts(&e), EINVAL);
    attr = sv_attr(&e, IBV_QPS_RTS, 0);
    must(soft_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    sv_close(&e);
}

PAIRED(a_loss_on_demand_is_a_message_that_never_comes) {
    sv_wait_linked(&a);
    struct soft_plan_error error;
    struct soft_plan *plan =
        soft_plan_parse("qp=* send=2 loss; qp=* send=3 cut; qp=* send=4 corrupt", &error);
    must(plan);
    soft_lock();
    soft_fault_install(plan);
    soft_unlock();
    for (uint32_t i = 1; i <= 5; i++) {
        must(sv_recv(&b, i, 0, 64) == 0);
        a.buf[0] = (uint8_t)i;
        must(sv_send(&a, i, 0, 1, IBV_SEND_SIGNALED) == 0);
        must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
    }
    must_data(sv_poll(b.rcq).wr_id == 1 && sv_poll(b.rcq).wr_id == 2);
    must_data_equal(b.buf[0], 5);
    assert_int_equal(ud_drops(&a, SOFT_DROP_ON_DEMAND), 3);
}

/* Bound to the first bytes of b's memory; its key. */
static uint32_t bind_window(struct sv_end *b, struct ibv_mr *mr, struct ibv_mw *mw) {
    struct ibv_mw_bind_info info = {mr, (uintptr_t)mr->addr, 64, IBV_ACCESS_REMOTE_WRITE};
    uint32_t rkey = ibv_inc_rkey(mw->rkey);
    must(sv_bind(b->qp, mw, rkey, info) == 0);
    must(sv_poll(b->scq).status == IBV_WC_SUCCESS);
    return rkey;
}

static bool is_impatient(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    bool is = qp->impatient;
    spin_unlock(&qp->lock);
    return is;
}

/* Messages are dropped where the peer keeps them waiting; what is done here is not. */
PAIRED(a_window_is_taken_back_however_long_the_peer_stays) {
    sv_wait_linked(&a);
    sv_wait_linked(&b);
    struct soft_qp *qp = soft_qp_of(b.qp);
    struct ibv_mr *mr = soft_reg_mr(b.pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw[2];
    uint32_t rkey[2];
    struct ibv_wc wc;
    for (unsigned i = 0; i < 2; i++) {
        mw[i] = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
        must(mr && mw[i]);
        rkey[i] = bind_window(&b, mr, mw[i]);
    }
    struct soft_ring *ring = atomic_load(&qp->rx);
    atomic_fetch_or(&ring->tx.touching, 1);
    must(sv_invalidate(b.qp, rkey[0]) == 0);
    sv_until(is_impatient(qp));
    for (unsigned i = 0; i < 10; i++)
        must(ibv_poll_cq(b.scq, 1, &wc) == 0);
    atomic_fetch_add(&ring->tx.touching, 1);
    must(sv_poll(b.scq).status == IBV_WC_SUCCESS);
    must(soft_mw_of(mw[0])->mr == NULL && soft_mw_of(mw[1])->mr != NULL);
    must(sv_invalidate(b.qp, rkey[1]) == 0);
    must(sv_poll(b.scq).status == IBV_WC_SUCCESS);
    must(soft_mw_of(mw[1])->mr == NULL);
    must(ibv_dealloc_mw(mw[0]) == 0 && ibv_dealloc_mw(mw[1]) == 0 && soft_dereg_mr(mr) == 0);
}
