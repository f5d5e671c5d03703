/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * moved_test.c - ADDR_CHANGE is told and counted; a dial looks its way up again, the rest goes on.
 */
#include "support/dial.h"
#include "soft/control/device_state.h"

#define SECOND 1000000000ull

static unsigned routes;

static int counting_resolve_route(struct rdma_cm_id *id, int ms) {
    routes++;
    return soft_resolve_route(id, ms);
}

static struct { unsigned warnings, sessions, listeners, dials; } told;

static void note_line(int level, const char *text, void *arg) {
    (void)arg;
    told.warnings += level <= SLUICE_LOG_WARNING && strstr(text, "(ADDR_CHANGE)") != NULL;
    told.sessions += strstr(text, "ADDR_CHANGE: the session ") != NULL;
    told.listeners += strstr(text, "ADDR_CHANGE: the listener ") != NULL;
    told.dials += strstr(text, "ADDR_CHANGE: the dial ") != NULL;
}

static void open_nodes(struct pair *p) {
    dialer_open(p, PAIR_NODE(.log = note_line), PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    dialer_ops.resolve_route = counting_resolve_route;
    routes = 0;
    memset(&told, 0, sizeof told);
}

static void addresses_move(void) {
    soft_lock();
    soft_device_address_moved(NULL);
    soft_unlock();
}

static uint64_t rerouted(struct side *side) {
    return atomic_load(&side->node->stats.page->cm.address_changed);
}

static uint64_t moved(struct side *side) {
    return atomic_load(&side->node->stats.page->cm.events[RDMA_CM_EVENT_ADDR_CHANGE]);
}

/* Its second try is the one that succeeds, with a route of its own. */
static void expect_second_try(struct pair *p) {
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_int_equal(routes, 2);
    assert_int_equal(dialer.tries, 2); /* the address too */
    assert_int_equal(rerouted(&p->b), 1);
    assert_int_equal(rerouted(&p->a), 0);
    assert_int_equal(told.dials, 1);
}

static int nodes_opened(void **state) {
    static struct pair of_test;
    *state = &of_test;
    open_nodes(*state);
    return 0;
}

/* ---- dials ------------------------------------------------------------------------------------- */

PAIR_WITH(nodes_opened, a_dial_whose_address_changed_looks_its_way_up_again) {
    struct pair *p = *state;
    dialer_script((const char *[]){"id=* after=ADDR_RESOLVED event=ADDR_CHANGE", NULL});
    pair_dial(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    pair_await(p, conn->owner.state == CM_BACKOFF);
    assert_int_equal(dialer.connects, 0);
    dialer.now_ns = conn->step_ns;
    expect_second_try(p);
    assert_int_equal(dialer.connects, 1);
}

PAIR_WITH(nodes_opened, also_with_a_route_that_was_found_before) {
    struct pair *p = *state;
    pair_dial(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (conn->owner.state != CM_CREATING_QP) { /* its loop does not run */
        cm_progress(p->b.node->cm, 0);
        assert_true(env_now(&env_default) < limit);
    }
    addresses_move();
    pair_await(p, conn->owner.state == CM_BACKOFF);
    assert_int_equal(dialer.connects, 0);
    dialer.now_ns = conn->step_ns;
    expect_second_try(p);
}

PAIR_WITH(nodes_opened, a_request_under_way_has_a_second_left) {
    struct pair *p = *state;
    dialer_script((const char *[]){HANG, NULL});
    pair_dial(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    pair_await(p, conn->owner.state == CM_CONNECTING);
    addresses_move();
    pair_await(p, rerouted(&p->b) == 1);
    assert_int_equal(conn->owner.state, CM_CONNECTING);
    dialer.now_ns += SECOND - 1;
    pair_expect_nothing(p, &p->b);
    assert_int_equal(conn->owner.state, CM_CONNECTING);
    dialer.now_ns++;
    pair_await(p, conn->owner.state == CM_BACKOFF);
    assert_non_null(strstr(conn->last.text, "no answer in its share of the time"));
    dialer.now_ns = conn->step_ns;
    expect_second_try(p);
    assert_int_equal(dialer.connects, 2);
}

PAIR_WITH(nodes_opened, one_try_stays_one_try) {
    struct pair *p = *state;
    dialer_script((const char *[]){"id=* after=ADDR_RESOLVED event=ADDR_CHANGE", NULL});
    pair_dial(p, PAIR_LINK(.flags = SLUICE_ONCE));
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 1);
    assert_int_equal(routes, 1);
    assert_int_equal(moved(&p->b), 1);
    assert_int_equal(rerouted(&p->b), 0);
    assert_int_equal(told.dials, 1);
}

/* ---- the rest ---------------------------------------------------------------------------------- */

PAIR_WITH(nodes_opened, sessions_and_listeners_are_told_of_and_go_on) {
    struct pair *p = *state;
    pair_connect(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_frozen = env_now(&env_default);
    for (unsigned i = 1; i <= 2; i++) {
        /* At each side the id that watches the device, and the session's; and a listener's. */
        addresses_move();
        pair_await(p, moved(&p->a) == 3 * i && moved(&p->b) == 2 * i);
        assert_int_equal(told.sessions, 2 * i);
        assert_int_equal(told.listeners, i);
        assert_int_equal(told.warnings, 2 * i); /* one a node, for all that changed at once */
        assert_int_equal(pair_send(&p->b, 100, i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 100, i));
        dialer.now_ns += SECOND;
        pair_clock += 2 * SECOND;
    }
    pair_frozen = 0;
    /* And whoever dials now is let in. */
    pair_dial(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_expect(p, &p->b, SLUICE_UP);
}

/* As Soft-RoCE's does, whose address has another place in the device's table then. */
TEST(a_queue_pair_that_breaks_afterwards_says_what_came_before) {
    static const char *const texts[] = {
        "the queue pair broke, with no reason given",
        "the queue pair broke after an address of this side changed"};
    for (unsigned changed = 0; changed < 2; changed++) {
        struct pair p;
        open_nodes(&p);
        pair_connect(&p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
        if (changed)
            addresses_move();
        pair_await(&p, moved(&p.b) == 2 * changed);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        assert_int_equal(
            p.b.node->fabric->modify_qp(pair_session(&p.b)->connection->qp, &attr, IBV_QP_STATE),
            0);
        assert_int_equal(pair_send(&p.b, 100, 1, NULL), 0);
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
        assert_non_null(strstr(pair_info(p.b.session).close_text, texts[changed]));
        pair_close(&p);
    }
}
