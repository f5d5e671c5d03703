/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_race_test.c - several addresses under way at a time: the first whose host answers gets the one request of the dial,
 * in whatever order they answer or fail, and the others leave nothing. The listener is at 127.0.0.1; 127.0.0.2 and above
 * refuse what comes to its port.
 */
#include "support/child.h"
#include "support/race.h"

#include "cm/internal.h"
#include "soft/cm/id.h"
#include "support/usage.h"
#include "support/wait.h"

static const uint64_t second = 1000000000;

static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* All of them are under way, the first `count` addresses in their order, and none has an answer. */
static void begin_all(struct pair *p, unsigned count) {
    race.held = (1u << count) - 1;
    pair_dial_name(p, "several.test", PAIR_LINK(.timeout_ns = 60 * second));
    for (unsigned i = 1; i <= count; i++) {
        race_await(p, i);
        if (i < count)
            dialer.now_ns = race_conn(p)->step_ns;
    }
}

/* The dialer makes no turn meanwhile. */
static void await_route(struct rdma_cm_id *id) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    for (bool there = false; !there; sched_yield()) {
        soft_lock();
        there = soft_cm_id_of(id)->state == SOFT_CM_ROUTE_RESOLVED;
        soft_unlock();
        assert_true(env_now(&env_default) < limit);
    }
}

/* ---- a node that is closed over it: first, for its process has to be one of a single thread ------------------- */

/* In a process of its own: the rest of such a node is not given back. */
static void close_over_it(void) {
    void *state;
    race_opened(&state);
    struct pair *p = state;
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    begin_all(p, 2);
    cm_close(p->b.node->cm);
    assert_int_equal(race.alive, 0);
}

TEST(a_dial_that_did_not_end_in_time_leaves_no_id_to_a_closed_channel) {
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close_over_it();
        _exit(0);
    }
    assert_int_equal(wait_exit(pid), 0);
}

/* ---- one of them answers ------------------------------------------------------------------------------------- */

PAIR_WITH(race_opened, the_first_wins_when_it_answers_after_the_second_began) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    begin_all(p, 2);
    assert_int_equal(race_conn(p)->search.candidate, 1);
    race_let(0);
    pair_expect(p, &p->b, SLUICE_UP); /* the clock stands still */
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_string_equal(pair_info(p->b.session).peer, p->address);
    race_expect_one_session(p);
    assert_int_equal(pair_send(&p->b, 10, 1, NULL), 0);
    pair_expect(p, &p->a, SLUICE_MESSAGE);
}

/* Both addresses are the listener's. */
PAIR_WITH(race_opened, two_that_answer_at_once_are_one_session) {
    struct pair *p = *state;
    sluice_listener listener;
    sluice_error e;
    char at[64];
    snprintf(at, sizeof at, "127.0.0.2:%d", sluice_listener_port(p->listener));
    assert_int_equal(sluice_listen(p->a.node, at, SLUICE_LINK(.loop = p->a.loop), &listener, &e),
                     0);
    pair_turns(p, 20);
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    begin_all(p, 2);
    struct rdma_cm_id *ids[2] = {race.ids[0], race.ids[1]};
    for (unsigned i = 0; i < 2; i++) {
        race_let(i);
        await_route(ids[i]); /* both have answered before the dialer looks */
    }
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    race_expect_one_session(p);
}

/* What refuses at whatever place, and whenever, the one that answers is found; and it is one session. */
TEST(each_order_of_answers_and_failures_finds_the_listener) {
    static const char *const names[3][4] = {{"127.0.0.1", "127.0.0.2", "127.0.0.3", NULL},
                                            {"127.0.0.2", "127.0.0.1", "127.0.0.3", NULL},
                                            {"127.0.0.2", "127.0.0.3", "127.0.0.1", NULL}};
    for (unsigned place = 0; place < 3; place++)
        for (unsigned order = 0; order < 6; order++) {
            void *state;
            race_opened(&state);
            struct pair *p = state;
            dialer_names(names[place]);
            begin_all(p, 3);
            for (unsigned i = 0; i < 3; i++) {
                unsigned number = orders[order][i];
                race_let(number);
                if (number == place)
                    break;
                pair_await(p, race.alive == 2 - i + (p->b.node->cm->watch.id != NULL));
            }
            pair_expect(p, &p->b, SLUICE_UP);
            pair_expect(p, &p->a, SLUICE_UP);
            assert_string_equal(pair_info(p->b.session).peer, p->address);
            race_expect_one_session(p);
            pair_close(p);
        }
}

/* The third has not to wait for the head start of the second when the first fails beside it. */
PAIR_WITH(race_opened, one_that_fails_beside_another_makes_the_next_begin_at_once) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", "127.0.0.1", NULL});
    begin_all(p, 2);
    race_let(0);
    pair_expect(p, &p->b, SLUICE_UP); /* the clock stands still */
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 3);
    race_expect_one_session(p);
}

