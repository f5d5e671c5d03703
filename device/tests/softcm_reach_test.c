/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_reach_test.c - soft_cm_reach() over TCP: the peer's host is asked ahead of the request, and its answer is the route.
 */
#include "support/softcm_tcp.h"

#include "support/usage.h"

static struct rdma_cm_id *resolved(struct ct_pair *pair, const char *host, uint16_t port) {
    struct rdma_cm_id *id = ct_id(pair->active_channel);
    struct sockaddr_in to = softcm_in(host, port);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    return id;
}

static struct rdma_cm_id *reached(struct ct_pair *pair, uint16_t port) {
    struct rdma_cm_id *id = resolved(pair, "127.0.0.1", port);
    assert_int_equal(soft_cm_reach(id, 5000), 1);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    return id;
}

static void request(struct rdma_cm_id *id) {
    struct rdma_conn_param param = ct_param("ask", 3);
    param.qp_num = 5;
    assert_int_equal(soft_connect(id, &param), 0);
}

static void expect_request(int fd) {
    struct iwarp_handshake_parser parser;
    (void)plain_handshake(fd, false, &parser);
}

CT_WITH(ct_listening, a_host_that_answers_is_the_route_and_gets_the_request_later) {
    struct ct_pair *pair = *state;
    uint16_t port = 0;
    uint8_t byte;
    int listener = plain_listen(&port);
    pair->active = reached(pair, port);
    int fd = plain_accept(listener);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1); /* nothing, and no end */
    assert_int_equal(errno, EAGAIN);
    request(pair->active);
    expect_request(fd);
    close(fd);
    close(listener);
}

/* So that a listener with many of them need not have it without a request. */
CT_WITH(ct_listening, a_request_is_there_when_the_connection_is) {
    struct ct_pair *pair = *state;
    uint16_t port = 0;
    uint8_t byte;
    int listener = plain_listen(&port);
    pair->active = resolved(pair, "127.0.0.1", port);
    assert_int_equal(soft_resolve_route(pair->active, 1000), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    request(pair->active);
    int fd = plain_accept(listener);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK), 1);
    close(fd);
    close(listener);
}

/* A listener has patience with a connection without a request, but not for ever. */
CT_WITH(ct_listening, a_peer_that_has_closed_it_gets_the_request_on_another_connection) {
    struct ct_pair *pair = *state;
    uint16_t port = 0;
    int listener = plain_listen(&port);
    pair->active = reached(pair, port);
    int fd = plain_accept(listener);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    plain_expect_end(fd); /* the device has seen it */
    close(fd);
    request(pair->active);
    fd = plain_accept(listener);
    expect_request(fd);
    close(fd);
    close(listener);
}

/* It may give up such a connection just when the request is on its way. But one that answers with an end is not asked for ever. */
CT_WITH(ct_listening, a_peer_that_closes_it_at_the_request_is_asked_once_more) {
    struct ct_pair *pair = *state;
    uint16_t port = 0;
    int listener = plain_listen(&port);
    pair->active = reached(pair, port);
    request(pair->active);
    uint16_t ports[2];
    for (unsigned i = 0; i < 2; i++) {
        int fd = plain_accept(listener);
        struct sockaddr_in from;
        socklen_t bytes = sizeof from;
        expect_request(fd);
        assert_int_equal(getpeername(fd, (struct sockaddr *)&from, &bytes), 0);
        ports[i] = from.sin_port;
        close(fd);
    }
    assert_int_not_equal(ports[0], ports[1]); /* the old one may still be in use */
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), SOFT_CM_REJECT_TIMEOUT);
    assert_int_equal(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 0), 0);
    close(listener);
}

CT_WITH(ct_listening, a_port_that_refuses_is_no_route_and_may_be_asked_again) {
    struct ct_pair *pair = *state;
    pair->active = resolved(pair, "127.0.0.77", pair->port);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(soft_cm_reach(pair->active, 5000), 1);
        assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_ERROR), -ECONNREFUSED);
    }
}

/* A listener with a full queue: the kernel swallows what comes. */
static struct rdma_cm_id *swallowed(struct ct_pair *pair, int fd[3]) {
    struct sockaddr_in at = softcm_in("127.0.0.77", pair->port);
    for (unsigned i = 0; i < 3; i++)
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (i == 2 ? SOCK_NONBLOCK : 0), 0);
    int one = 1;
    assert_int_equal(setsockopt(fd[0], SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(fd[0], (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd[0], 0), 0);
    assert_int_equal(connect(fd[1], (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(connect(fd[2], (struct sockaddr *)&at, sizeof at), -1);
    return resolved(pair, "127.0.0.77", pair->port);
}

CT_WITH(ct_listening, a_host_that_does_not_answer_is_waited_for_as_long_as_asked) {
    struct ct_pair *pair = *state;
    int fd[3];
    pair->active = swallowed(pair, fd);
    assert_int_equal(soft_cm_reach(pair->active, 20), 1);
    assert_int_equal(soft_cm_reach(pair->active, 20), -1); /* it is being asked */
    assert_int_equal(errno, EINVAL);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_ERROR), -ETIMEDOUT);
    for (unsigned i = 0; i < 3; i++)
        close(fd[i]);
}

CT_WITH(ct_listening, an_id_that_is_destroyed_meanwhile_leaves_nothing) {
    struct ct_pair *pair = *state;
    int fd[3];
    struct rdma_cm_id *id = swallowed(pair, fd);
    unsigned files = usage_entries("/proc/self/fd");
    assert_int_equal(soft_cm_reach(id, 60000), 1);
    assert_int_equal(soft_destroy_id(id), 0);
    assert_int_equal(usage_entries("/proc/self/fd"), files - 1);
    for (unsigned i = 0; i < 3; i++)
        close(fd[i]);
}

/* Nothing is heard of a connection that ends before a request. */
CT_WITH(ct_listening, a_listener_hears_nothing_of_it) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *id = resolved(pair, "127.0.0.1", pair->port);
    assert_int_equal(soft_cm_reach(id, 5000), 1);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    assert_int_equal(soft_destroy_id(id), 0);
    pair->active = resolved(pair, "127.0.0.1", pair->port);
    assert_int_equal(soft_cm_reach(pair->active, 5000), 1);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    struct rdma_conn_param param = ct_param("second", 6);
    param.qp_num = 5;
    assert_int_equal(soft_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_memory_equal(event->param.conn.private_data, "second", 6);
    pair->passive = event->id;
    soft_ack_cm_event(event);
}

int main(void) {
    return tests_run(softcm_tcp_setup, NULL);
}
