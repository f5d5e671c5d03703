/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A name server that takes its time delays nobody: not a dial by number, not an accept, not a session
 * that is up, not the CM thread, and up to sixteen names no other name either; beyond, no name that the host itself knows.
 * The server is the test's: a lookup of "slow*" stays inside until it is let go. The host knows "*.local".
 */
#include "support/pair.h"
#include "support/name_server.h"
#include "support/rows.h"

#include <netdb.h>
#include <pthread.h>
#include <strings.h>

enum { ASKING_MAX = 16 }; /* names that hang and keep a thread each */

static _Atomic unsigned local_lookups; /* of the host itself */

static int loopback(struct sockaddr_storage *out, unsigned *count) {
    union address *address = (union address *)(void *)out;
    address->v4.sin_family = AF_INET;
    address->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *count = 1;
    return 0;
}

static int slow_resolve(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                        unsigned *count) {
    (void)arg, (void)max;
    name_server_lookup(strncasecmp(host, "slow", 4) == 0);
    return loopback(out, count);
}

static int local_resolve(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                         unsigned *count) {
    (void)arg, (void)max;
    local_lookups++;
    return strstr(host, ".local") ? loopback(out, count) : EAI_NONAME;
}

static const struct sluice_env slow_env = {.now_ns = pair_now,
                                           .random_bytes = pair_random,
                                           .resolve = slow_resolve,
                                           .resolve_local = local_resolve};

static void names_open(struct pair *p) {
    sluice_error e = {0};
    name_server_go(false);
    memset(p, 0, sizeof *p);
    pair_clock = 0;
    local_lookups = 0;
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

/* The name "slowN.test". */
static sluice_session dial_slow(struct pair *p, unsigned n) {
    char name[32];
    snprintf(name, sizeof name, "slow%u.test", n);
    return names_dial(p, name);
}

static void hang_all(struct pair *p) {
    for (unsigned i = 0; i < ASKING_MAX; i++)
        dial_slow(p, i);
    pair_await(p, name_server_inside() == ASKING_MAX);
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
    for (unsigned hanging = 1; hanging <= ASKING_MAX; hanging++) {
        dial_slow(&p, hanging);
        pair_await(&p, name_server_inside() == hanging); /* they are asked side by side */
        come_and_go(&p, "127.0.0.1");
        if (hanging < ASKING_MAX)
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
    /* Sixteen take long: the next name waits, and no other thing does. */
    sluice_session next = names_dial(&p, "fast.test");
    come_and_go(&p, "127.0.0.1");
    exchange(&p, standing);
    assert_int_equal(session_table_find(next.id)->connection->cm.owner.state, CM_RESOLVING_NAME);
    assert_int_equal(name_server_inside(), ASKING_MAX);
    name_server_go(true);
    for (unsigned i = 0; i < ASKING_MAX + 1; i++) {
        pair_expect(&p, &p.b, SLUICE_UP);
        pair_expect(&p, &p.a, SLUICE_UP);
    }
    pair_close(&p);
}

TEST(more_names_than_threads_are_all_looked_up) {
    struct pair p;
    enum { N = 2 * ASKING_MAX };
    names_open(&p);
    for (unsigned i = 0; i < N; i++)
        dial_slow(&p, i);
    pair_await(&p, name_server_inside() == ASKING_MAX);
    pair_expect_nothing(&p, &p.b);
    assert_int_equal(name_server_inside(), ASKING_MAX);
    name_server_go(true);
    for (unsigned i = 0; i < N; i++)
        pair_expect(&p, &p.b, SLUICE_UP);
    assert_int_equal(name_server_answered(), N);
    pair_close(&p);
}

TEST(a_name_that_the_host_knows_waits_for_no_name_server) {
    struct pair p;
    names_open(&p);
    hang_all(&p);
    names_dial(&p, "fast.test"); /* asked of the host before, and in its place in the queue after */
    pair_await(&p, local_lookups == 1);
    come_and_go(&p, "here.local");
    come_and_go(&p, "there.local");
    assert_int_equal(local_lookups, 3);
    assert_int_equal(name_server_inside(), ASKING_MAX);
    name_server_go(true);
    for (unsigned i = 0; i < ASKING_MAX + 1; i++)
        pair_expect(&p, &p.b, SLUICE_UP);
    assert_int_equal(name_server_answered(), ASKING_MAX + 1);
    pair_close(&p);
}

/* However often it is dialed, in whichever case of letters. */
TEST(requests_for_the_same_name_are_one_lookup) {
    static const char *const spelled[] = {"slow.test", "SLOW.test", "slow.Test"};
    struct pair p;
    enum { N = 2 * ASKING_MAX };
    names_open(&p);
    for (unsigned i = 0; i < N; i++)
        names_dial(&p, spelled[i % 3]);
    pair_await(&p, name_server_inside() == 1);
    come_and_go(&p, "fast.test"); /* a name that hangs keeps one thread */
    assert_int_equal(name_server_inside(), 1);
    name_server_go(true);
    for (unsigned i = 0; i < N; i++) {
        pair_expect(&p, &p.b, SLUICE_UP);
        pair_expect(&p, &p.a, SLUICE_UP);
    }
    assert_int_equal(name_server_answered(), 2);
    come_and_go(&p, "slow.test"); /* an answer is not kept: the next dial asks again */
    assert_int_equal(name_server_answered(), 3);
    pair_close(&p);
}

struct over {
    bool hung_up;
    bool looked_at; /* the host was asked before the dial was over */
    unsigned again; /* the name is dialed again, so often */
};

static void is_looked_up_no_more(void **state) {
    const struct over *row = *state;
    struct pair p;
    sluice_session sessions[3];
    names_open(&p);
    hang_all(&p);
    for (unsigned i = 0; i < 3; i++) {
        pair_dial_name(&p, i < 2 ? "over.test" : "over-too.test",
                       PAIR_LINK(.timeout_ns = row->hung_up ? SLUICE_OFF : 100000000));
        sessions[i] = p.b.session;
        if (row->looked_at)
            pair_await(&p, local_lookups == (i < 2 ? 1 : 2));
    }
    for (unsigned i = 0; i < 3; i++) {
        if (row->hung_up)
            sluice_hangup(sessions[i], 0);
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(event.reason,
                         row->hung_up ? SLUICE_REASON_LOCAL_CLOSE : SLUICE_REASON_TIMEOUT);
    }
    if (row->again)
        names_dial(&p, "over.test");
    name_server_go(true);
    for (unsigned i = 0; i < ASKING_MAX + row->again; i++)
        pair_expect(&p, &p.b, SLUICE_UP);
    pair_expect_nothing(&p, &p.b);
    assert_int_equal(name_server_answered(), ASKING_MAX + row->again);
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
    sluice_session next = names_dial(&p, "slow-too.test");
    assert_int_equal((uint32_t)(next.id >> 32), (uint32_t)(session.id >> 32));
    pair_await(&p, name_server_inside() == 2);
    name_server_go(true);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_UP).session.id, next.id);
    assert_int_equal(session_table_find(next.id)->info.tries, 1);
    pair_expect_nothing(&p, &p.b);
    pair_close(&p);
}