/* ---- none does ----------------------------------------------------------------------------------------------- */

TEST(when_all_fail_in_any_order_there_is_another_round_and_then_the_reason) {
    for (unsigned order = 0; order < 6; order++) {
        void *state;
        race_opened(&state);
        struct pair *p = state;
        dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", "127.0.0.4", NULL});
        begin_all(p, 3);
        for (unsigned i = 0; i < 3; i++)
            race_let(orders[order][i]);
        struct cm_conn *conn = race_conn(p);
        pair_await(p, conn->owner.state == CM_BACKOFF && cm_race_under_way(conn) == 0);
        assert_int_equal(conn->last.reason, SLUICE_REASON_UNREACHABLE); /* so it may pass */
        dialer.now_ns = conn->step_ns;
        sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED); /* all of them, at once */
        assert_int_equal(event.reason, SLUICE_REASON_NO_LISTENER);
        assert_int_equal(pair_info(p->b.session).tries, 6);
        pair_expect_nothing(p, &p->b);
        assert_int_equal(race.alive, p->b.node->cm->watch.id != NULL);
        assert_int_equal(dialer.connects, 0);
        pair_close(p);
    }
}

PAIR_WITH(race_opened, the_deadline_ends_all_that_are_under_way) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", NULL});
    uint64_t start = dialer.now_ns;
    begin_all(p, 2);
    struct cm_conn *conn = race_conn(p);
    dialer.now_ns = conn->step_ns; /* the last one's head start is over: there is none to begin */
    pair_await(p, conn->step_ns == 0);
    dialer.now_ns = start + 60 * second - 1;
    pair_expect_nothing(p, &p->b);
    assert_int_equal(dialer.tries, 2);
    dialer.now_ns++;
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_UNREACHABLE);
    assert_non_null(strstr(pair_info(p->b.session).close_text, "time ran out"));
    pair_expect_nothing(p, &p->b);
    assert_int_equal(race.alive, p->b.node->cm->watch.id != NULL);
}

/* Bits of what is tried, the connection's own try with it. */
static unsigned under_way(const struct cm_conn *conn) {
    return cm_race_under_way(conn) | (conn->owner.id ? 1u << conn->search.candidate : 0);
}

PAIR_WITH(race_opened, four_are_under_way_and_no_more) {
    struct pair *p = *state;
    static const unsigned expected[] = {1, 3, 7, 15, 30, 60, 120, 240};
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6",
                                  "127.0.0.7", "127.0.0.8", "127.0.0.9", NULL});
    race.held = 0xff;
    pair_dial_name(p, "eight.test", PAIR_LINK(.timeout_ns = 60 * second));
    struct cm_conn *conn = race_conn(p);
    for (unsigned i = 0; i < 8; i++) {
        race_await(p, i + 1);
        assert_int_equal(under_way(conn), expected[i]);
        assert_uint_in_range(race.alive, 1, 4 + (p->b.node->cm->watch.id != NULL));
        dialer.now_ns = conn->step_ns;
    }
    /* The first four are tried again, after a pause in which the others go on. */
    pair_await(p, conn->owner.state == CM_BACKOFF);
    assert_int_equal(under_way(conn), 240);
    dialer.now_ns = conn->step_ns;
    race.held |= 1u << 8;
    race_await(p, 9);
    assert_int_equal(under_way(conn), 225); /* again for one that is given up */
}

/* ---- beside one that stays silent ------------------------------------------------------------------------------ */

/* It may pass what another one fails with, whether the first answers or not. */
PAIR_WITH(race_opened, a_silent_address_does_not_keep_others_from_being_asked_again) {
    struct pair *p = *state;
    struct cm_conn *conn;
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    sluice_unlisten(p->listener);
    pair_turns(p, 20);
    begin_all(p, 2);
    conn = race_conn(p);
    race_let(1); /* no listener there: refused */
    for (unsigned round = 2; round < 5; round++) {
        pair_await(p, conn->owner.state == CM_BACKOFF && race.asked == round);
        assert_int_equal(under_way(conn), 1);
        dialer.now_ns = conn->step_ns;
        race_await(p, round + 1);
    }
    assert_non_null(race.ids[0]); /* it is still its first try */
}

/* For its request the other was given up, which it was not to blame for. */
PAIR_WITH(race_opened, when_a_request_fails_the_others_are_tried_again) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    race.held = 1;
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 60 * second));
    race_await(p, 1);
    dialer.always = REJECT(8); /* the second is answered, by no listener of ours */
    race.held |= 1u << 2;
    dialer.now_ns = race_conn(p)->step_ns;
    race_await(p, 3);
    assert_int_equal(dialer.connects, 1);
    assert_int_equal(race_conn(p)->search.candidate, 0);
    assert_int_equal(under_way(race_conn(p)), 1);
}

