/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What may pass is tried again, at intervals that grow and are spread. The dialer's clock, its random numbers and its name
 * server are the test's; what a try ends with is scripted as faults of the software device.
 */
#include "support/dial.h"

PAIR_WITH(dialer_opened, a_busy_listener_is_asked_again_until_it_has_room) {
    struct pair *p = *state;
    pair_connect(p, PAIR_LINK());
    sluice_session first = p->b.session;
    p->a.node->options.sessions_max = 1;
    pair_dial(p, PAIR_LINK());
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    for (unsigned i = 1; i <= 5; i++) {
        pair_await(p, conn->owner.state == CM_BACKOFF);
        assert_int_equal(pair_info(p->b.session).tries, i);
        assert_int_equal(conn->last.reason, SLUICE_REASON_BUSY);
        if (i < 5)
            dialer.now_ns = conn->step_ns;
        while (conn->owner.state == CM_BACKOFF && i < 5)
            pair_turn(p);
    }
    sluice_session second = p->b.session;
    sluice_hangup(first, 0);
    pair_expect(p, &p->b, SLUICE_CLOSED);
    pair_expect(p, &p->a, SLUICE_CLOSED);
    pair_expect_nothing(p, &p->a); /* and its slot is free */
    dialer.now_ns = conn->step_ns;
    sluice_event event = pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(event.session.id, second.id);
    assert_int_equal(pair_info(p->b.session).tries, 6);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(pair_send(&p->b, 10, 1, NULL), 0);
    pair_expect(p, &p->a, SLUICE_MESSAGE);
}

/* An address that is busy keeps the dial going, whatever the others say; and is what is told. */
PAIR_WITH(dialer_opened, one_busy_address_is_reason_enough_to_go_on) {
    struct pair *p = *state;
    dialer_script(
        (const char *[]){REJECT(4), REJECT(8), REJECT(8), REJECT(10), REJECT(8), REJECT(8), NULL});
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK());
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    pair_await(p, conn->owner.state == CM_BACKOFF);
    assert_int_equal(conn->last.reason, SLUICE_REASON_UNREACHABLE);
    dialer.now_ns = conn->step_ns;
    pair_await(p, dialer.tries == 4 && conn->owner.state == CM_BACKOFF);
    assert_int_equal(conn->last.reason, SLUICE_REASON_PEER_LOST);
    dialer.now_ns = conn->step_ns;
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED); /* a round without hope */
    assert_int_equal(event.reason, SLUICE_REASON_NO_LISTENER);
    assert_int_equal(pair_info(p->b.session).tries, 6);
    assert_int_equal(dialer.lookups, 1); /* a name is not resolved again */
}

TEST(pauses_grow_and_are_spread) {
    static const uint32_t spreads[] = {0, 0xffffffff, 0x80000000, 0x12345678};
    static const uint64_t bases[] = {20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000};
    for (unsigned r = 0; r < sizeof spreads / sizeof *spreads; r++) {
        struct pair p;
        dialer_open(&p, PAIR_NODE(), PAIR_LINK());
        dialer.always = REJECT(4);
        dialer.spread = spreads[r];
        pair_dial(&p, PAIR_LINK(.timeout_ns = 1000 * 1000000000ull));
        struct cm_conn *conn = &pair_session(&p.b)->connection->cm;
        for (unsigned i = 0; i < sizeof bases / sizeof *bases; i++) {
            uint64_t base = bases[i] * 1000000;
            pair_await(&p, conn->owner.state == CM_BACKOFF);
            assert_int_equal(dialer.tries, i + 1);
            uint64_t pause = conn->step_ns - dialer.now_ns;
            assert_int_equal(pause, base / 2 + (base * spreads[r] >> 32));
            assert_uint_in_range(pause, base / 2, base * 3 / 2 - 1);
            dialer.now_ns = conn->step_ns - 1; /* not a moment earlier */
            pair_expect_nothing(&p, &p.b);
            assert_int_equal(dialer.tries, i + 1);
            dialer.now_ns++;
            pair_await(&p, dialer.tries == i + 2);
        }
        pair_close(&p);
    }
}

/* Its stack may have refused for a listener that made room for others; a few tries tell. */
PAIR_WITH(dialer_opened, a_refusal_without_a_word_is_asked_a_few_times_more) {
    struct pair *p = *state;
    dialer.always = REJECT(28);
    pair_dial(p, PAIR_LINK(.timeout_ns = 1000 * 1000000000ull));
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    for (unsigned tries = 1; tries < 4; tries++) {
        pair_await(p, conn->owner.state == CM_BACKOFF);
        assert_int_equal(dialer.tries, tries);
        dialer.now_ns = conn->step_ns;
        pair_await(p, dialer.tries == tries + 1);
    }
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_NO_LISTENER); /* nobody said no */
    assert_int_equal(event.vendor, 28);
    assert_int_equal(dialer.tries, 4);
}

/* The listener's stack had no room, or no time for it: the next try may find that. */
PAIR_WITH(dialer_opened, a_connection_that_ends_unanswered_is_asked_for_until_the_time_is_over) {
    struct pair *p = *state;
    dialer.always = REJECT(4);
    pair_dial(p, PAIR_LINK(.timeout_ns = 30 * 1000000000ull));
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    for (unsigned tries = 1; conn->owner.state != CM_RELEASED && tries < 100; tries++) {
        pair_await(p, conn->owner.state == CM_BACKOFF || conn->owner.state == CM_RELEASED);
        dialer.now_ns = conn->step_ns != 0 ? conn->step_ns : dialer.now_ns;
        pair_await(p, dialer.tries > tries || conn->owner.state == CM_RELEASED);
    }
    assert_uint_in_range(dialer.now_ns - 1000000000000ull, 30 * 1000000000ull, 33 * 1000000000ull);
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_UNREACHABLE);
}

