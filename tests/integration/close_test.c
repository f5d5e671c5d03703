/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * close_test.c - hanging up and closing, from either side, from both, in every state, any number of
 * times: each session has one CLOSED as its last event, each tagged send one outcome.
 */
#include "support/peer.h"
#include "support/tally.h"

/* ---- outcomes ------------------------------------------------------------------------------------- */

enum { TAGS = 4096 };

struct tagged {
    struct tally t;
    uint8_t seen[TAGS];
};

#define TAGGED(at) ((struct tagged){.t = {.session = (at), .up = true}})

static void tagged_note(struct tagged *k, struct note *note) {
    if (note->event.type == SLUICE_SENT) {
        must_data(note->event.tag >= 1 && note->event.tag <= k->t.accepted);
        must_data(!k->seen[note->event.tag]);
        k->seen[note->event.tag] = 1;
    }
    tally_note(&k->t, note);
}

static void tagged_finish(struct side *side, struct tagged *k) {
    while (!k->t.closed) {
        struct note note;
        must(side_next(side, &note, LIMIT_NS));
        tagged_note(k, &note);
    }
    must_data_equal(k->t.outcomes, k->t.accepted);
    side_expect_nothing(side);
}

/* ---- who hangs up --------------------------------------------------------------------------------- */

BOTH_MODES(an_idle_session_ends_from_either_side_or_both) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    for (unsigned who = 1; who <= 3; who++) {
        couple_connect(&c, NULL);
        if (who & 1)
            sluice_hangup(c.at_a, 0);
        if (who & 2)
            sluice_hangup(c.at_b, 0);
        struct note a = side_expect(&c.a, SLUICE_CLOSED), b = side_expect(&c.b, SLUICE_CLOSED);
        /* Where both hang up each may hear of the other first. */
        if (who != 3) {
            assert_int_equal(a.event.reason,
                             who == 1 ? SLUICE_REASON_LOCAL_CLOSE : SLUICE_REASON_PEER_CLOSE);
            assert_int_equal(b.event.reason,
                             who == 2 ? SLUICE_REASON_LOCAL_CLOSE : SLUICE_REASON_PEER_CLOSE);
        } else {
            assert_true(a.event.reason == SLUICE_REASON_LOCAL_CLOSE ||
                        a.event.reason == SLUICE_REASON_PEER_CLOSE);
            assert_true(b.event.reason == SLUICE_REASON_LOCAL_CLOSE ||
                        b.event.reason == SLUICE_REASON_PEER_CLOSE);
        }
        side_expect_nothing(&c.a);
        side_expect_nothing(&c.b);
    }
    couple_close(&c);
}

/* In full flow both ways; the side that hangs up, the grace and how often it says so vary. */
BOTH_MODES(a_session_in_full_flow_ends_with_every_outcome) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    for (unsigned round = 0; round < 12; round++) {
        struct note note;
        couple_connect(&c, NULL);
        struct tagged a = TAGGED(c.at_a), b = TAGGED(c.at_b);
        while (a.t.received < 20 || b.t.received < 20) {
            tally_send(&a.t, &c.a, 300);
            tally_send(&b.t, &c.b, 300);
            if (side_next(&c.a, &note, MS))
                tagged_note(&a, &note);
            if (side_next(&c.b, &note, MS))
                tagged_note(&b, &note);
        }
        uint64_t grace = round % 2 ? 10000 * MS : 0;
        if (round % 3 != 1)
            sluice_hangup(c.at_a, grace);
        if (round % 3 != 0)
            sluice_hangup(c.at_b, grace);
        if (round >= 6) { /* twice, thrice: nothing more happens */
            sluice_hangup(c.at_a, grace);
            sluice_hangup(c.at_a, grace);
        }
        tally_send(&a.t, &c.a, a.t.accepted + 1); /* taken or not, it is counted right */
        while (!a.t.closed || !b.t.closed) {
            if (!a.t.closed && side_next(&c.a, &note, MS))
                tagged_note(&a, &note);
            if (!b.t.closed && side_next(&c.b, &note, MS))
                tagged_note(&b, &note);
        }
        tagged_finish(&c.a, &a);
        tagged_finish(&c.b, &b);
        sluice_hangup(c.at_a, 0); /* of the dead: ignored */
        must_data(a.t.received <= b.t.accepted && b.t.received <= a.t.accepted);
    }
    couple_close(&c);
}

