/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * early_end_test.c - a dialer is up, sends, and is gone before its listener has seen the handshake's last message, or
 * that message is lost: what the dialer was told has arrived is delivered, after UP and before CLOSED.
 */
#include "support/fault.h"
#include "support/pair.h"

#include "cm/cm_table.h"
#include "datapath/loop/loop.h"

/* As many as a dialer has credits for before its listener gives it some: a device takes them alone. */
enum { MESSAGES = CREDITS_INITIAL - CREDIT_RESERVE };

static size_t size_of(unsigned i) {
    return i % 3 * 2000;
}

enum end { HANGS_UP, CLOSES_ITS_NODE, STAYS, END_COUNT };

/* The next event of one side, whose other side is still or gone. */
static sluice_event next_alone(struct side *side) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    sluice_event event = {0};
    while (env_now(&env_default) < limit) {
        cm_progress(side->node->cm, 0);
        int n = sluice_poll(side->loop, &event, 1, 0);
        assert_true(n >= 0);
        if (n > 0)
            return event;
        sched_yield();
    }
    fail_msg("that side has no event");
    return event;
}

/* Both sides go on until the dialer was told of each message; then it ends. */
static unsigned end_of_dialer(struct pair *p, unsigned count, enum end end) {
    unsigned told = 0;
    for (; told < count; told++)
        assert_int_equal(pair_expect(p, &p->b, SLUICE_SENT).status, 0);
    if (end == HANGS_UP) {
        sluice_hangup(p->b.session, UINT64_MAX);
        pair_expect(p, &p->b, SLUICE_CLOSED);
    } else if (end == CLOSES_ITS_NODE) {
        sluice_close(p->b.node, 0);
    }
    return told;
}

static void early_end(const char *plan, unsigned count, enum end end) {
    struct pair p;
    unsigned arrived = 0;
    sluice_event event;
    sluice_send_options tagged = {.size = sizeof tagged};
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    fault_plan(plan);
    pair_dial(&p, PAIR_LINK());
    pair_expect(&p, &p.b, SLUICE_UP);
    for (unsigned i = 0; i < count; i++) {
        tagged.tag = i + 1;
        assert_int_equal(pair_send(&p.b, size_of(i), i, &tagged), 0);
    }
    unsigned told = end_of_dialer(&p, count, end);
    event = next_alone(&p.a);
    assert_int_equal(event.type, SLUICE_UP);
    for (; arrived < count && (event = next_alone(&p.a)).type == SLUICE_MESSAGE; arrived++)
        assert_true(pair_check(event.msg, size_of(arrived), arrived));
    if (arrived < told)
        verdict_wrong_data("%u of %u messages that were acknowledged", arrived, told);
    must_data_equal(arrived, count);
    if (end != STAYS) {
        event = next_alone(&p.a);
        assert_int_equal(event.type, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_PEER_CLOSE);
    } else {
        pair_expect_nothing(&p, &p.a);
    }
    fault_clear();
    sluice_close(p.a.node, 0);
    if (end != CLOSES_ITS_NODE)
        sluice_close(p.b.node, 0);
}

TEST(what_was_acknowledged_is_delivered_before_the_end) {
    static const char *const plans[] = {
        "cm_in=RTU loss",
        "cm_in=RTU delay=50ms",
        "cm_in=RTU loss; cm_in=DREQ n=1 loss",
        "cm_in=RTU loss; cm_in=DREQ delay=20ms",
    };
    for (unsigned i = 0; i < sizeof plans / sizeof *plans; i++)
        for (unsigned count = 0; count <= MESSAGES; count++)
            for (enum end end = HANGS_UP; end < STAYS; end++) {
                print_message("%s, %u messages, %s\n", plans[i], count,
                              end == HANGS_UP ? "hangs up" : "closes its node");
                early_end(plans[i], count, end);
            }
}

/* Data is as good as the message that is lost: the session lives. */
TEST(a_confirmation_that_is_lost_is_not_missed_where_data_comes) {
    early_end("cm_in=RTU loss", 1, STAYS);
    early_end("cm_in=RTU loss", MESSAGES, STAYS);
}

