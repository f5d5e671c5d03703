/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_iwarp_test.c - SLUICE_SOFT_PROFILE=iwarp: how connections come about, are refused and end, with
 * queue pairs that the device moves. Both ends in this process, queue pairs not on the ids.
 */
#include "support/softcm_iwarp.h"

/* ---- it comes about ---------------------------------------------------------------------------------- */

IWARP_WITH(iwarp_listening, a_request_shows_exact_data_and_no_queue_pair) {
    struct iwarp_ends *s = *state;
    struct rdma_conn_param param = iwarp_param(&s->dialer, "dialer", 6);
    param.responder_resources = 5;
    param.initiator_depth = 3;
    assert_int_equal(soft_connect(s->cm.active, &param), 0);
    struct rdma_cm_event *event = ct_expect(s->cm.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    s->cm.passive = event->id;
    assert_int_equal(event->param.conn.private_data_len, 6);
    assert_memory_equal(event->param.conn.private_data, "dialer", 6);
    assert_int_equal(event->param.conn.qp_num, 0);
    assert_int_equal(event->param.conn.retry_count, 0);
    assert_int_equal(event->param.conn.rnr_retry_count, 0);
    assert_int_equal(event->param.conn.responder_resources, 3); /* its own future ones */
    assert_int_equal(event->param.conn.initiator_depth, 5);
    soft_ack_cm_event(event);
    assert_int_equal(sv_state(&s->listener), IBV_QPS_INIT);
}

IWARP_WITH(iwarp_requested, the_answer_is_established_with_exact_data_and_the_queue_pairs_are_up) {
    struct iwarp_ends *s = *state;
    struct rdma_conn_param param = iwarp_param(&s->listener, "hello", 5);
    param.responder_resources = 0;
    assert_int_equal(soft_accept(s->cm.passive, &param), 0);
    assert_int_equal(sv_state(&s->listener), IBV_QPS_RTS);
    /* without a word of the dialer's */
    assert_int_equal(ct_take(s->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    struct rdma_cm_event *event = ct_expect(s->cm.active_channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(event->status, 0);
    assert_int_equal(event->param.conn.private_data_len, 5);
    assert_memory_equal(event->param.conn.private_data, "hello", 5);
    assert_int_equal(event->param.conn.responder_resources, 1); /* what the dialer asked for */
    soft_ack_cm_event(event);
    assert_int_equal(sv_state(&s->dialer), IBV_QPS_RTS);
    assert_fails(soft_establish(s->cm.active), EINVAL);
    /* what a program for InfiniBand does next changes nothing */
    assert_int_equal(sv_to_rtr(&s->dialer, 1), 0);
    assert_int_equal(sv_to_rts(&s->dialer), 0);
    iwarp_message(&s->dialer, &s->listener);
    iwarp_message(&s->listener, &s->dialer);
}

IWARP_WITH(iwarp_listening, the_device_moves_the_queue_pair_and_nobody_else) {
    struct iwarp_ends *s = *state;
    assert_int_equal(sv_to_rtr(&s->dialer, 1), 0);
    assert_int_equal(sv_state(&s->dialer), IBV_QPS_INIT);
    assert_int_equal(sv_to_rts(&s->dialer), EINVAL);
}

IWARP_WITH(iwarp_listening, attributes_say_next_to_nothing) {
    struct iwarp_ends *s = *state;
    int mask, basic = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
    for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
        struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)to};
        assert_int_equal(soft_init_qp_attr(s->cm.active, &attr, &mask), 0);
        assert_int_equal(mask, basic);
        assert_int_equal(attr.qp_access_flags, 0);
    }
    struct rdma_conn_param param = iwarp_param(&s->dialer, NULL, 0);
    assert_int_equal(soft_connect(s->cm.active, &param), 0);
    s->cm.passive = ct_request(s->cm.passive_channel);
    struct rdma_cm_id *ids[] = {s->cm.active, s->cm.passive};
    for (int i = 0; i < 2; i++)
        for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
            struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)to};
            assert_int_equal(soft_init_qp_attr(ids[i], &attr, &mask), 0);
            assert_int_equal(mask, to == IBV_QPS_RTS ? IBV_QP_PORT : basic);
        }
    assert_int_equal(soft_reject(s->cm.passive, NULL, 0), 0);
}

IWARP_WITH(iwarp_listening, a_queue_pair_that_is_not_there_is_einval) {
    struct iwarp_ends *s = *state;
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.qp_num = 0xffffff;
    assert_fails(soft_connect(s->cm.active, &param), EINVAL);
    param.qp_num = s->dialer.qp->qp_num;
    assert_int_equal(soft_connect(s->cm.active, &param), 0);
    s->cm.passive = ct_request(s->cm.passive_channel);
    param.qp_num = 0xffffff;
    assert_fails(soft_accept(s->cm.passive, &param), EINVAL);
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_REJECTED), REFUSED);
}

