/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SLUICE_WAIT: a dial waits for a listener that is not there, until its time is over, and finds it where its name says it is by
 * then. The dialer's clock and name server are the test's; what a try ends with is scripted as faults of the software device.
 */
#include "support/race.h"
#include "support/name_server.h"
#include "support/rows.h"

#include "cm/internal.h"

#define WAIT(...) PAIR_LINK(.flags = SLUICE_WAIT, __VA_ARGS__)
#define HOURS 3600000000000ull

static struct cm_conn *dialing(struct pair *p) {
    return &pair_session(&p->b)->connection->cm;
}

/* The pause after so many tries comes, and is over. */
static void pause_after(struct pair *p, unsigned tries) {
    struct cm_conn *conn = dialing(p);
    pair_await(p, dialer.tries == tries && conn->owner.state == CM_BACKOFF);
    dialer.now_ns = conn->step_ns;
}

static void carries_a_message(struct pair *p) {
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(pair_send(&p->b, 10, 1, NULL), 0);
    pair_expect(p, &p->a, SLUICE_MESSAGE);
}

static void assert_begins(const char *text, const char *with) {
    if (strncmp(text, with, strlen(with)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", text, with);
}

/* ---- what is waited for ------------------------------------------------------------------------ */

struct failure {
    const char *fault; /* of every try */
    const char *met;   /* what close_text says of it, the beginning */
    sluice_reason reason;
    bool waits; /* with SLUICE_WAIT */
};

/* Without the flag the dial ends, as it did; with it only what may come is waited for. */
static void ends_or_waits(void **state) {
    const struct failure *row = *state;
    for (int with = 0; with < 2; with++) {
        struct pair p;
        dialer_open(&p, PAIR_NODE(), PAIR_LINK());
        dialer.always = row->fault;
        pair_dial(&p, with ? WAIT(.timeout_ns = HOURS) : PAIR_LINK(.timeout_ns = HOURS));
        if (with && row->waits) {
            for (unsigned tries = 1; tries <= 8; tries++)
                pause_after(&p, tries);
            assert_begins(pair_info(p.b.session).close_text, row->met);
            assert_int_equal(pair_info(p.b.session).tries, 8);
            dialer.always = NULL;
            carries_a_message(&p);
            assert_int_equal(pair_info(p.b.session).close_text[0], 0);
        } else {
            struct cm_conn *conn = dialing(&p);
            for (unsigned tries = 1; tries < 4 && row->waits; tries++) { /* without a word */
                pair_await(&p, conn->owner.state == CM_BACKOFF || conn->reported);
                if (conn->reported)
                    break;
                dialer.now_ns = conn->step_ns;
                pair_await(&p, dialer.tries > tries);
            }
            assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, row->reason);
        }
        pair_close(&p);
    }
}

/* It ends when its time is over, with the reason of the last try. */
PAIR_WITH(dialer_opened, a_wait_has_a_limit) {
    struct pair *p = *state;
    dialer.always = REJECT(8);
    pair_dial(p, WAIT(.timeout_ns = 1000000000));
    struct cm_conn *conn = dialing(p);
    for (unsigned tries = 1; !conn->reported; tries++) {
        pair_await(p, conn->reported || (dialer.tries == tries && conn->owner.state == CM_BACKOFF));
        dialer.now_ns = conn->step_ns != 0 ? conn->step_ns : dialer.now_ns;
        pair_await(p, conn->reported || dialer.tries > tries);
    }
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_NO_LISTENER);
    assert_non_null(strstr(pair_info(p->b.session).close_text, "and time ran out"));
    assert_uint_in_range(dialer.now_ns - 1000000000000ull, 1000000000, 3000000000ull);
}

PAIR_WITH(dialer_opened, without_a_limit_it_waits_until_it_is_hung_up) {
    struct pair *p = *state;
    dialer.always = REJECT(8);
    pair_dial(p, WAIT(.timeout_ns = SLUICE_OFF));
    for (unsigned tries = 1; tries <= 300; tries++)
        pause_after(p, tries);
    assert_uint_in_range(dialer.now_ns - 1000000000000ull, 200000000000ull, 900000000000ull);
    sluice_hangup(p->b.session, 0);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
}

/* ---- listeners that take it, and do not answer --------------------------------------------------- */

