/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resume_owner_test.c - sessions that outlive their connection, and who may go on with them: keys, forged resumes, frames of a
 * connection that was given up, and announcements of what was not lost.
 */
#include "support/log.h"
#include "support/pair.h"
#include "support/resume.h"

#include "datapath/session/down.h"

#define SECRET "0123456789abcdef"

TEST(with_a_key_each_connection_is_authenticated) {
    struct pair p;
    const sluice_key key = {7, sizeof SECRET - 1, SECRET};
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = &key, .key_count = 1));
    for (unsigned times = 1; times < 4; times++) {
        resume_cut(times % 2 ? &p.a : &p.b);
        resume_down_and_up(&p, times);
        assert_int_equal(pair_send(&p.b, 64, times, NULL), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, times));
        assert_int_equal(resume_connection(&p.a)->cm.req.key_id, 7);
    }
    pair_close(&p);
}

TEST(who_was_accepted_is_not_asked_about_again) {
    struct pair p;
    pair_open(&p, PAIR_NODE(.log = log_nothing),
              PAIR_LINK(.resume_ns = RESUME_NS, .flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK(.resume_ns = RESUME_NS, .private_data = "me", .private_bytes = 2));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_int_equal(sluice_accept(event.session, &p), 0);
    pair_expect(&p, &p.b, SLUICE_UP);
    assert_ptr_equal(pair_expect(&p, &p.a, SLUICE_UP).arg, &p);
    resume_cut(&p.b);
    resume_down_and_up(&p, 1);
    assert_int_equal(pair_send(&p.b, 64, 1, NULL), 0);
    event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_ptr_equal(event.arg, &p);
    pair_close(&p);
}

/* A dial that says it is another connection of the session there is between the two; its reason at the end. */
static sluice_reason pretend(struct pair *p, const sluice_link_options *link, const uint8_t id[16],
                             uint32_t sequence) {
    struct side first = p->b;
    pair_dial(p, link);
    struct cm_conn *conn = &resume_connection(&p->b)->cm; /* before the CM thread looks at it */
    conn->resume.on = true;
    memcpy(conn->resume.session_id, id, 16);
    conn->resume.last_sequence = sequence;
    conn->again.deadline_ns = pair_now(NULL) + SECOND;
    sluice_event event;
    do {
        pair_clock += SECOND / 100;
        assert_true(pair_next(p, &p->b, &event));
    } while (event.session.id != p->b.session.id);
    assert_int_equal(event.type, SLUICE_CLOSED);
    p->b = first;
    return (sluice_reason)event.reason;
}

static void still_talk(struct pair *p) {
    assert_int_equal(pair_send(&p->b, 64, 5, NULL), 0);
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 64, 5));
}

TEST(who_forges_a_resume_harms_no_session) {
    struct pair p;
    uint8_t id[16], other[16];
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keepalive_ns = SLUICE_OFF));
    const sluice_link_options *link = PAIR_LINK(.resume_ns = RESUME_NS);
    memcpy(id, resume_connection(&p.b)->cm.req.session_id, sizeof id);
    memcpy(other, id, sizeof other);
    other[15] ^= 1;
    still_talk(&p);
    assert_int_equal(pretend(&p, link, other, 0), SLUICE_REASON_SESSION_UNKNOWN);
    still_talk(&p);
    assert_int_equal(pretend(&p, link, id, 1), SLUICE_REASON_VALUE); /* of a frame never sent */
    still_talk(&p);
    assert_int_equal(pretend(&p, link, id, UINT32_MAX), SLUICE_REASON_VALUE);
    still_talk(&p);
    assert_int_equal(pair_info(p.a.session).resumed, 0);
    pair_close(&p);
}

