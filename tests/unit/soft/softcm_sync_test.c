/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_sync_test.c - synchronous ids and endpoints: calls that wait for their own event.
 */
#include "support/softcm.h"

static struct rdma_addrinfo *info(const char *port, int flags) {
    struct rdma_addrinfo *res,
        hints = {.ai_flags = flags | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    assert_int_equal(soft_getaddrinfo("127.0.0.1", port, &hints, &res), 0);
    return res;
}

static struct rdma_cm_id *endpoint(uint16_t port, int flags) {
    char text[8];
    snprintf(text, sizeof text, "%u", port);
    struct rdma_addrinfo *res = info(text, flags);
    struct rdma_cm_id *id;
    assert_int_equal(soft_create_ep(&id, res, NULL, NULL), 0);
    soft_freeaddrinfo(res);
    return id;
}

struct server {
    struct rdma_cm_id *listener, *id;
    bool accept;
};

static int serve(void *arg) {
    struct server *server = arg;
    if (soft_get_request(server->listener, &server->id))
        return errno;
    struct rdma_conn_param param = softcm_param(NULL, 0);
    if (!server->accept)
        return soft_reject(server->id, NULL, 0) ? errno : 0;
    if (soft_accept(server->id, &param)) /* returns with ESTABLISHED */
        return errno;
    return server->id->event->event == RDMA_CM_EVENT_ESTABLISHED ? 0 : EPROTO;
}

static int disconnect_call(void *id) {
    return soft_disconnect(id);
}

static void server_open(struct server *server, bool accept) {
    memset(server, 0, sizeof *server);
    server->accept = accept;
    server->listener = endpoint(0, RAI_PASSIVE);
    assert_int_equal(soft_listen(server->listener, 4), 0);
}

static uint16_t server_port(const struct server *server) {
    return ntohs(soft_get_src_port(server->listener));
}

static void calls_wait_for_their_event(void **state) {
    (void)state;
    struct rdma_cm_id *id = softcm_id(NULL);
    assert_non_null(id->channel);
    struct sockaddr_in dst = softcm_in("127.0.0.1", 4711);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(soft_resolve_route(id, 1000), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
    soft_destroy_id(id); /* acknowledges id->event by itself */
}

static void negative_status_becomes_errno(void **state) {
    (void)state;
    struct rdma_cm_id *id = softcm_id(NULL);
    struct sockaddr_in dst = softcm_in("203.0.113.77", 4711);
    assert_fails(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), EREMOTE);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_ERROR);
    soft_destroy_id(id);
}

static void positive_status_becomes_errno_as_it_is(void **state) {
    (void)state;
    struct rdma_cm_id *id;
    struct sockaddr_in dst = softcm_in("127.0.0.1", 1);
    assert_int_equal(soft_create_id(NULL, &id, NULL, RDMA_PS_UDP), 0);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(soft_resolve_route(id, 1000), 0);
    assert_fails(soft_connect(id, NULL), 1); /* SIDR "unsupported" looks like EPERM */
    soft_destroy_id(id);
}

static void connect_accept_disconnect(void **state) {
    (void)state;
    struct server server;
    struct softcm_blocked thread;
    server_open(&server, true);
    struct rdma_cm_id *id = endpoint(server_port(&server), 0);
    struct rdma_conn_param param = softcm_param(NULL, 0);
    softcm_block(&thread, serve, &server);
    assert_int_equal(soft_connect(id, &param), 0); /* no QP: returns with CONNECT_RESPONSE */
    assert_int_equal(id->event->event, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(soft_establish(id), 0);
    assert_int_equal(softcm_join(&thread), 0);
    assert_ptr_not_equal(server.id->channel, server.listener->channel);
    softcm_block(&thread, disconnect_call, id);
    assert_int_equal(soft_disconnect(server.id), 0);
    assert_int_equal(softcm_join(&thread), 0);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_DISCONNECTED);
    soft_destroy_ep(server.id);
    soft_destroy_ep(server.listener);
    soft_destroy_ep(id);
}

static void rejected_is_econnrefused(void **state) {
    (void)state;
    struct server server;
    struct softcm_blocked thread;
    server_open(&server, false);
    struct rdma_cm_id *id = endpoint(server_port(&server), 0);
    struct rdma_conn_param param = softcm_param(NULL, 0);
    softcm_block(&thread, serve, &server);
    assert_fails(soft_connect(id, &param), ECONNREFUSED);
    assert_int_equal(softcm_join(&thread), 0);
    assert_int_equal(id->event->status, 28);
    soft_destroy_ep(server.id);
    soft_destroy_ep(server.listener);
    soft_destroy_ep(id);
}

