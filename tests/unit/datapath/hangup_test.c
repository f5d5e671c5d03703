/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hangup_test.c - from sluice_hangup() on nothing new is accepted: not by the same thread, before its loop has heard of
 * it, and not by another. What was accepted before has its outcome.
 */
#include "support/memory.h"

#include <pthread.h>

struct calls {
    struct memory m;
    sluice_session session, asker;
    sluice_msg *msg[3];
    uint64_t token; /* of a request that waits for its answer */
    unsigned accepted;
};

/* Every call that gives a session something to do. */
static void everything_is_refused(struct calls *c, const char *when) {
    const sluice_send_options *tagged = SLUICE_SEND(.tag = 9);
    sluice_piece piece = {.data = "piece", .bytes = 5};
    const struct {
        const char *name;
        int status;
    } calls[] = {
        {"send", sluice_send(c->session, c->msg[0], NULL)},
        {"send, with a tag", sluice_send(c->session, c->msg[0], tagged)},
        {"send, more", sluice_send(c->session, c->msg[0], SLUICE_SEND(.flags = SLUICE_MORE))},
        {"send_copy", sluice_send_copy(c->session, "copy", 4, NULL)},
        {"send_pieces", sluice_send_pieces(c->session, &piece, 1, tagged)},
        {"request", sluice_request(c->session, c->msg[1], tagged)},
        {"reply", sluice_reply(c->asker, c->token, c->msg[2])},
        {"reply_error", sluice_reply_error(c->asker, c->token, 1)},
        {"put", sluice_put(c->session, c->m.here, 0, 64, &c->m.token, 0, tagged)},
        {"get", sluice_get(c->session, c->m.here, 0, 64, &c->m.token, 0, tagged)},
        {"put_notify", sluice_put_notify(c->session, c->m.here, 0, 64, &c->m.token, 0, 1, tagged)},
        {"fence", sluice_fence(c->session, tagged)},
    };
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].status != SLUICE_ECLOSED)
            fail_msg("%s %s: %d", calls[i].name, when, calls[i].status);
}

static void *of_another_thread(void *arg) {
    everything_is_refused(arg, "by another thread");
    return NULL;
}

/* One side dials, sends and is asked; its own outcomes are told before CLOSED. */
TEST(nothing_is_accepted_after_hangup) {
    for (unsigned way = 0; way < 4; way++) {
        struct calls c = {0};
        uint64_t grace = way & 1 ? 5000000000 : 0;
        pthread_t thread;
        sluice_event event;
        memory_open(&c.m, 1 << 20, PAIR_LINK());
        struct pair *p = &c.m.pair;
        c.session = c.asker = p->b.session;
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(sluice_alloc(p->b.node, 64, &c.msg[i]), 0);
        sluice_msg *asks;
        assert_int_equal(sluice_alloc(p->a.node, 8, &asks), 0);
        assert_int_equal(sluice_request(p->a.session, asks, NULL), 0);
        c.token = pair_expect(p, &p->b, SLUICE_REQUEST).token;
        assert_int_equal(sluice_send_copy(c.session, "before", 6, SLUICE_SEND(.tag = 1)), 0);
        sluice_hangup(c.session, grace);
        if (way & 2) {
            assert_int_equal(pthread_create(&thread, NULL, of_another_thread, &c), 0);
            pthread_join(thread, NULL);
        }
        everything_is_refused(&c, "at once");
        unsigned sent = 0;
        do {
            assert_true(pair_next(p, &p->b, &event));
            if (event.type == SLUICE_SENT) {
                assert_int_equal(event.tag, 1);
                assert_true(event.status == 0 || (!grace && event.status != 0));
                sent++;
            }
        } while (event.type != SLUICE_CLOSED);
        assert_int_equal(sent, 1);
        everything_is_refused(&c, "after CLOSED");
        for (unsigned i = 0; i < 3; i++)
            sluice_free(c.msg[i]);
        memory_close(&c.m);
    }
}

/* A listener's application that hangs up has decided: it cannot accept any more. */
TEST(a_request_that_was_hung_up_cannot_be_answered) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK());
    sluice_session asked = pair_expect(&p, &p.a, SLUICE_CONNECT).session;
    sluice_hangup(asked, 0);
    assert_int_equal(sluice_accept(asked, NULL), SLUICE_ECLOSED);
    assert_int_equal(sluice_refuse(asked, 1, "no"), SLUICE_ECLOSED);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_REFUSED);
    pair_close(&p);
}
