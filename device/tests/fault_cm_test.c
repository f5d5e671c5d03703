/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault_cm_test.c - faults of the connection manager on demand, and the device's removal, port and
 * addresses as ids see them.
 */
#include "support/fault.h"
#include "support/softcm.h"

#include "soft/control/device_state.h"
#include "soft/fault/names.h"

#include <net/if.h>
#include <sys/ioctl.h>

/* ---- calls that end with another event -------------------------------------------------------------- */

TEST(a_chosen_connect_is_unreachable) {
    struct ct_pair pair;
    ct_pair_listen(&pair); /* id 1 */
    fault_plan("id=2 connect=1 event=UNREACHABLE status=-110");
    pair.active = ct_connect(pair.active_channel, pair.port);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_UNREACHABLE), -110);
    assert_false(ct_readable(pair.passive_channel, 0)); /* nobody was asked */
    assert_int_equal(soft_destroy_id(pair.active), 0);
    pair.active = ct_connect(pair.active_channel, pair.port); /* id 3 */
    pair.passive = ct_request(pair.passive_channel);
    fault_log_is("id#2 connect 1: event UNREACHABLE -110 (line 1)\n");
    ct_pair_free(&pair);
}

CT_WITH(ct_listening, a_rejection_on_demand_has_its_private_data) {
    struct ct_pair *pair = *state;
    fault_plan("id=* event=REJECTED");
    pair->active = ct_connect(pair->active_channel, pair->port);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(event->status, 28);
    assert_int_equal(event->param.conn.private_data_len, 148);
    soft_ack_cm_event(event);
}

TEST(address_and_route_fail_once_and_may_be_asked_again) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in dst = softcm_in("127.0.0.1", 4711);
    fault_plan(
        "id=1 resolve_addr=1 event=ADDR_ERROR status=-19\nid=1 resolve_route=1 event=ROUTE_ERROR");
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_ERROR), -19);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_int_equal(soft_resolve_route(id, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ROUTE_ERROR), -ETIMEDOUT);
    assert_int_equal(soft_resolve_route(id, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    soft_destroy_id(id);
    soft_destroy_event_channel(channel);
}

CT_WITH(ct_listening, an_accept_may_end_with_an_error_at_the_passive_side) {
    struct ct_pair *pair = *state;
    fault_plan("id=3 accept=1 event=CONNECT_ERROR status=-5"); /* the request's id */
    pair->active = ct_connect(pair->active_channel, pair->port);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_CONNECT_ERROR), -5);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
}

CT_WITH(ct_listening, any_event_can_follow_another) {
    struct ct_pair *pair = *state;
    fault_plan("id=3 after=ESTABLISHED event=TIMEWAIT_EXIT status=7\n"
               "id=2 after=ADDR_RESOLVED event=ADDR_CHANGE");
    pair->active = ct_id(pair->active_channel);
    struct sockaddr_in dst = softcm_in("127.0.0.1", pair->port);
    assert_int_equal(soft_resolve_addr(pair->active, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_CHANGE), 0);
    assert_int_equal(soft_resolve_route(pair->active, 1000), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(soft_connect(pair->active, &param), 0);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    ct_confirm(pair->active, pair->passive_channel);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 7);
}

TEST(every_event_can_be_made_up_with_any_status) {
    for (int type = RDMA_CM_EVENT_ADDR_RESOLVED; type <= 17;
         type++) { /* 16, 17: of newer headers */
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
            continue; /* names an id there is not */
        struct rdma_event_channel *channel = soft_create_event_channel();
        struct rdma_cm_id *id = ct_id(channel);
        struct sockaddr_in dst = softcm_in("127.0.0.1", 4711);
        char plan[96];
        snprintf(plan, sizeof plan, "id=* after=ADDR_RESOLVED event=%s status=42",
                 soft_fault_event_name(type));
        fault_plan(plan);
        assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
        assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
        assert_int_equal(ct_take(channel, type), 42);
        assert_false(ct_readable(channel, 0));
        soft_destroy_id(id);
        soft_destroy_event_channel(channel);
    }
}

/* ---- messages ---------------------------------------------------------------------------------------- */

CT_WITH(ct_listening, slow_messages_make_a_slow_connection) {
    struct ct_pair *pair = *state;
    fault_plan("cm=* delay=20ms");
    uint64_t start = soft_now_ns();
    pair->active = ct_connect(pair->active_channel, pair->port);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    ct_confirm(pair->active, pair->passive_channel);
    assert_true(soft_now_ns() - start >= 60000000); /* REQ, REP, RTU */
}

