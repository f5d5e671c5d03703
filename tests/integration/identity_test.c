/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * identity_test.c - who is let in, on the device the tests run on: keys and private data, many at
 * once, decided late and by another thread, and what everybody else is told.
 */
#include "support/side.h"

static const char good[] = "0123456789abcdef0123456789abcdef",
                  bad[] = "fedcba9876543210fedcba9876543210";
static const sluice_key keys[] = {{7, 32, good}, {8, 16, good}, {9, 32, bad}};

static sluice_link_options with_key(const sluice_key *key) {
    return (sluice_link_options){.key_count = 1, .keys = key, .credits = 4};
}

static void exchange(struct couple *c) {
    must(side_send(&c->b, c->at_b, 30000, 1, 1) == 0);
    struct note note = side_expect(&c->a, SLUICE_MESSAGE);
    must(it_matches(note.msg, 30000, 1));
    note_free(&note);
    assert_int_equal(side_expect(&c->b, SLUICE_SENT).event.status, 0);
    must(side_send(&c->a, c->at_a, 1, 2, 0) == 0);
    note = side_expect(&c->b, SLUICE_MESSAGE);
    must(it_matches(note.msg, 1, 2));
    note_free(&note);
}

static uint32_t key_of(sluice_session s) {
    sluice_session_info info = {.size = sizeof info};
    assert_int_equal(sluice_session_get_info(s, &info), 0);
    return info.key_id;
}

BOTH_MODES(both_sides_know_which_key_it_was) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.key_count = 3, .keys = keys}, &c.listener);
    for (unsigned i = 0; i < 3; i++) {
        sluice_link_options link = with_key(&keys[i]);
        c.at_b = side_dial(&c.b, c.port, &link);
        side_expect(&c.b, SLUICE_UP);
        c.at_a = side_expect(&c.a, SLUICE_UP).event.session;
        assert_int_equal(key_of(c.at_a), keys[i].id);
        assert_int_equal(key_of(c.at_b), keys[i].id);
        exchange(&c);
        sluice_hangup(c.at_b, 0);
        side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
        side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
    }
    couple_close(&c);
}

BOTH_MODES(strangers_are_told_why_and_the_application_hears_nothing) {
    static const sluice_key wrong = {7, 32, bad}, unknown = {4711, 32, good};
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port =
        side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK, .key_count = 1, .keys = keys},
                    &c.listener);
    for (unsigned i = 0; i < 3; i++) {
        sluice_link_options link = with_key(&wrong);
        side_dial(&c.b, c.port, &link);
        side_expect_closed(&c.b, SLUICE_REASON_AUTH_FAILED);
        link = with_key(&unknown);
        side_dial(&c.b, c.port, &link);
        side_expect_closed(&c.b, SLUICE_REASON_AUTH_KEY);
        side_dial(&c.b, c.port, NULL);
        side_expect_closed(&c.b, SLUICE_REASON_AUTH_REQUIRED);
    }
    side_expect_nothing(&c.a);
    couple_close(&c);
}

/* ---- decided by another thread, late --------------------------------------------------------- */

struct decision {
    sluice_session asked;
    bool yes;
};

static void *decide(void *arg) {
    struct decision *d = arg;
    int status = d->yes ? sluice_accept(d->asked, d) : sluice_refuse(d->asked, 77, "not you");
    return (void *)(intptr_t)status;
}

BOTH_MODES(another_thread_decides_by_what_the_peer_sent) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port =
        side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK, .key_count = 1, .keys = keys},
                    &c.listener);
    for (unsigned i = 0; i < 4; i++) {
        sluice_link_options link = with_key(&keys[0]);
        link.private_data = "let me in";
        link.private_bytes = 9;
        c.at_b = side_dial(&c.b, c.port, &link);
        struct note note = side_expect(&c.a, SLUICE_CONNECT);
        struct decision d = {note.event.session, i % 2 == 0};
        side_expect_nothing(&c.b); /* undecided */
        pthread_t thread;
        void *status;
        must(pthread_create(&thread, NULL, decide, &d) == 0);
        must(pthread_join(thread, &status) == 0);
        assert_int_equal((intptr_t)status, 0);
        if (d.yes) {
            note = side_expect(&c.a, SLUICE_UP);
            assert_ptr_equal(note.event.arg, &d);
            c.at_a = note.event.session;
            side_expect(&c.b, SLUICE_UP);
            exchange(&c);
            sluice_hangup(c.at_a, 0);
            side_expect_closed(&c.a, SLUICE_REASON_LOCAL_CLOSE);
            side_expect_closed(&c.b, SLUICE_REASON_PEER_CLOSE);
        } else {
            note = side_expect(&c.b, SLUICE_CLOSED);
            assert_int_equal(note.event.reason, SLUICE_REASON_REFUSED);
            assert_int_equal(note.event.vendor, 77);
            assert_string_equal(note.info.close_text, "not you");
            side_expect_closed(&c.a, SLUICE_REASON_LOCAL_CLOSE);
        }
    }
    couple_close(&c);
}

/* ---- many ------------------------------------------------------------------------------------ */

/* Half of them have the wrong key; the other half comes up all the same. */
BOTH_MODES(fifty_at_once_and_fifty_impostors) {
    enum { N = 50 };
    static const sluice_key wrong = {7, 32, bad};
    struct couple c;
    unsigned up = 0, refused = 0, at_a = 0;
    couple_open(&c, handlers_of(state), NULL);
    sluice_link_options link = with_key(&keys[0]);
    c.port = side_listen(&c.a, &link, &c.listener);
    for (unsigned i = 0; i < 2 * N; i++) {
        link = with_key(i % 2 ? &wrong : &keys[0]);
        side_dial(&c.b, c.port, &link);
    }
    while (up + refused < 2 * N) {
        struct note note;
        must(side_next(&c.b, &note, LIMIT_NS));
        if (note.event.type == SLUICE_UP) {
            up++;
        } else {
            must(note.event.type == SLUICE_CLOSED);
            assert_int_equal(note.event.reason, SLUICE_REASON_AUTH_FAILED);
            refused++;
        }
    }
    assert_int_equal(up, N);
    for (; at_a < N; at_a++)
        side_expect(&c.a, SLUICE_UP);
    side_expect_nothing(&c.a);
    couple_close(&c);
}
