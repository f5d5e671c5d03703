/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_resize_test.c - the size of a CQ is changed: never below what is in it, wherever the device
 * keeps that, and nothing gets lost or changes its place. Each test names the promise.
 */
#include "support/softverbs_datagram.h"

#include <pthread.h>

#include "soft/object/comp_channel.h"
#include "soft/object/cq.h"
#include "soft/soft.h"
#include "soft/verbs/internal.h"

enum { COUNT = 5, GRH = 40 };

/* What lies in the CQ comes out whole and in order, behind two refusals and a change of size. */
static void holds_five(struct ibv_cq *cq, enum ibv_wc_status status) {
    int before = cq->cqe;
    assert_int_equal(soft_resize_cq(cq, COUNT - 1), EINVAL);
    assert_int_equal(soft_resize_cq(cq, 1), EINVAL);
    assert_int_equal(cq->cqe, before);
    assert_int_equal(soft_resize_cq(cq, COUNT), 0);
    assert_int_equal(cq->cqe, COUNT);
    assert_int_equal(soft_resize_cq(cq, COUNT - 1), EINVAL);
    for (uint64_t i = 0; i < COUNT; i++) {
        struct ibv_wc wc;
        assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
        must_data_equal(wc.wr_id, i);
        assert_int_equal(wc.status, status);
        if (i == 0)
            assert_int_equal(soft_resize_cq(cq, COUNT - 2), EINVAL);
    }
    assert_int_equal(soft_resize_cq(cq, 1), 0);
    assert_int_equal(cq->cqe, 1);
}

static void send_five(struct sv_end *from, struct sv_end *to) {
    for (uint64_t i = 0; i < COUNT; i++)
        must(sv_recv(to, i, 0, 64) == 0);
    for (uint64_t i = 0; i < COUNT; i++)
        must(sv_send(from, i, 0, 8, IBV_SEND_SIGNALED) == 0);
}

TEST(a_cq_holds_what_arrived_and_what_was_answered) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS());
    sv_wait_linked(&a);
    send_five(&a, &b);
    holds_five(b.rcq, IBV_WC_SUCCESS); /* which tells the sender that they were taken */
    holds_five(a.scq, IBV_WC_SUCCESS);
    sv_unpair(&a, &b);
}

static void uc_connect(struct sv_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_RTR, dest);
    must(sv_to_init(e) == 0);
    must(soft_modify_qp(e->qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN) == 0);
    attr = sv_attr(e, IBV_QPS_RTS, 0);
    must(soft_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
}

TEST(a_cq_of_uc_holds_what_was_handed_over) {
    struct sv_end a, b;
    sv_open(&a, SV_OPTIONS(.type = IBV_QPT_UC));
    sv_open(&b, SV_OPTIONS(.type = IBV_QPT_UC));
    uc_connect(&a, b.qp->qp_num);
    uc_connect(&b, a.qp->qp_num);
    sv_wait_linked(&a);
    send_five(&a, &b);
    holds_five(a.scq, IBV_WC_SUCCESS);
    holds_five(b.rcq, IBV_WC_SUCCESS);
    sv_unpair(&a, &b);
}

TEST(a_cq_of_ud_holds_datagrams) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&a);
    must(sv_recv(&b, 99, 0, 256) == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8); /* the way is there */
    must_data_equal(sv_poll(b.rcq).wr_id, 99);
    struct ibv_sge sge = sv_sge(&a, 0, 8);
    struct ibv_send_wr wr = ud_wr(ah, b.qp->qp_num, &sge, 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        wr.wr_id = i;
        must(sv_recv(&b, i, 0, GRH + 64) == 0 && ud_post(&a, &wr) == 0);
    }
    holds_five(a.scq, IBV_WC_SUCCESS);
    holds_five(b.rcq, IBV_WC_SUCCESS);
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

