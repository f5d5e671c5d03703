/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_late_test.c - a listener that appears when it was asked for already: with
 * SLUICE_SOFT_CM_REFUSE_MS a request waits for it. Both ends in this process.
 */
#include "support/softcm.h"

/* A port that nobody has: somebody had it. */
static uint16_t free_port(struct softcm_pair *pair) {
    softcm_pair_listen(pair);
    soft_destroy_id(pair->listener);
    pair->listener = NULL;
    return pair->port;
}

static void listen_on(struct rdma_cm_id *id, uint16_t port) {
    struct sockaddr_in addr = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&addr), 0);
    assert_int_equal(soft_listen(id, 4), 0);
}

static void a_listener_that_comes_late_is_found(void **state) {
    (void)state;
    struct softcm_pair pair;
    uint16_t port = free_port(&pair);
    pair.active = softcm_connect(pair.active_channel, port); /* asked, and there was nobody */
    assert_false(softcm_readable(pair.active_channel, 0));
    pair.listener = softcm_id(pair.passive_channel);
    listen_on(pair.listener, port);
    pair.passive = softcm_request(pair.passive_channel);
    softcm_pair_accept(&pair);
    assert_int_equal(softcm_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    assert_int_equal(soft_establish(pair.active), 0);
    assert_int_equal(softcm_take(pair.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    softcm_pair_free(&pair);
}

static void one_that_is_bound_and_listens_late_is_found(void **state) {
    (void)state;
    struct softcm_pair pair;
    uint16_t port = free_port(&pair);
    pair.listener = softcm_id(pair.passive_channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_bind_addr(pair.listener, (struct sockaddr *)&addr), 0);
    pair.active = softcm_connect(pair.active_channel, port);
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
    pair.passive = softcm_request(pair.passive_channel);
    softcm_pair_free(&pair);
}

static void a_late_listener_of_datagrams_is_found(void **state) {
    (void)state;
    struct softcm_pair pair;
    uint16_t port = free_port(&pair);
    pair.active = softcm_ud_id(pair.active_channel);
    softcm_resolve(pair.active, port);
    struct rdma_conn_param param = softcm_param(NULL, 0);
    assert_int_equal(soft_connect(pair.active, &param), 0);
    pair.listener = softcm_ud_id(pair.passive_channel);
    listen_on(pair.listener, port);
    pair.passive = softcm_request(pair.passive_channel);
    softcm_pair_free(&pair);
}

static void who_waits_for_a_listener_can_be_destroyed(void **state) {
    (void)state;
    struct softcm_pair pair;
    uint16_t port = free_port(&pair);
    pair.active = softcm_connect(pair.active_channel, port);
    assert_int_equal(soft_destroy_id(pair.active), 0);
    pair.active = NULL;
    pair.listener = softcm_id(pair.passive_channel);
    listen_on(pair.listener, port);
    struct rdma_cm_id *other = softcm_connect(pair.active_channel, port);
    pair.passive = softcm_request(pair.passive_channel); /* of the other, and there is no second */
    softcm_pair_accept(&pair);
    assert_int_equal(softcm_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    assert_int_equal(soft_destroy_id(other), 0);
    assert_int_equal(softcm_take(pair.passive_channel, RDMA_CM_EVENT_REJECTED), 28);
    assert_false(softcm_readable(pair.passive_channel, 0));
    softcm_pair_free(&pair);
}

int main(void) {
    softcm_start();
    setenv("SLUICE_SOFT_CM_REFUSE_MS", "600000", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listener_that_comes_late_is_found),
        cmocka_unit_test(one_that_is_bound_and_listens_late_is_found),
        cmocka_unit_test(a_late_listener_of_datagrams_is_found),
        cmocka_unit_test(who_waits_for_a_listener_can_be_destroyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
