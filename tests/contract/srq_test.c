/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * srq_test.c - shared receive queues: one FIFO for many queue pairs, the limit event, the event of
 * the last receive, what is refused.
 */
#include "contract/ends.h"

enum { PEERS = 3 };

/* hub receives for all: its own QP and two more share its SRQ, each connected to one sender. */
static struct ct_end hub, from[PEERS];
static struct ibv_qp *qps[PEERS];

static int open_shared(void **state) {
    (void)state;
    ct_open(&hub, CT_OPTIONS(.shared = true));
    struct ibv_qp *own = hub.qp;
    for (int i = 0; i < PEERS; i++) {
        ct_open(&from[i], CT_OPTIONS());
        qps[i] = i ? ct_new_qp(&hub) : own;
        hub.qp = qps[i];
        ct_connect_qp(&hub, from[i].qp->qp_num);
        ct_connect_qp(&from[i], qps[i]->qp_num);
    }
    hub.qp = own;
    return 0;
}

static int close_shared(void **state) {
    (void)state;
    for (int i = 0; i < PEERS; i++) {
        if (i)
            assert_int_equal(ibv_destroy_qp(qps[i]), 0);
        ct_close(&from[i]);
    }
    ct_close(&hub);
    return 0;
}

static void send_from(int i, size_t bytes) {
    assert_int_equal(ct_send(&from[i], 1, 0, bytes, IBV_SEND_SIGNALED), 0);
}

static void taken(int i, uint64_t wr_id, uint32_t bytes) {
    struct ibv_wc wc = ct_poll(hub.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.byte_len, bytes);
    assert_int_equal(wc.qp_num, qps[i]->qp_num);
    ct_wc(from[i].scq, 1, IBV_WC_SUCCESS);
}

#define SHARED_TEST(name) TEST_WITH(open_shared, close_shared, name)

SHARED_TEST(receives_are_taken_in_order_by_all) {
    for (unsigned n = 0; n < 30; n++) {
        int i = (int)(n % PEERS);
        assert_int_equal(ct_recv(&hub, n, 0, 4096), 0);
        ct_fill(from[i].buf, n * 101, n);
        send_from(i, n * 101);
        taken(i, n, n * 101);
        ct_check(hub.buf, n * 101, n);
    }
}

SHARED_TEST(a_receive_may_be_there_before_anybody) {
    for (unsigned n = 0; n < 6; n++)
        assert_int_equal(ct_recv(&hub, n, n * 64, 64), 0);
    for (unsigned n = 0; n < 6; n++) {
        send_from((int)(n % PEERS), 8);
        taken((int)(n % PEERS), n, 8);
    }
}

SHARED_TEST(each_post_lets_one_message_through) {
    unsigned seen = 0;
    for (int i = 0; i < PEERS; i++)
        send_from(i, 8);
    ct_empty(hub.rcq);
    for (unsigned n = 0; n < PEERS; n++) {
        assert_int_equal(ct_recv(&hub, n, 0, 64), 0);
        struct ibv_wc wc = ct_poll(hub.rcq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.wr_id, n);
        for (unsigned i = 0; i < PEERS; i++)
            if (wc.qp_num == qps[i]->qp_num)
                seen |= 1u << i;
        ct_empty(hub.rcq);
    }
    assert_int_equal(seen, (1u << PEERS) - 1);
}

SHARED_TEST(the_limit_fires_once_and_then_reads_0) {
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(ct_recv(&hub, i, 0, 64), 0);
    struct ibv_srq_attr attr = {.srq_limit = 3};
    assert_int_equal(ibv_modify_srq(hub.srq, &attr, IBV_SRQ_LIMIT), 0);
    memset(&attr, 0, sizeof attr);
    assert_int_equal(ibv_query_srq(hub.srq, &attr), 0);
    assert_int_equal(attr.srq_limit, 3);
    send_from(0, 8); /* 3 remain: not fewer than the limit */
    taken(0, 0, 8);
    ct_no_async(hub.ctx);
    send_from(1, 8);
    taken(1, 1, 8);
    ct_async(hub.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, hub.srq);
    assert_int_equal(ibv_query_srq(hub.srq, &attr), 0);
    assert_int_equal(attr.srq_limit, 0);
    send_from(2, 8);
    taken(2, 2, 8);
    ct_no_async(hub.ctx);
}

/* A queue pair that ends leaves the receives to the others. */
SHARED_TEST(err_flushes_nothing_of_a_shared_queue) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(ct_recv(&hub, 5, 0, 64), 0);
    assert_int_equal(ibv_modify_qp(qps[0], &attr, IBV_QP_STATE), 0);
    if (facts.last_wqe_event)
        ct_async(hub.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qps[0]);
    else
        ct_no_async(hub.ctx);
    ct_empty(hub.rcq);
    send_from(1, 8);
    taken(1, 5, 8);
}

SHARED_TEST(what_a_shared_queue_refuses) {
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad = NULL;
    assert_int_equal(ibv_post_recv(qps[0], &wr, &bad), EINVAL);
    if (facts.bad_wr_of_state)
        assert_ptr_equal(bad, &wr);
    assert_int_equal(ibv_destroy_srq(hub.srq), EBUSY);
    struct ibv_srq_attr attr = {.max_wr = 0};
    assert_int_equal(ibv_query_srq(hub.srq, &attr), 0);
    assert_true(attr.max_wr >= 16);
    assert_true(attr.max_sge >= 2);
    attr.srq_limit = attr.max_wr + 1;
    assert_int_equal(ibv_modify_srq(hub.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
}

/* What is asked for beside a shared queue is nobody's, however much it is. */
SHARED_TEST(a_queue_pairs_own_receives_do_not_count) {
    struct ibv_device_attr device;
    assert_int_equal(ibv_query_device(hub.ctx, &device), 0);
    struct ibv_qp_init_attr init = {.send_cq = hub.scq,
                                    .recv_cq = hub.rcq,
                                    .srq = hub.srq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 1,
                                            .max_send_sge = 1,
                                            .max_recv_wr = (uint32_t)device.max_qp_wr + 1,
                                            .max_recv_sge = (uint32_t)device.max_sge + 1}};
    struct ibv_qp *qp = ibv_create_qp(hub.pd, &init);
    assert_non_null(qp);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

SHARED_TEST(a_full_shared_queue_is_enomem) {
    struct ibv_srq_attr attr;
    assert_int_equal(ibv_query_srq(hub.srq, &attr), 0);
    for (unsigned i = 0; i < attr.max_wr; i++)
        assert_int_equal(ct_recv(&hub, i, 0, 8), 0);
    unsigned spare = 0;
    while (spare <= facts.srq_spare && ct_recv(&hub, 0, 0, 8) == 0)
        spare++;
    assert_int_equal(spare, facts.srq_spare);
    assert_int_equal(ct_recv(&hub, 0, 0, 8), ENOMEM);
}

int main(void) {
    return ct_run();
}
