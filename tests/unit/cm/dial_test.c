/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Dialing goes through every address, and ends in time. The dialer's clock and its name server are the test's; what a try
 * ends with is scripted as faults of the software device.
 */
#include "support/dial.h"

/* ---- one address after the other ------------------------------------------------------------- */

PAIR_WITH(dialer_opened, failover_goes_through_every_address) {
    struct pair *p = *state;
    sluice_session_info info;
    dialer_script((const char *[]){REJECT(8), NULL});
    dialer_names((const char *[]){"127.0.0.2", "192.0.2.77", "127.0.0.1", NULL});
    pair_dial_name(p, "three.test", PAIR_LINK());
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    info = pair_info(p->b.session);
    assert_int_equal(info.tries, 3);
    assert_string_equal(info.peer, p->address);
    assert_int_equal(dialer.tries, 3);
    assert_int_equal(dialer.connects, 2); /* 192.0.2.77 leads nowhere */
    assert_int_equal(dialer.qps, 1);      /* one QP for all tries */
    assert_true(strncmp(dialer.tried[0], "127.0.0.2:", 10) == 0);
    assert_true(strncmp(dialer.tried[1], "192.0.2.77:", 11) == 0);
    assert_string_equal(dialer.tried[2], p->address);
    assert_int_equal(pair_send(&p->b, 1000, 1, NULL), 0);
    sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 1000, 1));
}

TEST(when_every_address_fails_the_last_failure_is_told) {
    static const struct {
        const char *script[3];
        sluice_reason reason;
        uint32_t vendor;
        int32_t cm_event;
    } rows[] = {
        {{REJECT(8), "id=* resolve_addr=1 event=ADDR_ERROR status=-19", NULL},
         SLUICE_REASON_ADDRESS,
         ENODEV,
         RDMA_CM_EVENT_ADDR_ERROR},
        {{"id=* resolve_addr=1 event=ADDR_ERROR status=-19", REJECT(8), NULL},
         SLUICE_REASON_NO_LISTENER,
         8,
         RDMA_CM_EVENT_REJECTED},
        {{REJECT(8), "id=* resolve_route=1 event=ROUTE_ERROR status=-113", NULL},
         SLUICE_REASON_UNREACHABLE,
         EHOSTUNREACH,
         RDMA_CM_EVENT_ROUTE_ERROR},
        {{REJECT(8), "id=* connect=1 event=CONNECT_ERROR status=-5", NULL},
         SLUICE_REASON_DEVICE_ERROR,
         5,
         RDMA_CM_EVENT_CONNECT_ERROR},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pair p;
        dialer_open(&p, PAIR_NODE(), PAIR_LINK());
        dialer_script(rows[i].script);
        dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
        pair_dial_name(&p, "two.test", PAIR_LINK());
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED); /* the clock stands still */
        sluice_session_info info = pair_info(p.b.session);
        assert_int_equal(event.reason, rows[i].reason);
        assert_int_equal(event.vendor, rows[i].vendor);
        assert_int_equal(info.tries, 2);
        assert_int_equal(info.cm_event, rows[i].cm_event);
        pair_expect_nothing(&p, &p.a);
        pair_close(&p);
    }
}

TEST(a_final_answer_ends_the_dial_at_any_address) {
    struct pair p;
    dialer_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    pair_dial_name(&p, "two.test", PAIR_LINK());
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_int_equal(sluice_refuse(event.session, 7, "no"), 0);
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_REFUSED);
    assert_int_equal(event.vendor, 7);
    assert_int_equal(pair_info(p.b.session).tries, 1);
    assert_int_equal(pair_info(p.b.session).close_code, 7);
    pair_close(&p);
}

PAIR_WITH(dialer_opened, an_address_behind_another_port_is_skipped) {
    struct pair *p = *state;
    dialer_script((const char *[]){REJECT(8), NULL});
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", "127.0.0.1", NULL});
    dialer.other_port = 2; /* the second try */
    pair_dial_name(p, "three.test", PAIR_LINK());
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 3);
    assert_int_equal(dialer.connects, 2);
    pair_close(p);

    dialer_open(p, PAIR_NODE(), PAIR_LINK());
    dialer_script((const char *[]){REJECT(8), NULL});
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    dialer.other_port = 2;
    pair_dial_name(p, "two.test", PAIR_LINK());
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_WRONG_DEVICE);
}