static void get_request_errors(void **state) {
    (void)state;
    struct softcm_pair pair;
    struct rdma_cm_id *id;
    softcm_pair_listen(&pair);
    assert_fails(soft_get_request(pair.listener, &id), EINVAL); /* asynchronous */
    softcm_pair_free(&pair);
    struct server server;
    server_open(&server, true);
    soft_write_cm_event(server.listener, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 0, 0);
    assert_fails(soft_get_request(server.listener, &id), EINVAL); /* not a request */
    soft_write_cm_event(server.listener, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, -EXDEV, 0);
    assert_fails(soft_get_request(server.listener, &id), EXDEV);
    assert_fails(soft_get_request(server.listener, NULL), EINVAL);
    soft_destroy_ep(server.listener);
}

static void migration_between_the_modes(void **state) {
    (void)state;
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct sockaddr_in dst = softcm_in("127.0.0.1", 4711);
    struct rdma_cm_id *id = softcm_id(NULL);
    assert_fails(soft_migrate_id(id, NULL), EINVAL); /* already synchronous */
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(soft_migrate_id(id, channel), 0);
    assert_null(id->event);
    assert_int_equal(soft_resolve_route(id, 1000), 0);
    assert_null(id->event);
    assert_int_equal(softcm_take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    assert_int_equal(soft_migrate_id(id, NULL), 0);
    assert_ptr_not_equal(id->channel, channel);
    struct rdma_conn_param param = softcm_param(NULL, 0);
    assert_fails(soft_connect(id, &param), ECONNREFUSED); /* nobody listens */
    soft_destroy_id(id);
    soft_destroy_event_channel(channel);
}

/* Address resolution's data goes before the application's, in the first connect. */
static void connect_data_of_the_endpoint_comes_first(void **state) {
    (void)state;
    struct server server;
    server_open(&server, true);
    char port[8];
    snprintf(port, sizeof port, "%u", server_port(&server));
    struct rdma_addrinfo *res = info(port, 0);
    res->ai_connect = strdup("from info ");
    res->ai_connect_len = 10;
    struct rdma_cm_id *id, *request;
    assert_int_equal(soft_create_ep(&id, res, NULL, NULL), 0);
    soft_freeaddrinfo(res);
    struct rdma_event_channel *channel = soft_create_event_channel();
    assert_int_equal(soft_migrate_id(id, channel), 0);
    char data[47];
    memset(data, 'x', sizeof data);
    struct rdma_conn_param param = softcm_param(data, 47);
    assert_fails(soft_connect(id, &param), EINVAL); /* 10 + 47 > 56 */
    param = softcm_param("from connect", 12);
    assert_int_equal(soft_connect(id, &param), 0);
    assert_int_equal(soft_get_request(server.listener, &request), 0);
    assert_memory_equal(request->event->param.conn.private_data, "from info from connect", 23);
    soft_destroy_ep(request);
    softcm_take(channel, RDMA_CM_EVENT_REJECTED);
    soft_destroy_ep(id);
    soft_destroy_ep(server.listener);
    soft_destroy_event_channel(channel);
}

static void create_ep_errors(void **state) {
    (void)state;
    struct rdma_cm_id *id = NULL;
    struct rdma_addrinfo empty = {.ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_RC};
    assert_fails(soft_create_ep(&id, NULL, NULL, NULL), EINVAL);
    assert_fails(soft_create_ep(&id, &empty, NULL, NULL), EINVAL); /* no destination */
    empty.ai_flags = RAI_PASSIVE;
    assert_fails(soft_create_ep(&id, &empty, NULL, NULL), EINVAL); /* no source */
    assert_null(id);
}

int main(void) {
    softcm_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_wait_for_their_event),
        cmocka_unit_test(negative_status_becomes_errno),
        cmocka_unit_test(positive_status_becomes_errno_as_it_is),
        cmocka_unit_test(connect_accept_disconnect),
        cmocka_unit_test(rejected_is_econnrefused),
        cmocka_unit_test(get_request_errors),
        cmocka_unit_test(migration_between_the_modes),
        cmocka_unit_test(connect_data_of_the_endpoint_comes_first),
        cmocka_unit_test(create_ep_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
