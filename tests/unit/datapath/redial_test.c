/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * redial_test.c - a listener that is busy may end a handshake after it has answered: the dial goes on, for as long as its time lasts.
 *
 * The listener gives up as its admission does, at a moment that the test chooses: while it waits for the dialer's confirmation, or for
 * HELLO.
 */
#include "support/fault.h"
#include "support/pair.h"
#include "support/resume.h"

#include <poll.h>

#include "cm/internal.h"

static const sluice_key key = {.id = 7, .bytes = 32, .secret = "0123456789abcdef0123456789abcdef"};

static struct {
    struct pair pair;
    struct fabric_ops dialing;
    unsigned times; /* the listener gives up so often */
    enum {
        BEFORE,   /* it knows that the connection is up */
        AFTER,    /* that */
        WORDLESS, /* while it is being told, and cannot say why */
        CROSSING, /* before, and the dialer finds its queue pair gone before it hears of it */
    } when;
} t;

static struct cm_conn *theirs(void) {
    return &t.pair.a.loop->sessions->connection->cm;
}

static void listener_goes_on(enum cm_state until) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (theirs()->owner.state != until) {
        cm_progress(t.pair.a.node->cm, 0);
        assert_true(sluice_poll(t.pair.a.loop, NULL, 0, 0) >= 0);
        assert_true(env_now(&env_default) < limit);
    }
}

static void listener_ends(void) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (session_table_used_count(t.pair.a.node->index) > 0) {
        cm_progress(t.pair.a.node->cm, 0);
        assert_true(sluice_poll(t.pair.a.loop, NULL, 0, 0) >= 0);
        assert_true(env_now(&env_default) < limit);
    }
}

/* There is an event that its CM thread has not seen. */
static void await_event(const struct side *side) {
    struct pollfd channel = {.fd = side->node->cm->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&channel, 1, 20000), 1);
}

/* The dialer is about to confirm the connection. */
static int establish(struct rdma_cm_id *id) {
    if (t.times == 0)
        return fabric_soft.establish(id);
    t.times--;
    if (t.when == CROSSING)
        fault_plan("cm=RTU n=1 loss; cm_in=REJ delay=200ms");
    int rc = t.when != BEFORE ? fabric_soft.establish(id) : 0;
    listener_goes_on(t.when == AFTER ? CM_HANDSHAKE : CM_ACCEPTING);
    if (t.when == WORDLESS)
        await_event(&t.pair.a);
    cm_fail(t.pair.a.node->cm, theirs(), SLUICE_REASON_BUSY, 0, "%s", ADMISSION_BUSY_TEXT);
    if (t.when == AFTER)
        return rc;
    listener_goes_on(CM_RELEASED);
    if (t.when == WORDLESS)
        return rc;
    if (t.when == CROSSING) {
        listener_ends();
        return rc;
    }
    await_event(&t.pair.b);
    return fabric_soft.establish(id); /* too late, which its CM thread does not know yet */
}

static void open_nodes(const sluice_node_options *node, const sluice_link_options *listener) {
    t.times = 1;
    t.when = BEFORE;
    t.dialing = fabric_soft;
    t.dialing.establish = establish;
    pair_open(&t.pair, node, listener);
    t.pair.b.node->fabric = &t.dialing;
}

static void open_with(const sluice_link_options *listener) {
    open_nodes(PAIR_NODE(), listener);
}

static void close_both(void) {
    t.pair.b.node->fabric = &fabric_soft;
    pair_close(&t.pair);
    pair_frozen = 0;
}

static void comes_up(uint32_t tries) {
    struct pair *p = &t.pair;
    sluice_event event = pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(event.session.id, p->b.session.id);
    assert_int_equal(pair_info(p->b.session).tries, tries);
    assert_string_equal(pair_info(p->b.session).close_text, "");
    p->a.session = pair_expect(p, &p->a, SLUICE_UP).session; /* and no event of what came before */
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(pair_send(&p->a, 50, i, NULL), 0);
        assert_true(pair_check(pair_expect(p, &p->b, SLUICE_MESSAGE).msg, 50, i));
        assert_int_equal(pair_send(&p->b, 40000, i, NULL), 0);
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 40000, i));
    }
}

/* Without a handshake of ours, with one, and with a key. */
static const sluice_link_options links[] = {
    {0},
    {.private_data = "x", .private_bytes = 1},
    {.private_data = "x", .private_bytes = 1, .key_count = 1, .keys = &key},
    {.resume_ns = 60 * SECOND},
};

TEST(a_dial_whose_handshake_is_given_up_goes_on) {
    for (unsigned i = 0; i < sizeof links / sizeof *links; i++) {
        const sluice_link_options *link = &links[i];
        for (unsigned when = BEFORE; when <= (link->private_bytes ? AFTER : BEFORE); when++) {
            open_with(PAIR_LINK(.key_count = link->key_count, .keys = link->keys,
                                .resume_ns = link->resume_ns));
            t.when = when;
            pair_dial(&t.pair, link);
            comes_up(2);
            close_both();
        }
    }
}

/* The next connection is for the session as well, and none of its own. */
TEST(so_does_one_that_is_to_move_a_session) {
    for (unsigned when = BEFORE; when <= AFTER; when++) {
        struct pair *p = &t.pair;
        const sluice_link_options *link = PAIR_LINK(.resume_ns = RESUME_NS);
        const sluice_link_options *keyed =
            PAIR_LINK(.key_count = 1, .keys = &key, .resume_ns = RESUME_NS);
        open_with(when == AFTER ? keyed : link);
        t.times = 0;
        pair_dial(p, when == AFTER ? keyed : link);
        comes_up(1);
        t.times = 1;
        t.when = when;
        assert_true(resume_move(&p->b));
        pair_await(p, !resume_moves(&p->a) && !resume_moves(&p->b));
        assert_int_equal(t.times, 0);
        pair_expect_nothing(p, &p->a);
        assert_int_equal(session_table_used_count(p->a.node->index), 1);
        assert_int_equal(pair_send(&p->b, 50, 1, NULL), 0);
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 50, 1));
        close_both();
    }
}

