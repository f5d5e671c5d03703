/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Dials to several addresses, "10.0.0.1:7471,nas:7471": read, put in order, and tried one after the other until one answers;
 * a name that takes long keeps none of the others. The dialer's clock and name server are the test's.
 */
#include "support/dial.h"
#include "support/name_server.h"
#include "support/rows.h"

#include "cm/dial_places.h"

#define HOURS 3600000000000ull

/* ---- as text ------------------------------------------------------------------------------------- */

struct text {
    const char *text, *wrong; /* wrong: a part of the error, or NULL */
    const char *candidates;   /* with commas; of names, which stand for nothing yet, none */
};

static void is_read(void **state) {
    const struct text *row = *state;
    struct cm_places places;
    sluice_error e = {0};
    int status = dial_places_read(&places, row->text, &e);
    assert_int_equal(status, row->wrong ? SLUICE_EADDRESS : 0);
    if (row->wrong) {
        assert_int_equal(e.reason, SLUICE_REASON_ADDRESS);
        if (!strstr(e.text, row->wrong))
            fail_msg("\"%s\" does not say \"%s\"", e.text, row->wrong);
        return;
    }
    union address found[CM_CANDIDATES];
    unsigned count = dial_places_candidates(&places, found);
    char shown[CM_CANDIDATES * 65] = "";
    for (unsigned i = 0; i < count; i++) {
        char one[64];
        address_format(&found[i].any, one);
        strcat(strcat(shown, i ? "," : ""), one);
    }
    assert_string_equal(shown, row->candidates);
}

/* However many the first has, the second has one; no one is tried twice. */
TEST(each_place_has_its_share_of_the_candidates) {
    struct cm_places places = {.count = 3};
    union address found[CM_CANDIDATES];
    for (unsigned p = 0; p < 3; p++)
        for (unsigned i = 0; i < (p == 1 ? 2u : CM_CANDIDATES); i++) {
            union address *at = &places.at[p].addresses[places.at[p].count++];
            at->v4.sin_family = AF_INET;
            at->v4.sin_addr.s_addr = htonl(p << 8 | i);
        }
    assert_int_equal(dial_places_candidates(&places, found), CM_CANDIDATES);
    static const uint32_t order[CM_CANDIDATES] = {0, 1, 2, 0x100, 0x101, 0x200, 0x201, 0x202};
    for (unsigned i = 0; i < CM_CANDIDATES; i++)
        assert_int_equal(ntohl(found[i].v4.sin_addr.s_addr), order[i]);
    places.at[2] = places.at[0];
    assert_int_equal(dial_places_candidates(&places, found), 5);
}

/* ---- as a dial ------------------------------------------------------------------------------------ */

static struct cm_conn *dialing(struct pair *p) {
    return &pair_session(&p->b)->connection->cm;
}

static const char *port_of(const struct pair *p) {
    return strrchr(p->address, ':') + 1;
}

/* The places, each at the listener's port. */
static void dial_all(struct pair *p, const char *const *hosts, const sluice_link_options *o) {
    char text[400] = "";
    sluice_error e;
    sluice_link_options link = *o;
    for (unsigned i = 0; hosts[i]; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:%s", i ? "," : "", hosts[i],
                 port_of(p));
    link.size = sizeof link;
    link.loop = p->b.loop;
    if (sluice_dial(p->b.node, text, &link, &p->b.session, &e) != 0)
        fail_msg("%s", e.text);
}

static void carries_a_message(struct pair *p) {
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_string_equal(pair_info(p->b.session).peer, p->address);
    assert_int_equal(pair_send(&p->b, 10, 1, NULL), 0);
    pair_expect(p, &p->a, SLUICE_MESSAGE);
}

struct order {
    const char *hosts[4];
    unsigned tries;
};

static void the_one_that_answers_is_found(void **state) {
    const struct order *row = *state;
    struct pair p;
    dialer_open(&p, PAIR_NODE(), PAIR_LINK());
    dialer_script((const char *[]){REJECT(8), REJECT(4), NULL});
    if (row->tries == 2)
        dialer_script((const char *[]){REJECT(8), NULL});
    if (row->tries == 1)
        dialer_script((const char *[]){NULL});
    dialer_names((const char *[]){"127.0.0.4", NULL});
    dial_all(&p, row->hosts, PAIR_LINK());
    carries_a_message(&p);
    assert_int_equal(dialer.tries, row->tries);
    for (unsigned i = 0; i < row->tries; i++) {
        const char *host = strcmp(row->hosts[i], "nas.test") == 0 ? "127.0.0.4" : row->hosts[i];
        assert_int_equal(strncmp(dialer.tried[i], host, strlen(host)), 0);
    }
    pair_close(&p);
}

PAIR_WITH(dialer_opened, before_it_has_one_the_session_shows_all_of_them) {
    struct pair *p = *state;
    dialer.names_hang = true;
    name_server_go(false);
    dial_all(p, (const char *[]){"one.test", "two.test", NULL}, PAIR_LINK());
    assert_int_equal(strncmp(pair_info(p->b.session).peer, "one.test:", 9), 0);
    assert_non_null(strstr(pair_info(p->b.session).peer, ",two.test:"));
    name_server_go(true);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, SLUICE_REASON_ADDRESS);
}

