/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * credits_test.c - flow control: a full window is EAGAIN, then exactly one WRITABLE; a receiver that
 * does not take what comes stalls its sender and nobody else; nothing is dropped.
 */
#include "support/side.h"
#include "support/peer.h"

/* Sends until the window is full; how many were taken. */
static uint64_t fill(struct side *side, sluice_session session, size_t bytes, uint64_t seed) {
    uint64_t n = 0;
    for (;;) {
        int status = side_send(side, session, bytes, seed + n, seed + n + 1);
        if (status == SLUICE_EAGAIN)
            return n;
        assert_int_equal(status, 0);
        n++;
        assert_true(n < 100000);
    }
}

enum { DEFAULT_CREDITS = 32 };

struct counts {
    uint64_t outcomes, writables, received;
    bool seen[1024]; /* by tag, where transfers overtake each other */
};

static void count(struct counts *counts, struct note *note, size_t bytes) {
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_SENT:
        counts->outcomes++;
        must(note->event.status == 0 && note->event.tag > 0);
        if (bytes > 8192) {
            must_data(note->event.tag < 1024 && !counts->seen[note->event.tag]);
            counts->seen[note->event.tag] = true;
        } else {
            must_data(note->event.tag == counts->outcomes);
        }
        break;
    case SLUICE_WRITABLE:
        counts->writables++;
        break;
    case SLUICE_MESSAGE:
        must(it_matches(note->msg, bytes, counts->received++));
        break;
    default:
        must(!"an event of this kind");
    }
    note_free(note);
}

/*
 * The peer is stopped while the window fills, so that it sends nothing back meanwhile; EAGAIN is asked
 * for many times and answered by one WRITABLE.
 */
BOTH_MODES(one_writable_for_every_time_the_window_was_full) {
    const uint32_t windows[] = {1, 2, 8, 128, 1000};
    for (unsigned i = 0; i < 5; i++) {
        struct peer peer;
        struct side side;
        struct counts counts = {0};
        peer_run(&peer, "session_peer", "listen", "echo");
        int port = atoi(peer_expect(&peer, "port "));
        side_open(&side, handlers_of(state), NULL);
        sluice_session session = side_dial(
            &side, port,
            &(sluice_link_options){.window_messages = windows[i], .window_bytes = 64 << 20});
        side_expect(&side, SLUICE_UP);
        uint64_t sent = 0, fulls = 0;
        for (unsigned episode = 1; episode <= 3; episode++) {
            siginfo_t info;
            kill(peer.pid, SIGSTOP);
            must(waitid(P_PID, (id_t)peer.pid, &info, WSTOPPED) == 0);
            uint64_t n = fill(&side, session, 700, sent);
            sent += n;
            fulls++;
            for (unsigned k = 0; k < 10; k++) {
                int status = side_send(&side, session, 700, sent, sent + 1);
                if (status == 0 &&
                    it_answers_alone()) { /* a NIC goes on acknowledging while there are credits */
                    sent++, n++, fulls++;
                    continue;
                }
                assert_int_equal(status, SLUICE_EAGAIN);
            }
            if (episode == 1)
                assert_uint_in_range(n, windows[i],
                                     windows[i] + (it_answers_alone() ? DEFAULT_CREDITS : 0));
            kill(peer.pid, SIGCONT);
            while (counts.outcomes < sent || counts.received < sent || counts.writables < episode) {
                struct note note;
                must_data(side_next(&side, &note, LIMIT_NS));
                count(&counts, &note, 700);
            }
            struct note note; /* of the times it was full in between, which may be told of later */
            while (it_answers_alone() && counts.writables < fulls &&
                   side_next(&side, &note, 50 * MS))
                count(&counts, &note, 700);
            side_expect_nothing(&side);
            assert_uint_in_range(counts.writables, episode, fulls); /* the same on soft */
        }
        side_close(&side, 0);
        peer_quit(&peer);
    }
}

BOTH_MODES(the_window_counts_bytes_too_and_one_message_always_fits) {
    struct couple c;
    struct counts at_a = {0}, at_b = {0};
    couple_open(&c, handlers_of(state), NULL);
    couple_connect(&c, &(sluice_link_options){.window_bytes = 100000, .window_messages = 1000});
    for (unsigned i = 0; i < 20; i++) { /* larger than the whole window, one by one */
        uint64_t base = at_b.outcomes;
        must(side_send(&c.b, c.at_b, 300000, base, base + 1) == 0);
        struct note note;
        while (at_b.outcomes == base || at_a.received == base) {
            if (side_next(&c.b, &note, MS))
                count(&at_b, &note, 300000);
            if (side_next(&c.a, &note, MS))
                count(&at_a, &note, 300000);
        }
    }
    couple_close(&c);
}

