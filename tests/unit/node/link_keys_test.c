/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * link_keys_test.c - the keys of a link from sluice_listen() and sluice_dial() on: what the link
 * proposes to its peer, and that the keys are wiped when the last that needs them is gone, on
 * every way out. The sanitizers' builds find what was not given back besides.
 */
#include "support/pair.h"

#include "core/auth/keyring.h"
#include "support/wipes.h"
#include "cm/internal.h"

static const sluice_key key = {7, WIPES_MARK_BYTES, WIPES_MARK};
static const sluice_key other_id = {8, WIPES_MARK_BYTES, WIPES_MARK};
#define WITH_KEY .keys = &key, .key_count = 1

static unsigned wiped(void) {
    return atomic_exchange(&wipes, 0);
}

/* Turns until so many rings were wiped since the last look. */
static void expect_wiped(struct pair *p, unsigned count) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (atomic_load(&wipes) < count && env_now(&env_default) < limit)
        pair_turn(p);
    assert_int_equal(wiped(), count);
}

/* The whole options, as the public calls take them. */
static sluice_link_options link_of(const sluice_link_options *given, sluice_loop *loop) {
    sluice_link_options o = *given;
    o.size = sizeof o;
    o.loop = loop;
    return o;
}

/* ---- what is proposed ------------------------------------------------------------------------ */

static struct private_data_req proposal(struct side *side, const sluice_link_options *given,
                                        bool dialing) {
    sluice_link_options o = link_of(given, side->loop);
    struct link_config link;
    struct private_data_req req;
    sluice_error e = {0};
    if (options_link(&link, side->node, &o, dialing, &e) != 0)
        fail_msg("%s", e.text);
    cm_proposal(side->node->cm, &link, &req);
    keyring_drop(link.keys);
    return req;
}

TEST(a_link_proposes_what_its_options_need) {
    const uint32_t each = PRIVATE_DATA_FEATURE_ENDED | PRIVATE_DATA_FEATURE_NUMBERS |
                          PRIVATE_DATA_FEATURE_SHARED | PRIVATE_DATA_FEATURE_ANSWERS |
                          PRIVATE_DATA_FEATURE_PIECES,
                   greeting = each | PRIVATE_DATA_FEATURE_HANDSHAKE,
                   hmac = PRIVATE_DATA_FEATURE_HMAC;
    struct side side;
    pair_open_side(&side, PAIR_NODE());
    struct private_data_req req = proposal(&side, PAIR_LINK(), true);
    assert_int_equal(req.features, each);
    assert_int_equal(req.key_id, 0);
    req = proposal(&side, PAIR_LINK(.private_data = "x", .private_bytes = 1), true);
    assert_int_equal(req.features, greeting);
    assert_int_equal(req.key_id, 0);
    req = proposal(&side, PAIR_LINK(WITH_KEY), true);
    assert_int_equal(req.features, greeting | hmac);
    assert_int_equal(req.key_id, 7);
    req = proposal(&side, PAIR_LINK(), false);
    assert_int_equal(req.features, greeting);
    assert_int_equal(req.key_id, 0);
    req = proposal(&side, PAIR_LINK(WITH_KEY), false);
    assert_int_equal(req.features, greeting | hmac);
    assert_int_equal(req.key_id, 0);
    sluice_close(side.node, 0);
}

TEST(only_one_side_with_a_key_is_refused) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    pair_dial(&p, PAIR_LINK());
    sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_AUTH_REQUIRED);
    sluice_unlisten(p.listener);
    pair_listen(&p, PAIR_LINK());
    pair_dial(&p, PAIR_LINK(WITH_KEY));
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_AUTH_KEY);
    pair_expect_nothing(&p, &p.a);
    pair_close(&p);
}

/* ---- how long keys live ---------------------------------------------------------------------- */

TEST(sessions_hold_the_keys_when_their_listener_is_gone) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    wiped();
    pair_connect(&p, PAIR_LINK(WITH_KEY));
    sluice_unlisten(p.listener);
    pair_expect_nothing(&p, &p.a);
    assert_int_equal(wiped(), 0); /* neither the listener's nor, in sluice_dial(), the dialer's */
    sluice_hangup(p.b.session, 0);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    expect_wiped(&p, 2);
    pair_close(&p);
    assert_int_equal(wiped(), 0);
}

