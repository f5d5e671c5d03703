/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_ending_test.c - how connections without QPs on the ids are refused and how they end, both
 * ends in this process: refusal, early ends, disconnect, backlog, the device's end.
 */
#include "support/softcm.h"

#include "soft/cm/device.h"
#include "support/rows.h"

/* ---- refusal --------------------------------------------------------------------------------------------- */

TEST(port_of_another_address_is_rejected_28) {
    struct ct_pair pair;
    ct_pair_listen(&pair); /* on 127.0.0.1 */
    pair.active = ct_id(pair.active_channel);
    struct sockaddr_in dst = softcm_in("127.0.0.2", pair.port);
    soft_resolve_addr(pair.active, NULL, (struct sockaddr *)&dst, 1000);
    ct_take(pair.active_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    soft_resolve_route(pair.active, 1000);
    ct_take(pair.active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(soft_connect(pair.active, &param), 0);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_REJECTED), 28);
    ct_pair_free(&pair);
}

CT_WITH(ct_requested, reject_ece_has_its_own_reason) {
    struct ct_pair *pair = *state;
    assert_int_equal(soft_reject_ece(pair->passive, NULL, 0), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), 35);
    assert_fails(soft_reject(pair->passive, NULL, 0), EINVAL); /* once */
}

/* ---- early ends ------------------------------------------------------------------------------------------ */

struct early_end {
    bool accepted, by_the_asker;
};

static void destroying_is_rejected_28(void **state) {
    const struct early_end *row = *state;
    struct ct_pair pair;
    ct_pair_request(&pair);
    if (row->accepted) {
        ct_pair_accept(&pair);
        ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    }
    struct rdma_cm_id **gone = row->by_the_asker ? &pair.active : &pair.passive;
    soft_destroy_id(*gone);
    *gone = NULL;
    assert_int_equal(ct_take(row->by_the_asker ? pair.passive_channel : pair.active_channel,
                             RDMA_CM_EVENT_REJECTED),
                     28);
    ct_pair_free(&pair);
}

/* ---- disconnect --------------------------------------------------------------------------------------------- */

CT_WITH(ct_connected, both_sides_disconnecting_at_once_get_one_event_each) {
    struct ct_pair *pair = *state;
    assert_int_equal(soft_disconnect(pair->active), 0);
    assert_int_equal(soft_disconnect(pair->passive), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
}

CT_WITH(ct_connected, unanswered_disconnect_times_out) {
    struct ct_pair *pair = *state;
    assert_int_equal(soft_disconnect(pair->active), 0);
    ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED);
    /* The passive side never calls disconnect. */
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), -ETIMEDOUT);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
}

CT_WITH(ct_listening, disconnect_needs_a_connection_once_begun) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *id = ct_id(pair->active_channel);
    assert_fails(soft_disconnect(id), EINVAL); /* no device */
    ct_resolve(id, pair->port);
    assert_fails(soft_disconnect(id), EINVAL); /* never started to connect */
    soft_destroy_id(id);
    pair->active = ct_connect(pair->active_channel, pair->port);
    assert_int_equal(soft_disconnect(pair->active), 0);
    pair->passive = ct_request(pair->passive_channel);
}

/* ---- calls in the wrong state ---------------------------------------------------------------------------------- */