/* The pause was for the second; what the first fails with has one of its own. */
PAIR_WITH(race_opened, one_that_answers_in_a_pause_and_fails_is_tried_again) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    begin_all(p, 2);
    struct cm_conn *conn = race_conn(p);
    race_let(1);
    pair_await(p, conn->owner.state == CM_BACKOFF);
    dialer_plan(REJECT(4));
    race_let(0);
    pair_await(p, dialer.connects == 1 && conn->owner.state == CM_BACKOFF);
    assert_int_equal(conn->last.vendor, 4);
    assert_int_not_equal(conn->step_ns, 0);
    dialer.now_ns = conn->step_ns;
    pair_expect(p, &p->b, SLUICE_UP);
    assert_string_equal(pair_info(p->b.session).peer, p->address);
}

/* ---- ended from here ----------------------------------------------------------------------------------------- */

TEST(hanging_up_with_two_under_way_leaves_nothing) {
    for (unsigned how = 0; how < 3; how++) {
        void *state;
        race_opened(&state);
        struct pair *p = state;
        pair_turns(p, 20);
        unsigned files = usage_entries("/proc/self/fd");
        dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
        begin_all(p, 2);
        assert_int_equal(under_way(race_conn(p)), 3);
        if (how == 1) { /* in a pause: the second has refused */
            race_let(1);
            pair_await(p, race_conn(p)->owner.state == CM_BACKOFF);
        }
        if (how < 2) {
            sluice_hangup(p->b.session, 0);
            sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED); /* the clock stands still */
            assert_int_equal(event.reason, SLUICE_REASON_LOCAL_CLOSE);
            pair_expect_nothing(p, &p->b);
            pair_expect_nothing(p, &p->a);
            assert_int_equal(race.alive, p->b.node->cm->watch.id != NULL);
            assert_int_equal(usage_entries("/proc/self/fd"),
                             files + 1); /* the resolver's channel */
        }
        assert_int_equal(atomic_load(&p->a.node->stats.page->cm.requests), 0);
        pair_close(p);
        assert_int_equal(race.alive, 0);
    }
}

PAIR_WITH(race_opened, a_device_that_goes_takes_all_that_are_under_way) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    begin_all(p, 2);
    assert_int_equal(fault_device(DEVICE_REMOVE, 0), 0);
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_DEVICE_REMOVED);
    pair_expect_nothing(p, &p->b);
    assert_int_equal(race.alive, 0);
}

/* ---- a device that knows of no answer before the listener's ---------------------------------------------------- */

static struct rdma_cm_id *routed[2];
static unsigned route_count;

static int held_route(struct rdma_cm_id *id, int ms) {
    (void)ms;
    assert_true(route_count < 2);
    routed[route_count++] = id;
    return 0;
}

PAIR_WITH(race_opened, without_such_an_answer_they_race_for_the_route) {
    struct pair *p = *state;
    route_count = 0;
    dialer_fast.reach = held_route;
    dialer_ops.resolve_route = held_route;
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 60 * second));
    pair_await(p, route_count == 1);
    dialer.now_ns = race_conn(p)->step_ns;
    pair_await(p, route_count == 2);
    assert_int_equal(soft_resolve_route(routed[0], 1000), 0);
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_string_equal(pair_info(p->b.session).peer, p->address);
    race_expect_one_session(p);
}

static struct rdma_cm_id *looking[4];
static unsigned look_count;

static int held_address(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms) {
    (void)src, (void)dst, (void)ms;
    assert_true(look_count < 4);
    looking[look_count++] = id;
    return 0;
}

/* A neighbour may answer late; the kernel is asked for it again and again, also beside the next address. */
PAIR_WITH(race_opened, an_address_is_looked_for_on_beside_the_next) {
    struct pair *p = *state;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)sluice_listener_port(p->listener)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    look_count = 0;
    dialer_ops.resolve_addr = held_address;
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 60 * second));
    pair_await(p, look_count == 1);
    dialer.now_ns = race_conn(p)->step_ns;
    pair_await(p, look_count == 2);
    dialer_plan("id=* resolve_addr=1 event=ADDR_ERROR status=-110");
    assert_int_equal(soft_resolve_addr(looking[0], NULL, (struct sockaddr *)&at, 50), 0);
    pair_await(p, look_count == 3);
    assert_ptr_equal(looking[2], looking[0]);
    assert_int_equal(under_way(race_conn(p)), 3);
    dialer_plan(NULL);
    assert_int_equal(soft_resolve_addr(looking[2], NULL, (struct sockaddr *)&at, 50), 0);
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_string_equal(pair_info(p->b.session).peer, p->address);
    race_expect_one_session(p);
}