/* ---- it does not ------------------------------------------------------------------------------------- */

IWARP_WITH(iwarp_listening, nobody_listening_fails_the_call_and_the_id_connects_again) {
    struct iwarp_ends *s = *state;
    struct rdma_conn_param param = iwarp_param(&s->dialer, NULL, 0);
    struct sockaddr_in addr = softcm_in("127.0.0.1", s->cm.port);
    for (int i = 0; i < 2; i++) { /* the second time somebody else is remembered to have it */
        assert_int_equal(soft_destroy_id(s->cm.listener), 0);
        assert_fails(soft_connect(s->cm.active, &param), ECONNREFUSED);
        assert_false(ct_readable(s->cm.active_channel, 0));
        assert_int_equal(sv_state(&s->dialer), IBV_QPS_INIT);
        s->cm.listener = ct_id(s->cm.passive_channel);
        assert_int_equal(soft_bind_addr(s->cm.listener, (struct sockaddr *)&addr), 0);
        assert_int_equal(soft_listen(s->cm.listener, 4), 0);
        if (i == 0) {
            struct rdma_cm_id *other = ct_id(s->cm.active_channel);
            struct sv_end end;
            ct_resolve(other, s->cm.port);
            sv_open(&end, SV_OPTIONS(.recvs = 1));
            struct rdma_conn_param again = iwarp_param(&end, NULL, 0);
            assert_int_equal(soft_connect(other, &again), 0);
            struct rdma_cm_id *asked = ct_request(s->cm.passive_channel);
            assert_int_equal(soft_reject(asked, NULL, 0), 0);
            assert_int_equal(soft_destroy_id(asked), 0);
            ct_take(s->cm.active_channel, RDMA_CM_EVENT_REJECTED);
            assert_int_equal(soft_destroy_id(other), 0);
            sv_close(&end);
        }
    }
    assert_int_equal(soft_connect(s->cm.active, &param), 0);
    s->cm.passive = ct_request(s->cm.passive_channel);
    assert_int_equal(soft_reject(s->cm.passive, NULL, 0), 0);
}

IWARP_WITH(iwarp_requested, a_refusal_has_exact_data_and_flushes_receives_before_it_is_told) {
    struct iwarp_ends *s = *state;
    assert_int_equal(soft_reject(s->cm.passive, "no", 2), 0);
    struct rdma_cm_event *event = ct_expect(s->cm.active_channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, REFUSED);
    assert_int_equal(event->param.conn.private_data_len, 2);
    assert_memory_equal(event->param.conn.private_data, "no", 2);
    iwarp_expect_flushed(&s->dialer);
    soft_ack_cm_event(event);
    assert_int_equal(sv_state(&s->dialer), IBV_QPS_ERR);
    struct rdma_conn_param param = iwarp_param(&s->dialer, NULL, 0);
    assert_fails(soft_connect(s->cm.active, &param), EINVAL);
}

IWARP_WITH(iwarp_requested, a_request_that_is_destroyed_is_refused_without_data) {
    struct iwarp_ends *s = *state;
    assert_int_equal(soft_destroy_id(s->cm.passive), 0);
    s->cm.passive = NULL;
    struct rdma_cm_event *event = ct_expect(s->cm.active_channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, REFUSED);
    assert_int_equal(event->param.conn.private_data_len, 0);
    soft_ack_cm_event(event);
}

IWARP_WITH(iwarp_listening, too_much_data_is_refused) {
    struct iwarp_ends *s = *state;
    uint8_t data[255] = {1};
    struct rdma_conn_param param = iwarp_param(&s->dialer, data, 252);
    assert_int_equal(soft_connect(s->cm.active, &param), 0);
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_REJECTED), REFUSED);
    assert_false(ct_readable(s->cm.passive_channel, 0));
}

