/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * noise_test.c - peers that lie, flood, fall silent or scribble: their own session ends with a
 * reason, every tagged send has its outcome, an honest session beside it never notices, and nothing
 * is left behind.
 */
#include "support/side.h"
#include "support/peer.h"
#include "support/log.h"

/* The honest session beside the others: an echo in another process. */
struct honest {
    struct peer peer;
    sluice_session session;
    uint64_t sent, back;
};

struct victim {
    struct side side;
    struct honest honest;
    uint64_t accepted, outcomes, ups, closes, down_unknown;
};

static void victim_open(struct victim *v, bool handlers) {
    memset(v, 0, sizeof *v);
    peer_run(&v->honest.peer, "session_peer", "listen", "echo");
    side_open(&v->side, handlers, SLUICE_NODE(.log = log_nothing, .message_bytes_max = 1 << 20));
    v->honest.session = side_dial(&v->side, atoi(peer_expect(&v->honest.peer, "port ")), NULL);
    side_expect(&v->side, SLUICE_UP);
}

static void victim_note(struct victim *v, struct note *note, bool sends) {
    sluice_session session = note->event.session;
    bool honest = session.id == v->honest.session.id;
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_MESSAGE:
        if (honest) {
            must(it_matches(note->msg, it_mixed(v->honest.back), v->honest.back));
            v->honest.back++;
        }
        break;
    case SLUICE_SENT:
        must(!honest);
        v->outcomes++;
        break;
    case SLUICE_UP:
        must(!honest);
        v->ups++;
        for (unsigned i = 0; i < 40 && sends; i++) { /* something to be lost */
            int status = side_send(&v->side, session, 3000, i, 1);
            v->accepted += status == 0;
            must(status == 0 || status == SLUICE_EAGAIN || status == SLUICE_ECLOSED);
        }
        break;
    case SLUICE_CLOSED:
        must(!honest);
        must(note->event.reason != SLUICE_REASON_NONE && note->info.close_text[0]);
        v->closes++;
        break;
    default:
        must(!honest);
        break;
    }
    note_free(note);
}

static void victim_turn(struct victim *v, bool sends) {
    struct note note;
    if (v->honest.sent == v->honest.back) {
        must(side_send(&v->side, v->honest.session, it_mixed(v->honest.sent), v->honest.sent, 0) ==
             0);
        v->honest.sent++;
    }
    if (side_next(&v->side, &note, 10 * MS))
        victim_note(v, &note, sends);
}

static void victim_close(struct victim *v) {
    it_rnr_provoked = true; /* a hostile peer may send more than it has credits for */
    uint64_t until = sluice_now() + LIMIT_NS; /* the honest one is as good as ever */
    for (uint64_t goal = v->honest.back + 20; v->honest.back < goal;) {
        victim_turn(v, false);
        must(sluice_now() < until);
    }
    must_data_equal(v->outcomes, v->accepted);
    side_close(&v->side, 0);
    peer_quit(&v->honest.peer);
}

static const char *const modes[] = {"records", "frames", "flood",   "mute",
                                    "half",    "vanish", "scribble"};

/* The last mode is for the software device: only there do peers share memory. */
static unsigned mode_count(void) {
    return sizeof modes / sizeof modes[0] - (it_soft() ? 0 : 1);
}

/* Rounds that scribble or say nothing take a second each: what searches for long is a long run, by hand. */
static const char *rounds_of(unsigned mode) {
    if (!it_soft()) /* emulated: a fifth of the speed, a third of the rounds */
        return mode == 1 ? "30" : mode == 3 || mode == 4 ? "2" : "10";
    if (!it_long())
        return mode == 1 ? "60" : mode == 3 || mode == 4 ? "2" : mode == 6 ? "4" : "12";
    return mode == 1 ? "100" : mode == 3 || mode == 4 ? "4" : mode == 6 ? "12" : "30";
}

/* They dial us. What does not end by itself we hang up after a while, as an operator would. */
BOTH_MODES(a_listener_outlives_hostile_dialers) {
    struct victim v;
    victim_open(&v, handlers_of(state));
    int port =
        side_listen(&v.side, &(sluice_link_options){.timeout_ns = 300 * MS, .credits = 16}, NULL);
    for (unsigned m = 0; m < mode_count(); m++) {
        struct peer peer;
        char address[32];
        snprintf(address, sizeof address, "dial:%d", port);
        peer_run(&peer, "hostile_peer", address, modes[m], rounds_of(m));
        sluice_session last = {0};
        uint64_t since = 0, begun = sluice_now();
        while (!peer_ready(&peer)) {
            struct note note;
            if (!side_next(&v.side, &note, 5 * MS)) {
                victim_turn(&v, true);
                if (last.id && sluice_now() - since > 100 * MS) {
                    sluice_hangup(last, 0);
                    last.id = 0;
                }
                must(sluice_now() - begun < LIMIT_NS);
                continue;
            }
            if (note.event.type == SLUICE_UP) {
                last = note.event.session;
                since = sluice_now();
            } else if (note.event.type == SLUICE_CLOSED && note.event.session.id == last.id) {
                last.id = 0;
            }
            victim_note(&v, &note, true);
        }
        peer_expect(&peer, "done");
        assert_int_equal(peer_join(&peer), 0);
        uint64_t until = sluice_now() + LIMIT_NS;
        while (v.closes < v.ups) {
            victim_turn(&v, true);
            must(sluice_now() < until);
        }
    }
    victim_close(&v);
}

/* We dial them. */
BOTH_MODES(a_dialer_outlives_hostile_listeners) {
    struct victim v;
    victim_open(&v, handlers_of(state));
    for (unsigned m = 0; m < mode_count(); m++) {
        struct peer peer;
        peer_run(&peer, "hostile_peer", "listen", modes[m], "1000");
        int port = atoi(peer_expect(&peer, "port "));
        for (unsigned rounds = (unsigned)atoi(rounds_of(m)); rounds > 0; rounds--) {
            uint64_t closes = v.closes, since = sluice_now();
            sluice_session session =
                side_dial(&v.side, port, &(sluice_link_options){.timeout_ns = 300 * MS});
            bool hung_up = false;
            while (v.closes == closes) {
                victim_turn(&v, true);
                must(sluice_now() - since < LIMIT_NS);
                if (!hung_up && sluice_now() - since > 100 * MS) {
                    sluice_hangup(session, 0);
                    hung_up = true;
                }
            }
        }
        /* It may have seen fewer requests than we made: it ends when nobody listens to it. */
        assert_int_equal(peer_join(&peer), 0);
    }
    victim_close(&v);
}
