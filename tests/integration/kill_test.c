/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * kill_test.c - kill -9 of either side at any moment: the survivor hears CLOSED with the reason
 * that the peer was lost, every tagged send has its outcome, and it ends clean.
 */
#include "support/peer.h"
#include "support/tally.h"

struct survivor {
    struct side side;
    struct tally t;
};

/* One turn: sends what fits, takes what comes within wait_ns. */
static void survivor_turn(struct survivor *s, bool sends, uint64_t wait_ns) {
    struct note note;
    if (sends && s->t.up && !s->t.closed && !s->t.full)
        tally_send(&s->t, &s->side, UINT64_MAX);
    if (side_next(&s->side, &note, wait_ns))
        tally_note(&s->t, &note);
}

static void survivor_ends(struct survivor *s, uint64_t within_ns) {
    uint64_t start = sluice_now();
    while (!s->t.closed && sluice_now() - start < LIMIT_NS)
        survivor_turn(s, false, 100 * MS);
    must(s->t.closed);
    assert_uint_in_range(sluice_now() - start, 0, within_ns);
    if (s->t.end.event.reason != SLUICE_REASON_PEER_LOST)
        print_error("closed: %s (%u)\n", sluice_reason_text(s->t.end.event.reason),
                    s->t.end.event.vendor);
    assert_int_equal(s->t.end.event.reason, SLUICE_REASON_PEER_LOST);
    must_data_equal(s->t.outcomes, s->t.accepted);
    assert_int_equal(sluice_send_copy(s->t.session, "x", 1, NULL), SLUICE_ECLOSED);
    side_expect_nothing(&s->side);
}

/* One kill. The survivor dials or listens, the victim is in the middle of `action`. */
static void kill_one(bool handlers, bool dials, const char *action, bool sends, uint64_t after) {
    struct survivor s = {0};
    struct peer peer;
    char address[32];
    side_open(&s.side, handlers, NULL);
    if (dials) {
        peer_run(&peer, "session_peer", "listen", action);
        side_dial(&s.side, atoi(peer_expect(&peer, "port ")), NULL);
    } else {
        snprintf(address, sizeof address, "dial:%d", side_listen(&s.side, NULL, NULL));
        peer_run(&peer, "session_peer", address, action);
    }
    while (!s.t.up)
        survivor_turn(&s, sends, 100 * MS);
    while (!peer_ready(&peer))
        survivor_turn(&s, sends, MS);
    peer_expect(&peer, "up ");
    while (!s.t.closed && s.t.received + s.t.outcomes < after &&
           (sends || strcmp(action, "flood") == 0))
        survivor_turn(&s, sends, 100 * MS);
    if (s.t.closed)
        print_error("closed by itself: %s (%u), status %d\n",
                    sluice_reason_text(s.t.end.event.reason), s.t.end.event.vendor,
                    s.t.end.event.status);
    must(!s.t.closed);
    peer_kill(&peer);
    survivor_ends(&s, 5000 * MS);
    side_close(&s.side, 0);
}

BOTH_MODES(a_listener_survives_the_kill_of_its_peer) {
    kill_one(handlers_of(state), false, "idle", false, 0);
    for (unsigned i = 0; i < 4; i++) {
        kill_one(handlers_of(state), false, "flood", false, 10 + 50 * i);
        kill_one(handlers_of(state), false, "sink", true, 10 + 50 * i);
        kill_one(handlers_of(state), false, "flood", true, 10 + 50 * i);
    }
}

BOTH_MODES(a_dialer_survives_the_kill_of_its_peer) {
    kill_one(handlers_of(state), true, "idle", false, 0);
    for (unsigned i = 0; i < 4; i++) {
        kill_one(handlers_of(state), true, "flood", false, 10 + 50 * i);
        kill_one(handlers_of(state), true, "sink", true, 10 + 50 * i);
        kill_one(handlers_of(state), true, "flood", true, 10 + 50 * i);
    }
}

/* With a full window and a peer that takes nothing: all of it is pending when it dies. */
BOTH_MODES(everything_pending_has_its_outcome) {
    struct survivor s = {0};
    struct peer peer;
    peer_run(&peer, "session_peer", "listen", "sink");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&s.side, handlers_of(state), NULL);
    side_dial(&s.side, port, NULL);
    while (!s.t.up)
        survivor_turn(&s, false, 100 * MS);
    peer_expect(&peer, "up ");
    siginfo_t info;
    kill(peer.pid, SIGSTOP);
    must(waitid(P_PID, (id_t)peer.pid, &info, WSTOPPED) == 0);
    while (!s.t.full)
        survivor_turn(&s, true, 0);
    assert_true(s.t.accepted - s.t.outcomes > 4);
    peer_kill(&peer); /* stopped as it is */
    survivor_ends(&s, 5000 * MS);
    side_close(&s.side, 0);
}

/* The peer dies while the session is being made: the dial ends, and the node goes on. */
BOTH_MODES(a_kill_during_the_dial_ends_it) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    for (unsigned round = 0; round < 10; round++) {
        struct peer peer;
        struct note note;
        peer_run(&peer, "session_peer", "listen", "ask");
        side_dial(&side, atoi(peer_expect(&peer, "port ")), NULL);
        while (round % 2 && !peer_ready(&peer))
            must(!side_next(&side, &note, MS)); /* half of them: it was asked already */
        peer_kill(&peer);
        must(side_next(&side, &note, LIMIT_NS));
        must(note.event.type == SLUICE_CLOSED);
        switch (note.event.reason) {
        case SLUICE_REASON_PEER_LOST:
        case SLUICE_REASON_NO_LISTENER: /* also what its kernel says for it, without a word of its own */
        case SLUICE_REASON_UNREACHABLE:
            break;
        default:
            print_error("closed: %s (%s)\n", sluice_reason_text(note.event.reason),
                        note.info.close_text);
            fail();
        }
        side_expect_nothing(&side);
    }
    side_close(&side, 0);
}

/* Many sessions with one process: all of them end. */
BOTH_MODES(all_sessions_with_a_killed_process_end) {
    enum { N = 30 };
    struct peer peer;
    struct side side;
    peer_run(&peer, "session_peer", "listen", "idle", "credits=4");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    for (unsigned i = 0; i < N; i++)
        side_dial(&side, port, &(sluice_link_options){.credits = 4});
    for (unsigned i = 0; i < N; i++) {
        struct note note = side_expect(&side, SLUICE_UP);
        must(side_send(&side, note.event.session, 100, 1, 0) == 0);
    }
    for (unsigned i = 0; i < N; i++)
        peer_expect(&peer, "up ");
    peer_kill(&peer);
    for (unsigned i = 0; i < N; i++)
        side_expect_closed(&side, SLUICE_REASON_PEER_LOST);
    sluice_node_info info = {.size = sizeof info};
    uint64_t until = sluice_now() + LIMIT_NS;
    do { /* the last ones are put away at the next turn */
        struct note note;
        must(!side_next(&side, &note, MS));
        assert_int_equal(sluice_node_get_info(side.node, &info), 0);
    } while (info.sessions && sluice_now() < until);
    assert_int_equal(info.sessions, 0);
    side_close(&side, 0);
}
