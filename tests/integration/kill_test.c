/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * kill_test.c - kill -9 of either side at any moment: the survivor hears CLOSED with the reason
 * that the peer was lost, every tagged send has its outcome, and it ends clean.
 */
#include "support/side.h"
#include "support/peer.h"

struct survivor {
    struct side side;
    sluice_session session;
    uint64_t accepted, outcomes, received;
    bool up, full, closed;
    sluice_event end;
};

static void survivor_note(struct survivor *s, struct note *note) {
    must(!s->closed);
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_UP:
        s->up = true;
        s->session = note->event.session;
        break;
    case SLUICE_SENT:
        must(note->event.status == 0 || note->event.status == SLUICE_EUNKNOWN ||
             note->event.status == SLUICE_ECLOSED);
        s->outcomes++;
        break;
    case SLUICE_MESSAGE:
        must(it_matches(note->msg, it_mixed(s->received), s->received)); /* torn ones show */
        s->received++;
        break;
    case SLUICE_WRITABLE:
        s->full = false;
        break;
    case SLUICE_CLOSED:
        s->closed = true;
        s->end = note->event;
        break;
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
    case SLUICE_REQUEST:
    case SLUICE_REPLY:
    case SLUICE_LARGE:
    case SLUICE_DONE:
    case SLUICE_NOTIFIED:
        must(!"an event of this kind");
    }
    note_free(note);
}

/* One turn: sends what fits, takes what comes within wait_ns. */
static void survivor_turn(struct survivor *s, bool sends, uint64_t wait_ns) {
    struct note note;
    while (sends && s->up && !s->closed && !s->full) {
        int status =
            side_send(&s->side, s->session, it_mixed(s->accepted), s->accepted, s->accepted + 1);
        if (status == SLUICE_ECLOSED)
            break;
        must(status == 0 || status == SLUICE_EAGAIN);
        s->accepted += status == 0;
        s->full = status == SLUICE_EAGAIN;
    }
    if (side_next(&s->side, &note, wait_ns))
        survivor_note(s, &note);
}

static void survivor_ends(struct survivor *s, uint64_t within_ns) {
    uint64_t start = sluice_now();
    while (!s->closed && sluice_now() - start < LIMIT_NS)
        survivor_turn(s, false, 100 * MS);
    must(s->closed);
    assert_uint_in_range(sluice_now() - start, 0, within_ns);
    if (s->end.reason != SLUICE_REASON_PEER_LOST)
        print_error("closed: %s (%u)\n", sluice_reason_text(s->end.reason), s->end.vendor);
    assert_int_equal(s->end.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(s->outcomes, s->accepted);
    assert_int_equal(sluice_send_copy(s->session, "x", 1, NULL), SLUICE_ECLOSED);
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
    while (!s.up)
        survivor_turn(&s, sends, 100 * MS);
    while (!peer_ready(&peer))
        survivor_turn(&s, sends, MS);
    peer_expect(&peer, "up ");
    while (!s.closed && s.received + s.outcomes < after && (sends || strcmp(action, "flood") == 0))
        survivor_turn(&s, sends, 100 * MS);
    if (s.closed)
        print_error("closed by itself: %s (%u), status %d\n", sluice_reason_text(s.end.reason),
                    s.end.vendor, s.end.status);
    must(!s.closed);
    peer_kill(&peer);
    survivor_ends(&s, 5000 * MS);
    side_close(&s.side, 0);
}

static void a_listener_survives_the_kill_of_its_peer(void **state) {
    kill_one(handlers_of(state), false, "idle", false, 0);
    for (unsigned i = 0; i < 4; i++) {
        kill_one(handlers_of(state), false, "flood", false, 10 + 50 * i);
        kill_one(handlers_of(state), false, "sink", true, 10 + 50 * i);
        kill_one(handlers_of(state), false, "flood", true, 10 + 50 * i);
    }
}

static void a_dialer_survives_the_kill_of_its_peer(void **state) {
    kill_one(handlers_of(state), true, "idle", false, 0);
    for (unsigned i = 0; i < 4; i++) {
        kill_one(handlers_of(state), true, "flood", false, 10 + 50 * i);
        kill_one(handlers_of(state), true, "sink", true, 10 + 50 * i);
        kill_one(handlers_of(state), true, "flood", true, 10 + 50 * i);
    }
}

/* With a full window and a peer that takes nothing: all of it is pending when it dies. */
static void everything_pending_has_its_outcome(void **state) {
    struct survivor s = {0};
    struct peer peer;
    peer_run(&peer, "session_peer", "listen", "sink");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&s.side, handlers_of(state), NULL);
    side_dial(&s.side, port, NULL);
    while (!s.up)
        survivor_turn(&s, false, 100 * MS);
    peer_expect(&peer, "up ");
    siginfo_t info;
    kill(peer.pid, SIGSTOP);
    must(waitid(P_PID, (id_t)peer.pid, &info, WSTOPPED) == 0);
    while (!s.full)
        survivor_turn(&s, true, 0);
    assert_true(s.accepted - s.outcomes > 4);
    peer_kill(&peer); /* stopped as it is */
    survivor_ends(&s, 5000 * MS);
    side_close(&s.side, 0);
}

/* The peer dies while the session is being made: the dial ends, and the node goes on. */
static void a_kill_during_the_dial_ends_it(void **state) {
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
        case SLUICE_REASON_NO_LISTENER:
        case SLUICE_REASON_UNREACHABLE:
        case SLUICE_REASON_REFUSED: /* what its kernel says for it, without a word of its own */
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
static void all_sessions_with_a_killed_process_end(void **state) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH_MODES(a_listener_survives_the_kill_of_its_peer),
        BOTH_MODES(a_dialer_survives_the_kill_of_its_peer),
        BOTH_MODES(everything_pending_has_its_outcome),
        BOTH_MODES(a_kill_during_the_dial_ends_it),
        BOTH_MODES(all_sessions_with_a_killed_process_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