/* However long it waits in all: a process that was stopped, a request that was lost. Then it asks anew. */
static void is_asked_anew(uint64_t timeout_ns) {
    struct pair p;
    dialer_open(&p, PAIR_NODE(), PAIR_LINK());
    dialer_script((const char *[]){HANG, HANG, NULL});
    pair_dial(&p, WAIT(.timeout_ns = timeout_ns));
    struct cm_conn *conn = dialing(&p);
    for (unsigned tries = 1; tries <= 2; tries++) {
        pair_await(&p, dialer.tries == tries && conn->owner.state == CM_CONNECTING);
        assert_uint_in_range(conn->step_ns - dialer.now_ns, 1000000000, 30000000000ull);
        dialer.now_ns = conn->step_ns;
        pause_after(&p, tries);
    }
    carries_a_message(&p);
    pair_close(&p);
}

TEST(a_listener_that_does_not_answer_is_asked_anew) {
    is_asked_anew(HOURS);
    is_asked_anew(SLUICE_OFF);
}

/* Without SLUICE_WAIT, too, where nothing else limits it. */
PAIR_WITH(dialer_opened, an_address_that_keeps_a_request_does_not_keep_a_dial_without_a_deadline) {
    struct pair *p = *state;
    dialer_script((const char *[]){HANG, NULL});
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = SLUICE_OFF));
    struct cm_conn *conn = dialing(p);
    pair_await(p, dialer.tries == 1 && conn->owner.state == CM_CONNECTING);
    assert_uint_in_range(conn->step_ns - dialer.now_ns, 1000000000, 30000000000ull);
    dialer.now_ns = conn->step_ns;
    carries_a_message(p);
}

/* Else TCP asks it, at intervals that grow to 32 s. */
PAIR_WITH(race_opened, a_host_that_may_come_up_is_asked_before_its_listener_is) {
    struct pair *p = *state;
    race.held = 1;
    pair_dial(p, WAIT(.timeout_ns = HOURS));
    race_await(p, 1);
    assert_int_equal(dialer.connects, 0);
    race_let(0);
    carries_a_message(p);
}

/* Looking for an address has a bound of its own, after which the host may have come up. */
PAIR_WITH(dialer_opened, a_host_is_looked_for_in_steps) {
    struct pair *p = *state;
    dialer.always = "id=* resolve_addr=1 event=ADDR_ERROR status=-113";
    pair_dial(p, WAIT(.timeout_ns = HOURS));
    pause_after(p, 1);
    pause_after(p, 2);
    assert_int_equal(dialing(p)->last.reason, SLUICE_REASON_UNREACHABLE);
    uint64_t most = 0;
    for (unsigned i = 0; i < 2; i++)
        most = most > (uint64_t)dialer.times[i] ? most : (uint64_t)dialer.times[i];
    assert_uint_in_range(most, 1, 5000);
    assert_uint_in_range(dialing(p)->search.until_ns - dialer.now_ns, 0, 5000000000ull);
}

/* ---- names ---------------------------------------------------------------------------------------- */

PAIR_WITH(dialer_opened, a_name_without_an_address_is_waited_for) {
    struct pair *p = *state;
    dialer_names((const char *[]){NULL});
    pair_dial_name(p, "late.test", WAIT(.timeout_ns = HOURS));
    struct cm_conn *conn = dialing(p);
    for (unsigned lookups = 1; lookups <= 3; lookups++) {
        pair_await(p, dialer.lookups == lookups && conn->owner.state == CM_BACKOFF);
        assert_int_equal(conn->last.reason, SLUICE_REASON_ADDRESS);
        assert_begins(pair_info(p->b.session).close_text, "late.test: ");
        if (lookups == 3)
            dialer_names((const char *[]){"127.0.0.1", NULL});
        dialer.now_ns = conn->step_ns;
    }
    carries_a_message(p);
    assert_int_equal(dialer.lookups, 4);
    assert_int_equal(pair_info(p->b.session).tries, 1);
}

PAIR_WITH(dialer_opened, a_name_that_never_has_one_ends_with_its_failure) {
    struct pair *p = *state;
    dialer_names((const char *[]){NULL});
    pair_dial_name(p, "never.test", WAIT(.timeout_ns = 1));
    struct cm_conn *conn = dialing(p);
    pair_await(p, conn->owner.state == CM_BACKOFF);
    dialer.now_ns += 1;
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_ADDRESS);
    assert_non_null(strstr(pair_info(p->b.session).close_text, "(and time ran out)"));
}

/* Started anew elsewhere: a listener, a container. */
PAIR_WITH(dialer_opened, a_listener_that_moved_is_found_by_its_name) {
    struct pair *p = *state;
    dialer_script((const char *[]){REJECT(8), REJECT(8), NULL});
    dialer_names((const char *[]){"127.0.0.2", NULL});
    pair_dial_name(p, "nas.test", WAIT(.timeout_ns = HOURS));
    pause_after(p, 1);
    pause_after(p, 2);
    dialer_names((const char *[]){"127.0.0.3", "127.0.0.1", NULL});
    dialer.always = NULL;
    dialer.script[dialer.scripted++] = REJECT(8);
    carries_a_message(p);
    assert_int_equal(dialer.lookups, 3);
    assert_int_equal(dialer.tries, 4);
    assert_begins(dialer.tried[0], "127.0.0.2:");
    assert_begins(dialer.tried[1], "127.0.0.2:");
    assert_begins(dialer.tried[2], "127.0.0.3:");
    assert_begins(dialer.tried[3], "127.0.0.1:");
}