/* ---- addresses of other hosts ---------------------------------------------------------------- */

static void says_that_it_is_elsewhere(struct pair *p, const char *host) {
    char text[160];
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    sluice_session_info info = pair_info(p->b.session);
    snprintf(
        text, sizeof text,
        "%s is another host, and SLUICE_SOFT_NET keeps the device in this one: docs/two-hosts.md",
        host);
    assert_int_equal(event.reason, SLUICE_REASON_ADDRESS);
    assert_int_equal(event.status, SLUICE_EADDRESS);
    assert_int_equal(event.vendor, EREMOTE);
    assert_int_equal(info.cm_event, RDMA_CM_EVENT_ADDR_ERROR);
    assert_int_equal(info.cm_status, -EREMOTE);
    assert_string_equal(info.close_text, text);
    assert_int_equal(dialer.connects, 0);
}

TEST(another_hosts_address_is_told_as_that_with_the_page_that_helps) {
    static const struct {
        const char *dialed, *host;
    } rows[] = {
        {"192.0.2.77", "192.0.2.77"},
        {"[2001:db8::77]", "2001:db8::77"},
        /* the longest there is: nothing of the text is cut off */
        {"[2001:db8:1111:2222:3333:4444:5555:6666]", "2001:db8:1111:2222:3333:4444:5555:6666"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pair p;
        dialer_open(&p, PAIR_NODE(), PAIR_LINK());
        pair_dial_name(&p, rows[i].dialed, PAIR_LINK());
        says_that_it_is_elsewhere(&p, rows[i].host); /* at once: the clock stands still */
        assert_int_equal(pair_info(p.b.session).tries, 1);
        pair_close(&p);
    }
}

PAIR_WITH(dialer_opened, a_name_of_another_host_is_told_as_its_address) {
    struct pair *p = *state;
    dialer_names((const char *[]){"192.0.2.77", "2001:db8::77", NULL});
    pair_dial_name(p, "far.test", PAIR_LINK());
    says_that_it_is_elsewhere(p, "192.0.2.77");
    assert_int_equal(pair_info(p->b.session).tries, 2);
}

/* The listener of this host that was not there is the news, wherever it stands among the others. */
TEST(what_an_address_of_this_host_says_is_told_before_that_others_are_not) {
    static const char *const orders[][4] = {
        {"192.0.2.77", "127.0.0.2", NULL},
        {"127.0.0.2", "192.0.2.77", NULL},
        {"2001:db8::77", "127.0.0.2", "192.0.2.77", NULL},
    };
    for (unsigned i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct pair p;
        dialer_open(&p, PAIR_NODE(), PAIR_LINK());
        dialer.always = REJECT(8);
        dialer_names(orders[i]);
        pair_dial_name(&p, "mixed.test", PAIR_LINK());
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_NO_LISTENER);
        assert_int_equal(dialer.connects, 1);
        pair_close(&p);
    }
}

/* No route of a network's: that keeps its own words, on a device that has one. */
PAIR_WITH(dialer_opened, a_host_that_cannot_be_reached_is_not_told_as_elsewhere) {
    struct pair *p = *state;
    dialer_script((const char *[]){"id=* resolve_addr=1 event=ADDR_ERROR status=-113", NULL});
    pair_dial_name(p, "127.0.0.1", PAIR_LINK());
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_UNREACHABLE);
    assert_int_equal(event.vendor, EHOSTUNREACH);
    assert_null(strstr(pair_info(p->b.session).close_text, "two-hosts"));
    pair_close(p);

    dialer_open(p, PAIR_NODE(), PAIR_LINK());
    p->b.node->traits.keeps_to_host = false; /* whatever such a device may mean by it */
    pair_dial_name(p, "192.0.2.77", PAIR_LINK());
    event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.vendor, EREMOTE);
    assert_null(strstr(pair_info(p->b.session).close_text, "two-hosts"));
}

PAIR_WITH(dialer_opened, localhost_is_both_of_its_addresses) {
    struct pair *p = *state;
    sluice_listener listener;
    sluice_error e;
    char host[] = "LocalHost";
    if (sluice_listen(p->a.node, "[::1]:0", SLUICE_LINK(.loop = p->a.loop), &listener, &e) != 0) {
        skip(); /* a host without IPv6 */
    }
    sluice_unlisten(p->listener);
    snprintf(p->address, sizeof p->address, "[::1]:%d", sluice_listener_port(listener));
    pair_dial_name(p, host, PAIR_LINK());
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_string_equal(pair_info(p->b.session).peer, p->address);
    assert_int_equal(dialer.lookups, 0);
    assert_null(p->b.node->cm->resolver);
}

