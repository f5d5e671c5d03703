/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * surprises_test.c - where rdma_cm's documentation and its code differ, the code is the contract: one
 * test for each known place. Two of the fifteen take a minute on a kernel: patience_test.
 */
#include "contract/contract.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

TEST(s02_event_str_knows_nothing_behind_timewait_exit) {
    for (int i = RDMA_CM_EVENT_ADDR_RESOLVED; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; i++)
        assert_memory_equal(rdma_event_str((enum rdma_cm_event_type)i), "RDMA_CM_EVENT_", 14);
    assert_string_equal(rdma_event_str(RDMA_CM_EVENT_ADDR_CHANGE), "RDMA_CM_EVENT_ADDR_CHANGE");
    const int unknown[] = {18, 19, 20, -1, 1000000}; /* 16 and 17 depend on the version */
    for (int i = 0; i < 5; i++)
        assert_string_equal(rdma_event_str((enum rdma_cm_event_type)unknown[i]), "UNKNOWN EVENT");
}

/* -1, not an errno: the library found out, and there is nothing behind the number. */
CT_WITH(ct_listening, s03_status_may_be_minus_one) {
    struct ct_pair *pair = *state;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    pair->active = ct_id(pair->active_channel);
    ct_resolve(pair->active, pair->port);
    ct_qp(pair->active);
    assert_int_equal(rdma_connect(pair->active, NULL), 0);
    assert_int_equal(ibv_modify_qp(pair->active->qp, &attr, IBV_QP_STATE), 0);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_CONNECT_ERROR), -1);
}

CT_WITH(ct_listening, s04_private_data_len_is_constant) {
    struct ct_pair *pair = *state;
    char data[56] = {1};
    for (uint8_t len = 0; len <= 56; len += 28) {
        struct rdma_cm_id *id = ct_id(pair->active_channel);
        ct_resolve(id, pair->port);
        struct rdma_conn_param param = ct_param(data, len);
        assert_int_equal(rdma_connect(id, &param), 0);
        struct rdma_cm_event *event =
            ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_int_equal(event->param.conn.private_data_len, 56);
        assert_non_null(event->param.conn.private_data);
        struct rdma_cm_id *request = event->id;
        assert_int_equal(rdma_ack_cm_event(event), 0);
        ct_destroy(request);
        assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), 28);
        ct_destroy(id);
    }
}

CT_WITH(ct_resolved, s06_passive_established_needs_the_active_event_loop) {
    struct ct_pair *pair = *state;
    ct_qp(pair->active);
    assert_int_equal(rdma_connect(pair->active, NULL), 0);
    pair->passive = ct_request(pair->passive_channel);
    ct_qp(pair->passive);
    assert_int_equal(rdma_accept(pair->passive, NULL), 0);
    assert_true(ct_readable(pair->active_channel, facts.wait_ms)); /* the reply is there */
    ct_silent(pair->passive_channel);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

CT_WITH(ct_connected, s07_establish_is_not_followed_by_an_active_established) {
    struct ct_pair *pair = *state;
    ct_silent(pair->active_channel);
    /* The next thing the active side ever hears is the end. */
    assert_int_equal(rdma_disconnect(pair->passive), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
}

CT_WITH(ct_connected, s08_second_disconnect_succeeds_without_an_event) {
    struct ct_pair *pair = *state;
    assert_int_equal(rdma_disconnect(pair->active), 0);
    assert_int_equal(rdma_disconnect(pair->active), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(rdma_disconnect(pair->passive), 0);
    assert_int_equal(rdma_disconnect(pair->passive), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
    assert_int_equal(rdma_disconnect(pair->active), 0);
    ct_silent(pair->active_channel);
}

TEST(s09_a_rejected_id_cannot_be_used_again) {
    struct ct_pair pair;
    struct sockaddr_in dst = ct_address(4711);
    ct_pair_request(&pair);
    assert_int_equal(rdma_reject(pair.passive, NULL, 0), 0);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_REJECTED), 28);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(rdma_connect(pair.active, &param), EINVAL);
    assert_fails(rdma_resolve_route(pair.active, 2000), EINVAL);
    assert_fails(rdma_resolve_addr(pair.active, NULL, (struct sockaddr *)&dst, 2000), EINVAL);
    ct_pair_free(&pair);
}

CT_WITH(ct_requested, s10_accept_without_parameters_needs_a_qp) {
    struct ct_pair *pair = *state;
    if (!facts.crashes_without_param) {
        assert_fails(rdma_accept(pair->passive, NULL), EINVAL);
    } else {
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on with the next test */
            rdma_accept(pair->passive, NULL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGSEGV);
    }
}

static int disconnect_call(void *id) {
    return rdma_disconnect(id);
}

/* The second disconnect of a synchronous id waits for an event and takes whatever comes. */
CT_WITH(ct_connected, s12_a_synchronous_call_returns_on_any_event) {
    struct ct_pair *pair = *state;
    assert_int_equal(rdma_migrate_id(pair->active, NULL), 0);
    struct ct_thread thread;
    ct_thread_start(&thread, disconnect_call, pair->active);
    ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(rdma_disconnect(pair->passive), 0);
    assert_int_equal(ct_thread_join(&thread), 0);
    assert_int_equal(pair->active->event->event, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(rdma_disconnect(pair->active), 0);
    assert_int_equal(pair->active->event->event, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

CT_WITH(ct_resolved, s13_depths_arrive_swapped) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = 2;
    param.initiator_depth = 3;
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(event->param.conn.responder_resources, 3);
    assert_int_equal(event->param.conn.initiator_depth, 2);
    pair->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

static int bind_call(struct rdma_cm_id *id, struct sockaddr_in addr) {
    return rdma_bind_addr(id, (struct sockaddr *)&addr);
}

TEST(s14_a_wildcard_clash_has_an_errno_of_its_own) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *a = ct_id(channel), *exact = ct_id(channel), *wild = ct_id(channel);
    ct_bind(a, 0);
    assert_fails(bind_call(exact, ct_address(ntohs(rdma_get_src_port(a)))), EADDRINUSE);
    assert_fails(bind_call(wild, ct_any(ntohs(rdma_get_src_port(a)))), EADDRNOTAVAIL);
    ct_destroy(a);
    ct_destroy(exact);
    ct_destroy(wild);
    rdma_destroy_event_channel(channel);
}

TEST(s15_a_datagram_reject_is_unreachable_2) {
    struct rdma_event_channel *passive = ct_channel(), *active = ct_channel();
    struct rdma_cm_id *listener = ct_ud_id(passive), *id = ct_ud_id(active);
    struct rdma_conn_param param = {.private_data = NULL};
    ct_resolve(id, ct_listen(listener, 1));
    assert_int_equal(rdma_connect(id, &param), 0);
    struct rdma_cm_id *request = ct_request(passive);
    assert_int_equal(rdma_reject(request, NULL, 0), 0);
    assert_int_equal(ct_take(active, RDMA_CM_EVENT_UNREACHABLE), 2);
    ct_destroy(request);
    ct_destroy(listener);
    ct_destroy(id);
    rdma_destroy_event_channel(passive);
    rdma_destroy_event_channel(active);
}

int main(void) {
    return ct_run();
}
