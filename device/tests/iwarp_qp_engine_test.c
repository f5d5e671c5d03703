/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_engine_test.c - who makes the progress of a queue pair over TCP: sleepers are woken, targets need not poll, quiet
 * queue pairs cost a poll nothing, and nobody waits for a peer that stands still.
 */
#include "support/softverbs_tcp.h"

#include <poll.h>

#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"
#include "soft/object/mw.h"
#include "soft/verbs/mw.h"

static struct tcp_pair p;

static int open_channels(void **state) {
    (void)state;
    tcp_open(&p, &(struct tcp_options){.o = {.channel = true, .one_cq = true, .sends = 1024},
                                       .crc = true});
    return 0;
}

static int open_plain(void **state) {
    (void)state;
    tcp_open(&p, &(struct tcp_options){.crc = true});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

static struct ibv_send_wr request(uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned flags) {
    return (struct ibv_send_wr){
        .wr_id = wr_id,
        .opcode = opcode,
        .send_flags = flags,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + 32768, .rkey = p.open->rkey}};
}

static bool is_hot(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    spin_lock(&qp->lock);
    bool hot = qp->tcp->hot;
    spin_unlock(&qp->lock);
    return hot;
}

static uint32_t turns_of(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    spin_lock(&qp->lock);
    uint32_t turns = qp->tcp->turns;
    spin_unlock(&qp->lock);
    return turns;
}

static void wait_event(struct sv_end *e) {
    struct pollfd fd = {.fd = e->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 20000), 1);
    sv_cq_event(e->channel);
}

static bool has_event(struct sv_end *e, int ms) {
    struct pollfd fd = {.fd = e->channel->fd, .events = POLLIN};
    return poll(&fd, 1, ms) == 1;
}

#define WITH(open, name) TEST_WITH(open, shut, name)

/* Both sleep between any two messages. */
WITH(open_channels, sleepers_on_both_sides_are_woken) {
    struct sv_end *e[2] = {&p.a, &p.b};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(sv_recv(e[i], 1, 0, 4096), 0);
        assert_int_equal(ibv_req_notify_cq(e[i]->rcq, 0), 0);
    }
    for (unsigned round = 0; round < 600; round++) {
        struct sv_end *from = e[round % 2], *to = e[!(round % 2)];
        assert_int_equal(sv_send(from, 2, 8192, round, 0), 0);
        wait_event(to);
        struct ibv_wc wc = sv_poll(to->rcq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        must_data_equal(wc.byte_len, round);
        assert_int_equal(sv_recv(to, 1, 0, 4096), 0);
        assert_int_equal(ibv_req_notify_cq(to->rcq, 0), 0);
    }
}

WITH(open_channels, a_sleeper_hears_that_its_send_and_its_read_are_done) {
    assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
    assert_int_equal(tcp_post(&p, request(1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), 0, 100, 1), 0);
    wait_event(&p.a);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
    assert_int_equal(tcp_post(&p, request(2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED), 0, 100, 1), 0);
    wait_event(&p.a);
    tcp_expect(p.a.scq, 2, IBV_WC_SUCCESS);
}

