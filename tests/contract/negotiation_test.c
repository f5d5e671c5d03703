/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * negotiation_test.c - what travels in requests, replies and refusals: private data with its constant
 * lengths, parameters that arrive swapped, clamped or refused.
 */
#include "contract/contract.h"

enum { REQ_DATA = 56, REP_DATA = 196, REJ_DATA = 148 };

static struct rdma_conn_param requested(struct ct_pair *pair) {
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_conn_param conn = event->param.conn;
    pair->passive = event->id;
    conn.private_data = NULL; /* gone with the acknowledgement */
    assert_int_equal(rdma_ack_cm_event(event), 0);
    return conn;
}

/* ---- private data -------------------------------------------------------------------------------------- */

CT_WITH(ct_resolved, request_and_reply_are_padded_to_their_full_length) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ct_param("request", 7);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ct_assert_padded(&event->param.conn, "request", 7, REQ_DATA);
    pair->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    param = ct_param("reply", 5);
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    event = ct_expect(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    ct_assert_padded(&event->param.conn, "reply", 5, REP_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_resolved, no_data_is_a_full_length_of_zeros) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ct_assert_padded(&event->param.conn, "", 0, REQ_DATA);
    pair->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_reject(pair->passive, NULL, 0), 0);
    event = ct_expect(pair->active_channel, RDMA_CM_EVENT_REJECTED);
    ct_assert_padded(&event->param.conn, "", 0, REJ_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_requested, a_refusal_carries_data) {
    struct ct_pair *pair = *state;
    assert_int_equal(rdma_reject(pair->passive, "not today", 9), 0);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_REJECTED);
    ct_assert_padded(&event->param.conn, "not today", 9, REJ_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_listening, nobody_listens_comes_with_zeros) {
    struct ct_pair *pair = *state;
    ct_destroy(pair->listener);
    pair->listener = NULL;
    pair->active = ct_connect(pair->active_channel, pair->port);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_REJECTED);
    ct_assert_padded(&event->param.conn, "", 0, REJ_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_resolved, the_event_with_a_qp_on_the_id_carries_the_reply_too) {
    struct ct_pair *pair = *state;
    ct_qp(pair->active);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    requested(pair);
    ct_qp(pair->passive);
    param = ct_param("reply", 5);
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED);
    ct_assert_padded(&event->param.conn, "reply", 5, REP_DATA);
    if (facts.tells_parameters) /* not the parameter's */
        assert_int_equal(event->param.conn.qp_num, pair->passive->qp->qp_num);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

static char long_data[255];

