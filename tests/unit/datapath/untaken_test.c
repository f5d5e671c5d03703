/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * untaken_test.c - large messages that a peer does not take: they are its session's, bounded by its window, and no
 * other session of the sender waits for them or does without; nor are they lost, however late they are taken.
 */
#include "support/pair.h"

#define MIB ((uint32_t)1 << 20)
#define SECOND 1000000000ull
#define WINDOW 4u

static const sluice_node_options *node(uint32_t way) {
    static sluice_node_options options;
    options = (sluice_node_options){.memory_bytes_max = 32 << 20,
                                    .receive_bytes_max = 8 << 20,
                                    .message_bytes_max = 4 << 20,
                                    .rendezvous = way,
                                    .log = NULL};
    return &options;
}

static void expect_messages(struct pair *p, struct side *from, struct side *to, uint32_t bytes) {
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(pair_send(from, bytes, i, NULL), 0);
        sluice_event event = pair_expect(p, to, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, bytes, i));
    }
}

static void what_is_not_taken(uint32_t way) {
    const sluice_link_options *link =
        PAIR_LINK(.keepalive_ns = SLUICE_OFF, .window_bytes = WINDOW * MIB);
    struct pair p;
    pair_open(&p, node(way), link);
    pair_connect(&p, link);
    struct side idle = p.b, to_idle = p.a; /* it does not poll, from here on */
    pair_open_side(&p.b, node(way));
    pair_connect(&p, link);
    for (unsigned i = 0; i < WINDOW; i++)
        assert_int_equal(pair_send(&to_idle, MIB, i, NULL), 0);
    assert_int_equal(pair_send(&to_idle, MIB, 0, NULL), SLUICE_EAGAIN);
    for (unsigned hours = 0; hours < 3; hours++) {
        expect_messages(&p, &p.a, &p.b, 2 * MIB);
        expect_messages(&p, &p.a, &p.b, 64);
        expect_messages(&p, &p.b, &p.a, 2 * MIB);
        pair_clock += 3600 * SECOND;
    }
    sluice_session_info info = pair_info(to_idle.session);
    assert_true(info.window_messages_used == WINDOW && info.window_bytes_used == WINDOW * MIB);
    assert_int_equal(pair_session(&to_idle)->state, SESSION_UP);
    struct side other = p.b;
    p.b = idle;
    for (unsigned i = 0; i < WINDOW; i++)
        assert_true(pair_check(pair_expect(&p, &p.b, SLUICE_MESSAGE).msg, MIB, i));
    p.b = other;
    sluice_close(idle.node, 0);
    pair_close(&p);
}

TEST(what_is_announced_and_not_taken_is_its_session_s_alone) {
    what_is_not_taken(SLUICE_RENDEZVOUS_READ);
}

TEST(so_is_what_waits_for_leave_to_be_written) {
    what_is_not_taken(SLUICE_RENDEZVOUS_WRITE);
}
