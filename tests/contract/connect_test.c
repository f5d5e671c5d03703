/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connect_test.c - how connections begin and end: which events, in which order, at which side, with
 * which status, and who is told when an id goes away early.
 */
#include "contract/contract.h"

enum { REJECT_CONSUMER = 28 };

/* ---- set-up ------------------------------------------------------------------------------------------ */

CT_WITH(ct_connected_qps, with_a_qp_the_active_side_sees_established) {
    struct ct_pair *pair = *state;
    ct_silent(pair->active_channel);
    ct_silent(pair->passive_channel);
}

TEST(without_a_qp_the_active_side_sees_connect_response) {
    struct ct_pair pair;
    if (facts.device_connects) {
        ct_pair_resolve(&pair);
        struct rdma_conn_param param = ct_param(NULL, 0); /* a number that no QP has */
        assert_fails(rdma_connect(pair.active, &param), EINVAL);
    } else {
        ct_pair_up(&pair);
    }
    ct_silent(pair.active_channel);
    ct_silent(pair.passive_channel);
    ct_pair_free(&pair);
}

TEST(a_resolved_id_knows_device_and_route) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_id(channel);
    assert_null(id->verbs);
    ct_resolve_addr(id, 4711);
    assert_non_null(id->verbs);
    assert_non_null(id->pd);
    assert_int_equal(id->port_num, 1);
    assert_int_not_equal(rdma_get_src_port(id), 0);
    assert_int_equal(ntohs(rdma_get_dst_port(id)), 4711);
    assert_int_equal(id->route.addr.src_addr.sa_family, AF_INET);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    assert_int_equal(id->route.num_paths, facts.route_paths);
    assert_true((id->route.path_rec != NULL) == (facts.route_paths > 0));
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

CT_WITH(ct_listening, a_request_carries_addresses_and_the_listeners_context) {
    struct ct_pair *pair = *state;
    pair->listener->context = pair;
    pair->active = ct_id(pair->active_channel);
    ct_resolve(pair->active, pair->port);
    ct_qp_for_device(pair->active);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    pair->passive = event->id;
    assert_int_equal(event->status, 0);
    assert_ptr_equal(event->listen_id, pair->listener);
    assert_ptr_not_equal(event->id, pair->listener);
    assert_ptr_equal(pair->passive->context, pair);
    assert_ptr_equal(pair->passive->channel, pair->passive_channel);
    assert_non_null(pair->passive->verbs);
    assert_non_null(pair->passive->pd);
    assert_null(pair->passive->qp);
    assert_int_equal(pair->passive->port_num, 1);
    assert_int_equal(pair->passive->ps, RDMA_PS_TCP);
    assert_int_equal(pair->passive->qp_type, IBV_QPT_RC);
    assert_int_equal(ntohs(rdma_get_src_port(pair->passive)), pair->port);
    assert_int_equal(rdma_get_dst_port(pair->passive), rdma_get_src_port(pair->active));
    if (facts.tells_parameters)
        assert_int_equal(event->param.conn.qp_num, facts.device_connects ? 0 : param.qp_num);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_requested, only_a_request_names_the_listener) {
    struct ct_pair *pair = *state;
    ct_pair_accept(pair);
    struct rdma_cm_event *event =
        ct_expect(pair->active_channel, facts.device_connects ? RDMA_CM_EVENT_ESTABLISHED
                                                              : RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_null(event->listen_id);
    assert_ptr_equal(event->id, pair->active);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    if (!facts.device_connects)
        assert_int_equal(rdma_establish(pair->active), 0);
    event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_null(event->listen_id);
    assert_ptr_equal(event->id, pair->passive);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_requested, the_passive_established_carries_no_data) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ct_param("hello", 5);
    ct_qp_for_device(pair->passive);
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    if (facts.device_connects) {
        ct_take(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED);
        assert_fails(rdma_establish(pair->active), EINVAL); /* it is */
    } else {
        ct_take(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
        assert_int_equal(rdma_establish(pair->active), 0);
    }
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED);
    struct rdma_conn_param said = {0};
    if (facts.device_connects) /* which agreed on these itself */
        said.responder_resources = said.initiator_depth = 1;
    assert_memory_equal(&event->param.conn, &said, sizeof said);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(ct_listening, one_listener_takes_many_connections) {
    struct ct_pair *pair = *state;
    enum {
        COUNT = 16
    }; /* ids with CQs of their own: Soft-iWARP makes 72 CQs for a process, and no more */
    struct rdma_cm_id *active[COUNT], *passive[COUNT];
    for (int i = 0; i < COUNT; i++) {
        active[i] = ct_connect(pair->active_channel, pair->port);
        passive[i] = ct_request(pair->passive_channel);
        struct rdma_conn_param param = ct_param(NULL, 0);
        ct_qp_for_device(passive[i]);
        assert_int_equal(rdma_accept(passive[i], &param), 0);
        ct_confirm(active[i], pair->passive_channel);
    }
    for (int i = 0; i < COUNT; i++)
        ct_destroy(active[i]);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    for (int i = 0; i < COUNT; i++)
        ct_destroy(passive[i]);
}

/* A wildcard listener hears every address of the device. */
CT_WITH(ct_listening, a_wildcard_listener_shows_the_address_that_was_called) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *any = ct_id(pair->passive_channel);
    struct sockaddr_in addr = ct_any(0);
    assert_int_equal(rdma_bind_addr(any, (struct sockaddr *)&addr), 0);
    assert_null(any->verbs); /* no address, no device */
    assert_int_equal(rdma_listen(any, 4), 0);
    pair->active = ct_connect(pair->active_channel, ntohs(rdma_get_src_port(any)));
    pair->passive = ct_request(pair->passive_channel);
    addr = ct_address(0);
    assert_int_equal(pair->passive->route.addr.src_sin.sin_addr.s_addr, addr.sin_addr.s_addr);
    assert_non_null(pair->passive->verbs);
    ct_destroy(any);
}