/* Frames of a connection that is not up yet, of which the first is none: the session waits for the next connection. */
TEST(what_a_connection_sends_that_was_given_up_is_not_looked_at) {
    static const struct frame wrong = {.type = FRAME_TYPES, .length = 8};
    struct pair p;
    sluice_event event;
    if (pair_is_like("iwarp"))
        skip(); /* where there is a handshake first */
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    resume_break_alone(&p.b);
    resume_alone(&p, &p.b, SLUICE_DOWN);
    while (pair_session(&p.b)->state != SESSION_UP) {
        if (resume_connection(&p.a)->cm.owner.state != CM_ACCEPTING)
            cm_progress(p.a.node->cm, 0);
        cm_progress(p.b.node->cm, 0);
        assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
        assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
    }
    const struct connection *refused = resume_connection(&p.a);
    (void)pair_forge(&p.b, &wrong, &(uint64_t){0}, 8);
    assert_int_equal(pair_send(&p.b, 64, 5, NULL), 0);
    while (resume_connection(&p.a) == refused)
        assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
    bool arrived = false;
    while (!arrived) {
        assert_true(pair_next(&p, &p.a, &event));
        arrived = event.type == SLUICE_MESSAGE;
    }
    assert_true(pair_check(event.msg, 64, 5));
    assert_int_equal(pair_session(&p.a)->state, SESSION_UP);
    pair_close(&p);
}

/* What is announced again was announced, and was not whole. */
TEST(who_announces_again_what_was_not_lost_is_refused) {
    static const struct {
        const char *name;
        uint64_t word, place, more;
    } cases[] = {
        {"no rendezvous", FRAME_DATA << 16 | 2 << 24, 0, 0},
        {"a number that there is not", 99 | FRAME_DATA << 16 | 2 << 24, 0, 0},
        {"a way that there is not", FRAME_DATA << 16 | 9 << 24, 0, 0},
        {"with answers", FRAME_DATA << 16 | 2 << 24, 0, 1},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p;
        resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        if (i > 0) { /* one that was whole */
            assert_int_equal(pair_send(&p.b, 1 << 20, 1, SLUICE_SEND(.tag = 1)), 0);
            assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 1 << 20, 1));
            pair_expect(&p, &p.b, SLUICE_SENT);
        }
        resume_cut(&p.b);
        resume_down_and_up(&p, 1);
        const struct frame again = {
            .type = FRAME_AGAIN, .length = FRAME_RTS_BYTES, .total = 1 << 20};
        const uint64_t payload[] = {htole64(cases[i].word), cases[i].place, 0,
                                    htole64(cases[i].more), 0};
        sluice_msg *forged = pair_forge(&p.b, &again, payload, sizeof payload);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
        if (event.reason != SLUICE_REASON_PROTOCOL)
            fail_msg("%s: %s", cases[i].name, sluice_reason_text(event.reason));
        pair_close(&p);
        (void)forged;
    }
}

/* Nor is another key of the same listener, or a listener without keys. */
TEST(with_keys_the_id_alone_is_no_proof) {
    struct pair p;
    uint8_t id[16];
    const sluice_key keys[] = {{7, sizeof SECRET - 1, SECRET},
                               {8, sizeof SECRET - 1, "the other secret"},
                               {7, sizeof SECRET - 1, "another secret !"}};
    pair_open(&p, PAIR_NODE(.log = log_nothing),
              PAIR_LINK(.resume_ns = RESUME_NS, .keys = keys, .key_count = 2));
    pair_connect(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = keys, .key_count = 1));
    memcpy(id, resume_connection(&p.b)->cm.req.session_id, sizeof id);
    still_talk(&p);
    assert_int_equal(pretend(&p, PAIR_LINK(.resume_ns = RESUME_NS), id, 0),
                     SLUICE_REASON_AUTH_REQUIRED);
    still_talk(&p);
    (void)pretend(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = &keys[2], .key_count = 1), id, 0);
    still_talk(&p);
    assert_int_equal(
        pretend(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = &keys[1], .key_count = 1), id, 0),
        SLUICE_REASON_SESSION_UNKNOWN);
    still_talk(&p);
    pair_listen(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    assert_int_equal(pretend(&p, PAIR_LINK(.resume_ns = RESUME_NS), id, 0),
                     SLUICE_REASON_SESSION_UNKNOWN);
    still_talk(&p);
    assert_int_equal(pair_info(p.a.session).resumed, 0);
    pair_close(&p);
}
