/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A name server that takes its time delays nobody: not a dial by number, not an accept, not a session
 * that is up, not the CM thread, and up to four of them no other name either. The server is the test's:
 * a lookup of "slow.test" stays inside until it is let go.
 */
#include "support/pair.h"
#include "support/name_server.h"

#include <netdb.h>
#include <pthread.h>

static int slow_resolve(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                        unsigned *count) {
    union address *address = (union address *)(void *)out;
    (void)arg, (void)max;
    name_server_lookup(strcmp(host, "slow.test") == 0);
    address->v4.sin_family = AF_INET;
    address->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *count = 1;
    return 0;
}

static const struct sluice_env slow_env = {
    .now_ns = pair_now, .random_bytes = pair_random, .resolve = slow_resolve};

static void names_open(struct pair *p) {
    sluice_error e = {0};
    name_server_go(false);
    memset(p, 0, sizeof *p);
    pair_clock = 0;
    pair_open_side(&p->a, PAIR_NODE());
    const sluice_node_options o = {
        .size = sizeof o, .device = "soft", .workers = SLUICE_NO_WORKERS};
    if (node_open_env(&p->b.node, &o, &slow_env, true, &e) != 0)
        fail_msg("%s", e.text);
    assert_int_equal(sluice_loop_open(p->b.node, &p->b.loop, &e), 0);
    pair_listen(p, PAIR_LINK());
}

static sluice_session names_dial(struct pair *p, const char *name) {
    pair_dial_name(p, name, PAIR_LINK(.timeout_ns = SLUICE_OFF));
    return p->b.session;
}

static void exchange(struct pair *p, sluice_session session) {
    p->b.session = session;
    assert_int_equal(pair_send(&p->b, 5000, 3, NULL), 0);
    sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 5000, 3));
}

/* A session by that name comes up, carries a message and ends, on both sides. */
static void come_and_go(struct pair *p, const char *name) {
    sluice_session session = names_dial(p, name);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_UP).session.id, session.id);
    pair_expect(p, &p->a, SLUICE_UP);
    exchange(p, session);
    sluice_hangup(session, 0);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    assert_int_equal(pair_expect(p, &p->a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
}

TEST(a_resolver_that_takes_long_delays_nobody) {
    struct pair p;
    names_open(&p);
    pair_connect(&p, PAIR_LINK());
    sluice_session standing = p.b.session;
    for (unsigned hanging = 1; hanging <= 4; hanging++) {
        names_dial(&p, "slow.test");
        pair_await(&p, name_server_inside() == hanging); /* they are asked side by side */
        come_and_go(&p, "127.0.0.1");
        if (hanging < 4)
            come_and_go(&p, "fast.test");
        exchange(&p, standing);
        /* the dialing node is dialed: its CM thread takes requests */
        sluice_listener listener;
        sluice_session back;
        sluice_error e;
        char address[64];
        assert_int_equal(
            sluice_listen(p.b.node, "127.0.0.1:0", SLUICE_LINK(.loop = p.b.loop), &listener, &e),
            0);
        snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
        assert_int_equal(sluice_dial(p.a.node, address, SLUICE_LINK(.loop = p.a.loop), &back, &e),
                         0);
        pair_expect(&p, &p.a, SLUICE_UP);
        pair_expect(&p, &p.b, SLUICE_UP);
        sluice_hangup(back, 0);
        pair_expect(&p, &p.a, SLUICE_CLOSED);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
        sluice_unlisten(listener);
    }
    /* Four take long: the next name waits, and nobody else. */
    sluice_session fifth = names_dial(&p, "fast.test");
    come_and_go(&p, "127.0.0.1");
    exchange(&p, standing);
    assert_int_equal(session_table_find(fifth.id)->connection.cm.owner.state, CM_RESOLVING_NAME);
    assert_int_equal(name_server_inside(), 4);
    name_server_go(true);
    for (unsigned i = 0; i < 5; i++) {
        pair_expect(&p, &p.b, SLUICE_UP);
        pair_expect(&p, &p.a, SLUICE_UP);
    }
    pair_close(&p);
}

TEST(more_names_than_threads_are_all_looked_up) {
    struct pair p;
    enum { N = 20 };
    names_open(&p);
    for (unsigned i = 0; i < N; i++)
        names_dial(&p, "slow.test");
    pair_await(&p, name_server_inside() == 4);
    pair_expect_nothing(&p, &p.b);
    assert_int_equal(name_server_inside(), 4);
    name_server_go(true);
    for (unsigned i = 0; i < N; i++)
        pair_expect(&p, &p.b, SLUICE_UP);
    assert_int_equal(name_server_answered(), N);
    pair_close(&p);
}

TEST(hanging_up_does_not_wait_for_the_resolver) {
    struct pair p;
    names_open(&p);
    sluice_session session = names_dial(&p, "slow.test");
    pair_await(&p, name_server_inside() == 1);
    sluice_hangup(session, 0);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    pair_expect_nothing(&p, &p.b);
    /* The slot serves another session when the answer for the first one comes. */
    sluice_session next = names_dial(&p, "slow.test");
    assert_int_equal((uint32_t)(next.id >> 32), (uint32_t)(session.id >> 32));
    pair_await(&p, name_server_inside() == 2);
    name_server_go(true);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_UP).session.id, next.id);
    assert_int_equal(session_table_find(next.id)->info.tries, 1);
    pair_expect_nothing(&p, &p.b);
    pair_close(&p);
}

TEST(closing_a_node_does_not_wait_for_the_resolver) {
    for (unsigned hanging = 0; hanging <= 6; hanging += 2) { /* of more than four some only wait */
        struct pair p;
        unsigned threads = hanging < 4 ? hanging : 4;
        names_open(&p);
        for (unsigned i = 0; i < hanging; i++)
            names_dial(&p, "slow.test");
        pair_await(&p, name_server_inside() == threads);
        come_and_go(&p, "127.0.0.1");
        pair_close(&p);
        assert_int_equal(name_server_inside(), threads); /* the node is gone, the lookups are not */
        name_server_go(true);
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (name_server_answered() < threads && env_now(&env_default) < limit)
            sched_yield();
        assert_int_equal(name_server_answered(),
                         threads); /* and those that waited were not begun */
    }
}
