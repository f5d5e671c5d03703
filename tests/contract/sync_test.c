/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sync_test.c - synchronous ids and endpoints: calls that wait for the next event of their own
 * channel and turn its status into errno.
 */
#include "contract/contract.h"

static struct rdma_cm_id *endpoint(uint16_t port, int flags, struct ibv_qp_init_attr *attr) {
    char host[INET_ADDRSTRLEN], service[8];
    struct sockaddr_in addr = ct_address(0);
    struct rdma_addrinfo *res,
        hints = {.ai_flags = flags | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    struct rdma_cm_id *id = NULL;
    assert_non_null(inet_ntop(AF_INET, &addr.sin_addr, host, sizeof host));
    snprintf(service, sizeof service, "%u", port);
    assert_int_equal(rdma_getaddrinfo(host, service, &hints, &res), 0);
    assert_int_equal(rdma_create_ep(&id, res, NULL, attr), 0);
    rdma_freeaddrinfo(res);
    return id;
}

struct server {
    struct rdma_cm_id *listener, *id;
    bool refuse, null_param;
};

static int serve(void *arg) {
    struct server *server = arg;
    if (rdma_get_request(server->listener, &server->id))
        return errno;
    if (server->refuse)
        return rdma_reject(server->id, NULL, 0) ? errno : 0;
    struct rdma_conn_param param = ct_param(NULL, 0);
    if (rdma_accept(server->id, server->null_param ? NULL : &param)) /* returns with ESTABLISHED */
        return errno;
    return server->id->event->event == RDMA_CM_EVENT_ESTABLISHED ? 0 : EPROTO;
}

static int disconnect_call(void *id) {
    return rdma_disconnect(id);
}

static uint16_t server_open(struct server *server) {
    server->listener = endpoint(0, RAI_PASSIVE, NULL);
    assert_int_equal(rdma_listen(server->listener, 4), 0);
    return ntohs(rdma_get_src_port(server->listener));
}

TEST(calls_return_with_their_event) {
    struct rdma_cm_id *id = ct_id(NULL);
    assert_non_null(id->channel);
    struct sockaddr_in dst = ct_address(4711);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
    ct_destroy(id); /* acknowledges id->event by itself */
}

TEST(a_positive_status_becomes_errno_as_it_is) {
    struct rdma_cm_id *id = ct_ud_id(NULL);
    struct rdma_conn_param param = {.private_data = NULL};
    struct sockaddr_in dst = ct_address(1);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), 0);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    assert_fails(rdma_connect(id, &param), 1); /* SIDR "unsupported service" looks like EPERM */
    assert_int_equal(id->event->event, RDMA_CM_EVENT_UNREACHABLE);
    ct_destroy(id);
}