/* Credits as few as may be, messages of many frames: it goes on, if slowly. */
BOTH_MODES(few_credits_carry_large_messages_both_ways) {
    struct peer peer;
    struct side side;
    struct counts counts = {0};
    peer_run(&peer, "session_peer", "listen", "echo", "credits=4", "eager=512");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), SLUICE_NODE(.eager_bytes = 512));
    sluice_session session = side_dial(&side, port, &(sluice_link_options){.credits = 4});
    side_expect(&side, SLUICE_UP);
    uint64_t sent = 0;
    bool full = false;
    while (counts.received < 40) {
        while (!full && sent < 40) {
            int status = side_send(&side, session, 100000, sent, sent + 1);
            full = status == SLUICE_EAGAIN;
            must(full || status == 0);
            sent += status == 0;
        }
        struct note note;
        must_data(side_next(&side, &note, LIMIT_NS));
        full = full && note.event.type != SLUICE_WRITABLE;
        count(&counts, &note, 100000);
    }
    side_close(&side, 0);
    peer_quit(&peer);
}

/* A loop that nobody polls stalls those who send to it, not the other session of the sender. */
BOTH_MODES(a_receiver_that_does_not_poll_stalls_only_its_sender) {
    struct peer stopped, running;
    struct side side;
    peer_run(&stopped, "session_peer", "listen", "sink");
    peer_run(&running, "session_peer", "listen", "echo");
    side_open(&side, handlers_of(state), NULL);
    sluice_session slow = side_dial(&side, atoi(peer_expect(&stopped, "port ")), NULL);
    side_expect(&side, SLUICE_UP);
    sluice_session quick = side_dial(&side, atoi(peer_expect(&running, "port ")), NULL);
    side_expect(&side, SLUICE_UP);
    siginfo_t info;
    kill(stopped.pid, SIGSTOP);
    must(waitid(P_PID, (id_t)stopped.pid, &info, WSTOPPED) == 0);
    uint64_t pending = 0;
    while (side_send(&side, slow, it_mixed(pending), pending, 0) == 0)
        pending++;
    /* Elsewhere is an emulated guest; and over TCP each waits for two more threads. */
    unsigned rounds = it_soft() && !it_tcp() ? 2000 : 300;
    for (unsigned i = 0; i < rounds; i++) {
        must(side_send(&side, quick, 100, i, 0) == 0);
        struct note note = side_expect(&side, SLUICE_MESSAGE);
        must(note.event.session.id == quick.id && it_matches(note.msg, 100, i));
        note_free(&note);
    }
    kill(stopped.pid, SIGCONT);
    struct note note = side_expect(&side, SLUICE_WRITABLE);
    must(note.event.session.id == slow.id);
    sluice_hangup(slow, 30000 * MS);
    side_expect_closed(&side, SLUICE_REASON_LOCAL_CLOSE);
    peer_expect(&stopped, "up ");
    peer_expect(&stopped, "closed ");
    must_data_equal(peer_number(&stopped, "received"), pending);
    side_close(&side, 0);
    peer_quit(&running);
    peer_quit(&stopped);
}

/* Kept messages are the receiver's problem: each withholds a credit, and the stream goes on with the
 * rest. */
BOTH_MODES(kept_messages_slow_the_sender_down_and_lose_nothing) {
    enum { KEEP = DEFAULT_CREDITS - 6, ALL = 400 };
    sluice_msg *kept[KEEP];
    unsigned held = 0;
    struct peer peer;
    struct side side;
    peer_run(&peer, "session_peer", "listen", "flood");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), SLUICE_NODE(.memory_bytes_max = 64 << 20));
    side_dial(&side, port, NULL);
    side_expect(&side, SLUICE_UP);
    for (uint64_t received = 0; received < ALL;) {
        struct note note = side_expect(&side, SLUICE_MESSAGE);
        must(it_matches(note.msg, it_mixed(received), received));
        received++;
        kept[held++] = note.msg;
        if (held == KEEP) /* let them go in another order than they came */
            for (; held; held--) {
                sluice_msg *msg = kept[held * 7 % KEEP % held];
                kept[held * 7 % KEEP % held] = kept[held - 1];
                sluice_free(msg);
            }
    }
    while (held)
        sluice_free(kept[--held]);
    side_close(&side, 0);
    peer_expect(&peer, "up ");
    peer_expect(&peer, "closed ");
    must_data_equal(peer_number(&peer, "accepted"), peer_number(&peer, "outcomes"));
    peer_quit(&peer);
}