CT_WITH(ct_listening, a_lost_request_is_repeated) {
    struct ct_pair *pair = *state;
    fault_plan("cm=REQ n=1..2 loss");
    pair->active = ct_connect(pair->active_channel, pair->port);
    pair->passive = ct_request(pair->passive_channel);
    fault_log_is("cm id#2 REQ 1: loss (line 1)\ncm id#2 REQ 2: loss (line 1)\n");
}

CT_WITH(ct_listening, a_request_that_is_always_lost_is_unreachable) {
    struct ct_pair *pair = *state;
    fault_plan("cm=REQ loss");
    pair->active = ct_connect(pair->active_channel, pair->port);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
}

/* ---- the device --------------------------------------------------------------------------------------- */

CT_WITH(ct_connected, removal_ends_bound_ids_and_leaves_the_others) {
    struct ct_pair *pair = *state;
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *unbound = ct_id(channel), *wildcard = ct_id(channel);
    assert_int_equal(soft_listen(wildcard, 4), 0);
    struct rdma_cm_id *asking = ct_connect(pair->active_channel, pair->port);
    struct rdma_cm_id *unaccepted = ct_request(pair->passive_channel);
    assert_int_equal(fault_device(DEVICE_REMOVE, ORDER_FATAL_FIRST), 0);
    assert_int_equal(fault_async(pair->active->verbs), IBV_EVENT_DEVICE_FATAL);
    unsigned told[2] = {0, 0};
    for (int i = 0; i < 2; i++) /* listener and passive, active and asking; in no order */
        for (int side = 0; side < 2; side++) {
            struct rdma_cm_event *event = ct_expect(
                side ? pair->active_channel : pair->passive_channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
            assert_true(event->id != unaccepted);
            told[side] += event->id == (side ? pair->active : pair->passive) ||
                          event->id == (side ? asking : pair->listener);
            soft_ack_cm_event(event);
        }
    assert_int_equal(told[0], 2);
    assert_int_equal(told[1], 2);
    assert_false(ct_readable(channel, 0));
    assert_false(ct_readable(pair->passive_channel, 0));
    assert_fails(soft_disconnect(pair->active), ENXIO);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(soft_accept(unaccepted, &param), ENXIO);
    assert_fails(soft_listen(pair->listener, 1), ENXIO);
    struct sockaddr_in dst = softcm_in("127.0.0.1", pair->port);
    assert_fails(soft_bind_addr(unbound, (struct sockaddr *)&dst), ENODEV);
    assert_int_equal(fault_device(DEVICE_RESTORE, 0), 0);
    /* New ids find the device again; the old ones stay dead. */
    struct rdma_cm_id *fresh = ct_connect(channel, ntohs(soft_get_src_port(wildcard)));
    struct rdma_cm_id *taken = ct_request(channel);
    assert_true(fresh->verbs != pair->active->verbs);
    assert_fails(soft_disconnect(pair->active), ENXIO);
    struct rdma_cm_id *all[] = {unaccepted, asking, unbound, wildcard, fresh, taken};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(soft_destroy_id(all[i]), 0);
    soft_destroy_event_channel(channel);
}

TEST(only_one_of_the_two_notices_comes_where_asked_for) {
    for (int fatal = 0; fatal < 2; fatal++) {
        struct ct_pair pair;
        ct_pair_up(&pair);
        struct ibv_context *ctx = pair.active->verbs;
        assert_int_equal(fault_device(DEVICE_REMOVE, fatal ? ORDER_FATAL_ONLY : ORDER_REMOVAL_ONLY),
                         0);
        assert_int_equal(ct_readable(pair.active_channel, 0), !fatal);
        assert_int_equal(fault_async_silent(ctx), !fatal);
        assert_fails(soft_disconnect(pair.active), ENXIO);
        assert_int_equal(fault_device(DEVICE_REMOVE, 0), -EALREADY);
        ct_pair_free(&pair);
    }
}

/* A peer in another process, which keeps its device. */
static void peer_of_a_removal(int fd) {
    softcm_start();
    struct ct_pair pair = {0};
    pair.active_channel = soft_create_event_channel();
    pair.active = ct_connect(pair.active_channel, (uint16_t)sv_hear(fd));
    must(ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE) == 0);
    must(soft_establish(pair.active) == 0);
    must(ct_take(pair.active_channel, RDMA_CM_EVENT_DISCONNECTED) == 0);
    must(soft_destroy_id(pair.active) == 0);
    soft_destroy_event_channel(pair.active_channel);
}

TEST(the_peer_of_a_removed_device_is_disconnected) {
    FAULT_NO_FORK();
    struct sv_child child = sv_fork(peer_of_a_removal);
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct ct_pair pair = {.passive_channel = channel, .listener = ct_id(channel)};
    sv_tell(child.fd, ct_listen(pair.listener, 4));
    pair.passive = ct_request(channel);
    ct_pair_accept(&pair);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(fault_device(DEVICE_REMOVE, ORDER_REMOVAL_FIRST), 0);
    assert_int_equal(sv_join(&child), 0);
    assert_int_equal(soft_destroy_id(pair.passive), 0);
    assert_int_equal(soft_destroy_id(pair.listener), 0);
    soft_destroy_event_channel(channel);
}

