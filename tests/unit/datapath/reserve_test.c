/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The receive reserve: allocating and sending can use up their part of the memory, and what comes is
 * received all the same.
 */
#include "support/pair.h"
#include "support/pool_stats.h"

enum { HOARD = 4096 };

TEST(an_exhausted_sender_still_receives) {
    struct pair p;
    static sluice_msg *hoard[HOARD];
    unsigned count = 0;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 16 << 20, .message_bytes_max = 2 << 20),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    for (size_t bytes = 1 << 20; bytes >= 64; bytes /= 2)
        while (count < HOARD && sluice_alloc(p.a.node, bytes, &hoard[count]) == 0)
            count++;
    assert_true(count < HOARD);
    sluice_msg *none;
    assert_int_equal(sluice_alloc(p.a.node, 64, &none), SLUICE_EAGAIN);
    for (unsigned i = 0; i < 100; i++) {
        size_t bytes = i % 10 == 9 ? 1000000 : 100;
        sluice_send_options o = {.size = sizeof o, .tag = i % 10 == 9 ? i : 0};
        assert_int_equal(pair_send(&p.b, bytes, i, &o), 0);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, bytes, i));
        if (i % 10 == 9) { /* its sender hears that it was fetched */
            event = pair_expect(&p, &p.b, SLUICE_SENT);
            assert_true(event.tag == i && event.status == 0);
        } else { /* and an answer, in the buffer it came in */
            assert_int_equal(sluice_send(p.a.session, event.msg, NULL), 0);
            event = pair_expect(&p, &p.b, SLUICE_MESSAGE);
            assert_true(pair_check(event.msg, bytes, i));
        }
    }
    while (count > 0)
        sluice_free(hoard[--count]);
    pair_close(&p);
}

TEST(the_two_parts_are_all_there_is) {
    struct pair p;
    pair_open(&p,
              PAIR_NODE(.memory_bytes_max = 16 << 20, .receive_bytes_max = 3 << 20,
                        .message_bytes_max = 1 << 20),
              PAIR_LINK());
    assert_int_equal(pool_bytes_max(p.a.node->pool), 13 << 20);
    assert_int_equal(pool_bytes_max(p.a.node->rx_pool), 3 << 20);
    sluice_node_info info = {.size = sizeof info};
    assert_int_equal(sluice_node_get_info(p.a.node, &info), 0);
    assert_int_equal(info.memory_bytes_max, 16 << 20);
    assert_int_equal(info.memory_bytes, pool_bytes(p.a.node->pool) + pool_bytes(p.a.node->rx_pool));
    pair_close(&p);
}

/*
 * Memory for the first receives of each session and no more: those that are busy have grown when the others come, and take nothing
 * of what these need.
 */
TEST(as_many_sessions_as_were_promised_have_receives) {
    enum { RECEIVE = 256 << 10, EAGER = 512, BUSY = 10 };
    uint32_t sessions = (uint32_t)(pool_holds(RECEIVE, EAGER) / CREDITS_INITIAL);
    struct pair p;
    pair_open(&p,
              PAIR_NODE(.eager_bytes = EAGER, .receive_bytes_max = RECEIVE,
                        .memory_bytes_max = 64 << 20, .sessions_max = sessions),
              PAIR_LINK());
    for (unsigned i = 0; i < BUSY; i++) {
        pair_connect(&p, PAIR_LINK());
        for (unsigned n = 0; n < 100; n++) {
            assert_int_equal(pair_send(&p.b, 10, n, NULL), 0);
            sluice_free(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg);
        }
    }
    /* That is no reason to let a request wait. */
    sluice_msg *request;
    assert_int_equal(sluice_alloc(p.a.node, 10, &request), 0);
    assert_int_equal(sluice_request(p.a.session, request, NULL), 0);
    sluice_event event = pair_expect(&p, &p.b, SLUICE_REQUEST);
    assert_int_equal(sluice_reply(p.b.session, event.token, event.msg), 0);
    event = pair_expect(&p, &p.a, SLUICE_REPLY);
    assert_int_equal(event.status, 0);
    sluice_free(event.msg);
    uint32_t others = 2; /* may be without memory, for the receives of replies that are spare now */
    for (unsigned i = BUSY; i < sessions - others; i++)
        pair_connect(&p, PAIR_LINK()); /* fails the test if it does not come up */
    sessions -= others;
    assert_int_equal(atomic_load(&p.a.node->primed), sessions);
    sluice_hangup(p.b.session, 0);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    pair_await(&p, atomic_load(&p.a.node->primed) == sessions - 1);
    pair_close(&p);
}

/* Grants for speed leave half of the reserve to what needs it. */
TEST(growing_leaves_room_for_others) {
    struct pair p;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 2 << 20, .message_bytes_max = 256 << 10),
              PAIR_LINK(.credits = 1024));
    pair_connect(&p, PAIR_LINK());
    unsigned sent = 0, received = 0;
    while (received < 3000) {
        sluice_event event;
        while (sent < 3000 && pair_send(&p.b, 100, sent, NULL) == 0)
            sent++;
        assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
        if (sluice_poll(p.a.loop, &event, 1, 0) == 1)
            assert_true(pair_check(event.msg, 100, received++));
    }
    assert_uint_in_range(pair_session(&p.a)->connection->credits.granted, 8,
                         (512 << 10) / 8192 / 2);
    assert_int_equal(pair_send(&p.b, 150000, 7, NULL), 0); /* has a place beside them */
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 150000, 7));
    pair_close(&p);
}
