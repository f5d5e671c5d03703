/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_contract_test.c - where rdma_cm's documentation and its code differ, the code is the
 * contract: the known places, but those that contract/surprises_test.c asks of every device.
 */
#include "support/softcm.h"

CT_WITH(ct_requested, c01_unreachable_reaches_the_passive_side) {
    struct ct_pair *pair = *state;
    ct_pair_accept(pair); /* and the active side never answers the reply */
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
}

TEST(c02_event_str_does_not_know_user) {
    assert_string_equal(soft_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
    assert_string_equal(soft_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
    assert_string_equal(soft_event_str((enum rdma_cm_event_type)17),
                        "RDMA_CM_EVENT_ADDRINFO_ERROR");
    for (int i = 0; i <= 17; i++)
        assert_memory_equal(soft_event_str((enum rdma_cm_event_type)i), "RDMA_CM_EVENT_", 14);
    const int unknown[] = {18, 19, 20, -1, 1000000};
    for (int i = 0; i < 5; i++)
        assert_string_equal(soft_event_str((enum rdma_cm_event_type)unknown[i]), "UNKNOWN EVENT");
}

TEST(c03_status_may_be_a_positive_errno_or_minus_one) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_id(channel);
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST};
    assert_int_equal(soft_resolve_addrinfo(id, "no address", "1", &hints), 0);
    assert_int_equal(ct_take(channel, SOFT_CM_EVENT_ADDRINFO_ERROR), ENOENT);
    soft_destroy_id(id);
    soft_destroy_event_channel(channel);
    /* -1: softcm_qp_test, a QP that cannot be moved when the reply is fetched. */
}

CT_WITH(ct_requested, c09_rejected_id_is_not_reusable) {
    struct ct_pair *pair = *state;
    soft_reject(pair->passive, NULL, 0);
    ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(soft_connect(pair->active, &param), EINVAL);
}

/* The system's library dereferences NULL here; this device says EINVAL and the request stays. */
CT_WITH(ct_requested, c10_accept_null_without_a_qp) {
    struct ct_pair *pair = *state;
    assert_fails(soft_accept(pair->passive, NULL), EINVAL);
    ct_pair_accept(pair);
    ct_take(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
}

/* The kernel loses them; this device delivers them, and nobody may rely on either. */
CT_WITH(ct_requested, c11_user_event_on_an_unaccepted_id) {
    struct ct_pair *pair = *state;
    assert_int_equal(
        soft_write_cm_event(pair->passive, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 5, 6), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, SOFT_CM_EVENT_USER);
    assert_ptr_equal(event->id, pair->passive);
    assert_int_equal(event->status, 5);
    soft_ack_cm_event(event);
}

TEST(c12_synchronous_call_returns_on_any_event) {
    struct rdma_cm_id *id = ct_id(NULL);
    struct sockaddr_in dst = softcm_in("127.0.0.1", 4711);
    soft_write_cm_event(id, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, -EXDEV, 0);
    assert_fails(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), EXDEV);
    assert_int_equal(id->event->event, SOFT_CM_EVENT_USER);
    /* What that call was waiting for completes the next one. */
    assert_int_equal(soft_resolve_route(id, 1000), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    soft_destroy_id(id);
}

CT_WITH(ct_resolved, c13_responder_and_initiator_values_arrive_swapped) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = 2;
    param.initiator_depth = 4;
    assert_int_equal(soft_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(event->param.conn.responder_resources, 4);
    assert_int_equal(event->param.conn.initiator_depth, 2);
    pair->passive = event->id;
    soft_ack_cm_event(event);
    param.responder_resources = 3;
    param.initiator_depth = 1;
    assert_int_equal(soft_accept(pair->passive, &param), 0);
    event = ct_expect(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(event->param.conn.responder_resources, 1);
    assert_int_equal(event->param.conn.initiator_depth, 3);
    soft_ack_cm_event(event);
}

TEST(c14_wildcard_clash_and_exact_clash_differ) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *exact = ct_id(channel), *any = ct_id(channel);
    struct rdma_cm_id *third = ct_id(channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", 0);
    assert_int_equal(soft_bind_addr(exact, (struct sockaddr *)&addr), 0);
    addr.sin_port = soft_get_src_port(exact);
    assert_fails(soft_bind_addr(third, (struct sockaddr *)&addr), EADDRINUSE);
    struct sockaddr_in wildcard = softcm_in("0.0.0.0", 0);
    assert_int_equal(soft_bind_addr(any, (struct sockaddr *)&wildcard), 0);
    addr.sin_port = soft_get_src_port(any);
    assert_fails(soft_bind_addr(third, (struct sockaddr *)&addr), EADDRNOTAVAIL);
    soft_destroy_id(exact);
    soft_destroy_id(any);
    soft_destroy_id(third);
    soft_destroy_event_channel(channel);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
