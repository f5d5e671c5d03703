/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_refuse_test.c - one-sided operations that are refused, cut off or held back: what they
 * leave untouched, and what they wait for.
 */
#include "support/softverbs_onesided.h"
#include "soft/rc/progress.h"
#include "soft/verbs/mr.h"

/* ---- keys ----------------------------------------------------------------------------------------- */

/* What is on its way through the ring when its key goes: the rest of it touches nothing. */
static bool under_way(struct soft_qp *target, bool write) {
    spin_lock(&target->lock);
    bool yes = write ? target->rx_left > 0 : target->answer_head != target->answer_tail;
    spin_unlock(&target->lock);
    return yes;
}

TEST(key_taken_back_in_the_middle) {
    for (int write = 0; write < 2; write++) {
        struct onesided p;
        onesided_open(&p, RING, ALL_REMOTE, ALL_REMOTE, 4);
        struct soft_qp *target = soft_qp_of(p.b.qp);
        soft_lock(); /* the engine stands still: we make the target's progress, and stop halfway */
        must(onesided_post(&p, write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 0, ONESIDED_BYTES, 0,
                           p.open->rkey, 0) == 0);
        soft_qp_progress(target);
        must(under_way(target, write));
        soft_mr_remove(soft_mr_of(p.open)); /* as soft_dereg_mr does, which takes the lock itself */
        soft_unlock();
        atomic_fetch_sub(&soft_pd_of(p.b.pd)->users, 1);
        free(p.open);
        memset(p.b.buf, 0xab, ONESIDED_BYTES);
        onesided_refused(&p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        for (size_t i = 0; i < ONESIDED_BYTES; i++)
            must_data(p.b.buf[i] == 0xab);
        p.open = soft_reg_mr(p.b.pd, p.b.buf, 4096, 0); /* for close_pair */
        onesided_close(&p);
    }
}

/* Registered so that offset 0 is an odd address: aligned for the requester, not for the CPU. */
TEST(atomic_on_an_odd_address) {
    for (enum way way = MAPPED; way < WAYS; way++) {
        struct onesided p;
        onesided_open(&p, way, ALL_REMOTE, ALL_REMOTE, 4);
        struct ibv_mr *whole = p.open;
        p.open = soft_reg_mr(p.b.pd, p.b.buf + 61, 64,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED | ALL_REMOTE);
        must(p.open);
        struct ibv_sge sge = sv_sge(&p.a, 0, 8);
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.atomic = {.rkey = p.open->rkey, .compare_add = 1}},
                           *bad;
        must(ibv_post_send(p.a.qp, &wr, &bad) == 0);
        onesided_refused(&p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        must_data(p.b.buf[61] == 0);
        must(soft_dereg_mr(whole) == 0);
        onesided_close(&p);
    }
}

/* ---- receives --------------------------------------------------------------------------------------- */

TEST(a_refused_write_consumes_no_receive) {
    static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};
    for (enum way way = MAPPED; way < WAYS; way++)
        for (unsigned i = 0; i < 2; i++) {
            struct onesided p;
            onesided_open(&p, way, ALL_REMOTE, ALL_REMOTE, 4);
            must(sv_recv(&p.b, 42, 0, 64) == 0);
            must(onesided_post(&p, ops[i], 0, 8, 0, p.open->rkey ^ 1, 0) == 0);
            onesided_refused(&p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
            struct ibv_wc wc = sv_poll(p.b.rcq);
            assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
            must_data_equal(wc.wr_id, 42);
            onesided_close(&p);
        }
}

/* ---- buffers ---------------------------------------------------------------------------------------- */

TEST(a_read_needs_the_right_to_write_at_home) {
    for (enum way way = MAPPED; way < WAYS; way++) {
        struct onesided p;
        onesided_open(&p, way, ALL_REMOTE, ALL_REMOTE, 4);
        struct ibv_mr *readonly = soft_reg_mr(p.a.pd, p.a.buf, 4096, 0);
        must(readonly);
        struct ibv_sge sge = {(uintptr_t)p.a.buf, 64, readonly->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_READ,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {(uintptr_t)p.b.buf, p.open->rkey}},
                           *bad;
        memset(p.a.buf, 0x5c, 64);
        memset(p.b.buf, 0x11, 64);
        must(ibv_post_send(p.a.qp, &wr, &bad) == 0);
        onesided_expect(&p, IBV_WC_LOC_PROT_ERR, 0);
        must_data_equal(p.a.buf[0], 0x5c);
        must(soft_dereg_mr(readonly) == 0);
        onesided_close(&p);
    }
}

/* ---- order ------------------------------------------------------------------------------------------ */

static uint32_t reads_waiting(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    spin_lock(&qp->lock);
    uint32_t n = qp->waiting;
    spin_unlock(&qp->lock);
    return n;
}

/* Without the fence the message would be there long before the answer, which takes many turns. */
TEST(a_fenced_send_waits_for_the_reads_before_it) {
    struct onesided p;
    onesided_open(&p, RING, ALL_REMOTE, ALL_REMOTE, 4);
    must(sv_recv(&p.b, 1, 0, 64) == 0);
    must(onesided_post(&p, IBV_WR_RDMA_READ, 4096, ONESIDED_BYTES - 4096, 0, p.open->rkey, 0) == 0);
    must(sv_send(&p.a, 2, 0, 64, IBV_SEND_SIGNALED | IBV_SEND_FENCE) == 0);
    must(sv_poll(p.b.rcq).status == IBV_WC_SUCCESS);
    assert_int_equal(reads_waiting(&p.a), 0);
    onesided_expect(&p, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    onesided_expect(&p, IBV_WC_SUCCESS, IBV_WC_SEND);
    onesided_close(&p);
}