/* Nothing is sent for it, and what is in front of it is complete. */
WITH(open_channels, a_sleeper_hears_that_its_key_is_taken_back) {
    struct ibv_mw *mw = soft_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
    assert_non_null(mw);
    struct ibv_mw_bind_info info = {p.open, (uintptr_t)p.b.buf, 64, IBV_ACCESS_REMOTE_READ};
    assert_int_equal(ibv_req_notify_cq(p.b.scq, 0), 0);
    assert_int_equal(sv_bind(p.b.qp, mw, mw->rkey ^ 1, info), 0);
    wait_event(&p.b);
    tcp_expect(p.b.scq, 5, IBV_WC_SUCCESS);
    assert_int_equal(sv_recv(&p.a, 1, 0, 64), 0);
    assert_int_equal(sv_send(&p.b, 1, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_expect(p.b.scq, 1, IBV_WC_SUCCESS);
    assert_int_equal(ibv_req_notify_cq(p.b.scq, 0), 0);
    assert_int_equal(sv_invalidate(p.b.qp, mw->rkey), 0);
    wait_event(&p.b);
    tcp_expect(p.b.scq, 6, IBV_WC_SUCCESS);
    assert_int_equal(soft_dealloc_mw(mw), 0);
}

/* Such as one whose memory is not registered; it is posted right behind a turn, as an answer is. */
WITH(open_channels, a_sleeper_hears_of_a_request_that_cannot_go) {
    struct ibv_sge sge = {.addr = (uintptr_t)p.a.buf, .length = 100};
    struct ibv_send_wr *bad, wr = request(2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    assert_int_equal(sv_recv(&p.a, 1, 0, 64), 0);
    assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
    assert_int_equal(sv_send(&p.b, 1, 0, 64, 0), 0);
    wait_event(&p.a);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
    assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
    wait_event(&p.a);
    tcp_expect(p.a.scq, 2, IBV_WC_LOC_PROT_ERR);
}

WITH(open_channels, a_sleeper_for_solicited_messages_sleeps_through_others) {
    for (unsigned i = 0; i < 2; i++)
        tcp_recv(&p, i, 0, 64, 1);
    assert_int_equal(ibv_req_notify_cq(p.b.rcq, 1), 0);
    assert_int_equal(sv_send(&p.a, 1, 0, 64, 0), 0);
    /* The engine has taken it, which wakes nobody. */
    sv_until(atomic_load(&soft_cq_of(p.b.rcq)->ring_count) == 1);
    assert_false(has_event(&p.b, 0));
    assert_int_equal(sv_send(&p.a, 2, 0, 64, IBV_SEND_SOLICITED), 0);
    wait_event(&p.b);
    tcp_expect(p.b.rcq, 0, IBV_WC_SUCCESS);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
}

WITH(open_channels, a_sleeper_hears_of_the_flush) {
    tcp_recv(&p, 9, 0, 64, 1);
    assert_int_equal(ibv_req_notify_cq(p.b.rcq, 0), 0);
    assert_int_equal(sv_to(&p.a, IBV_QPS_ERR), 0);
    wait_event(&p.b);
    tcp_expect(p.b.rcq, 9, IBV_WC_WR_FLUSH_ERR);
}

/* Also when it has polled, and then does something else. */
WITH(open_plain, a_target_need_not_poll) {
    struct ibv_wc wc;
    assert_int_equal(ibv_poll_cq(p.b.rcq, 1, &wc), 0);
    for (unsigned i = 0; i < 20; i++) {
        sv_fill(p.a.buf, 1000, i);
        assert_int_equal(tcp_post(&p, request(1, IBV_WR_RDMA_WRITE, 0), 0, 1000, 1), 0);
        assert_int_equal(
            tcp_post(&p, request(2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED), 2000, 1000, 1), 0);
        tcp_expect(p.a.scq, 2, IBV_WC_SUCCESS);
        sv_check(p.a.buf + 2000, 1000, i);
    }
}

WITH(open_plain, a_quiet_queue_pair_cools_and_is_served_again) {
    struct ibv_wc wc;
    for (unsigned round = 0; round < 3; round++) {
        tcp_recv(&p, round, 0, 64, 1);
        assert_int_equal(sv_send(&p.a, 1, 0, 64, 0), 0);
        tcp_expect(p.b.rcq, round, IBV_WC_SUCCESS);
        sv_until(ibv_poll_cq(p.b.rcq, 1, &wc) == 0 && !is_hot(&p.b));
        /* Polls leave it alone. */
        uint32_t turns = turns_of(&p.b);
        for (unsigned i = 0; i < 1000; i++)
            assert_int_equal(ibv_poll_cq(p.b.rcq, 1, &wc), 0);
        assert_int_equal(turns_of(&p.b), turns);
    }
    /* So it does when nobody polls. */
    sv_until(!is_hot(&p.a));
}

WITH(open_plain, a_message_waits_for_its_receive) {
    sv_fill(p.a.buf, 20000, 3);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(sv_send(&p.a, i, 0, 20000, IBV_SEND_SIGNALED), 0);
    for (unsigned i = 0; i < 5; i++)
        tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
    sv_until(atomic_load(&soft_qp_of(p.b.qp)->rx_stalled));
    sv_stays_empty(p.b.rcq, p.b.scq);
    for (unsigned i = 0; i < 5; i++) {
        tcp_recv(&p, i, 0, 20000, 1);
        tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
        sv_check(p.b.buf, 20000, 3);
        memset(p.b.buf, 0, 20000);
    }
}

/* The engine takes it when the receive comes: its owner sleeps. */
WITH(open_channels, a_message_that_waited_wakes_who_posts_and_sleeps) {
    assert_int_equal(sv_send(&p.a, 1, 0, 64, 0), 0);
    sv_until(atomic_load(&soft_qp_of(p.b.qp)->rx_stalled));
    assert_int_equal(ibv_req_notify_cq(p.b.rcq, 0), 0);
    tcp_recv(&p, 1, 0, 64, 1);
    wait_event(&p.b);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
}

/* ---- shared receives ------------------------------------------------------------------------------------- */

WITH(open_plain, shared_receives_serve_it) {
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = soft_create_srq(p.b.pd, &attr);
    assert_non_null(srq);
    struct sv_end from = {0}, to = p.b;
    struct ibv_qp_init_attr init = {.send_cq = p.b.scq,
                                    .recv_cq = p.b.rcq,
                                    .srq = srq,
                                    .cap = {.max_send_wr = 16, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    int fd[2];
    tcp_sockets(fd, 0);
    sv_open(&from, SV_OPTIONS());
    to.qp = soft_create_qp(p.b.pd, &init);
    assert_non_null(to.qp);
    tcp_connect(&from, fd[0], &(struct tcp_options){.crc = true});
    tcp_connect(&to, fd[1], &(struct tcp_options){.crc = true});
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(sv_send(&from, i, 0, 64, IBV_SEND_SIGNALED), 0);
        tcp_expect(from.scq, i, IBV_WC_SUCCESS);
        if (i == 25) /* the message is there first */
            sv_until(atomic_load(&soft_qp_of(to.qp)->rx_stalled));
        struct ibv_sge sge = sv_sge(&to, 0, 64);
        struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
        assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
        tcp_expect(to.rcq, i, IBV_WC_SUCCESS);
    }
    assert_int_equal(soft_destroy_qp(to.qp), 0);
    assert_int_equal(soft_destroy_srq(srq), 0);
    sv_close(&from);
}

/* ---- a peer that stands still ---------------------------------------------------------------------------- */

/* What its socket does not take stays in the send queue; another queue pair of the same CQs goes on. */
WITH(open_plain, a_peer_that_reads_nothing_keeps_nobody_waiting) {
    int fd[2];
    struct ibv_qp *still = sv_qp(&p.a), *own = p.a.qp;
    struct tcp_options o = {.crc = true};
    tcp_sockets(fd, 4096);
    p.a.qp = still;
    tcp_connect(&p.a, fd[0], &o);
    int rc = 0;
    for (unsigned i = 0; rc == 0; i++)
        rc = sv_send(&p.a, 1000 + i, 0, 60000, 0);
    assert_int_equal(rc, ENOMEM); /* its queue is full */
    p.a.qp = own;
    for (unsigned i = 0; i < 200; i++) {
        tcp_recv(&p, i, 0, 64, 1);
        assert_int_equal(sv_send(&p.a, i, 0, 64, IBV_SEND_SIGNALED), 0);
        tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
        tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
    }
    assert_int_equal(soft_destroy_qp(still), 0);
    close(fd[1]);
}