TEST(two_hundred_and_fifty_one_bytes_arrive) {
    struct iwarp_ends s;
    uint8_t data[251];
    sv_fill(data, sizeof data, 3);
    iwarp_listen(&s);
    struct rdma_conn_param param = iwarp_param(&s.dialer, data, sizeof data);
    assert_int_equal(soft_connect(s.cm.active, &param), 0);
    struct rdma_cm_event *event = ct_expect(s.cm.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    s.cm.passive = event->id;
    assert_int_equal(event->param.conn.private_data_len, sizeof data);
    sv_check(event->param.conn.private_data, sizeof data, 3);
    soft_ack_cm_event(event);
    iwarp_close(&s);
}

IWARP_WITH(iwarp_requested, a_dialer_that_is_not_answered_in_time_gives_up) {
    struct iwarp_ends *s = *state;
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    assert_int_equal(sv_state(&s->dialer), IBV_QPS_ERR);
    softcm_until(softcm_conn_state(s->cm.passive) == SOFT_CM_CONN_OVER);
    assert_false(ct_readable(s->cm.passive_channel, 0)); /* the listener hears nothing */
    struct rdma_conn_param param = iwarp_param(&s->listener, NULL, 0);
    assert_fails(soft_accept(s->cm.passive, &param), ECONNRESET);
    assert_int_equal(sv_state(&s->listener), IBV_QPS_INIT);
}

/* ---- calls that block -------------------------------------------------------------------------------- */

static unsigned waiters(void) {
    soft_lock();
    unsigned n = soft_lock_waiters;
    soft_unlock();
    return n;
}

static int destroy_qp_call(void *qp) {
    return soft_destroy_qp(qp);
}

IWARP_WITH(iwarp_requested, an_id_that_waits_for_its_answer_is_destroyed_when_that_came) {
    struct iwarp_ends *s = *state;
    struct ct_thread blocked;
    ct_thread_start(&blocked, softcm_destroy_call, s->cm.active);
    softcm_until(waiters() == 1);
    assert_int_equal(soft_reject(s->cm.passive, NULL, 0), 0); /* it still waits */
    assert_int_equal(ct_thread_join(&blocked), 0);
    s->cm.active = NULL;
}

IWARP_WITH(iwarp_requested, a_queue_pair_that_waits_for_the_answer_is_destroyed_when_that_came) {
    struct iwarp_ends *s = *state;
    struct ct_thread blocked;
    ct_thread_start(&blocked, destroy_qp_call, s->dialer.qp);
    softcm_until(waiters() == 1);
    struct rdma_conn_param param = iwarp_param(&s->listener, NULL, 0);
    assert_int_equal(soft_accept(s->cm.passive, &param), 0);
    assert_int_equal(ct_thread_join(&blocked), 0);
    s->dialer.qp = NULL;
    ct_take(s->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED);
    ct_take(s->cm.passive_channel, RDMA_CM_EVENT_DISCONNECTED);
}

/* ---- the end ----------------------------------------------------------------------------------------- */

static void ended(struct iwarp_ends *s) {
    assert_int_equal(ct_take(s->cm.passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
}

IWARP_WITH(iwarp_connected, hanging_up_ends_both_sides_at_once_and_for_good) {
    struct iwarp_ends *s = *state;
    assert_int_equal(soft_disconnect(s->cm.active), 0);
    iwarp_expect_flushed(&s->dialer);
    ended(s);
    iwarp_expect_flushed(&s->listener);
    assert_int_equal(sv_state(&s->listener), IBV_QPS_ERR);
    assert_int_equal(soft_disconnect(s->cm.active), 0);
    assert_int_equal(soft_disconnect(s->cm.passive), 0);
    /* nothing is to come: no timewait is waited for */
    assert_int_equal(soft_cm_id_of(s->cm.active)->conn.timer.due_ns, 0);
    assert_int_equal(soft_cm_id_of(s->cm.passive)->conn.timer.due_ns, 0);
}

IWARP_WITH(iwarp_connected, what_was_sent_before_hanging_up_arrives) {
    struct iwarp_ends *s = *state;
    sv_fill(s->dialer.buf + 4096, 40, 5);
    assert_int_equal(sv_send(&s->dialer, 1, 4096, 40, IBV_SEND_SIGNALED), 0);
    assert_int_equal(soft_disconnect(s->cm.active), 0);
    ended(s);
    struct ibv_wc wc = sv_poll(s->listener.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    sv_check(s->listener.buf, 40, 5);
    assert_int_equal(sv_poll(s->listener.rcq).status, IBV_WC_WR_FLUSH_ERR);
}

IWARP_WITH(iwarp_connected, an_error_of_the_queue_pair_is_the_end_of_the_connection) {
    struct iwarp_ends *s = *state;
    assert_int_equal(sv_to(&s->listener, IBV_QPS_ERR), 0);
    iwarp_expect_flushed(&s->listener); /* before the call returned */
    ended(s);
    iwarp_expect_flushed(&s->dialer);
}

IWARP_WITH(iwarp_connected, destroying_the_queue_pair_is_the_end_of_the_connection) {
    struct iwarp_ends *s = *state;
    assert_int_equal(soft_destroy_qp(s->dialer.qp), 0);
    s->dialer.qp = NULL;
    ended(s);
}

IWARP_WITH(iwarp_connected, destroying_the_id_is_the_end_of_the_connection) {
    struct iwarp_ends *s = *state;
    assert_int_equal(soft_destroy_id(s->cm.active), 0);
    s->cm.active = NULL;
    iwarp_expect_flushed(&s->dialer);
    assert_int_equal(ct_take(s->cm.passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    iwarp_expect_flushed(&s->listener);
}

int main(void) {
    iwarp_start();
    return tests_run(NULL, NULL);
}