PAIR_WITH(dialer_opened, a_name_has_eight_addresses_at_most_and_none_twice) {
    struct pair *p = *state;
    dialer_script((const char *[]){HANG, NULL});
    dialer_names((const char *[]){"127.0.0.9", "127.0.0.9", "::1", "127.0.0.2", "::1", "127.0.0.3",
                                  "127.0.0.9", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7",
                                  "127.0.0.8", NULL});
    pair_dial_name(p, "many.test", PAIR_LINK());
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    pair_await(p, conn->owner.state == CM_CONNECTING);
    const char *const expected[] = {"127.0.0.9", "[::1]",     "127.0.0.2", "127.0.0.3",
                                    "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7"};
    assert_int_equal(conn->candidate_count, 8);
    for (unsigned i = 0; i < 8; i++) {
        char text[64];
        address_format(&conn->candidates[i].any, text);
        assert_true(strncmp(text, expected[i], strlen(expected[i])) == 0);
        assert_string_equal(strrchr(text, ':'), strrchr(p->address, ':'));
    }
}

/* RFC 8305: the first address says which family is first; then they alternate, as long as there are both. */
PAIR_WITH(dialer_opened, families_of_addresses_take_turns) {
    struct pair *p = *state;
    dialer_script((const char *[]){HANG, NULL});
    dialer_names((const char *[]){"::1", "::2", "::3", "::4", "::5", "::6", "::7", "::8", "::9",
                                  "127.0.0.1", "127.0.0.1", "127.0.0.2", NULL});
    pair_dial_name(p, "six.test", PAIR_LINK());
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    pair_await(p, conn->candidate_count == 8 && conn->owner.state == CM_CONNECTING);
    const char *const expected[] = {
        "[::1]:", "127.0.0.1:", "[::2]:", "127.0.0.2:", "[::3]:", "[::4]:", "[::5]:", "[::6]:"};
    for (unsigned i = 0; i < 8; i++) {
        char text[64];
        address_format(&conn->candidates[i].any, text);
        assert_true(strncmp(text, expected[i], strlen(expected[i])) == 0);
    }
}

PAIR_WITH(dialer_opened, a_name_nobody_knows_is_told_at_once) {
    struct pair *p = *state;
    dialer_names((const char *[]){NULL});
    pair_dial_name(p, "nobody.test", PAIR_LINK());
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_ADDRESS);
    assert_int_equal(pair_info(p->b.session).tries, 0);
    assert_non_null(strstr(pair_info(p->b.session).close_text, "nobody.test"));
}

/* ---- in time --------------------------------------------------------------------------------- */

TEST(the_deadline_bounds_all_tries_and_carries_the_last_reason) {
    struct pair p;
    const uint64_t second = 1000000000;
    for (unsigned trying = 0; trying < 2; trying++) { /* it passes in a pause, and in a try */
        dialer_open(&p, PAIR_NODE(), PAIR_LINK());
        dialer_script((const char *[]){REJECT(4), REJECT(10), trying ? HANG : REJECT(10), NULL});
        uint64_t start = dialer.now_ns;
        pair_dial(&p, PAIR_LINK(.timeout_ns = second));
        struct cm_conn *conn = &pair_session(&p.b)->connection->cm;
        for (unsigned i = 1; i <= 2 + !trying; i++) {
            pair_await(&p, dialer.tries == i && conn->owner.state == CM_BACKOFF);
            if (i < 3)
                dialer.now_ns = conn->step_ns;
        }
        if (trying)
            pair_await(&p, dialer.tries == 3 && conn->owner.state == CM_CONNECTING);
        else
            conn->step_ns = start + 2 * second; /* a pause that would last beyond */
        dialer.now_ns = start + second - 1;
        pair_expect_nothing(&p, &p.b);
        dialer.now_ns++;
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
        assert_int_equal(event.vendor, 10);
        assert_int_equal(pair_info(p.b.session).tries, 3);
        assert_non_null(strstr(pair_info(p.b.session).close_text, "time ran out"));
        assert_int_equal(pair_info(p.b.session).cm_status, 10);
        pair_close(&p);
    }
}