static bool pauses(void) {
    return pair_session(&t.pair.b)->connection->cm.owner.state == CM_BACKOFF;
}

TEST(a_listener_that_is_busy_is_asked_on_and_on) {
    open_with(PAIR_LINK());
    t.times = 12;
    pair_dial(&t.pair, PAIR_LINK(.timeout_ns = 600 * SECOND));
    while (t.times > 0) {
        pair_await(&t.pair, pauses());
        pair_clock += 4 * SECOND; /* the longest pause, and more */
        pair_await(&t.pair, !pauses());
    }
    comes_up(13);
    close_both();
}

static void expect_busy(const char *text) {
    struct pair *p = &t.pair;
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_string_equal(sluice_reason_text(event.reason), sluice_reason_text(SLUICE_REASON_BUSY));
    if (!strstr(pair_info(event.session).close_text, text))
        fail_msg("\"%s\", expected \"%s\"", pair_info(event.session).close_text, text);
    pair_expect_nothing(p, &p->a);
    pair_await(p, session_table_used_count(p->a.node->index) +
                          session_table_used_count(p->b.node->index) ==
                      0);
}

TEST(a_dial_that_may_try_once_is_told_that_the_listener_was_busy) {
    for (unsigned when = BEFORE; when <= AFTER; when++) {
        open_with(PAIR_LINK());
        t.when = when;
        pair_dial(&t.pair,
                  PAIR_LINK(.private_data = "x", .private_bytes = 1, .flags = SLUICE_ONCE));
        expect_busy("told by the listener: " ADMISSION_BUSY_TEXT);
        close_both();
    }
}

TEST(a_completion_does_not_hide_that_the_listener_was_busy) {
    open_with(PAIR_LINK());
    t.when = CROSSING;
    pair_rnr_provoked = true; /* HELLO finds no queue pair */
    pair_dial(&t.pair, PAIR_LINK(.private_data = "x", .private_bytes = 1));
    comes_up(2);
    fault_clear();
    close_both();
}

/* Its application may have hung up. */
TEST(a_listener_that_does_not_say_why_is_not_asked_again) {
    open_with(PAIR_LINK());
    t.when = WORDLESS;
    pair_dial(&t.pair, PAIR_LINK(.private_data = "x", .private_bytes = 1));
    sluice_event event = pair_expect(&t.pair, &t.pair.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(pair_info(event.session).tries, 1);
    pair_expect_nothing(&t.pair, &t.pair.a);
    close_both();
}

/* ---- the dialer was faster ---------------------------------------------------------------------- */

static struct side other; /* its request waits behind that of the dialer */

static int confirm_in_time(struct rdma_cm_id *id) {
    struct cm *cm = t.pair.a.node->cm;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (cm->admission.queue.count == 0) {
        cm_progress(other.node->cm, 0);
        assert_true(sluice_poll(other.loop, NULL, 0, 0) >= 0);
        cm_progress(cm, 0);
        assert_true(env_now(&env_default) < limit);
    }
    int rc = fabric_soft.establish(id);
    await_event(&t.pair.a);
    pair_clock +=
        4 * SECOND; /* more than anybody's patience, and less than the limit of a handshake */
    cm->now_ns = pair_now(NULL);
    admission_progress(cm, true);
    t.dialing.establish = fabric_soft.establish;
    return rc;
}

TEST(a_handshake_whose_end_was_not_read_is_not_given_up) {
    struct pair *p = &t.pair;
    sluice_session theirs;
    open_nodes(PAIR_NODE(.handshakes_max = 1), PAIR_LINK());
    pair_open_side(&other, PAIR_NODE());
    t.dialing.establish = confirm_in_time;
    pair_dial(p, PAIR_LINK());
    assert_int_equal(
        sluice_dial(other.node, p->address, SLUICE_LINK(.loop = other.loop), &theirs, NULL), 0);
    comes_up(1);
    assert_int_equal(p->a.node->stats.page->cm.evicted, 0);
    sluice_close(other.node, 0);
    close_both();
}

/* The time is that of the first try. */
TEST(the_time_of_a_dial_that_goes_on_is_over) {
    open_with(PAIR_LINK());
    t.times = UINT32_MAX;
    pair_dial(&t.pair, PAIR_LINK(.timeout_ns = 5 * SECOND));
    pair_await(&t.pair, t.times < UINT32_MAX - 2 && pauses());
    pair_clock += 5 * SECOND;
    expect_busy("(and time ran out");
    close_both();
}

/* At any turn of its way to the next connection. */
TEST(a_dial_that_goes_on_can_be_hung_up) {
    for (unsigned turns = 0; turns < 40; turns++) {
        struct pair *p = &t.pair;
        open_with(PAIR_LINK());
        pair_dial(p, PAIR_LINK());
        pair_await(p, t.times == 0);
        pair_turns(p, turns);
        sluice_hangup(p->b.session, 0);
        sluice_event event;
        while (p->b.closed == 0)
            assert_true(pair_next(p, &p->b, &event));
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (session_table_used_count(p->a.node->index) > 0) {
            pair_turn(p);
            sluice_poll(p->a.loop, &event, 1, 0);
            assert_true(env_now(&env_default) < limit);
        }
        close_both();
    }
}
