/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_tcp_test.c - rdma_cm over TCP, between two of this device: the events are those of connections within the host.
 */
#include <sys/wait.h>

#include "support/child.h"
#include "support/fault.h"
#include "support/softcm_tcp.h"
#include "support/usage.h"

#include "soft/cm/tcp.h"
#include "soft/iwarp/qp_tcp.h"

static int closed(void **state) {
    softcm_tcp_free(*state);
    return 0;
}

/* ---- a connection -------------------------------------------------------------------------------------------- */

#define WITH(set_up, name) TEST_WITH(set_up, closed, name)

static int tcp_requested(void **state) {
    static struct softcm_tcp_pair of_test;
    *state = &of_test;
    softcm_tcp_request(*state);
    return 0;
}

WITH(tcp_requested, both_ends_hear_the_events_of_a_connection_and_carry_messages) {
    struct softcm_tcp_pair *p = *state;
    softcm_tcp_accept(p);
    struct rdma_cm_event *event = ct_expect(p->cm.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    ct_assert_padded(&event->param.conn, "yes", 3, SOFT_CM_REP_DATA);
    assert_int_equal(soft_ack_cm_event(event), 0);
    assert_false(ct_readable(p->cm.passive_channel, 50)); /* the dialer's word is missing */
    softcm_tcp_move(p->cm.active, &p->active);
    assert_int_equal(soft_establish(p->cm.active), 0);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    softcm_tcp_message(&p->passive, &p->active);
    softcm_tcp_message(&p->active, &p->passive);
    assert_int_equal(soft_disconnect(p->cm.active), 0);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(ct_take(p->cm.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(ct_take(p->cm.active_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
    assert_int_equal(soft_disconnect(p->cm.passive), 0);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
}

/* The addresses and ports that both show are those of the TCP connection. */
TEST(addresses_are_those_of_the_socket) {
    struct softcm_tcp_pair p;
    struct sockaddr_in own, peer;
    socklen_t bytes = sizeof own;
    softcm_tcp_up(&p);
    assert_false(soft_peer_is_plain(p.active.qp) || soft_peer_is_plain(p.passive.qp));
    int fd = soft_qp_of(p.passive.qp)->tcp->fd;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &bytes), 0);
    assert_int_equal(getpeername(fd, (struct sockaddr *)&peer, &bytes), 0);
    assert_int_equal(own.sin_port, htons(p.cm.port));
    assert_int_equal(peer.sin_port, soft_get_src_port(p.cm.active));
    assert_int_equal(peer.sin_port, soft_get_dst_port(p.cm.passive));
    const struct rdma_addr *addr = &p.cm.passive->route.addr;
    assert_int_equal(addr->dst_sin.sin_addr.s_addr, peer.sin_addr.s_addr);
    assert_int_equal(addr->src_sin.sin_addr.s_addr, own.sin_addr.s_addr);
    softcm_tcp_free(&p);
}

/* A message of the dialer's that comes before its application is ready establishes the connection, as on InfiniBand. */
WITH(tcp_requested, the_first_message_establishes) {
    struct softcm_tcp_pair *p = *state;
    softcm_tcp_accept(p);
    assert_int_equal(ct_take(p->cm.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    softcm_tcp_move(p->cm.active, &p->active);
    softcm_tcp_message(&p->active, &p->passive);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(soft_establish(p->cm.active), 0);
    softcm_tcp_message(&p->passive, &p->active);
}

/* What the listener posts before the dialer is ready waits, and is not lost. */
WITH(tcp_requested, the_listener_speaks_when_the_dialer_is_ready) {
    struct softcm_tcp_pair *p = *state;
    softcm_tcp_accept(p);
    assert_int_equal(sv_send(&p->passive, 5, 4096, 40, IBV_SEND_SIGNALED), 0);
    assert_int_equal(ct_take(p->cm.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    softcm_tcp_move(p->cm.active, &p->active);
    sv_stays_empty(p->passive.scq, p->active.rcq);
    assert_int_equal(soft_establish(p->cm.active), 0);
    assert_int_equal(sv_poll(p->active.rcq).status, IBV_WC_SUCCESS);
    must_data_equal(sv_poll(p->passive.scq).wr_id, 5);
}

/* ---- ends ---------------------------------------------------------------------------------------------------- */

TEST(destroying_an_id_disconnects_the_peer) {
    for (unsigned dialer = 0; dialer < 2; dialer++) {
        struct softcm_tcp_pair p;
        softcm_tcp_up(&p);
        struct rdma_cm_id **gone = dialer ? &p.cm.active : &p.cm.passive;
        struct rdma_event_channel *hears = dialer ? p.cm.passive_channel : p.cm.active_channel;
        assert_int_equal(soft_destroy_id(*gone), 0);
        *gone = NULL;
        assert_int_equal(ct_take(hears, RDMA_CM_EVENT_DISCONNECTED), 0);
        softcm_tcp_free(&p);
    }
}

static int tcp_connected(void **state) {
    static struct softcm_tcp_pair of_test;
    *state = &of_test;
    softcm_tcp_up(*state);
    return 0;
}

/* It is the end of the stream that says so, so both hear of it. */
WITH(tcp_connected, a_queue_pair_in_err_disconnects_both) {
    struct softcm_tcp_pair *p = *state;
    assert_int_equal(sv_to(&p->passive, IBV_QPS_ERR), 0);
    assert_int_equal(ct_take(p->cm.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
}

WITH(tcp_connected, what_was_sent_before_a_disconnect_arrives) {
    struct softcm_tcp_pair *p = *state;
    for (uint64_t i = 0; i < TCP_RECEIVES; i++)
        assert_int_equal(sv_send(&p->active, i, 4096, 40, IBV_SEND_SIGNALED), 0);
    for (uint64_t i = 0; i < TCP_RECEIVES; i++)
        assert_int_equal(sv_poll(p->active.scq).status, IBV_WC_SUCCESS);
    assert_int_equal(soft_disconnect(p->cm.active), 0);
    for (uint64_t i = 0; i < TCP_RECEIVES; i++)
        assert_int_equal(sv_poll(p->passive.rcq).status, IBV_WC_SUCCESS);
}

CT_WITH(ct_listening, nobody_listens) {
    struct ct_pair *pair = *state;
    assert_int_equal(soft_destroy_id(pair->listener), 0);
    pair->listener = NULL;
    pair->active = ct_connect(pair->active_channel, pair->port);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED),
                     SOFT_CM_REJECT_NO_LISTENER);
}

WITH(tcp_requested, a_refusal_arrives_with_its_data) {
    struct softcm_tcp_pair *p = *state;
    assert_int_equal(soft_reject(p->cm.passive, "no", 2), 0);
    struct rdma_cm_event *event = ct_expect(p->cm.active_channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, SOFT_CM_REJECT_CONSUMER);
    ct_assert_padded(&event->param.conn, "no", 2, SOFT_CM_REJ_DATA);
    assert_int_equal(soft_ack_cm_event(event), 0);
}

WITH(tcp_requested, a_dialer_that_gives_up_is_not_accepted) {
    struct softcm_tcp_pair *p = *state;
    assert_int_equal(soft_destroy_id(p->cm.active), 0);
    p->cm.active = NULL;
    softcm_until(softcm_conn_state(p->cm.passive) == SOFT_CM_CONN_OVER);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(soft_accept(p->cm.passive, &param), EINVAL);
}

/* One more than the backlog waits for the first to be fetched, and then comes. */
TEST(a_full_backlog_makes_others_wait) {
    struct rdma_event_channel *passive = soft_create_event_channel(),
                              *active = soft_create_event_channel();
    struct rdma_cm_id *listener = ct_id(passive), *dialer[3], *asked[3];
    uint16_t port = ct_listen(listener, 1);
    for (unsigned i = 0; i < 3; i++)
        dialer[i] = ct_connect(active, port);
    for (unsigned i = 0; i < 3; i++)
        asked[i] = ct_request(passive);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(soft_reject(asked[i], NULL, 0), 0);
        assert_int_equal(ct_take(active, RDMA_CM_EVENT_REJECTED), SOFT_CM_REJECT_CONSUMER);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(soft_destroy_id(dialer[i]) | soft_destroy_id(asked[i]), 0);
    assert_int_equal(soft_destroy_id(listener), 0);
    soft_destroy_event_channel(passive);
    soft_destroy_event_channel(active);
}

/* ---- ports --------------------------------------------------------------------------------------------------- */

TEST(a_port_of_another_program_is_in_use) {
    uint16_t port = 0;
    int taken = plain_listen(&port);
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&addr), 0);
    assert_fails(soft_listen(id, 4), EADDRINUSE);
    close(taken);
    assert_int_equal(soft_listen(id, 4), 0);
    close(plain_dial(port));
    assert_int_equal(soft_destroy_id(id), 0);
    soft_destroy_event_channel(channel);
}

/* One that this end chooses is free for other programs' TCP as well, from the moment it is bound. */
TEST(a_chosen_port_is_kept_until_it_listens) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", 0);
    assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&addr), 0);
    addr.sin_port = soft_get_src_port(id);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_fails(bind(fd, (struct sockaddr *)&addr, sizeof addr), EADDRINUSE);
    close(fd);
    assert_int_equal(soft_listen(id, 4), 0);
    close(plain_dial(ntohs(addr.sin_port)));
    assert_int_equal(soft_destroy_id(id), 0);
    soft_destroy_event_channel(channel);
}

/* Of the internet family. */
static unsigned sockets_here(void) {
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++) {
        int family = 0;
        socklen_t bytes = sizeof family;
        count += getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_INET;
    }
    return count;
}

/* One that does not listen yet has its end to report, which nobody wants to hear of. */
TEST(a_port_that_does_not_listen_yet_costs_no_time) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", 0);
    assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&addr), 0);
    uint64_t before = usage_processor_ns();
    assert_false(ct_readable(channel, 200));
    assert_in_range(usage_processor_ns() - before, 0, 100000000);
    assert_int_equal(soft_destroy_id(id), 0);
    soft_destroy_event_channel(channel);
}