/* With time enough everything that was accepted arrives before the end. */
BOTH_MODES(a_grace_delivers_what_was_accepted) {
    struct peer peer;
    struct side side;
    peer_run(&peer, "session_peer", "listen", "sink");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    for (unsigned round = 0; round < 3; round++) {
        struct tagged k = TAGGED(side_dial(&side, port, NULL));
        side_expect(&side, SLUICE_UP);
        tally_send(&k.t, &side, TAGS - 1);
        assert_true(k.t.accepted > 10);
        sluice_hangup(k.t.session, 30000 * MS);
        tagged_finish(&side, &k);
        assert_int_equal(k.t.end.event.reason, SLUICE_REASON_LOCAL_CLOSE);
        peer_expect(&peer, "up ");
        peer_expect(&peer, "closed ");
        assert_int_equal(peer_number(&peer, "reason"), SLUICE_REASON_PEER_CLOSE);
        must_data_equal(peer_number(&peer, "received"), k.t.accepted);
    }
    side_close(&side, 0);
    peer_quit(&peer);
}

/* ---- in every state --------------------------------------------------------------------------------- */

BOTH_MODES(hanging_up_while_dialing) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, NULL, &c.listener);
    for (unsigned turns = 0; turns < 60; turns++) { /* after more and more of the way */
        struct note note;
        bool up = false;
        c.at_b = side_dial(&c.b, c.port, NULL);
        for (unsigned i = 0; i < turns / 2 && !up; i++)
            if (side_next(&c.b, &note, turns % 2 ? MS / 10 : 0)) {
                must(note.event.type == SLUICE_UP);
                up = true;
            }
        sluice_hangup(c.at_b, 0);
        do
            must(side_next(&c.b, &note, LIMIT_NS));
        while (note.event.type == SLUICE_UP);
        must(note.event.type == SLUICE_CLOSED);
        assert_int_equal(note.event.reason, SLUICE_REASON_LOCAL_CLOSE);
        assert_true(note.event.session.id == c.at_b.id);
    }
    /* The listening side heard of each as a whole or not at all. */
    sluice_session end = side_dial(&c.b, c.port, NULL);
    side_expect(&c.b, SLUICE_UP);
    must(side_send(&c.b, end, 77, 5, 0) == 0);
    for (struct note note;;) {
        must(side_next(&c.a, &note, LIMIT_NS));
        must(note.event.type == SLUICE_UP || note.event.type == SLUICE_CLOSED ||
             note.event.type == SLUICE_MESSAGE);
        bool last = note.event.type == SLUICE_MESSAGE;
        note_free(&note);
        if (last)
            break;
    }
    couple_close(&c);
}

BOTH_MODES(hanging_up_while_being_asked) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK}, &c.listener);
    for (unsigned row = 0; row < 3; row++) {
        c.at_b = side_dial(&c.b, c.port, NULL);
        c.at_a = side_expect(&c.a, SLUICE_CONNECT).event.session;
        switch (row) {
        case 0: /* the one who is asked: that is a refusal */
            sluice_hangup(c.at_a, 0);
            side_expect_closed(&c.b, SLUICE_REASON_REFUSED);
            break;
        case 1: /* the one who asks; the other learns it with its answer, or at once */
            sluice_hangup(c.at_b, 0);
            side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
            must(sluice_accept(c.at_a, NULL) == 0 || it_iwarp());
            break;
        case 2: /* right after the answer */
            must(sluice_accept(c.at_a, NULL) == 0);
            sluice_hangup(c.at_a, 0);
            for (struct note note = {0}; note.event.type != SLUICE_CLOSED;)
                must(side_next(&c.b, &note, LIMIT_NS));
            break;
        }
        for (struct note note = {0}; note.event.type != SLUICE_CLOSED;)
            must(side_next(&c.a, &note, LIMIT_NS));
        side_expect_nothing(&c.a);
    }
    couple_close(&c);
}