TEST(calls_in_the_wrong_state_are_einval_and_raise_nothing) {
    struct ct_pair pair;
    struct rdma_conn_param param = ct_param(NULL, 0);
    ct_pair_listen(&pair);
    pair.active = ct_id(pair.active_channel);
    assert_fails(soft_connect(pair.active, &param), EINVAL);
    assert_fails(soft_accept(pair.active, &param), EINVAL);
    assert_fails(soft_reject(pair.active, NULL, 0), EINVAL);
    assert_fails(soft_establish(pair.active), EINVAL);
    assert_fails(soft_notify(pair.active, IBV_EVENT_COMM_EST), EINVAL);
    assert_fails(soft_accept(pair.listener, &param), EINVAL);
    ct_resolve(pair.active, pair.port);
    assert_int_equal(soft_connect(pair.active, &param), 0);
    assert_fails(soft_connect(pair.active, &param), EINVAL);
    assert_fails(soft_establish(pair.active), EINVAL);
    pair.passive = ct_request(pair.passive_channel);
    assert_fails(soft_connect(pair.passive, &param), EINVAL);
    assert_fails(soft_listen(pair.passive, 1), EINVAL);
    ct_pair_accept(&pair);
    assert_fails(soft_accept(pair.passive, &param), EINVAL);
    ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    soft_establish(pair.active);
    assert_fails(soft_establish(pair.active), EINVAL);
    ct_take(pair.passive_channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_fails(soft_reject(pair.passive, NULL, 0), EINVAL);
    assert_false(ct_readable(pair.active_channel, 0));
    ct_pair_free(&pair);
}

/* ---- timers ------------------------------------------------------------------------------------------------------ */

CT_WITH(ct_listening, dropped_request_is_asked_again) {
    struct ct_pair *pair = *state;
    soft_destroy_id(pair->listener);
    pair->listener = ct_id(pair->passive_channel);
    pair->port = ct_listen(pair->listener, 1);
    pair->active = ct_connect(pair->active_channel, pair->port);
    struct rdma_cm_id *second = ct_connect(pair->active_channel, pair->port);
    /* One of the two was dropped, or will be; both arrive in the end. */
    pair->passive = ct_request(pair->passive_channel);
    struct rdma_cm_id *request = ct_request(pair->passive_channel);
    soft_destroy_id(request);
    ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED);
    soft_destroy_id(second);
}

CT_WITH(ct_requested, request_nobody_accepts_is_unreachable) {
    struct ct_pair *pair = *state;
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
}

/* ---- the device ---------------------------------------------------------------------------------------------------- */

CT_WITH(ct_connected, address_change_reaches_the_ids_on_it) {
    struct ct_pair *pair = *state;
    struct sockaddr_in changed = softcm_in("127.0.0.1", 0), other = softcm_in("127.0.0.9", 0);
    soft_lock();
    soft_cm_device_address_changed((struct sockaddr *)&other);
    soft_cm_device_address_changed((struct sockaddr *)&changed);
    soft_unlock();
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_CHANGE), 0);
    assert_false(ct_readable(pair->active_channel, 0));
    ct_take(pair->passive_channel, RDMA_CM_EVENT_ADDR_CHANGE); /* listener */
    ct_take(pair->passive_channel, RDMA_CM_EVENT_ADDR_CHANGE); /* connection */
}

CT_WITH(ct_connected, device_removal_reaches_every_id_on_it) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *unbound = ct_id(pair->active_channel);
    struct rdma_cm_id *wildcard = ct_id(pair->active_channel);
    assert_int_equal(soft_listen(wildcard, 1), 0);
    struct rdma_cm_id *unanswered = ct_connect(pair->active_channel, pair->port);
    struct rdma_cm_id *request = ct_request(pair->passive_channel);
    soft_lock();
    soft_cm_device_removed();
    soft_unlock();
    for (int i = 0; i < 2; i++) {
        ct_take(pair->active_channel, RDMA_CM_EVENT_DEVICE_REMOVAL);  /* active, unanswered */
        ct_take(pair->passive_channel, RDMA_CM_EVENT_DEVICE_REMOVAL); /* listener, passive */
    }
    assert_false(ct_readable(pair->passive_channel, 0)); /* not for the unaccepted request */
    assert_false(ct_readable(pair->active_channel, 0));  /* nor for the unbound ones */
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(soft_accept(request, &param), ENXIO);
    assert_fails(soft_disconnect(pair->active), ENXIO);
    assert_fails(soft_listen(pair->listener, 1), ENXIO);
    assert_fails(
        soft_write_cm_event(pair->active, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 0, 0),
        ENXIO);
    soft_destroy_id(request);
    soft_destroy_id(unanswered);
    soft_destroy_id(unbound);
    soft_destroy_id(wildcard);
}

TEST_CASES(ROW(destroying_an_unanswered_request_is_rejected_28, destroying_is_rejected_28,
               early_end, .accepted = false),
           ROW(destroying_after_accept_is_rejected_28, destroying_is_rejected_28, early_end,
               .accepted = true),
           ROW(destroying_instead_of_establishing_is_rejected_28, destroying_is_rejected_28,
               early_end, .accepted = true, .by_the_asker = true));

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