PAIR_WITH(dialer_opened, a_first_try_without_an_answer_is_a_timeout) {
    struct pair *p = *state;
    dialer_script((const char *[]){HANG, NULL});
    pair_dial(p, PAIR_LINK(.timeout_ns = 1000000000));
    pair_await(p, pair_session(&p->b)->connection->cm.owner.state == CM_CONNECTING);
    assert_int_equal(pair_session(&p->b)->connection->cm.step_ns,
                     0); /* the only address: all the time */
    dialer.now_ns += 1000000000;
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_TIMEOUT);
}

PAIR_WITH(dialer_opened, an_address_that_does_not_answer_has_its_share_of_the_time) {
    struct pair *p = *state;
    const uint64_t second = 1000000000;
    dialer_script((const char *[]){HANG, HANG, NULL});
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", "127.0.0.1", NULL});
    uint64_t start = dialer.now_ns;
    pair_dial_name(p, "three.test", PAIR_LINK(.timeout_ns = 9 * second));
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    for (unsigned i = 1; i <= 2; i++) {
        pair_await(p, dialer.tries == i && conn->owner.state == CM_CONNECTING);
        /* the listener may have the request */
        assert_int_equal(conn->step_ns, start + 3 * second * i);
        dialer.now_ns = start + 3 * second * i - 1;
        pair_expect_nothing(p, &p->b);
        assert_int_equal(dialer.tries, i);
        dialer.now_ns++;
    }
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 3);
    assert_int_equal(conn->step_ns, 0);
}

#define NOBODY_ANSWERS "id=* resolve_addr=* event=ADDR_ERROR status=-110"

/* A kernel that sees a neighbour's answer when the time it was given is over, and not before. */
PAIR_WITH(dialer_opened, an_address_is_asked_for_in_short_slices) {
    struct pair *p = *state;
    dialer.slow = true;
    dialer_script((const char *[]){NOBODY_ANSWERS, NOBODY_ANSWERS, NULL});
    uint64_t start = dialer.now_ns;
    pair_dial(p, PAIR_LINK(.timeout_ns = 10000000000));
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(dialer.tries, 3); /* of the kernel; the dialer's own is the first */
    assert_int_equal(pair_info(p->b.session).tries, 1);
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(dialer.times[i], 2 * dialer.times[i - 1]);
    assert_uint_in_range(dialer.now_ns - start, 1, 1000000000);
}

static void looked_for_as_long_as_there_is_time(int early_ms) {
    struct pair p;
    dialer_open(&p, PAIR_NODE(), PAIR_LINK());
    dialer.slow = true;
    dialer.early_ms = early_ms;
    dialer.always = NOBODY_ANSWERS;
    uint64_t start = dialer.now_ns;
    pair_dial(&p, PAIR_LINK(.timeout_ns = 4000000000, .flags = SLUICE_ONCE));
    sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_UNREACHABLE);
    assert_int_equal(event.vendor, ETIMEDOUT);
    assert_int_equal(pair_info(p.b.session).tries, 1);
    assert_uint_in_range(dialer.now_ns - start, 3000000000, 4000000000);
    assert_uint_in_range(dialer.tries, 5, DIALER_TRIES);
    for (unsigned i = 0; i < dialer.tries; i++)
        assert_uint_in_range(dialer.times[i], 1, 1000);
    pair_close(&p);
}

/* The clock of a kernel may tick up to a hundredth of a second early. */
TEST(an_address_nobody_has_is_looked_for_as_long_as_there_is_time) {
    static const int early_ms[] = {0, 1, 4, 10};
    for (unsigned i = 0; i < sizeof early_ms / sizeof *early_ms; i++)
        looked_for_as_long_as_there_is_time(early_ms[i]);
}

PAIR_WITH(dialer_opened, without_a_deadline_a_dial_goes_on) {
    struct pair *p = *state;
    dialer.always = REJECT(4);
    pair_dial(p, PAIR_LINK(.timeout_ns = SLUICE_OFF));
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    for (unsigned i = 1; i <= 30; i++) {
        pair_await(p, dialer.tries == i && conn->owner.state == CM_BACKOFF);
        assert_int_equal(conn->deadline_ns, 0);
        dialer.now_ns += 3600 * 1000000000ull;
    }
    dialer.always = NULL;
    pair_expect(p, &p->b, SLUICE_UP);
}

