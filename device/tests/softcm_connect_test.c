/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_connect_test.c - connections without QPs on the ids, both ends in this process: private
 * data, parameters, IPv6. How they end is in softcm_ending_test.c.
 */
#include "support/softcm.h"

#include "soft/cm/device.h"

/* ---- set-up ------------------------------------------------------------------------------------------ */

CT_WITH(ct_listening, connection_over_ipv6) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *listener = ct_id(pair->passive_channel);
    struct sockaddr_in6 addr = softcm_in6("::1", 0);
    assert_int_equal(soft_bind_addr(listener, (struct sockaddr *)&addr), 0);
    assert_int_equal(soft_listen(listener, 1), 0);
    addr.sin6_port = soft_get_src_port(listener);
    pair->active = ct_id(pair->active_channel);
    assert_int_equal(soft_resolve_addr(pair->active, NULL, (struct sockaddr *)&addr, 1000), 0);
    ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(soft_resolve_route(pair->active, 1000), 0);
    ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(soft_connect(pair->active, &param), 0);
    pair->passive = ct_request(pair->passive_channel);
    assert_int_equal(pair->passive->route.addr.dst_addr.sa_family, AF_INET6);
    ct_pair_accept(pair);
    ct_confirm(pair->active, pair->passive_channel);
    soft_destroy_id(listener);
}

/* One listener on the wildcard of both families. */
CT_WITH(ct_listening, wildcard_listener_hears_every_address) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *listener = ct_id(pair->passive_channel);
    struct sockaddr_in6 any = softcm_in6("::", 0);
    assert_int_equal(soft_bind_addr(listener, (struct sockaddr *)&any), 0);
    assert_int_equal(soft_listen(listener, 4), 0);
    uint16_t port = ntohs(soft_get_src_port(listener));
    const char *const hosts[] = {"127.0.0.1", "127.1.2.3"};
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_id *id = ct_id(pair->active_channel);
        struct sockaddr_in dst = softcm_in(hosts[i], port);
        soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000);
        ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        soft_resolve_route(id, 1000);
        ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
        struct rdma_conn_param param = ct_param(NULL, 0);
        assert_int_equal(soft_connect(id, &param), 0);
        struct rdma_cm_id *request = ct_request(pair->passive_channel);
        assert_int_equal(request->route.addr.src_sin.sin_addr.s_addr, dst.sin_addr.s_addr);
        soft_destroy_id(request);
        assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), 28);
        soft_destroy_id(id);
    }
    soft_destroy_id(listener);
}

CT_WITH(ct_listening, many_connections_at_once) {
    struct ct_pair *pair = *state;
    enum { COUNT = 200 };
    struct rdma_cm_id *active[COUNT], *passive[COUNT];
    for (int i = 0; i < COUNT; i++) {
        active[i] = ct_connect(pair->active_channel, pair->port);
        passive[i] = ct_request(pair->passive_channel);
        struct rdma_conn_param param = ct_param(NULL, 0);
        assert_int_equal(soft_accept(passive[i], &param), 0);
        ct_confirm(active[i], pair->passive_channel);
    }
    for (int i = 0; i < COUNT; i++)
        soft_destroy_id(active[i]);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    for (int i = 0; i < COUNT; i++)
        soft_destroy_id(passive[i]);
}

/* ---- private data -------------------------------------------------------------------------------------- */

CT_WITH(ct_listening, private_data_without_data_is_still_there) {
    struct ct_pair *pair = *state;
    pair->active = ct_connect(pair->active_channel, pair->port);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ct_assert_padded(&event->param.conn, "", 0, 56);
    pair->passive = event->id;
    soft_ack_cm_event(event);
    assert_int_equal(soft_reject(pair->passive, "no", 2), 0);
    event = ct_expect(pair->active_channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, 28);
    ct_assert_padded(&event->param.conn, "no", 2, 148);
    soft_ack_cm_event(event);
}

/* ---- parameters ------------------------------------------------------------------------------------------ */

CT_WITH(ct_resolved, parameters_of_the_request) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = {.responder_resources = 3,
                                    .initiator_depth = 5,
                                    .flow_control = 1,
                                    .retry_count = 200, /* clamped to 7 */
                                    .rnr_retry_count = 6,
                                    .srq = 1,
                                    .qp_num = 0xabcdef};
    assert_int_equal(soft_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(event->param.conn.initiator_depth, 3); /* seen from the other side */
    assert_int_equal(event->param.conn.responder_resources, 5);
    assert_int_equal(event->param.conn.flow_control, 1);
    assert_int_equal(event->param.conn.retry_count, 7);
    assert_int_equal(event->param.conn.rnr_retry_count, 6);
    assert_int_equal(event->param.conn.srq, 1);
    assert_int_equal(event->param.conn.qp_num, 0xabcdef);
    pair->passive = event->id;
    soft_ack_cm_event(event);
}

CT_WITH(ct_resolved, default_parameters_are_the_device_maximum) {
    struct ct_pair *pair = *state;
    struct ibv_device_attr device;
    assert_int_equal(soft_query_device(pair->active->verbs, &device), 0);
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = RDMA_MAX_RESP_RES;
    param.initiator_depth = RDMA_MAX_INIT_DEPTH;
    assert_int_equal(soft_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(event->param.conn.initiator_depth, device.max_qp_rd_atom);
    assert_int_equal(event->param.conn.responder_resources, device.max_qp_init_rd_atom);
    pair->passive = event->id;
    soft_ack_cm_event(event);
    /* Accept then takes what was asked for. */
    assert_int_equal(soft_accept(pair->passive, &param), 0);
    event = ct_expect(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(event->param.conn.initiator_depth, device.max_qp_init_rd_atom);
    assert_int_equal(event->param.conn.responder_resources, device.max_qp_rd_atom);
    assert_int_equal(event->param.conn.retry_count, 0); /* a reply has none */
    soft_ack_cm_event(event);
}

CT_WITH(ct_resolved, values_above_the_device_are_einval) {
    struct ct_pair *pair = *state;
    struct ibv_device_attr device;
    assert_int_equal(soft_query_device(pair->active->verbs, &device), 0);
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = (uint8_t)(device.max_qp_rd_atom + 1);
    assert_fails(soft_connect(pair->active, &param), EINVAL);
    param = ct_param(NULL, 0);
    param.initiator_depth = (uint8_t)(device.max_qp_init_rd_atom + 1);
    assert_fails(soft_connect(pair->active, &param), EINVAL);
    assert_fails(soft_connect(pair->active, NULL), EINVAL); /* no QP: parameters are needed */
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