/* ---- giving up ---------------------------------------------------------------------------------------- */

/* The request is there, the peer has gone: no event before accept, and accept says so. */
CT_WITH(ct_requested, accepting_a_request_that_was_given_up_fails) {
    struct ct_pair *pair = *state;
    ct_destroy(pair->active);
    pair->active = NULL;
    ct_silent(pair->passive_channel);
    struct rdma_conn_param param = ct_param(NULL, 0);
    ct_qp_for_device(pair->passive);
    assert_fails(rdma_accept(pair->passive, &param), facts.accept_of_gone);
    ct_silent(pair->passive_channel);
}

CT_WITH(ct_requested, giving_up_after_the_reply_is_reject_28) {
    struct ct_pair *pair = *state;
    ct_pair_accept(pair);
    assert_true(ct_readable(pair->active_channel, facts.wait_ms)); /* the reply is there */
    ct_destroy(pair->active);
    pair->active = NULL;
    if (facts.device_connects) { /* which had confirmed it */
        assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
        assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    } else {
        assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_REJECTED), REJECT_CONSUMER);
    }
}

/* Traffic that comes before the confirmation is one: the application may say so. */
TEST(notify_establishes_the_passive_side) {
    struct ct_pair pair;
    if (facts.device_connects)
        ct_skip("the device confirms, and there is nothing to say");
    ct_pair_request(&pair);
    assert_fails(rdma_notify(pair.passive, IBV_EVENT_COMM_EST), EINVAL); /* not accepted */
    ct_pair_accept(&pair);
    assert_fails(rdma_notify(pair.passive, IBV_EVENT_PATH_MIG), EINVAL); /* nor migrated */
    assert_int_equal(rdma_notify(pair.passive, IBV_EVENT_COMM_EST), 0);
    assert_int_equal(ct_take(pair.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_fails(rdma_notify(pair.passive, IBV_EVENT_COMM_EST), EISCONN);
    ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(rdma_establish(pair.active), 0);
    ct_silent(pair.passive_channel); /* the confirmation comes too late to be an event */
    ct_pair_free(&pair);
}

/* ---- the end ------------------------------------------------------------------------------------------ */

CT_WITH(ct_connected, disconnect_is_one_event_at_each_side_then_timewait) {
    struct ct_pair *pair = *state;
    assert_int_equal(rdma_disconnect(pair->active), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(event->status, 0);
    assert_int_equal(event->param.conn.private_data_len, 0);
    assert_null(event->param.conn.private_data);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_disconnect(pair->passive), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    if (!facts.device_connects) {
        assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
        assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
    }
    ct_silent(pair->active_channel);
    ct_silent(pair->passive_channel);
}

CT_WITH(ct_connected, destroying_a_connected_id_disconnects_the_peer) {
    struct ct_pair *pair = *state;
    ct_destroy(pair->active);
    pair->active = NULL;
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(rdma_disconnect(pair->passive), 0);
    if (!facts.device_connects)
        assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
    ct_pair_free(pair);
    ct_pair_up(pair);
    ct_destroy(pair->passive);
    pair->passive = NULL;
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
}

TEST(an_unconnected_id_may_go_at_any_state) {
    struct rdma_event_channel *channel = ct_channel();
    ct_destroy(ct_id(channel));
    struct rdma_cm_id *id = ct_id(channel);
    ct_bind(id, 0);
    ct_destroy(id);
    id = ct_id(channel);
    ct_resolve_addr(id, 4711);
    ct_destroy(id);
    id = ct_id(channel);
    ct_resolve(id, 4711);
    ct_qp(id);
    ct_destroy(id);
    assert_false(ct_readable(channel, 0));
    rdma_destroy_event_channel(channel);
}

int main(void) {
    return ct_run();
}