CT_WITH(ct_listening, nothing_connects_while_the_port_is_down) {
    struct ct_pair *pair = *state;
    assert_int_equal(fault_device(DEVICE_PORT_DOWN, 0), 0);
    pair->active = ct_connect(pair->active_channel, pair->port);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    assert_int_equal(soft_destroy_id(pair->active), 0);
    pair->active = ct_connect(pair->active_channel, pair->port);
    assert_int_equal(fault_device(DEVICE_PORT_UP, 0), 0);
    pair->passive = ct_request(pair->passive_channel); /* the repeated request */
}

CT_WITH(ct_listening, an_address_that_moves_is_told_to_the_ids_bound_to_it) {
    struct ct_pair *pair = *state;
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *other = ct_id(channel);
    struct sockaddr_in addr = softcm_in("127.0.0.2", 0);
    assert_int_equal(soft_bind_addr(other, (struct sockaddr *)&addr), 0);
    struct soft_device_action action = {.what = DEVICE_ADDRESS_CHANGE};
    memcpy(&action.address, &addr, sizeof addr);
    soft_lock();
    assert_int_equal(soft_device_act(&action), 0);
    soft_unlock();
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_CHANGE), 0);
    assert_false(ct_readable(pair->passive_channel, 0));
    assert_int_equal(fault_async(other->verbs), IBV_EVENT_GID_CHANGE);
    assert_int_equal(fault_device(DEVICE_ADDRESS_CHANGE, 0), 0); /* all of them */
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_CHANGE), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ADDR_CHANGE), 0);
    soft_destroy_id(other);
    soft_destroy_event_channel(channel);
}

/* Adds (up) or removes an address of the loopback link in a network of this process's own. */
static int address_set(const char *text, bool up) {
    struct ifreq req = {.ifr_name = "lo:1"};
    struct sockaddr_in addr = softcm_in(text, 0);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;
    if (up) {
        memcpy(&req.ifr_addr, &addr, sizeof addr);
        rc = ioctl(fd, SIOCSIFADDR, &req);
    } else {
        rc = ioctl(fd, SIOCGIFFLAGS, &req);
        req.ifr_flags &= ~IFF_UP;
        rc = rc ? rc : ioctl(fd, SIOCSIFFLAGS, &req);
    }
    close(fd);
    return rc;
}

#define NO_NAMESPACE 77
static void in_a_network_of_its_own(int fd) {
    (void)fd;
    softcm_start();
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        _exit(NO_NAMESPACE);
    if (address_set("10.98.76.54", true) != 0)
        _exit(NO_NAMESPACE);
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *bound = ct_id(channel), *other = ct_id(channel);
    struct sockaddr_in addr = softcm_in("10.98.76.54", 0), local = softcm_in("127.0.0.1", 0);
    must(soft_bind_addr(bound, (struct sockaddr *)&addr) == 0);
    must(soft_bind_addr(other, (struct sockaddr *)&local) == 0);
    must(address_set("10.98.76.54", false) == 0);
    struct rdma_cm_event *event;
    must(ct_readable(channel, SOFTCM_WAIT_MS));
    must(soft_get_cm_event(channel, &event) == 0);
    must(event->event == RDMA_CM_EVENT_ADDR_CHANGE && event->id == bound);
    must(soft_ack_cm_event(event) == 0);
    must(fault_async(bound->verbs) == IBV_EVENT_GID_CHANGE);
    must(!ct_readable(channel, 0));
    must(soft_destroy_id(bound) == 0 && soft_destroy_id(other) == 0);
    soft_destroy_event_channel(channel);
}

TEST(an_address_that_leaves_its_link_is_told_by_the_kernel) {
    FAULT_NO_FORK();
    struct sv_child child = sv_fork(in_a_network_of_its_own);
    int status = sv_join(&child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NAMESPACE)
        skip(); /* no right to a network of its own */
    assert_int_equal(status, 0);
}

CT_WITH(ct_listening, an_operation_of_an_id_can_remove_the_device) {
    struct ct_pair *pair = *state;
    fault_plan("id=3 after=ESTABLISHED device=remove order=removal-only");
    pair->active = ct_connect(pair->active_channel, pair->port);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    ct_confirm(pair->active, pair->passive_channel);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DEVICE_REMOVAL), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DEVICE_REMOVAL), 0);
    fault_log_is("id#3 after ESTABLISHED: device remove (line 1)\n");
}

int main(void) {
    return tests_run(softcm_setup, NULL);
}