/* A listener that said no is an answer, wherever it is. */
PAIR_WITH(dialer_opened, a_refusal_ends_the_dial_at_whichever_address) {
    struct pair *p = *state;
    sluice_error e;
    sluice_listener asking;
    sluice_link_options link = {.size = sizeof link, .loop = p->a.loop, .flags = SLUICE_ASK};
    char at[64];
    snprintf(at, sizeof at, "127.0.0.2:%s", port_of(p));
    assert_int_equal(sluice_listen(p->a.node, at, &link, &asking, &e), 0);
    dial_all(p, (const char *[]){"127.0.0.2", "127.0.0.1", NULL}, PAIR_LINK());
    sluice_event event = pair_expect(p, &p->a, SLUICE_CONNECT);
    sluice_refuse(event.session, 7, "not today");
    event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_REFUSED);
    assert_int_equal(event.vendor, 7);
    assert_int_equal(dialer.tries, 1);
}

PAIR_WITH(dialer_opened, one_try_is_at_the_first) {
    struct pair *p = *state;
    dialer_script((const char *[]){REJECT(8), NULL});
    dial_all(p, (const char *[]){"127.0.0.2", "127.0.0.1", NULL}, PAIR_LINK(.flags = SLUICE_ONCE));
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, SLUICE_REASON_NO_LISTENER);
    assert_int_equal(dialer.tries, 1);
}

/* ---- names that take long, or fail ---------------------------------------------------------------- */

PAIR_WITH(dialer_opened, a_name_that_takes_long_delays_a_number_by_a_moment) {
    struct pair *p = *state;
    dialer.names_hang = true;
    name_server_go(false);
    dial_all(p, (const char *[]){"slow.test", "127.0.0.1", NULL}, PAIR_LINK());
    pair_await(p, name_server_inside() == 1);
    assert_int_equal(dialer.tries, 0);
    assert_uint_in_range(dialing(p)->step_ns - dialer.now_ns, 1, 50000000);
    dialer.now_ns = dialing(p)->step_ns;
    carries_a_message(p);
    name_server_go(true);
    pair_expect_nothing(p, &p->b);
}

/* Its answer is not lost: the next round has it. */
PAIR_WITH(dialer_opened, and_is_tried_in_the_next_round) {
    struct pair *p = *state;
    dialer_script((const char *[]){REJECT(8), REJECT(8), NULL});
    dialer_names((const char *[]){"127.0.0.1", NULL});
    dialer.names_hang = true;
    name_server_go(false);
    dial_all(p, (const char *[]){"slow.test", "127.0.0.2", NULL}, PAIR_LINK(.timeout_ns = HOURS));
    struct cm_conn *conn = dialing(p);
    pair_await(p, name_server_inside() == 1 && conn->owner.state == CM_RESOLVING_NAME);
    dialer.now_ns = conn->step_ns;
    pair_await(p, dialer.tries == 1 && conn->owner.state == CM_BACKOFF);
    dialer.now_ns = conn->step_ns;
    pair_await(p, conn->owner.state == CM_RESOLVING_NAME);
    pair_turns(p, 20);
    assert_int_equal(dialer.tries, 1);
    name_server_go(true);
    dialer.script[1] = NULL;
    carries_a_message(p);
    assert_int_equal(dialer.tries, 2);
    assert_int_equal(dialer.lookups, 1); /* it was the same one */
}

struct failing {
    const char *hosts[4];
    uint32_t flags;
    unsigned tries;
    sluice_reason reason; /* of the end; NONE: it waits */
};

static void a_name_fails(void **state) {
    const struct failing *row = *state;
    struct pair p;
    dialer_open(&p, PAIR_NODE(), PAIR_LINK());
    dialer_names((const char *[]){NULL});
    if (row->tries > 0)
        dialer.always = REJECT(8);
    dial_all(&p, row->hosts, PAIR_LINK(.flags = row->flags, .timeout_ns = HOURS));
    struct cm_conn *conn = dialing(&p);
    if (row->reason != SLUICE_REASON_NONE) {
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, row->reason);
        assert_int_equal(dialer.tries, row->tries);
    } else {
        pair_await(&p, dialer.tries == row->tries && conn->owner.state == CM_BACKOFF);
        dialer.always = NULL;
        dialer_names((const char *[]){"127.0.0.1", NULL});
        dialer.now_ns = conn->step_ns;
        carries_a_message(&p);
    }
    pair_close(&p);
}

/* One lookup, with another port for each: nothing of the first is forgotten. */
PAIR_WITH(dialer_opened, a_name_may_come_twice) {
    struct pair *p = *state;
    char text[128];
    sluice_error e;
    dialer_names((const char *[]){"127.0.0.1", NULL});
    dialer_script((const char *[]){REJECT(8), NULL});
    snprintf(text, sizeof text, "nas.test:1,nas.test:%s", port_of(p));
    assert_int_equal(
        sluice_dial(p->b.node, text, SLUICE_LINK(.loop = p->b.loop), &p->b.session, &e), 0);
    carries_a_message(p);
    assert_string_equal(dialer.tried[0], "127.0.0.1:1");
    assert_string_equal(dialer.tried[1], p->address);
    assert_int_equal(dialer.lookups, 1);
}