TEST(a_listener_holds_its_keys_between_sessions) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    wiped();
    for (int i = 0; i < 5; i++) {
        pair_connect(&p, PAIR_LINK(WITH_KEY));
        sluice_hangup(p.a.session, 0);
        pair_expect(&p, &p.a, SLUICE_CLOSED);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
        expect_wiped(&p, 1); /* the dialer's */
    }
    sluice_unlisten(p.listener);
    expect_wiped(&p, 1);
    pair_close(&p);
    assert_int_equal(wiped(), 0);
}

TEST(closing_the_nodes_wipes_all_keys) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    wiped();
    pair_connect(&p, PAIR_LINK(WITH_KEY));
    pair_dial(&p, PAIR_LINK(WITH_KEY)); /* and one that is not up */
    pair_close(&p);
    assert_int_equal(wiped(), 3);
}

PAIR_WITH(pair_opened, a_dial_nobody_answers_leaves_no_keys) {
    struct pair *p = *state;
    sluice_unlisten(p->listener);
    pair_expect_nothing(p, &p->a);
    wiped();
    pair_dial(p, PAIR_LINK(WITH_KEY, .flags = SLUICE_ONCE));
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_NO_LISTENER);
    expect_wiped(p, 1);
}

/* ---- refused --------------------------------------------------------------------------------- */

static int try_dial(struct pair *p, const sluice_link_options *given, const char *address) {
    sluice_link_options o = link_of(given, p->b.loop);
    sluice_session session;
    return sluice_dial(p->b.node, address, &o, &session, NULL);
}

static int try_listen(struct pair *p, const sluice_link_options *given, const char *address) {
    sluice_link_options o = link_of(given, p->a.loop);
    sluice_listener listener;
    return sluice_listen(p->a.node, address, &o, &listener, NULL);
}

TEST(refused_links_leave_no_keys) {
    struct pair p;
    const sluice_key twice[] = {key, other_id, key};
    pair_open(&p, PAIR_NODE(.sessions_max = 1), PAIR_LINK(WITH_KEY));
    wiped();
    assert_int_equal(try_dial(&p, PAIR_LINK(WITH_KEY, .credits = 1), p.address), SLUICE_EINVAL);
    assert_int_equal(try_dial(&p, PAIR_LINK(WITH_KEY), "nowhere"), SLUICE_EADDRESS);
    assert_int_equal(try_listen(&p, PAIR_LINK(WITH_KEY, .tos = 256), "*:0"), SLUICE_EINVAL);
    assert_int_equal(try_listen(&p, PAIR_LINK(WITH_KEY), "*"), SLUICE_EADDRESS);
    assert_int_equal(wiped(), 0);
    assert_int_equal(try_listen(&p, PAIR_LINK(.keys = twice, .key_count = 3), "*:0"),
                     SLUICE_EINVAL);
    assert_int_equal(wiped(), 1);
    assert_int_equal(try_listen(&p, PAIR_LINK(WITH_KEY), p.address), SLUICE_EADDRESS); /* in use */
    assert_int_equal(wiped(), 1);
    pair_connect(&p, PAIR_LINK(WITH_KEY));
    assert_int_equal(wiped(), 0);
    assert_int_equal(try_dial(&p, PAIR_LINK(WITH_KEY), p.address), SLUICE_ELIMIT);
    assert_int_equal(wiped(), 1);
    pair_close(&p);
    assert_int_equal(wiped(), 2);
}

TEST(a_listener_too_many_leaves_no_keys) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    wiped();
    for (int i = 1; i < LISTENERS_MAX; i++)
        assert_int_equal(try_listen(&p, PAIR_LINK(WITH_KEY), "127.0.0.1:0"), SLUICE_OK);
    assert_int_equal(wiped(), 0);
    assert_int_equal(try_listen(&p, PAIR_LINK(WITH_KEY), "127.0.0.1:0"), SLUICE_ELIMIT);
    assert_int_equal(wiped(), 1);
    pair_close(&p);
    assert_int_equal(wiped(), LISTENERS_MAX);
}