/* A device waits for no receiver. Here the engine, which makes the ways, is kept away. */
TEST(a_cq_holds_datagrams_whose_way_is_not_made_yet) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&a);
    struct ibv_sge sge = sv_sge(&a, 0, 8);
    struct ibv_send_wr wr = ud_wr(ah, b.qp->qp_num, &sge, 0);
    soft_lock();
    for (uint64_t i = 0; i < COUNT; i++) {
        wr.wr_id = i;
        must(ud_post(&a, &wr) == 0);
    }
    assert_int_equal(soft_resize_cq(a.scq, COUNT - 1), EINVAL);
    assert_int_equal(soft_resize_cq(a.scq, COUNT), 0);
    soft_unlock();
    for (uint64_t i = 0; i < COUNT; i++)
        must_data_equal(sv_poll(a.scq).wr_id, i);
    assert_int_equal(soft_resize_cq(a.scq, 1), 0);
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

TEST(a_cq_holds_what_a_flush_will_bring) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS());
    for (uint64_t i = 0; i < COUNT; i++)
        must(sv_recv(&b, i, 0, 64) == 0);
    must(sv_to(&b, IBV_QPS_ERR) == 0);
    holds_five(b.rcq, IBV_WC_WR_FLUSH_ERR);
    sv_unpair(&a, &b);
}

/* Receives that queue pairs share, a reader's CQ, and both directions on one CQ. */
TEST(a_cq_of_all_kinds_of_completions_holds_their_sum) {
    struct sv_end a, b;
    sv_open(&a, SV_OPTIONS(.one_cq = true));
    sv_open(&b, SV_OPTIONS());
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct ibv_cq_ex *reader = ibv_create_cq_ex(b.ctx, &cq_attr);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = soft_create_srq(b.pd, &srq_attr);
    must(reader && srq);
    struct ibv_cq *cq = ibv_cq_ex_to_cq(reader);
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .srq = srq,
                                    .cap = {.max_send_wr = 8, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    must(soft_destroy_qp(b.qp) == 0);
    b.qp = soft_create_qp(b.pd, &init);
    must(b.qp);
    sv_connect(&a, b.qp->qp_num);
    sv_connect(&b, a.qp->qp_num);
    sv_wait_linked(&a);
    sv_wait_linked(&b);
    struct ibv_sge sge = sv_sge(&b, 0, 64);
    struct ibv_recv_wr recv = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;
    for (int i = 0; i < 3; i++)
        must(ibv_post_srq_recv(srq, &recv, &bad) == 0 && sv_recv(&a, 8, 0, 64) == 0);
    for (uint64_t i = 0; i < 3; i++)
        must(sv_send(&a, i, 0, 8, IBV_SEND_SIGNALED) == 0);
    for (uint64_t i = 0; i < 2; i++)
        must(sv_send(&b, i, 0, 8, IBV_SEND_SIGNALED) == 0);
    soft_qp_progress(soft_qp_of(a.qp));              /* b's two are taken, and lie in a's CQ */
    assert_int_equal(soft_resize_cq(cq, 4), EINVAL); /* three receives, two sends */
    assert_int_equal(soft_resize_cq(cq, 5), 0);
    assert_int_equal(soft_resize_cq(a.rcq, 4), EINVAL); /* two receives, three sends */
    assert_int_equal(soft_resize_cq(a.rcq, 5), 0);
    struct ibv_poll_cq_attr none = {0};
    unsigned receives = 0;
    assert_int_equal(ibv_start_poll(reader, &none), 0);
    for (int left = 4; left >= 0; left--) {
        receives += ibv_wc_read_opcode(reader) == IBV_WC_RECV;
        assert_int_equal(soft_resize_cq(cq, left ? left : 1), 0); /* read, hence not in it */
        if (left > 1)
            assert_int_equal(soft_resize_cq(cq, left - 1), EINVAL);
        assert_int_equal(ibv_next_poll(reader), left ? 0 : ENOENT);
    }
    ibv_end_poll(reader);
    assert_int_equal(receives, 3);
    must(soft_destroy_qp(b.qp) == 0 && soft_destroy_cq(cq) == 0 && soft_destroy_srq(srq) == 0);
    b.qp = NULL;
    sv_unpair(&a, &b);
}

/* Of unsignalled sends nothing ever lies there. */
TEST(what_completes_without_a_word_does_not_count) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS());
    sv_wait_linked(&a);
    for (uint64_t i = 0; i < COUNT; i++)
        must(sv_recv(&b, i, 0, 64) == 0 && sv_send(&a, i, 0, 8, 0) == 0);
    soft_qp_progress(soft_qp_of(b.qp));
    assert_int_equal(soft_resize_cq(a.scq, 1), 0);
    assert_int_equal(soft_resize_cq(b.rcq, COUNT - 1), EINVAL);
    sv_unpair(&a, &b);
}

