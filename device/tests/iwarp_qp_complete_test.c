/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_complete_test.c - a queue pair over TCP to another of this device: what completed is at the peer, as on InfiniBand; and
 * a poller needs nobody to find what came.
 */
#include "support/softverbs_tcp.h"

#include "soft/iwarp/qp_tcp.h"

static struct tcp_pair p;

static int open_pair(void **state) {
    (void)state;
    tcp_open(&p, &(struct tcp_options){.crc = true, .extended = true, .depth = 16});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

static struct ibv_send_wr request(uint64_t wr_id, enum ibv_wr_opcode opcode) {
    return (struct ibv_send_wr){
        .wr_id = wr_id,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + 32768, .rkey = p.open->rkey}};
}

#define OPEN(name) TEST_WITH(open_pair, shut, name)

/* While the peer's device has not taken it, its sender hears nothing of it. */
OPEN(a_send_completes_when_it_was_taken) {
    assert_int_equal(tcp_post(&p, request(1, IBV_WR_SEND), 0, 40, 1), 0);
    sv_stays_empty(p.a.scq, p.b.rcq);
    tcp_recv(&p, 7, 4096, 64, 1);
    tcp_expect(p.b.rcq, 7, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
}

/* The bytes are there when the WRITE is complete: nobody looks again. */
OPEN(what_was_written_is_there_when_it_completes) {
    for (unsigned i = 0; i < 200; i++) {
        sv_fill(p.a.buf, 8000, i);
        assert_int_equal(tcp_post(&p, request(i, IBV_WR_RDMA_WRITE), 0, 8000, 1), 0);
        tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
        sv_check(p.b.buf + 32768, 8000, i);
    }
}

OPEN(a_send_that_nobody_took_is_no_success) {
    assert_int_equal(tcp_post(&p, request(1, IBV_WR_SEND), 0, 40, 1), 0);
    sv_stays_empty(p.a.scq, p.b.rcq);
    assert_int_equal(sv_to(&p.b, IBV_QPS_ERR), 0);
    tcp_expect(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
}

OPEN(what_was_taken_before_the_end_is_a_success) {
    tcp_recv(&p, 7, 4096, 64, 1);
    assert_int_equal(tcp_post(&p, request(1, IBV_WR_SEND), 0, 40, 1), 0);
    tcp_expect(p.b.rcq, 7, IBV_WC_SUCCESS); /* its acknowledgement may wait for what b says next */
    assert_int_equal(sv_to(&p.b, IBV_QPS_ERR), 0);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
}

/* Acknowledgements are no READs: they need no right, and take nothing of the depth that was agreed on. */
OPEN(it_needs_no_right_and_no_depth) {
    struct ibv_qp_attr attr = {.qp_access_flags = 0};
    assert_int_equal(soft_modify_qp(p.b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
    spin_lock(&soft_qp_of(p.b.qp)->lock);
    soft_qp_of(p.b.qp)->attr.max_dest_rd_atomic = 0;
    spin_unlock(&soft_qp_of(p.b.qp)->lock);
    for (unsigned i = 0; i < 40; i++) {
        tcp_recv(&p, i, 4096, 64, 1);
        assert_int_equal(tcp_post(&p, request(i, IBV_WR_SEND), 0, 40, 1), 0);
        tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
        tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
    }
}

/* Sixteen READs at a time, as many as there may be, with a SEND between any two. */
OPEN(it_goes_between_reads_of_the_full_depth) {
    enum { ROUNDS = 30, EACH = 16 };
    sv_fill(p.b.buf + 32768, 512, 3);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < EACH; i++) {
            tcp_recv(&p, i, 4096 + i * 64, 64, 1);
            assert_int_equal(tcp_post(&p, request(2 * i, IBV_WR_RDMA_READ), i * 512, 512, 1), 0);
            assert_int_equal(tcp_post(&p, request(2 * i + 1, IBV_WR_SEND), 16384, 40, 1), 0);
        }
        for (unsigned i = 0; i < 2 * EACH; i++)
            tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
        for (unsigned i = 0; i < EACH; i++) {
            tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
            sv_check(p.a.buf + i * 512, 512, 3);
        }
    }
}

/* Sends that nobody is told of are complete with the next one that is. */
OPEN(one_acknowledgement_is_for_all_before_it) {
    for (unsigned i = 0; i < 20; i++) {
        struct ibv_send_wr wr = request(i, IBV_WR_RDMA_WRITE);
        wr.send_flags = i == 19 ? IBV_SEND_SIGNALED : 0;
        assert_int_equal(tcp_post(&p, wr, 0, 100, 1), 0);
    }
    tcp_expect(p.a.scq, 19, IBV_WC_SUCCESS);
    assert_int_equal(soft_qp_of(p.a.qp)->sq_head, soft_qp_of(p.a.qp)->sq_tail);
}

/* What came before it is at the peer, though nobody asked; so the status is not one of those. */
TEST(a_refusal_is_told_of_what_was_refused) {
    static const struct {
        enum ibv_wr_opcode opcode;
        enum ibv_wc_status status;
    } rows[] = {{IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR},
                {IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR},
                {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_REM_ACCESS_ERR},
                {IBV_WR_SEND, IBV_WC_REM_INV_REQ_ERR}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tcp_open(&p, &(struct tcp_options){.crc = true, .extended = true, .depth = 16});
        for (unsigned k = 0; k < 4; k++)
            tcp_recv(&p, k, 4096 + k * 64, 64, 1);
        for (unsigned k = 0; k < 3; k++) {
            struct ibv_send_wr wr = request(k, IBV_WR_SEND);
            wr.send_flags = 0;
            assert_int_equal(tcp_post(&p, wr, 0, 40, 1), 0);
        }
        struct ibv_send_wr wr = request(77, rows[i].opcode);
        bool atomic = rows[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        if (atomic) {
            wr.wr.atomic.remote_addr = (uintptr_t)p.b.buf + 32768;
            wr.wr.atomic.rkey = p.open->rkey;
        }
        *(atomic ? &wr.wr.atomic.rkey : &wr.wr.rdma.rkey) ^= 0x100; /* nobody's */
        /* And 80 bytes are too many for the receive. */
        assert_int_equal(tcp_post(&p, wr, 0, atomic ? 8 : 80, 1), 0);
        tcp_expect(p.a.scq, 77, rows[i].status);
        tcp_close(&p);
    }
}

static bool is_cold(void) {
    struct soft_qp *qp = soft_qp_of(p.b.qp);
    spin_lock(&qp->lock);
    bool cold = !qp->tcp->hot && !ld(qp->need_tick);
    spin_unlock(&qp->lock);
    return cold;
}

/* Nothing moved for a while, and the engine has nothing to do for it. */
static void until_cold(void) {
    uint64_t limit = soft_now_ns() + SV_DEADLINE_NS;
    while (!is_cold() && soft_now_ns() < limit)
        usleep(100);
    assert_true(is_cold());
}

/* On a quiet connection, while the engine does not get its turn. */
OPEN(a_poller_finds_what_came_without_the_engine) {
    struct ibv_wc wc;
    for (unsigned i = 0; i < 5; i++) {
        tcp_recv(&p, i, 4096, 64, 1);
        until_cold();
        soft_lock(); /* without it the engine does nothing */
        assert_int_equal(tcp_post(&p, request(i, IBV_WR_SEND), 0, 40, 1), 0);
        uint64_t limit = soft_now_ns() + SV_DEADLINE_NS;
        int n;
        do
            n = ibv_poll_cq(p.b.rcq, 1, &wc);
        while (n == 0 && soft_now_ns() < limit);
        soft_unlock();
        assert_int_equal(n, 1);
        must_data_equal(wc.wr_id, i);
        tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
    }
}