static struct cm_conn *accepting_at(struct side *side) {
    struct cm_conn *conn;
    cds_list_for_each_entry(conn, &side->node->cm->conns, link) {
        if (conn->owner.state == CM_ACCEPTING)
            return conn;
    }
    return NULL;
}

/*
 * Where a machine is busy an answer is read late. By then the listener's application hung up, or it has lost patience, and says which: it is
 * the end. Over TCP it cannot say, and on Linux it must not, where rejecting what it accepted holds the id for a minute: both sound the
 * same then, and an application that hung up is not to be asked again.
 */
static void ends_with_the_listeners_end(bool tcp, bool rejects_accepted, bool hangs_up) {
    struct pair p;
    dialer_open(&p, PAIR_NODE(.soft_net = tcp ? SLUICE_SOFT_NET_REQUIRE : SLUICE_SOFT_NET_OFF),
                PAIR_LINK());
    p.a.node->traits.rejects_accepted = rejects_accepted;
    dialer.over = 1;
    pair_dial(&p, PAIR_LINK());
    pair_await(&p, accepting_at(&p.a));
    struct cm_conn *conn = accepting_at(&p.a);
    if (hangs_up)
        sluice_hangup((sluice_session){atomic_load(&session_of_conn(conn)->id)}, 0);
    else
        conn->deadline_ns = p.a.node->cm->next_deadline_ns = 1;
    sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    sluice_reason said = hangs_up ? SLUICE_REASON_REFUSED : SLUICE_REASON_TIMEOUT;
    assert_int_equal(event.reason, rejects_accepted && !tcp ? said : SLUICE_REASON_PEER_LOST);
    assert_int_equal(pair_info(p.b.session).cm_event, RDMA_CM_EVENT_REJECTED);
    assert_int_equal(pair_info(p.b.session).tries, 1);
    pair_close(&p);
}

TEST(an_answer_that_is_read_late_ends_with_the_reason_of_the_listeners_end) {
    for (unsigned i = 0; i < 8; i++)
        ends_with_the_listeners_end(i & 4, i & 2, i & 1);
}

/* A device that has no attributes for a connection that goes on is at fault itself. */
PAIR_WITH(dialer_opened,
          an_answer_without_attributes_and_without_an_end_is_an_error_of_the_device) {
    struct pair *p = *state;
    dialer.over = 1;
    pair_dial(p, PAIR_LINK());
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    pair_await(p, conn->unread);
    dialer.now_ns = conn->step_ns;
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_DEVICE_ERROR);
    assert_int_equal(event.vendor, EINVAL);
}

PAIR_WITH(dialer_opened, a_fresh_nonce_and_session_id_each_try) {
    struct pair *p = *state;
    static const uint8_t none[16];
    uint8_t seen[8][16];
    unsigned count = 0;
    dialer_script((const char *[]){REJECT(8), REJECT(4), NULL});
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK());
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    pair_await(p, conn->owner.state == CM_BACKOFF);
    dialer.now_ns = conn->step_ns;
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(dialer.connects, 4);
    for (unsigned i = 0; i < dialer.connects; i++) {
        memcpy(seen[count++], dialer.reqs[i].session_id, 16);
        memcpy(seen[count++], dialer.reqs[i].nonce, 16);
    }
    for (unsigned i = 0; i < count; i++) {
        assert_memory_not_equal(seen[i], none, 16);
        for (unsigned k = 0; k < i; k++)
            assert_memory_not_equal(seen[i], seen[k], 16);
    }
    const struct private_data_req *req = &pair_session(&p->a)->connection->cm.req;
    assert_memory_equal(req->session_id, dialer.reqs[3].session_id, 16);
    assert_memory_equal(req->nonce, dialer.reqs[3].nonce, 16);
    assert_memory_equal(conn->rep.session_id, req->session_id, 16);
}

TEST(once_means_once) {
    static const char *const answers[] = {REJECT(4), REJECT(10), REJECT(8),
                                          "id=* connect=1 event=UNREACHABLE status=-110"};
    static const sluice_reason reasons[] = {SLUICE_REASON_UNREACHABLE, SLUICE_REASON_PEER_LOST,
                                            SLUICE_REASON_NO_LISTENER, SLUICE_REASON_UNREACHABLE};
    for (unsigned i = 0; i < 4; i++) {
        struct pair p;
        dialer_open(&p, PAIR_NODE(), PAIR_LINK());
        dialer_script((const char *[]){answers[i], NULL});
        dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
        pair_dial_name(&p, "two.test", PAIR_LINK(.flags = SLUICE_ONCE));
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(event.reason, reasons[i]);
        assert_int_equal(pair_info(p.b.session).tries, 1);
        assert_int_equal(dialer.tries, 1);
        pair_close(&p);
    }
}

int main(void) {
    setenv("SLUICE_SOFT_NET", "off", 1); /* what is beyond this host is no part of it */
    return tests_run(NULL, NULL);
}
