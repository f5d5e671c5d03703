/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * refusal_test.c - every way in which a connection is refused, and the reason that the other side is
 * given: nobody listens, rejected, destroyed unanswered, a stale number; and the backlog.
 */
#include "contract/contract.h"

#include "support/emulated.h"

enum { REJECT_NO_LISTENER = 8, REJECT_STALE = 10, REJECT_CONSUMER = 28, REJECT_ECE = 35 };
enum { REJECT_DATA = 148 };

/* A dial to where nobody listens. The device that connects has asked by the time the call returns, which says so. */
static void expect_nobody(struct ct_pair *pair, uint16_t port) {
    struct rdma_conn_param param = ct_param(NULL, 0);
    pair->active = ct_id(pair->active_channel);
    ct_resolve(pair->active, port);
    ct_qp_for_device(pair->active);
    if (facts.device_connects) {
        assert_fails(rdma_connect(pair->active, &param), ECONNREFUSED);
        ct_silent(pair->active_channel);
        return;
    }
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), REJECT_NO_LISTENER);
}

CT_WITH(ct_listening, nobody_listens_is_said) {
    struct ct_pair *pair = *state;
    ct_destroy(pair->listener);
    pair->listener = NULL;
    expect_nobody(pair, pair->port);
}

CT_WITH(ct_listening, bound_but_not_listening_is_not_listening) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *bound = ct_id(pair->passive_channel);
    ct_bind(bound, 0);
    expect_nobody(pair, ntohs(rdma_get_src_port(bound)));
    ct_destroy(bound);
}

CT_WITH(ct_requested, a_rejected_id_is_used_up) {
    struct ct_pair *pair = *state;
    assert_int_equal(rdma_reject(pair->passive, NULL, 0), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), facts.rejected);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(rdma_connect(pair->active, &param), EINVAL);
    assert_fails(rdma_reject(pair->passive, NULL, 0), EINVAL);
    assert_fails(rdma_accept(pair->passive, &param), EINVAL);
    ct_silent(pair->passive_channel);
}

CT_WITH(ct_requested, destroying_a_request_rejects_it) {
    struct ct_pair *pair = *state;
    ct_destroy(pair->passive);
    pair->passive = NULL;
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), facts.rejected);
}

TEST(destroying_a_listener_rejects_its_unfetched_requests) {
    skip_emulated("HAS NO PREADV2");
    struct ct_pair pair;
    ct_pair_listen(&pair);
    pair.active = ct_connect(pair.active_channel, pair.port);
    assert_true(ct_readable(pair.passive_channel, facts.wait_ms));
    ct_destroy(pair.listener);
    pair.listener = NULL;
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_REJECTED), facts.rejected);
    assert_false(ct_readable(pair.passive_channel, 0));
    ct_pair_free(&pair);
}

/* A fetched request is on its own: the listener may go. */
CT_WITH(ct_requested, a_fetched_request_outlives_its_listener) {
    struct ct_pair *pair = *state;
    ct_destroy(pair->listener);
    pair->listener = NULL;
    ct_pair_accept(pair);
    ct_confirm(pair->active, pair->passive_channel);
}