CT_WITH(ct_resolved, longest_request_data) {
    struct ct_pair *pair = *state;
    memset(long_data, 'x', sizeof long_data);
    struct rdma_conn_param param = ct_param(long_data, REQ_DATA + 1);
    assert_fails(rdma_connect(pair->active, &param), EINVAL);
    param.private_data_len = REQ_DATA; /* a failed call leaves the id as it was */
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ct_assert_padded(&event->param.conn, long_data, REQ_DATA, REQ_DATA);
    pair->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

TEST(longest_reply_data) {
    struct ct_pair pair;
    memset(long_data, 'x', sizeof long_data);
    ct_pair_request(&pair);
    struct rdma_conn_param param = ct_param(long_data, REP_DATA);
    assert_int_equal(rdma_accept(pair.passive, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    ct_assert_padded(&event->param.conn, long_data, REP_DATA, REP_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_pair_free(&pair);
}

/* An accept that fails refuses the peer. */
TEST(reply_data_too_long_refuses_the_peer) {
    struct ct_pair pair;
    memset(long_data, 'x', sizeof long_data);
    ct_pair_request(&pair);
    struct rdma_conn_param param = ct_param(long_data, REP_DATA + 1);
    assert_fails(rdma_accept(pair.passive, &param), EINVAL);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_REJECTED), 28);
    ct_pair_free(&pair);
}

TEST(longest_refusal_data) {
    struct ct_pair pair;
    memset(long_data, 'x', sizeof long_data);
    ct_pair_request(&pair);
    assert_fails(rdma_reject(pair.passive, long_data, REJ_DATA + 1), EINVAL);
    assert_int_equal(rdma_reject(pair.passive, long_data, REJ_DATA), 0);
    struct rdma_cm_event *event = ct_expect(pair.active_channel, RDMA_CM_EVENT_REJECTED);
    ct_assert_padded(&event->param.conn, long_data, REJ_DATA, REJ_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_pair_free(&pair);
}

CT_WITH(ct_resolved, data_is_copied_before_the_call_returns) {
    struct ct_pair *pair = *state;
    char data[8] = "before";
    struct rdma_conn_param param = ct_param(data, 6);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    memset(data, 0, sizeof data);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ct_assert_padded(&event->param.conn, "before", 6, REQ_DATA);
    pair->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

/* ---- parameters ------------------------------------------------------------------------------------------ */

CT_WITH(ct_resolved, the_request_arrives_swapped_and_clamped) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = 3;
    param.initiator_depth = 5;
    param.flow_control = 1;
    param.retry_count = 200; /* clamped to 7 */
    param.rnr_retry_count = 6;
    param.srq = 1;
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_conn_param conn = requested(pair);
    assert_int_equal(conn.initiator_depth, 3); /* seen from the other side */
    assert_int_equal(conn.responder_resources, 5);
    assert_int_equal(conn.retry_count, 7);
    if (facts.tells_parameters) {
        assert_int_equal(conn.flow_control, 1);
        assert_int_equal(conn.rnr_retry_count, 6);
        assert_int_equal(conn.srq, 1);
        assert_int_equal(conn.qp_num, param.qp_num);
    }
}

CT_WITH(ct_requested, the_reply_arrives_swapped_and_without_retry_count) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = 2;
    param.initiator_depth = 4;
    param.flow_control = 1;
    param.retry_count = 5;
    param.rnr_retry_count = 9; /* clamped to 7 */
    param.srq = 1;
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(event->param.conn.initiator_depth, 2);
    assert_int_equal(event->param.conn.retry_count, 0);
    assert_int_equal(event->param.conn.rnr_retry_count, 7);
    if (facts.tells_parameters) {
        assert_int_equal(event->param.conn.responder_resources, 4); /* not the request's 1 */
        assert_int_equal(event->param.conn.flow_control, 1);
        assert_int_equal(event->param.conn.srq, 1);
        assert_int_equal(event->param.conn.qp_num, param.qp_num);
    } else { /* what the dialer serves, and no more */
        assert_int_equal(event->param.conn.responder_resources, 1);
    }
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

static int atmost_u8(int value) {
    return value > 255 ? 255 : value;
}

CT_WITH(ct_resolved, the_largest_values_mean_the_devices_maximum) {
    struct ct_pair *pair = *state;
    struct ibv_device_attr device;
    assert_int_equal(ibv_query_device(pair->active->verbs, &device), 0);
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = RDMA_MAX_RESP_RES;
    param.initiator_depth = RDMA_MAX_INIT_DEPTH;
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_conn_param conn = requested(pair);
    assert_int_equal(conn.initiator_depth, atmost_u8(device.max_qp_rd_atom));
    assert_int_equal(conn.responder_resources, atmost_u8(device.max_qp_init_rd_atom));
    /* Accept then takes what was asked for. */
    param = ct_param(NULL, 0);
    param.responder_resources = RDMA_MAX_RESP_RES;
    param.initiator_depth = RDMA_MAX_INIT_DEPTH;
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(event->param.conn.initiator_depth, atmost_u8(device.max_qp_init_rd_atom));
    assert_int_equal(event->param.conn.responder_resources, atmost_u8(device.max_qp_rd_atom));
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_resolved, accepting_the_largest_values_takes_the_smaller_request) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = 2;
    param.initiator_depth = 3;
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    requested(pair);
    param = ct_param(NULL, 0);
    param.responder_resources = RDMA_MAX_RESP_RES;
    param.initiator_depth = RDMA_MAX_INIT_DEPTH;
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(event->param.conn.initiator_depth, 3);
    assert_int_equal(event->param.conn.responder_resources, 2);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_resolved, values_above_the_device_are_einval_and_send_nothing) {
    struct ct_pair *pair = *state;
    struct ibv_device_attr device;
    assert_int_equal(ibv_query_device(pair->active->verbs, &device), 0);
    assert_true(device.max_qp_rd_atom < 254 && device.max_qp_init_rd_atom < 254);
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = (uint8_t)(device.max_qp_rd_atom + 1);
    assert_fails(rdma_connect(pair->active, &param), EINVAL);
    param = ct_param(NULL, 0);
    param.initiator_depth = (uint8_t)(device.max_qp_init_rd_atom + 1);
    assert_fails(rdma_connect(pair->active, &param), EINVAL);
    ct_silent(pair->passive_channel);
}

CT_WITH(ct_resolved, no_parameters_need_a_qp_and_mean_the_maximum) {
    struct ct_pair *pair = *state;
    struct ibv_device_attr device;
    assert_fails(rdma_connect(pair->active, NULL), EINVAL);
    assert_int_equal(ibv_query_device(pair->active->verbs, &device), 0);
    ct_qp(pair->active);
    assert_int_equal(rdma_connect(pair->active, NULL), 0);
    struct rdma_conn_param conn = requested(pair);
    assert_int_equal(conn.initiator_depth, atmost_u8(device.max_qp_rd_atom));
    assert_int_equal(conn.responder_resources, atmost_u8(device.max_qp_init_rd_atom));
    assert_int_equal(conn.retry_count, 7);
    assert_int_equal(conn.rnr_retry_count, 7);
    if (facts.tells_parameters)
        assert_int_equal(conn.qp_num, pair->active->qp->qp_num);
    ct_qp(pair->passive);
    assert_int_equal(rdma_accept(pair->passive, NULL), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

/* Enhanced connections are the library's business where the QP is on the id. */
TEST(ece_is_for_ids_without_a_qp) {
    struct ct_pair pair;
    struct ibv_ece ece = {.vendor_id = 0x1234};
    ct_pair_resolve(&pair);
    if (facts.ece_error)
        assert_fails(rdma_set_local_ece(pair.active, &ece), facts.ece_error);
    else
        assert_int_equal(rdma_set_local_ece(pair.active, &ece), 0);
    assert_fails(rdma_set_local_ece(pair.active, NULL), EINVAL);
    ct_qp(pair.active);
    assert_fails(rdma_set_local_ece(pair.active, &ece), EINVAL);
    assert_fails(rdma_get_remote_ece(pair.active, &ece), EINVAL);
    ct_pair_free(&pair);
}

int main(void) {
    return ct_run();
}
