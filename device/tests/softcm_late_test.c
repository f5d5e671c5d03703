/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_late_test.c - a listener that appears when it was asked for already: with
 * SLUICE_SOFT_CM_REFUSE_MS a request waits for it. Both ends in this process.
 */
#include "support/softcm.h"

/* A port that nobody has: somebody had it. */
static uint16_t free_port(struct ct_pair *pair) {
    ct_pair_listen(pair);
    soft_destroy_id(pair->listener);
    pair->listener = NULL;
    return pair->port;
}

static void listen_on(struct rdma_cm_id *id, uint16_t port) {
    struct sockaddr_in addr = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&addr), 0);
    assert_int_equal(soft_listen(id, 4), 0);
}

TEST(a_listener_that_comes_late_is_found) {
    struct ct_pair pair;
    uint16_t port = free_port(&pair);
    pair.active = ct_connect(pair.active_channel, port); /* asked, and there was nobody */
    assert_false(ct_readable(pair.active_channel, 0));
    pair.listener = ct_id(pair.passive_channel);
    listen_on(pair.listener, port);
    pair.passive = ct_request(pair.passive_channel);
    ct_pair_accept(&pair);
    ct_confirm(pair.active, pair.passive_channel);
    ct_pair_free(&pair);
}

TEST(one_that_is_bound_and_listens_late_is_found) {
    struct ct_pair pair;
    uint16_t port = free_port(&pair);
    pair.listener = ct_id(pair.passive_channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_bind_addr(pair.listener, (struct sockaddr *)&addr), 0);
    pair.active = ct_connect(pair.active_channel, port);
    /* Until it was refused: then it waits, and asks nobody. */
    for (;;) {
        soft_lock();
        bool refused = soft_cm_id_of(pair.active)->conn.refuse_ns != 0;
        soft_unlock();
        if (refused)
            break;
        sched_yield();
    }
    assert_int_equal(soft_listen(pair.listener, 4), 0);
    pair.passive = ct_request(pair.passive_channel);
    ct_pair_free(&pair);
}

TEST(a_late_listener_of_datagrams_is_found) {
    struct ct_pair pair;
    uint16_t port = free_port(&pair);
    pair.active = ct_ud_id(pair.active_channel);
    ct_resolve(pair.active, port);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(soft_connect(pair.active, &param), 0);
    pair.listener = ct_ud_id(pair.passive_channel);
    listen_on(pair.listener, port);
    pair.passive = ct_request(pair.passive_channel);
    ct_pair_free(&pair);
}

TEST(who_waits_for_a_listener_can_be_destroyed) {
    struct ct_pair pair;
    uint16_t port = free_port(&pair);
    pair.active = ct_connect(pair.active_channel, port);
    assert_int_equal(soft_destroy_id(pair.active), 0);
    pair.active = NULL;
    pair.listener = ct_id(pair.passive_channel);
    listen_on(pair.listener, port);
    struct rdma_cm_id *other = ct_connect(pair.active_channel, port);
    pair.passive = ct_request(pair.passive_channel); /* of the other, and there is no second */
    ct_pair_accept(&pair);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    assert_int_equal(soft_destroy_id(other), 0);
    assert_int_equal(ct_take(pair.passive_channel, RDMA_CM_EVENT_REJECTED), 28);
    assert_false(ct_readable(pair.passive_channel, 0));
    ct_pair_free(&pair);
}

int main(void) {
    softcm_start();
    setenv("SLUICE_SOFT_CM_REFUSE_MS", "600000", 1);
    return tests_run(NULL, NULL);
}