/* The addresses that it had are as good as any. */
PAIR_WITH(dialer_opened, a_name_that_is_gone_keeps_its_addresses) {
    struct pair *p = *state;
    dialer_script((const char *[]){REJECT(8), REJECT(8), NULL});
    dialer_names((const char *[]){"127.0.0.1", NULL});
    pair_dial_name(p, "nas.test", WAIT(.timeout_ns = HOURS));
    pause_after(p, 1);
    dialer_names((const char *[]){NULL});
    pause_after(p, 2);
    carries_a_message(p);
    assert_int_equal(dialer.lookups, 3);
    assert_int_equal(dialer.tries, 3);
}

/* Two rounds at an address that is known, and the second lookup hangs. */
static void second_lookup_hangs(struct pair *p) {
    dialer_script((const char *[]){REJECT(8), NULL});
    dialer_names((const char *[]){"127.0.0.1", NULL});
    pair_dial_name(p, "nas.test", WAIT(.timeout_ns = HOURS));
    pair_await(p, dialer.tries == 1 && dialing(p)->owner.state == CM_BACKOFF);
    name_server_go(false);
    dialer.names_hang = true;
    dialer.now_ns = dialing(p)->step_ns;
    pair_await(p, name_server_inside() == 1);
    assert_int_equal(dialing(p)->owner.state, CM_RESOLVING_NAME);
}

PAIR_WITH(dialer_opened, a_name_server_that_hangs_delays_a_round_and_no_more) {
    struct pair *p = *state;
    second_lookup_hangs(p);
    pair_turns(p, 20);
    assert_int_equal(dialer.tries, 1);
    assert_uint_in_range(dialing(p)->step_ns - dialer.now_ns, 1, 2000000000);
    dialer.now_ns = dialing(p)->step_ns;
    carries_a_message(p);
    name_server_go(true);
    assert_int_equal(dialer.tries, 2);
}

PAIR_WITH(dialer_opened, it_is_hung_up_while_its_name_is_looked_up_again) {
    struct pair *p = *state;
    second_lookup_hangs(p);
    sluice_hangup(p->b.session, 0);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    name_server_go(true);
    pair_expect_nothing(p, &p->b);
}

/* ---- names with several addresses ------------------------------------------------------------------ */

enum again { AS_BEFORE, TURNED_ROUND, ELSEWHERE, HANGING };

struct race_again {
    enum again again; /* what the second lookup finds */
    bool goes_on;     /* the try that was under way */
};

/* A try is under way when the round is over: it goes on while the name is looked up again, where that still stands for it. */
static void race_again(void **state) {
    const struct race_again *row = *state;
    void *opened;
    race_opened(&opened);
    struct pair *p = opened;
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    race.held = 3;
    pair_dial_name(p, "nas.test", WAIT(.timeout_ns = HOURS));
    race_await(p, 1);
    dialer.now_ns = race_conn(p)->step_ns;
    race_await(p, 2);
    race.held = UINT32_MAX;
    race_let(1); /* it refuses */
    pair_await(p, race_conn(p)->owner.state == CM_BACKOFF);
    if (row->again == TURNED_ROUND)
        dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    if (row->again == ELSEWHERE)
        dialer_names((const char *[]){"127.0.0.3", NULL});
    name_server_go(false);
    dialer.names_hang = row->again == HANGING;
    dialer.now_ns = race_conn(p)->step_ns;
    if (row->again == HANGING)
        pair_await(p, name_server_inside() == 1);
    else
        race_await(p, 3);
    assert_int_equal(race.ids[0] != NULL, row->goes_on);
    if (row->goes_on) {
        race_let(0);
        pair_expect(p, &p->b, SLUICE_UP); /* the clock stands still */
        pair_expect(p, &p->a, SLUICE_UP);
        race_expect_one_session(p);
    } else {
        assert_begins(pair_info(p->b.session).peer, "127.0.0.3:");
    }
    name_server_go(true);
    pair_close(p);
}