TEST(the_active_side_may_reject_the_reply) {
    struct ct_pair pair;
    if (facts.device_connects)
        ct_skip("the device has confirmed the answer by then");
    ct_pair_request(&pair);
    ct_pair_accept(&pair);
    ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    static const char data[REJECT_DATA] = "no"; /* zeros behind it */
    assert_int_equal(rdma_reject(pair.active, data, 2), 0);
    struct rdma_cm_event *event = ct_expect(pair.passive_channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, REJECT_CONSUMER);
    assert_int_equal(event->param.conn.private_data_len, REJECT_DATA);
    if (facts.tells_refusals)
        assert_memory_equal(event->param.conn.private_data, data, REJECT_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_fails(rdma_establish(pair.active), EINVAL);
    ct_pair_free(&pair);
}

/* As long as the other side has not confirmed the answer. */
TEST(the_passive_side_may_reject_what_it_accepted) {
    struct ct_pair pair;
    if (facts.device_connects)
        ct_skip("the device has confirmed the answer by then");
    if (facts.repeats_rejected)
        ct_skip("destroying the id would take a minute");
    ct_pair_request(&pair);
    ct_pair_accept(&pair);
    ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    static const char data[REJECT_DATA] = "no"; /* zeros behind it */
    assert_int_equal(rdma_reject(pair.passive, data, 2), 0);
    struct rdma_cm_event *event = ct_expect(pair.active_channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, REJECT_CONSUMER);
    assert_int_equal(event->param.conn.private_data_len, REJECT_DATA);
    if (facts.tells_refusals)
        assert_memory_equal(event->param.conn.private_data, data, REJECT_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_fails(rdma_establish(pair.active), EINVAL);
    assert_fails(rdma_reject(pair.passive, NULL, 0), EINVAL);
    ct_pair_free(&pair);
}

CT_WITH(ct_requested, destroying_an_accepted_id_ends_it) {
    struct ct_pair *pair = *state;
    ct_pair_accept(pair);
    if (facts.device_connects) { /* which has confirmed it */
        ct_confirm(pair->active, pair->passive_channel);
        ct_destroy(pair->passive);
        pair->passive = NULL;
        assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
        return;
    }
    ct_take(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    ct_destroy(pair->passive);
    pair->passive = NULL;
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), facts.rejected);
}

TEST(reject_ece_is_reason_35) {
    if (facts.device_connects)
        ct_skip("a refusal has no reason");
    struct ct_pair pair;
    ct_pair_request(&pair);
    assert_int_equal(rdma_reject_ece(pair.passive, "ece", 3), 0);
    struct rdma_cm_event *event = ct_expect(pair.active_channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, facts.tells_refusals ? REJECT_ECE : REJECT_CONSUMER);
    assert_memory_equal(event->param.conn.private_data, "ece", 4);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_pair_free(&pair);
}

/* A backlog of 0 means the largest one. */
CT_WITH(ct_listening, a_backlog_of_0_is_no_limit_for_a_few) {
    struct ct_pair *pair = *state;
    enum { COUNT = 10 };
    struct rdma_cm_id *active[COUNT];
    struct rdma_cm_id *listener = ct_id(pair->passive_channel);
    uint16_t port = ct_listen(listener, 0);
    for (int i = 0; i < COUNT; i++)
        active[i] = ct_connect(pair->active_channel, port);
    bool seen[COUNT] = {false};
    for (int i = 0; i < COUNT; i++) { /* in any order: each connection has its own */
        struct rdma_cm_id *id = ct_request(pair->passive_channel);
        int from = 0;
        while (from < COUNT && rdma_get_src_port(active[from]) != rdma_get_dst_port(id))
            from++;
        assert_true(from < COUNT && !seen[from]);
        seen[from] = true;
        ct_destroy(id);
        assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), facts.rejected);
    }
    for (int i = 0; i < COUNT; i++)
        ct_destroy(active[i]);
    ct_destroy(listener);
}

/* The peer's QP number is known from a connection that still lives: the request is stale. */
TEST(a_qp_number_in_use_is_reject_10) {
    if (!facts.stale_numbers)
        ct_skip("QP numbers of live connections are not compared: they are unique on one host");
    struct ct_pair pair;
    ct_pair_listen(&pair);
    struct rdma_conn_param param = ct_param(NULL, 0);
    struct rdma_cm_id *ids[2];
    for (int i = 0; i < 2; i++) {
        ids[i] = ct_id(pair.active_channel);
        ct_resolve(ids[i], pair.port);
        assert_int_equal(rdma_connect(ids[i], &param), 0);
    }
    struct rdma_cm_event *event = ct_expect(pair.active_channel, RDMA_CM_EVENT_REJECTED);
    assert_ptr_equal(event->id, ids[1]);
    assert_int_equal(event->status, REJECT_STALE);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_destroy(ids[0]);
    ct_destroy(ids[1]);
    ct_pair_free(&pair);
}

int main(void) {
    return ct_run();
}