/* Dialed again and again with a short limit, it would keep all threads. */
TEST(a_name_that_hangs_is_joined_by_later_dials_of_it) {
    struct pair p;
    names_open(&p);
    for (unsigned i = 0; i < 2 * ASKING_MAX; i++) {
        sluice_session session = names_dial(&p, "slow.test");
        pair_await(&p, name_server_inside() == 1);
        sluice_hangup(session, 0);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
    }
    sluice_session last = names_dial(&p, "slow.test");
    come_and_go(&p, "fast.test");
    assert_int_equal(name_server_inside(), 1);
    name_server_go(true);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_UP).session.id, last.id);
    assert_int_equal(name_server_answered(), 2);
    pair_close(&p);
}

TEST(closing_a_node_does_not_wait_for_the_resolver) {
    for (unsigned hanging = 0; hanging <= 24;
         hanging += 8) { /* of more than sixteen some only wait */
        struct pair p;
        unsigned threads = hanging < ASKING_MAX ? hanging : ASKING_MAX;
        names_open(&p);
        for (unsigned i = 0; i < hanging; i++)
            dial_slow(&p, i);
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

TEST_CASES(
    ROW(a_dial_that_timed_out_is_looked_up_no_more, is_looked_up_no_more, over, .hung_up = false),
    ROW(a_dial_that_was_hung_up_is_looked_up_no_more, is_looked_up_no_more, over, .hung_up = true),
    ROW(nor_if_the_host_was_asked_before, is_looked_up_no_more, over, .hung_up = true,
        .looked_at = true),
    ROW(but_a_new_dial_of_its_name_is, is_looked_up_no_more, over, .hung_up = true, .again = 1));