/* It failed while the names were looked up: what comes of that begins at once, and not a pause later. */
PAIR_WITH(race_opened, a_try_that_fails_meanwhile_ends_no_lookup) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", NULL});
    race.held = 3;
    pair_dial_name(p, "nas.test", WAIT(.timeout_ns = HOURS));
    race_await(p, 1);
    dialer.now_ns = race_conn(p)->step_ns;
    race_await(p, 2);
    race_let(1);
    pair_await(p, race_conn(p)->owner.state == CM_BACKOFF);
    dialer_names((const char *[]){"127.0.0.1", NULL});
    name_server_go(false);
    dialer.names_hang = true;
    dialer.now_ns = race_conn(p)->step_ns;
    pair_await(p, name_server_inside() == 1);
    race_let(0);
    pair_await(p, race.alive == (p->b.node->cm->watch.id != NULL));
    assert_int_equal(race_conn(p)->owner.state, CM_RESOLVING_NAME);
    name_server_go(true);
    pair_expect(p, &p->b, SLUICE_UP); /* the clock stands still */
    assert_int_equal(dialer.lookups, 2);
}

/* The pause is over with the step that would have ended it. */
PAIR_WITH(race_opened, a_try_that_has_its_route_in_a_pause_ends_the_pause) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.1", "127.0.0.2", NULL});
    race.held = 3;
    pair_dial_name(p, "nas.test", PAIR_LINK(.timeout_ns = SLUICE_OFF));
    struct cm_conn *conn = race_conn(p);
    race_await(p, 1);
    dialer.now_ns = conn->step_ns;
    race_await(p, 2);
    race_let(1);
    pair_await(p, conn->owner.state == CM_BACKOFF);
    conn->prepared = false; /* its queue pair is being renewed */
    race_let(0);
    pair_await(p, conn->owner.state == CM_CREATING_QP);
    assert_false(conn->pausing);
    cm_prepared(p->b.node->cm, conn);
    pair_expect(p, &p->b, SLUICE_UP);
}

/* A dial that stands in line asks nothing yet, and no address is to blame for it. */
PAIR_WITH(race_opened, a_turn_in_the_line_is_waited_for_without_a_limit) {
    struct pair *p = *state;
    p->b.node->cm->dials.most = 1;
    dialer.always = HANG;
    pair_dial(p, WAIT(.timeout_ns = HOURS));
    pair_await(p, dialing(p)->owner.state == CM_CONNECTING);
    assert_int_equal(race.asked, 1);
    sluice_session first = p->b.session;
    pair_dial(p, WAIT(.timeout_ns = HOURS));
    pair_await(p, dialing(p)->owner.state == CM_IN_LINE);
    assert_int_equal(race.asked, 1);
    assert_int_equal(dialing(p)->step_ns, 0);
    dialer.always = NULL;
    dialer_plan(NULL);
    sluice_hangup(first, 0);
    pair_expect(p, &p->b, SLUICE_CLOSED);
    carries_a_message(p);
}

TEST_CASES(ROW(no_listener_is_waited_for, ends_or_waits, failure, .fault = REJECT(8), .waits = true,
               .met = "no listener there", .reason = SLUICE_REASON_NO_LISTENER),
           ROW(a_refusal_without_a_word_is_waited_for, ends_or_waits, failure, .fault = REJECT(28),
               .waits = true, .met = "", .reason = SLUICE_REASON_NO_LISTENER),
           ROW(a_host_that_cannot_be_reached_is_waited_for, ends_or_waits, failure,
               .fault = "id=* resolve_addr=1 event=ADDR_ERROR status=-113", .waits = true,
               .met = "the address cannot be resolved", .reason = SLUICE_REASON_UNREACHABLE),
           ROW(a_route_that_is_not_there_is_waited_for, ends_or_waits, failure,
               .fault = "id=* resolve_route=1 event=ROUTE_ERROR status=-101", .waits = true,
               .met = "no route", .reason = SLUICE_REASON_UNREACHABLE),
           ROW(an_address_without_a_device_is_not, ends_or_waits, failure,
               .fault = "id=* resolve_addr=1 event=ADDR_ERROR status=-19",
               .reason = SLUICE_REASON_ADDRESS),
           ROW(nor_is_one_that_speaks_something_else, ends_or_waits, failure,
               .fault = "id=* connect=1 event=CONNECT_ERROR status=-71",
               .reason = SLUICE_REASON_NOT_SLUICE),
           ROW(a_try_goes_on_while_the_name_is_as_before, race_again, race_again,
               .again = AS_BEFORE, .goes_on = true),
           ROW(and_while_its_addresses_turn_round, race_again, race_again, .again = TURNED_ROUND,
               .goes_on = true),
           ROW(and_while_the_name_server_hangs, race_again, race_again, .again = HANGING,
               .goes_on = true),
           ROW(but_not_where_the_name_is_elsewhere, race_again, race_again, .again = ELSEWHERE));