/* ---- ended from here ------------------------------------------------------------------------- */

TEST(hanging_up_while_pausing_or_trying_ends_at_once) {
    for (unsigned trying = 0; trying < 2; trying++) {
        struct pair p;
        dialer_open(&p, PAIR_NODE(), PAIR_LINK());
        dialer_script((const char *[]){REJECT(4), HANG, NULL});
        pair_dial(&p, PAIR_LINK());
        struct cm_conn *conn = &pair_session(&p.b)->connection->cm;
        pair_await(&p, conn->owner.state == CM_BACKOFF);
        if (trying) {
            dialer.now_ns = conn->step_ns;
            pair_await(&p, conn->owner.state == CM_CONNECTING);
        }
        sluice_hangup(p.b.session, 0);
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED); /* the clock stands still */
        assert_int_equal(event.reason, SLUICE_REASON_LOCAL_CLOSE);
        dialer.now_ns += 60 * 1000000000ull;
        pair_expect_nothing(&p, &p.b);
        assert_int_equal(dialer.tries, 1 + trying);
        pair_close(&p);
    }
}

TEST(closing_the_node_ends_a_pause) {
    struct pair p;
    dialer_open(&p, PAIR_NODE(), PAIR_LINK());
    dialer.always = REJECT(4);
    pair_dial(&p, PAIR_LINK(.timeout_ns = SLUICE_OFF));
    struct session *s = pair_session(&p.b);
    pair_await(&p, s->connection->cm.owner.state == CM_BACKOFF);
    uint64_t start = env_now(&env_default);
    pair_close(&p);
    assert_true(env_now(&env_default) - start < 4 * 1000000000ull); /* not given up: ended */
    assert_int_equal(s->state, SESSION_FREE);
    assert_int_equal(dialer.tries, 1);
}

PAIR_WITH(dialer_opened, a_device_that_goes_ends_a_pause) {
    struct pair *p = *state;
    dialer.always = REJECT(4);
    pair_dial(p, PAIR_LINK(.timeout_ns = SLUICE_OFF));
    pair_await(p, pair_session(&p->b)->connection->cm.owner.state == CM_BACKOFF);
    assert_int_equal(fault_device(DEVICE_REMOVE, 0), 0);
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_DEVICE_REMOVED);
    assert_int_equal(dialer.tries, 1);
}

/* ---- events of yesterday --------------------------------------------------------------------- */

PAIR_WITH(dialer_opened, events_of_an_earlier_try_are_ignored) {
    struct pair *p = *state;
    /* behind the refusal that ends the try there is another end of it, and of the device */
    dialer_script((const char *[]){REJECT(8) "; id=* after=REJECTED event=DISCONNECTED",
                                   REJECT(8) "; id=* after=REJECTED event=DEVICE_REMOVAL", NULL});
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", "127.0.0.1", NULL});
    pair_dial_name(p, "three.test", PAIR_LINK());
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 3);
    pair_expect_nothing(p, &p->b);
}

PAIR_WITH(dialer_opened, an_id_that_is_not_the_connections_cannot_speak_for_it) {
    struct pair *p = *state;
    struct rdma_cm_id *stranger;
    dialer_script((const char *[]){HANG, NULL});
    pair_dial(p, PAIR_LINK());
    struct cm *cm = p->b.node->cm;
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    pair_await(p, conn->owner.state == CM_CONNECTING);
    assert_int_equal(soft_create_id(cm->channel, &stranger, &conn->owner, RDMA_PS_TCP), 0);
    dialer_plan("id=* resolve_addr=1 event=ADDR_ERROR status=-110;"
                "id=* after=ADDR_ERROR event=DISCONNECTED; cm=REQ loss");
    _Atomic uint64_t *seen = &cm->stats->events[RDMA_CM_EVENT_DISCONNECTED];
    uint64_t before = atomic_load(seen);
    union address to = conn->candidates[0];
    assert_int_equal(soft_resolve_addr(stranger, NULL, &to.any, 1000), 0);
    pair_await(p, atomic_load(seen) == before + 1);
    assert_int_equal(conn->owner.state, CM_CONNECTING);
    pair_expect_nothing(p, &p->b);
    soft_destroy_id(stranger);
}

int main(void) {
    setenv("SLUICE_SOFT_NET", "off", 1); /* what is beyond this host is no part of it */
    return tests_run(NULL, NULL);
}