TEST(a_cq_that_was_made_smaller_overruns_at_its_new_size) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS());
    sv_wait_linked(&a);
    assert_int_equal(soft_resize_cq(b.rcq, COUNT - 1), 0);
    send_five(&a, &b);
    soft_qp_progress(soft_qp_of(b.qp)); /* nobody polls */
    assert_true(atomic_load(&soft_cq_of(b.rcq)->dead));
    sv_unpair(&a, &b);
}

/* A CQ that is armed fires once for what a resize found. */
TEST(a_resize_fires_for_what_it_finds_as_the_arrival_would) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS(.channel = true));
    sv_wait_linked(&a);
    assert_int_equal(soft_req_notify_cq(b.rcq, 0), 0);
    send_five(&a, &b);
    holds_five(b.rcq, IBV_WC_SUCCESS);
    struct ibv_cq *fired;
    void *context;
    assert_int_equal(soft_get_cq_event(b.channel, &fired, &context), 0);
    assert_ptr_equal(fired, b.rcq);
    soft_ack_cq_events(fired, 1);
    struct soft_comp_channel *channel = soft_comp_channel_of(b.channel);
    pthread_mutex_lock(&channel->lock);
    assert_int_equal(channel->count, 0);
    pthread_mutex_unlock(&channel->lock);
    sv_unpair(&a, &b);
}

/* ---- in traffic ------------------------------------------------------------------------------------------- */

enum { WINDOW = 32, MESSAGES = 20000 };

struct traffic {
    struct sv_end a, b;
    _Atomic bool over;
};

static void *resizes(void *arg) {
    struct traffic *t = arg;
    for (unsigned turn = 0; !atomic_load(&t->over); turn++) {
        static const int sizes[] = {WINDOW, 4 * WINDOW, WINDOW + 1, 1000};
        must(soft_resize_cq(t->b.rcq, sizes[turn % 4]) == 0);
        must(soft_resize_cq(t->a.scq, sizes[(turn + 1) % 4]) == 0);
        sched_yield();
    }
    return NULL;
}

TEST(nothing_is_lost_by_resizes_in_traffic) {
    struct traffic t = {.over = false};
    sv_pair(&t.a, SV_OPTIONS(), &t.b, SV_OPTIONS());
    sv_wait_linked(&t.a);
    pthread_t thread;
    must(pthread_create(&thread, NULL, resizes, &t) == 0);
    uint64_t sent = 0, done = 0, received = 0;
    uint64_t since = soft_now_ns();
    unsigned turns = 0;
    while (received < MESSAGES || done < MESSAGES) {
        if (sent < MESSAGES && sent - received < WINDOW && sent - done < WINDOW) {
            must(sv_recv(&t.b, sent, 0, 64) == 0);
            must(sv_send(&t.a, sent, 0, 8, IBV_SEND_SIGNALED) == 0);
            sent++;
        }
        struct ibv_wc wc[4];
        int n = ibv_poll_cq(t.b.rcq, 4, wc);
        for (int i = 0; i < n; i++)
            must(wc[i].wr_id == received++ && wc[i].status == IBV_WC_SUCCESS);
        int m = ibv_poll_cq(t.a.scq, 4, wc);
        for (int i = 0; i < m; i++)
            must(wc[i].wr_id == done++ && wc[i].status == IBV_WC_SUCCESS);
        if (n == 0 && m == 0)
            sv_pause(&turns, since, "completions", __FILE__, __LINE__);
        else
            since = soft_now_ns();
    }
    atomic_store(&t.over, true);
    must(pthread_join(thread, NULL) == 0);
    sv_unpair(&t.a, &t.b);
}