/* Held open there, it would keep the peer from hearing of this end's. */
TEST(a_forked_child_has_no_socket_of_its_parents) {
    struct softcm_tcp_pair p;
    ct_pair_listen(&p.cm);
    p.cm.active = ct_id(p.cm.active_channel);
    ct_resolve(p.cm.active, p.cm.port);
    struct rdma_cm_id *bound = ct_id(p.cm.active_channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", 0);
    assert_int_equal(soft_bind_addr(bound, (struct sockaddr *)&addr), 0);
    int socket = soft_cm_id_of(p.cm.active)->conn.tcp->watch.fd;
    assert_true(fcntl(socket, F_GETFD) >= 0);
    unsigned sockets = sockets_here();
    pid_t child = child_fork();
    if (child == 0)
        _exit(fcntl(socket, F_GETFD) >= 0 || sockets_here() >= sockets - 2);
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    assert_int_equal(soft_destroy_id(bound), 0);
    ct_pair_free(&p.cm);
}

/* ---- faults of a plan ---------------------------------------------------------------------------------------- */

TEST(what_a_plan_loses_is_said_again) {
    static const char *const plans[] = {
        "cm=REQ n=1 loss",      "cm=REP n=1 loss",     "cm=RTU n=1 loss",      "cm_in=REQ n=1 loss",
        "cm_in=REP n=1 loss",   "cm_in=RTU n=1 loss",  "cm_in=REQ delay=15ms", "cm=REP delay=15ms",
        "cm_in=RTU delay=15ms", "cm_in=DREQ n=1 loss", "cm_in=DREP n=1 loss",  "cm=DREQ n=1 loss"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct softcm_tcp_pair p;
        fault_plan(plans[i]);
        softcm_tcp_up(&p);
        softcm_tcp_message(&p.passive, &p.active);
        assert_int_equal(soft_disconnect(p.cm.active), 0);
        assert_int_equal(ct_take(p.cm.passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
        assert_int_equal(ct_take(p.cm.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
        fault_clear();
        softcm_tcp_free(&p);
    }
}

/* A confirmation that is lost each time is said now and then, not all the time. */
WITH(tcp_requested, what_is_always_lost_costs_no_time) {
    struct softcm_tcp_pair *p = *state;
    softcm_tcp_accept(p);
    assert_int_equal(ct_take(p->cm.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    softcm_tcp_move(p->cm.active, &p->active);
    fault_plan("cm=RTU loss");
    assert_int_equal(soft_establish(p->cm.active), 0);
    uint64_t before = usage_processor_ns();
    assert_false(ct_readable(p->cm.passive_channel, 200));
    assert_in_range(usage_processor_ns() - before, 0, 100000000);
    fault_clear();
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

int main(void) {
    return tests_run(softcm_tcp_setup, NULL);
}
