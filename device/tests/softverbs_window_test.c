/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_window_test.c - memory windows of type 2 over mapped memory, as a library uses them for
 * every large message: memory registered without any remote right, a window on part of it for one
 * QP, read or written by the peer alone, taken back.
 */
#include "support/softverbs_onesided.h"
#include "support/emulated.h"
#include "soft/object/mw.h"
#include "soft/object/ring.h"

#define AT 4096
#define LENGTH 4000

struct windowed {
    struct onesided pair;
    struct ibv_mw *mw;
    uint32_t rkey;
};

static void open_windowed(struct windowed *w, unsigned access) {
    struct onesided *p = &w->pair;
    onesided_open(p, MAPPED, ALL_REMOTE, IBV_ACCESS_MW_BIND, 4);
    struct soft_peer *peer = soft_qp_of(p->a.qp)->link_peer;
    sv_until(atomic_load(&peer->regions[soft_mr_of(p->open)->region].writable));
    w->mw = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_2);
    must(w->mw);
    w->rkey = ibv_inc_rkey(w->mw->rkey);
    struct ibv_mw_bind_info info = {p->open, (uintptr_t)p->b.buf + AT, LENGTH, access};
    must(sv_bind(p->b.qp, w->mw, w->rkey, info) == 0);
    struct ibv_wc wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
}

static void close_windowed(struct windowed *w) {
    must(ibv_dealloc_mw(w->mw) == 0);
    onesided_close(&w->pair);
}

static int closed(void **state) {
    close_windowed(*state);
    return 0;
}

#define WITH(set_up, name) TEST_WITH(set_up, closed, name)

static int for_both(void **state) {
    static struct windowed of_test;
    *state = &of_test;
    open_windowed(*state, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    return 0;
}

WITH(for_both, a_window_is_used_without_its_owner) {
    skip_emulated("MAKES NO PAGES OF SHARED MEMORY AHEAD");
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    struct soft_qp *a = soft_qp_of(p->a.qp);
    uint32_t before = a->tx_pos;
    sv_fill(p->a.buf, LENGTH, 7);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, LENGTH, AT, w->rkey, 0) == 0);
    sv_check(p->b.buf + AT, LENGTH, 7); /* when the post returns: the requester moved it */
    must(onesided_post(p, IBV_WR_RDMA_READ, 8192, LENGTH, AT, w->rkey, 0) == 0);
    sv_check(p->a.buf + 8192, LENGTH, 7);
    must(a->tx_pos == before); /* nothing went through the ring */
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 64, AT + LENGTH - 64, w->rkey, IBV_SEND_INLINE) ==
         0);
    sv_check(p->b.buf + AT + LENGTH - 64, 64, 7);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