/* The device ends the queue pair under the listener, who has not looked at what came before. */
PAIR_WITH(pair_opened, a_receive_that_fails_takes_nothing_with_it) {
    struct pair *p = *state;
    sluice_send_options tagged = {.size = sizeof tagged};
    fault_plan("cm_in=RTU loss; qp=* recv=2 status=LOC_PROT_ERR");
    /* No time passes: a dialer whom nobody answers for long says so, and that would be the second receive. */
    pair_frozen = env_now(&env_default);
    pair_dial(p, PAIR_LINK());
    pair_expect(p, &p->b, SLUICE_UP);
    for (unsigned i = 0; i < 2; i++) {
        tagged.tag = i + 1;
        assert_int_equal(pair_send(&p->b, size_of(1), i, &tagged), 0);
        assert_int_equal(next_alone(&p->b).status == 0, i == 0);
    }
    pair_frozen = 0;
    assert_int_equal(next_alone(&p->a).type, SLUICE_UP);
    sluice_event event = next_alone(&p->a);
    assert_int_equal(event.type, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, size_of(1), 0));
    event = next_alone(&p->a);
    assert_int_equal(event.type, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_DEVICE_ERROR);
    fault_clear();
}

/* ---- ends that the listener's stack tells -------------------------------------------------------- */

static const struct {
    enum rdma_cm_event_type event;
    int status;
    sluice_reason reason;
} ends[] = {
    {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, SLUICE_REASON_PEER_LOST},
    {RDMA_CM_EVENT_CONNECT_ERROR, -EIO, SLUICE_REASON_DEVICE_ERROR},
    {RDMA_CM_EVENT_REJECTED, 4, SLUICE_REASON_PEER_LOST},
    {RDMA_CM_EVENT_DISCONNECTED, 0, SLUICE_REASON_PEER_LOST},
    {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, SLUICE_REASON_DEVICE_REMOVED},
};

/* The dialer was told of so many, and the listener's CM thread did nothing meanwhile; its loop did, or its device alone. */
static void acknowledged(struct pair *p, unsigned count, bool looks) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    sluice_event event;
    for (unsigned told = 0, turn = 1; told < count; turn++) {
        if (env_now(&env_default) > limit)
            fail_msg("the dialer was told of %u of %u", told, count);
        if (turn % 4096 ==
            0) /* a device without a poller is rung after many polls, and a busy machine is long away */
            sched_yield();
        cm_progress(p->b.node->cm, 0);
        if (looks)
            assert_int_equal(sluice_poll(p->a.loop, &event, 1, 0), 0);
        if (sluice_poll(p->b.loop, &event, 1, 0) == 0)
            continue;
        assert_int_equal(event.type, SLUICE_SENT);
        assert_int_equal(event.status, 0);
        told++;
    }
}

/* Forged, but for the removal. */
static void tell(struct pair *p, unsigned i) {
    if (ends[i].event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        assert_int_equal(fault_device(DEVICE_REMOVE, ORDER_REMOVAL_FIRST), 0);
        return;
    }
    struct cm_owner *owner = &p->a.loop->sessions->connection->cm.owner;
    const struct cm_event event = {
        .type = ends[i].event, .status = ends[i].status, .id = owner->id, .owner = owner};
    assert_int_equal(owner->state, CM_ACCEPTING);
    cm_table[CM_ACCEPTING][event.type].run(p->a.node->cm, owner, &event);
}

static sluice_event next_of_session(struct side *side) {
    sluice_event event;
    do
        event = next_alone(side);
    while (pair_of_listener(&event));
    return event;
}

static void told_end(unsigned i, unsigned count, bool looks) {
    struct pair p;
    sluice_send_options tagged = {.size = sizeof tagged};
    sluice_event event;
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    fault_plan("cm_in=RTU loss");
    pair_dial(&p, PAIR_LINK());
    pair_expect(&p, &p.b, SLUICE_UP);
    for (unsigned k = 0; k < count; k++) {
        tagged.tag = k + 1;
        assert_int_equal(pair_send(&p.b, size_of(k), k, &tagged), 0);
    }
    acknowledged(&p, count, looks);
    tell(&p, i);
    assert_int_equal(next_of_session(&p.a).type, SLUICE_UP);
    for (unsigned k = 0; k < count; k++) {
        event = next_of_session(&p.a);
        if (event.type != SLUICE_MESSAGE)
            verdict_wrong_data("%u of %u messages that were acknowledged", k, count);
        assert_true(pair_check(event.msg, size_of(k), k));
    }
    event = next_of_session(&p.a);
    assert_int_equal(event.type, SLUICE_CLOSED);
    assert_int_equal(event.reason, ends[i].reason);
    fault_clear();
    sluice_close(p.a.node, 0);
    sluice_close(p.b.node, 0);
}

TEST(what_was_acknowledged_is_delivered_whatever_the_end_is) {
    for (unsigned k = 0; k < 2 * MESSAGES * (sizeof ends / sizeof *ends); k++) {
        unsigned i = k / 2 / MESSAGES, count = 1 + k / 2 % MESSAGES;
        print_message("%s, %u messages, %u\n", cm_event_name(ends[i].event), count, k % 2);
        told_end(i, count, k % 2);
    }
}
