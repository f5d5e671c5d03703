/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * handshake_refusal_test.c - a listener may end a session at any moment of the handshake, and its dialer says why.
 */
#include "support/pair.h"

#include "datapath/session/close.h"

static struct pair p;
static struct fabric_ops dialing;
static bool before; /* the refusal was there before the dialer knew that the connection is up */

/* The listener hears that the connection is up, and ends it, while the dialer's CM thread is inside the call that says so. */
static int establish_and_be_refused(struct rdma_cm_id *id) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    struct session *ours = pair_session(&p.b), *theirs = p.a.loop->sessions;
    int rc = fabric_soft.establish(id);
    while (!theirs->adopted) {
        cm_progress(p.a.node->cm, 0);
        assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
        assert_true(env_now(&env_default) < limit);
    }
    session_hangup(p.a.loop, theirs, 0);
    while (!ours->connection->hello && ours->state == SESSION_OPENING) {
        assert_int_equal(sluice_poll(p.b.loop, NULL, 0, 0), 0);
        assert_true(env_now(&env_default) < limit);
    }
    before = ours->connection->hello;
    return rc;
}

static void refused_before_hello(uint32_t keys) {
    const sluice_key one = {.id = 7, .bytes = 32, .secret = "0123456789abcdef0123456789abcdef"};
    const sluice_key *key = keys > 0 ? &one : NULL;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.key_count = keys, .keys = key));
    dialing = fabric_soft;
    dialing.establish = establish_and_be_refused;
    p.b.node->fabric = &dialing;
    pair_dial(&p,
              PAIR_LINK(.key_count = keys, .keys = key, .private_data = "x", .private_bytes = 1));
    sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_string_equal(sluice_reason_text(event.reason),
                        sluice_reason_text(SLUICE_REASON_REFUSED));
    assert_string_equal(pair_info(event.session).close_text, "the application hung up");
    assert_true(before);
    pair_expect_nothing(&p, &p.a);
    p.b.node->fabric = &fabric_soft;
    pair_close(&p);
}

TEST(a_refusal_that_comes_before_hello_is_said_has_its_reason) {
    refused_before_hello(0);
    refused_before_hello(1);
}