TEST(connect_accept_disconnect) {
    struct server server = {.refuse = false};
    struct ct_thread thread;
    struct rdma_conn_param param = ct_param(NULL, 0);
    struct rdma_cm_id *id = endpoint(server_open(&server), 0, NULL);
    ct_thread_start(&thread, serve, &server);
    assert_int_equal(rdma_connect(id, &param), 0); /* no QP: returns with CONNECT_RESPONSE */
    assert_int_equal(id->event->event, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(rdma_establish(id), 0);
    assert_int_equal(ct_thread_join(&thread), 0);
    assert_ptr_not_equal(server.id->channel, server.listener->channel);
    ct_thread_start(&thread, disconnect_call, id);
    assert_int_equal(rdma_disconnect(server.id), 0);
    assert_int_equal(ct_thread_join(&thread), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_ep(server.id);
    rdma_destroy_ep(server.listener);
    rdma_destroy_ep(id);
}

TEST(rejected_is_econnrefused) {
    struct server server = {.refuse = true};
    struct ct_thread thread;
    struct rdma_conn_param param = ct_param(NULL, 0);
    struct rdma_cm_id *id = endpoint(server_open(&server), 0, NULL);
    ct_thread_start(&thread, serve, &server);
    assert_fails(rdma_connect(id, &param), ECONNREFUSED);
    assert_int_equal(ct_thread_join(&thread), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(id->event->status, 28);
    rdma_destroy_ep(server.id);
    rdma_destroy_ep(server.listener);
    rdma_destroy_ep(id);
}

CT_WITH(ct_listening, get_request_is_for_synchronous_listeners) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *id;
    assert_fails(rdma_get_request(pair->listener, &id), EINVAL);
}

/* The request waits in id->event, with its private data. */
TEST(a_request_stays_in_the_new_id) {
    struct server server = {.refuse = false};
    struct rdma_event_channel *channel = ct_channel();
    uint16_t port = server_open(&server);
    struct rdma_cm_id *id = ct_id(channel);
    ct_resolve(id, port);
    struct rdma_conn_param param = ct_param("hello", 5);
    assert_int_equal(rdma_connect(id, &param), 0);
    assert_int_equal(rdma_get_request(server.listener, &server.id), 0);
    assert_int_equal(server.id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_memory_equal(server.id->event->param.conn.private_data, "hello", 5);
    rdma_destroy_ep(server.id);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_REJECTED), 28);
    rdma_destroy_ep(server.listener);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(migration_between_the_modes) {
    struct rdma_event_channel *channel = ct_channel();
    struct sockaddr_in dst = ct_address(4711);
    struct rdma_cm_id *id = ct_id(NULL);
    assert_fails(rdma_migrate_id(id, NULL), EINVAL); /* already synchronous */
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), 0);
    assert_int_equal(rdma_migrate_id(id, channel), 0);
    assert_null(id->event);
    assert_ptr_equal(id->channel, channel);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    assert_null(id->event);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    assert_int_equal(rdma_migrate_id(id, NULL), 0);
    assert_ptr_not_equal(id->channel, channel);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(rdma_connect(id, &param), ECONNREFUSED); /* nobody listens */
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

/* Attributes given to create_ep make the QPs of both ends, of requests too. */
TEST(endpoints_create_their_qps) {
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct server server = {.null_param = true};
    struct ct_thread thread;
    struct ibv_qp_init_attr copy = attr;
    server.listener = endpoint(0, RAI_PASSIVE, &copy);
    assert_null(server.listener->qp);
    assert_int_equal(rdma_listen(server.listener, 1), 0);
    copy = attr;
    struct rdma_cm_id *id = endpoint(ntohs(rdma_get_src_port(server.listener)), 0, &copy);
    assert_non_null(id->qp);
    ct_thread_start(&thread, serve, &server);
    assert_int_equal(rdma_connect(id, NULL), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(ct_thread_join(&thread), 0);
    assert_int_equal(ct_state(id->qp), IBV_QPS_RTS);
    assert_int_equal(ct_state(server.id->qp), IBV_QPS_RTS);
    rdma_destroy_ep(id);
    rdma_destroy_ep(server.id);
    rdma_destroy_ep(server.listener);
}

/* What address resolution found goes before the application's data, in the first connect. */
TEST(connect_data_of_the_endpoint_comes_first) {
    struct server server = {.refuse = false};
    char host[INET_ADDRSTRLEN], service[8];
    struct sockaddr_in addr = ct_address(0);
    assert_non_null(inet_ntop(AF_INET, &addr.sin_addr, host, sizeof host));
    snprintf(service, sizeof service, "%u", server_open(&server));
    struct rdma_addrinfo *res, hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    assert_int_equal(rdma_getaddrinfo(host, service, &hints, &res), 0);
    res->ai_connect = strdup("from info ");
    res->ai_connect_len = 10;
    struct rdma_cm_id *id, *request;
    assert_int_equal(rdma_create_ep(&id, res, NULL, NULL), 0);
    rdma_freeaddrinfo(res);
    struct rdma_event_channel *channel = ct_channel();
    assert_int_equal(rdma_migrate_id(id, channel), 0);
    const char data[47] = "";
    struct rdma_conn_param param = ct_param(data, sizeof data);
    assert_fails(rdma_connect(id, &param), EINVAL); /* 10 + 47 > 56 */
    param = ct_param("from connect", 12);
    assert_int_equal(rdma_connect(id, &param), 0);
    assert_int_equal(rdma_get_request(server.listener, &request), 0);
    assert_memory_equal(request->event->param.conn.private_data, "from info from connect", 23);
    rdma_destroy_ep(request);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_REJECTED), 28);
    rdma_destroy_ep(id);
    rdma_destroy_ep(server.listener);
    rdma_destroy_event_channel(channel);
}

int main(void) {
    return ct_run();
}