TEST(a_window_is_exact_to_the_byte) {
    static const struct {
        size_t at, bytes;
        bool good;
    } tries[] = {{AT, LENGTH, true},         {AT + LENGTH - 1, 1, true}, {AT, LENGTH + 1, false},
                 {AT - 1, LENGTH, false},    {AT + LENGTH, 1, false},    {AT - 1, 1, false},
                 {AT + LENGTH - 1, 2, false}};
    const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};
    for (size_t i = 0; i < 2 * sizeof tries / sizeof tries[0]; i++) {
        struct windowed w;
        open_windowed(&w, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
        memset(w.pair.b.buf, 0x5a, 3 * AT);
        must(onesided_post(&w.pair, opcodes[i % 2], 0, tries[i / 2].bytes, tries[i / 2].at, w.rkey,
                           0) == 0);
        if (tries[i / 2].good)
            onesided_expect(&w.pair, IBV_WC_SUCCESS, i % 2 ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ);
        else
            onesided_refused(&w.pair, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        must(w.pair.b.buf[AT - 1] == 0x5a && w.pair.b.buf[AT + LENGTH] == 0x5a);
        close_windowed(&w);
    }
}

static int for_reading(void **state) {
    static struct windowed of_test;
    *state = &of_test;
    open_windowed(*state, IBV_ACCESS_REMOTE_READ);
    return 0;
}

WITH(for_reading, the_memory_itself_opens_nothing) {
    struct windowed *w = *state;
    must(onesided_post(&w->pair, IBV_WR_RDMA_READ, 0, 8, AT, w->pair.open->rkey, 0) == 0);
    onesided_refused(&w->pair, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

WITH(for_reading, a_window_for_reading_is_not_written) {
    struct windowed *w = *state;
    must(onesided_post(&w->pair, IBV_WR_RDMA_READ, 0, 8, AT, w->rkey, 0) == 0);
    onesided_expect(&w->pair, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    must(onesided_post(&w->pair, IBV_WR_RDMA_WRITE, 0, 8, AT, w->rkey, 0) == 0);
    onesided_refused(&w->pair, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static int for_writing(void **state) {
    static struct windowed of_test;
    *state = &of_test;
    open_windowed(*state, IBV_ACCESS_REMOTE_WRITE);
    return 0;
}

WITH(for_writing, write_with_imm_through_a_window) {
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    must(sv_recv(&p->b, 9, 0, 64) == 0);
    sv_fill(p->a.buf, LENGTH, 3);
    must(onesided_post(p, IBV_WR_RDMA_WRITE_WITH_IMM, 0, LENGTH, AT, w->rkey, 0) == 0);
    struct ibv_wc wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    must(wc.wr_id == 9 && wc.byte_len == LENGTH && wc.imm_data == 0x11223344);
    sv_check(p->b.buf + AT, LENGTH, 3);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

WITH(for_reading, a_window_serves_one_queue_pair) {
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    /* another pair between the same protection domains */
    struct sv_end c = p->a, d = p->b;
    c.qp = sv_qp(&c);
    d.qp = sv_qp(&d);
    onesided_to_rts(&c, d.qp->qp_num, ALL_REMOTE, 4);
    onesided_to_rts(&d, c.qp->qp_num, ALL_REMOTE, 4);
    sv_wait_linked(&c);
    sv_wait_linked(&d);
    struct ibv_qp *own = p->a.qp;
    p->a.qp = c.qp;
    must(onesided_post(p, IBV_WR_RDMA_READ, 0, 8, AT, w->rkey, 0) == 0);
    onesided_expect(p, IBV_WC_REM_ACCESS_ERR, 0);
    p->a.qp = own;
    must(onesided_post(p, IBV_WR_RDMA_READ, 0, 8, AT, w->rkey, 0) == 0);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    must(soft_destroy_qp(c.qp) == 0 && soft_destroy_qp(d.qp) == 0);
}

WITH(for_writing, a_queue_pair_in_error_closes_its_windows) {
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    must(soft_modify_qp(p->b.qp, &attr, IBV_QP_STATE) == 0);
    memset(p->b.buf + AT, 0x77, LENGTH);
    sv_fill(p->a.buf, LENGTH, 3);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, LENGTH, AT, w->rkey, 0) == 0);
    onesided_expect(p, IBV_WC_RETRY_EXC_ERR, 0);
    for (size_t i = 0; i < LENGTH; i++)
        must(p->b.buf[AT + i] == 0x77);
}

TEST(a_destroyed_queue_pair_leaves_no_window_bound) {
    struct windowed w;
    open_windowed(&w, IBV_ACCESS_REMOTE_WRITE);
    must(soft_dereg_mr(w.pair.open) == EBUSY);
    must(soft_destroy_qp(w.pair.b.qp) == 0);
    must(soft_dereg_mr(w.pair.open) == 0);
    must(soft_destroy_qp(w.pair.a.qp) == 0);
    must(ibv_dealloc_mw(w.mw) == 0);
    w.pair.a.qp = w.pair.b.qp = NULL;
    sv_close(&w.pair.a);
    sv_close(&w.pair.b);
}

static _Atomic bool writing;

/* Writes through the window until that is refused. */
static void *write_on(void *arg) {
    struct windowed *w = arg;
    struct ibv_wc wc = {0};
    do {
        must(onesided_post(&w->pair, IBV_WR_RDMA_WRITE, 0, LENGTH, AT, w->rkey, 0) == 0);
        atomic_store(&writing, true);
        wc = sv_poll(w->pair.a.rcq);
    } while (wc.status == IBV_WC_SUCCESS);
    must(wc.status == IBV_WC_REM_ACCESS_ERR);
    return NULL;
}

TEST(nobody_is_inside_when_the_window_is_taken_back) {
    for (int round = 0; round < 20; round++) {
        struct windowed w;
        pthread_t thread;
        open_windowed(&w, IBV_ACCESS_REMOTE_WRITE);
        memset(w.pair.a.buf, 1, LENGTH);
        atomic_store(&writing, false);
        must(pthread_create(&thread, NULL, write_on, &w) == 0);
        sv_until(atomic_load(&writing));
        must(sv_invalidate(w.pair.b.qp, w.rkey) == 0);
        /* Its next WRITE, which is refused, may end the queue pair while it is still seen inside: see below. */
        struct ibv_wc wc = sv_poll(w.pair.b.rcq);
        must(wc.status == IBV_WC_SUCCESS ? wc.opcode == IBV_WC_LOCAL_INV
                                         : wc.status == IBV_WC_WR_FLUSH_ERR);
        memset(w.pair.b.buf + AT, 2, LENGTH);
        must(pthread_join(thread, NULL) == 0);
        for (size_t i = 0; i < LENGTH; i++)
            must(w.pair.b.buf[AT + i] == 2);
        close_windowed(&w);
    }
}

/* It lost its CPU there, say: whoever takes the window back does not wait, and the queue goes on after it. */
WITH(for_writing, a_peer_that_is_slow_to_leave_costs_time_only) {
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    struct soft_ring *ring = atomic_load(&soft_qp_of(p->b.qp)->rx);
    atomic_fetch_or(&ring->tx.touching, 1);
    must(sv_recv(&p->a, 7, 0, 8) == 0);
    must(sv_invalidate(w->pair.b.qp, w->rkey) == 0);
    must(soft_mw_of(w->mw)->mr == NULL);
    must(sv_send(&p->b, 8, 0, 8, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc;
    uint64_t until = soft_now_ns() + 300000000;
    while (soft_now_ns() < until) {
        must(ibv_poll_cq(p->b.rcq, 1, &wc) == 0);
        must(ibv_poll_cq(p->a.rcq, 1, &wc) == 0);
    }
    atomic_fetch_add(&ring->tx.touching, 1);
    wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
    must(sv_poll(p->a.rcq).status == IBV_WC_SUCCESS);
    wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.wr_id == 8);
}

/* The queue pair ends meanwhile: the request is flushed, and not before the peer has left. */
WITH(for_writing, taking_back_is_flushed_when_the_peer_has_left) {
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    struct soft_ring *ring = atomic_load(&soft_qp_of(p->b.qp)->rx);
    atomic_fetch_or(&ring->tx.touching, 1);
    must(sv_invalidate(w->pair.b.qp, w->rkey) == 0);
    must(soft_mw_of(w->mw)->mr == NULL);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    must(soft_modify_qp(p->b.qp, &attr, IBV_QP_STATE) == 0);
    sv_stays_empty(p->b.rcq, p->a.rcq);
    atomic_fetch_add(&ring->tx.touching, 1);
    must(sv_poll(p->b.rcq).status == IBV_WC_WR_FLUSH_ERR);
}

/* The peer asks for it by a message: the message waits, and the thread that polls does not. */
WITH(for_writing, a_message_that_invalidates_waits_for_the_peer_to_leave) {
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    struct soft_ring *ring = atomic_load(&soft_qp_of(p->b.qp)->rx);
    must(sv_recv(&p->b, 7, 0, 64) == 0);
    atomic_fetch_or(&ring->tx.touching, 1);
    struct ibv_sge sge = sv_sge(&p->a, 0, 8);
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_INV,
                             .send_flags = IBV_SEND_SIGNALED,
                             .invalidate_rkey = w->rkey},
                       *bad;
    sv_fill(p->a.buf, 8, 3);
    must(ibv_post_send(p->a.qp, &wr, &bad) == 0);
    sv_until(ibv_poll_cq(p->b.rcq, 1, &(struct ibv_wc){0}) == 0 && soft_mw_of(w->mw)->mr == NULL);
    sv_stays_empty(p->b.rcq, p->a.rcq);
    atomic_fetch_add(&ring->tx.touching, 1);
    struct ibv_wc wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 && wc.byte_len == 8);
    must((wc.wc_flags & IBV_WC_WITH_INV) && wc.invalidated_rkey == w->rkey);
    sv_check(p->b.buf, 8, 3);
    must(sv_poll(p->a.rcq).status == IBV_WC_SUCCESS);
}

/* A peer that says it is inside and never leaves ends the QP, not the caller. */
WITH(for_writing, a_peer_that_never_leaves_costs_its_queue_pair) {
    struct windowed *w = *state;
    struct soft_ring *ring = atomic_load(&soft_qp_of(w->pair.b.qp)->rx);
    atomic_fetch_or(&ring->tx.touching, 1);
    must(sv_invalidate(w->pair.b.qp, w->rkey) == 0);
    must(sv_poll(w->pair.b.rcq).status == IBV_WC_RETRY_EXC_ERR);
    must(soft_mw_of(w->mw)->mr == NULL);
    atomic_fetch_add(&ring->tx.touching, 1);
}