PAIR_WITH(dialer_opened, it_is_hung_up_while_some_names_are_known) {
    struct pair *p = *state;
    dialer.names_hang = true;
    name_server_go(false);
    dial_all(p, (const char *[]){"a.test", "127.0.0.1", "b.test", NULL}, PAIR_LINK());
    pair_await(p, name_server_inside() == 2);
    sluice_hangup(p->b.session, 0);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    name_server_go(true);
    pair_expect_nothing(p, &p->b);
}

#define TEN "aaaaaaaaaa"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define LONG HUNDRED HUNDRED HUNDRED
#define EIGHT "1.1.1.1:1,1.1.1.1:2,1.1.1.1:3,1.1.1.1:4,1.1.1.1:5,1.1.1.1:6,1.1.1.1:7,1.1.1.1:8"

TEST_CASES(
    ROW(one_number, is_read, text, .text = "10.0.0.1:7471", .candidates = "10.0.0.1:7471"),
    ROW(two_numbers_in_their_order, is_read, text, .text = "10.0.1.1:7471,sluice://10.0.0.1:7472",
        .candidates = "10.0.1.1:7471,10.0.0.1:7472"),
    ROW(numbers_of_both_families, is_read, text, .text = "[2001:db8::1]:1,10.0.0.1:2",
        .candidates = "[2001:db8::1]:1,10.0.0.1:2"),
    ROW(this_host_has_two, is_read, text, .text = "localhost:5,10.0.0.1:2",
        .candidates = "127.0.0.1:5,[::1]:5,10.0.0.1:2"),
    ROW(a_name_has_none_yet, is_read, text, .text = "nas:1,10.0.0.1:2", .candidates = "10.0.0.1:2"),
    ROW(one_that_comes_twice_is_one, is_read, text, .text = "10.0.0.1:2,10.0.0.1:2",
        .candidates = "10.0.0.1:2"),
    ROW(eight_are_read, is_read, text, .text = EIGHT, .candidates = EIGHT),
    ROW(nine_are_not, is_read, text, .text = EIGHT ",1.1.1.1:9", .wrong = "more than 8 addresses"),
    ROW(none_is_none, is_read, text, .text = "", .wrong = "not host:port"),
    ROW(nothing_behind_the_comma, is_read, text, .text = "1.1.1.1:1,", .wrong = "comma"),
    ROW(nothing_before_it, is_read, text, .text = ",1.1.1.1:1", .wrong = "comma"),
    ROW(nothing_between_two, is_read, text, .text = "1.1.1.1:1,,1.1.1.1:2", .wrong = "comma"),
    ROW(one_that_is_too_long, is_read, text, .text = LONG ":1,1.1.1.1:1",
        .wrong = "characters, above"),
    ROW(the_last_one_is_too_long, is_read, text, .text = "1.1.1.1:1," LONG ":1",
        .wrong = "has a host of 300 characters, above 255"),
    ROW(the_wrong_one_is_named, is_read, text, .text = "1.1.1.1:1,nas,1.1.1.1:2",
        .wrong = "\"nas\" is not host:port"),
    ROW(all_addresses_are_none_to_dial, is_read, text, .text = "1.1.1.1:1,*:2",
        .wrong = "can be listened at, not dialed"),
    ROW(the_first_one, the_one_that_answers_is_found, order, .tries = 1,
        .hosts = {"127.0.0.1", "127.0.0.2"}),
    ROW(the_second_one, the_one_that_answers_is_found, order, .tries = 2,
        .hosts = {"127.0.0.2", "127.0.0.1"}),
    ROW(the_one_behind_a_name, the_one_that_answers_is_found, order, .tries = 3,
        .hosts = {"127.0.0.2", "nas.test", "127.0.0.1"}),
    ROW(names_without_addresses_end_it, a_name_fails, failing, .hosts = {"a.test", "b.test"},
        .reason = SLUICE_REASON_ADDRESS),
    ROW(and_where_there_is_one_try, a_name_fails, failing, .hosts = {"a.test"},
        .flags = SLUICE_ONCE, .reason = SLUICE_REASON_ADDRESS),
    ROW(but_not_where_another_address_may_do, a_name_fails, failing,
        .hosts = {"a.test", "127.0.0.2"}, .tries = 1, .reason = SLUICE_REASON_NO_LISTENER),
    ROW(with_wait_they_may_come, a_name_fails, failing, .hosts = {"a.test", "b.test"},
        .flags = SLUICE_WAIT),
    ROW(with_wait_they_may_come_beside_others, a_name_fails, failing,
        .hosts = {"a.test", "127.0.0.2"}, .flags = SLUICE_WAIT, .tries = 1));