/* ---- the whole node ---------------------------------------------------------------------------------- */

BOTH_MODES(closing_a_node_in_every_state_ends_its_peers) {
    for (unsigned row = 0; row < 5; row++) {
        struct peer peer;
        struct side side;
        struct tally t = {.up = true};
        peer_run(&peer, "session_peer", "listen", row == 4 ? "flood" : "sink",
                 row == 1 ? "ask" : "");
        int port = atoi(peer_expect(&peer, "port "));
        side_open(&side, handlers_of(state), NULL);
        if (row > 0)
            t.session = side_dial(&side, port, NULL); /* row 0: only dialing, once more below */
        switch (row) {
        case 0:
            side_dial(&side, port, NULL);
            break;
        case 1:
            for (struct note note; !peer_ready(&peer);) /* our loop has its part in asking */
                must(!side_next(&side, &note, MS));
            peer_expect(&peer, "asked ");
            break;
        case 2: /* idle */
            side_expect(&side, SLUICE_UP);
            peer_expect(&peer, "up ");
            break;
        case 3: /* with sends on their way */
            side_expect(&side, SLUICE_UP);
            peer_expect(&peer, "up ");
            tally_send(&t, &side, TAGS - 1);
            break;
        case 4: /* being flooded, with messages nobody fetched */
            side_expect(&side, SLUICE_UP);
            peer_expect(&peer, "up ");
            for (unsigned i = 0; i < 20; i++) {
                struct note note = side_expect(&side, SLUICE_MESSAGE);
                note_free(&note);
            }
            break;
        }
        uint64_t start = sluice_now();
        side_close(&side, 0);
        assert_uint_in_range(sluice_now() - start, 0, 5000 * MS);
        if (row == 1 && !it_iwarp()) { /* it does not know yet */
            peer_tell(&peer, "accept");
            peer_expect(&peer, "accepted ");
        }
        if (row > 0)
            peer_expect(&peer, "closed ");
        if (row >= 2) {
            assert_int_equal(peer_number(&peer, "reason"), SLUICE_REASON_PEER_CLOSE);
            must_data_equal(peer_number(&peer, "accepted"), peer_number(&peer, "outcomes"));
        }
        peer_quit(&peer);
    }
}

BOTH_MODES(closing_with_grace_delivers_what_was_accepted) {
    struct peer peer;
    struct side side;
    struct tally t = {.up = true};
    peer_run(&peer, "session_peer", "listen", "sink");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    t.session = side_dial(&side, port, NULL);
    side_expect(&side, SLUICE_UP);
    peer_expect(&peer, "up ");
    tally_send(&t, &side, TAGS - 1);
    side_close(&side, 30000 * MS);
    peer_expect(&peer, "closed ");
    must_data_equal(peer_number(&peer, "received"), t.accepted);
    peer_quit(&peer);
}

/* A hundred sessions at once, some asked for, some in flow. */
BOTH_MODES(closing_a_node_with_many_sessions) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.credits = 4}, &c.listener);
    unsigned ups = 0, closes = 0;
    for (unsigned i = 0; i < 100; i++)
        side_dial(&c.b, c.port, &(sluice_link_options){.credits = 4});
    for (struct note note; ups < 60;) {
        must(side_next(&c.b, &note, LIMIT_NS));
        if (note.event.type == SLUICE_SENT)
            continue;
        must(note.event.type == SLUICE_UP);
        must(side_send(&c.b, note.event.session, 5000, ups++, 1) == 0);
    }
    c.a.partner = NULL;
    side_close(&c.b, 0);
    ups = 0;
    for (struct note note; closes < 60 || ups != closes;) { /* a hears of each that came up */
        must(side_next(&c.a, &note, LIMIT_NS));
        ups += note.event.type == SLUICE_UP;
        closes += note.event.type == SLUICE_CLOSED;
        note_free(&note);
    }
    side_close(&c.a, 0);
}
