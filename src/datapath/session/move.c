/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * move.c - a session goes on over a connection that was made beside its own.
 *
 *   NONE      the dialer's guest (guest.c) dials, and the listener's session has one when that comes
 *   QUIETS    the guest is ready: nothing is begun any more over the connection, and SWITCH is to be sent
 *   SAID      it was: no numbered frame follows it, and no operation. The dialer says it first, the listener when it has heard it
 *   DRAINS    it was said and heard, and is with the peer: so is all that either side sent before, and operations are done. The
 *             connection is retired, as one that is lost, and the application is told nothing
 *   CONFIRMS  over the other one: each waits until it has heard the other there, which then has all that was sent before, and has set
 *             receives aside. The dialer says something first
 *
 * What is announced is announced again, receives for replies are set aside again, as after a loss. A connection that is lost on the way is a
 * loss like any other: of the session's own before DRAINS, of the other one from then on. Before that the loss of the other one ends
 * the move, and nothing else.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/move.h"

#include "core/context.h"
#include "core/session_table.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/loop/upward.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/session/close.h"
#include "datapath/session/coming.h"
#include "datapath/session/connections.h"
#include "datapath/session/down.h"
#include "datapath/session/guest.h"
#include "datapath/session/hand_over.h"
#include "datapath/session/open.h"
#include "datapath/session/replay.h"
#include "datapath/tx/post.h"
#include "datapath/tx/unacked.h"

#define MOVE_NS 10000000000ull /* for all of it: then the connection is as good as lost */
#define OTHER_LOST_TEXT "the other connection was lost"

/* Of a guest, on this loop; NULL: it is over. */
static struct session *host_here(struct sluice_loop *l, const struct session *guest) {
    struct session *s = session_table_find(guest->host_id);
    bool mine = s && session_mail(s) == l &&
                atomic_load_explicit(&s->id, memory_order_relaxed) == guest->host_id;
    return mine ? s : NULL;
}

/* ---- the connection is left -------------------------------------------------------------------- */

static void forget_wanted(struct session *s) {
    struct sluice_loop *wanted = session_unwant(s);
    if (wanted)
        atomic_fetch_sub_explicit(&wanted->assigned, 1, memory_order_relaxed);
}

/* From the first that is heard of it here; what an earlier one has left is none of its time. */
static void bound(struct sluice_loop *l, struct session *s) {
    if (s->move.due_ns == 0 || s->move.step == MOVE_NONE) {
        s->move.due_ns = loop_clock(l) + MOVE_NS;
        s->move.late = false;
    }
    loop_deadline(l, s->move.due_ns);
}

static void enter(struct sluice_loop *l, struct session *s, enum session_move_step step) {
    s->move.step = (uint8_t)step;
    session_disturb(s);
    loop_dirty(l, s);
}

/*
 * The dialer says so first. Neither does before the application knows what came before, and a dialer not while the device has another
 * connection of it, which it would wait for between the two.
 */
static bool begins(const struct session *s) {
    return s->move.step == MOVE_NONE &&
           (s->link_config.dialing ? connections_are_over(s) : s->move.heard) &&
           !(s->notices & (NOTICE_DOWN | NOTICE_RESUMED));
}

/* The last credit is for a frame that returns some. */
static bool may_say(const struct connection *c) {
    return c->tx.credits >= 2 || c->rx.unreported > 0;
}

/* An operation of which some is posted is posted wholly first, and done: a peer's device may not have answered a READ when it has SWITCH. */
static void quiet(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    const struct sluice_msg *first = s->tx.queue.head;
    if (first && first->kind == MSG_ONE_SIDED && first->tx.sent > 0)
        return;
    s->resume.waits = true; /* replay_flush() */
    c->sq.limit = 0;
    session_disturb(s);
    if (c->rma.posted > 0 || !may_say(c) || !send_control(l, s, FRAME_SWITCH))
        return; /* later */
    s->move.said_at = c->sq.tail;
    s->move.due_ns = 0; /* the time of the dial was another */
    bound(l, s);
    enter(l, s, MOVE_SAID);
}

static void leave(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    s->move.sent = c->tx.sequence;
    s->move.acked = c->tx.acked;
    enter(l, s, MOVE_DRAINS);
    if (!down_move(l, s))
        session_close(l, s, SLUICE_REASON_NO_MEMORY, 0, "no memory for another connection");
}

/*
 * The listener has said SWITCH when it had heard the dialer's: so that has arrived. The listener's has when its device says so; the dialer, who
 * has it, may be faster and end the connection, and then the first frame over the other one says whether it was that.
 */
static bool may_leave(const struct session *s, bool broken) {
    const struct connection *c = session_connection(s);
    bool is_up = s->state == SESSION_UP || s->state == SESSION_FLUSHING;
    return is_up && s->move.step == MOVE_SAID && s->move.heard && s->move.guest &&
           (s->link_config.dialing || s->move.told || broken) && c->rma.posted == 0 &&
           !c->unacked.failed;
}

bool move_broken(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!may_leave(s, true))
        return false;
    leave(l, s);
    return true;
}

void move_completed(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->move.step == MOVE_SAID &&
        (int32_t)(unacked_told(session_connection(s)) - s->move.said_at) >= 0)
        s->move.told = true;
    loop_dirty(l, s);
}

static bool is_wanted(const struct session *s) {
    return atomic_load_explicit(&s->wanted, memory_order_relaxed) != NULL;
}

/* The next one may have a guest already, or be asked for. */
static void finish(struct sluice_loop *l, struct session *s) {
    s->move.step = MOVE_NONE;
    s->move.due_ns = 0;
    if (s->move.guest || is_wanted(s))
        bound(l, s);
    loop_dirty(l, s);
}

/* What the peer's library awaits, and no application. */
static void say(struct sluice_loop *l, struct session *s) {
    struct session_move *m = &s->move;
    m->asks &= is_wanted(s);
    if (m->tells && may_say(session_connection(s)) && send_control(l, s, FRAME_ALIVE))
        m->tells = false;
    if (m->asks && may_say(session_connection(s)) && send_control(l, s, FRAME_MOVE))
        m->asks = false;
}

void move_progress(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->state != SESSION_UP && s->state != SESSION_FLUSHING)
        return;
    say(l, s);
    if (!s->move.guest)
        return;
    if (begins(s))
        enter(l, s, MOVE_QUIETS);
    if (s->move.step == MOVE_QUIETS)
        quiet(l, s);
    if (may_leave(s, false))
        leave(l, s);
}

static void due_by(struct sluice_loop *l, struct session *s, uint64_t due_ns) {
    s->move.due_ns = due_ns;
    loop_deadline(l, due_ns);
}

/* As if its own connection were. */
static void lost(struct sluice_loop *l, struct session *s, const char *text) {
    if (s->state == SESSION_DOWN)
        down_move_failed(l, s, text);
    else if (atomic_load_explicit(&l->node->device_lost, memory_order_relaxed))
        session_close(l, s, SLUICE_REASON_DEVICE_REMOVED, 0, DEVICE_LOST_TEXT);
    else
        session_close(l, s, SLUICE_REASON_PEER_LOST, 0, text);
}

/* ---- the other side, and the guest ------------------------------------------------------------- */

void move_ask(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->state != SESSION_UP && s->state != SESSION_DOWN) {
        forget_wanted(s);
        return;
    }
    s->move.asks = true;
    bound(l, s);
    loop_dirty(l, s);
}

const char *move_asked(struct sluice_loop *l, struct connection *c) {
    struct session *s = c->session;
    loop_assert_inside(l);
    if (!s->link_config.dialing || session_is_guest(s) ||
        !(s->resume.features & PRIVATE_DATA_FEATURE_MOVE))
        return "an unexpected MOVE";
    if (s->state == SESSION_UP && session_connection(s) == c)
        l->node->upcalls->session_guest(l->node, s); /* which it may have already */
    return NULL;
}

const char *move_heard(struct sluice_loop *l, struct connection *c) {
    struct session *s = c->session;
    loop_assert_inside(l);
    if (session_connection(s) != c)
        return NULL; /* it is lost by now */
    if (!(s->resume.features & PRIVATE_DATA_FEATURE_MOVE) || session_is_guest(s) || s->move.heard)
        return "an unexpected SWITCH";
    if (s->link_config.dialing && s->move.step != MOVE_SAID)
        return "a SWITCH that was not asked for";
    s->move.heard = true;
    if (s->link_config.dialing && !s->move.guest)
        lost(l, s, OTHER_LOST_TEXT);
    bound(l, s);
    loop_dirty(l, s);
    return NULL;
}

/*
 * A listener's session may be about to be up: its dialer is. So may one whose last move is over for its peer, and not here; and it follows
 * its dialer while it is being closed.
 */
static bool wants(const struct session *s) {
    bool ends = s->state == SESSION_FLUSHING || s->state == SESSION_LEAVING;
    bool is_up = s->state == SESSION_UP || (ends && !s->link_config.dialing) ||
                 (s->state == SESSION_OPENING && s->notices & NOTICE_UP);
    return is_up && !s->move.guest && s->resume.again &&
           (s->resume.features & PRIVATE_DATA_FEATURE_MOVE);
}

void move_guest_ready(struct sluice_loop *l, struct session *guest) {
    struct session *s = host_here(l, guest);
    loop_assert_inside(l);
    if (!s || !wants(s) || !coming_fits(s, session_connection(guest))) {
        guest_let_go(guest);
        return;
    }
    s->move.guest = guest;
    bound(l, s);
    loop_dirty(l, s);
}

/* The listener may have been hung up, and ended the guest's connection for that: its good-bye is on the way over the session's. */
static bool awaits_word(const struct session *s) {
    return s->link_config.dialing && s->move.step == MOVE_SAID && !s->move.heard;
}

void move_guest_lost(struct sluice_loop *l, struct session *guest) {
    struct session *s = host_here(l, guest);
    loop_assert_inside(l);
    if (s && s->move.guest == guest) {
        bool left = s->move.step == MOVE_SAID || s->move.step == MOVE_DRAINS;
        bool bye = guest->move.heard;
        s->move.guest = NULL;
        guest_release(guest);
        if (left && bye) /* the peer has gone over, and was hung up there */
            session_peer_bye(l, s);
        else if (left && awaits_word(s))
            due_by(l, s, loop_clock(l) + LINGER_NS);
        else if (left)
            lost(l, s, OTHER_LOST_TEXT);
        else if (s->move.step != MOVE_CONFIRMS) /* else it was the next one's */
            move_abandon(l, s);
    }
    atomic_fetch_sub_explicit(&guest->ref, 1, memory_order_release);
}

void move_abandon(struct sluice_loop *l, struct session *s) {
    struct session *guest = s->move.guest;
    loop_assert_inside(l);
    if (s->move.step >= MOVE_QUIETS) {
        s->resume.waits = false; /* replay_flush() makes room again, if the connection is there */
        loop_dirty(l, s);
    }
    hand_over_forget(l, s);
    s->move = (struct session_move){0};
    forget_wanted(s);
    if (guest)
        guest_let_go(guest);
}

/* The dialer may have said SWITCH, which a listener has not heard: its guest stays. */
void move_hungup(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    s->move.asks = false;
    if (!s->link_config.dialing)
        forget_wanted(s);
    else if (s->move.step <= MOVE_QUIETS)
        move_abandon(l, s);
}

/*
 * The peer has operations to finish, or its application does not poll: as a peer that returns no credits. And the listener finishes its own when
 * it was heard.
 */
static bool waits_for_peer(const struct session *s) {
    bool said = s->link_config.dialing && s->move.step == MOVE_SAID && s->move.guest;
    return said ? !s->move.heard : s->move.step == MOVE_QUIETS && s->move.heard;
}

void move_timer(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->move.due_ns == 0)
        return;
    if (l->now_ns < s->move.due_ns) {
        loop_deadline(l, s->move.due_ns);
        return;
    }
    bool late = l->now_ns - s->move.due_ns >= LINGER_NS && !s->move.late;
    s->move.due_ns = 0;
    if (waits_for_peer(s)) {
        due_by(l, s, l->now_ns + MOVE_NS);
    } else if (late) { /* the loop was not polled: what it waits for may be there */
        s->move.late = true;
        due_by(l, s, l->now_ns + LINGER_NS);
    } else if (s->move.step >= MOVE_SAID) {
        lost(l, s, "the peer does not go on over the other connection");
    } else {
        move_abandon(l, s);
    }
}

/* ---- the other connection ---------------------------------------------------------------------- */

/* Frames that came before. */
static void take_early(struct sluice_loop *l, struct connection *c) {
    struct sluice_msg *msg;
    c->waits = false;
    while ((msg = c->early)) {
        c->early = msg->next;
        c->early_count--;
        uint32_t bytes = (uint32_t)msg->size;
        if (session_connection(c->session) == c && !c->session->rx.stopped)
            receive_frame(l, c, msg, bytes);
        else
            guest_give_up(l, msg);
    }
}

/* On the guest's loop, over its connection. */
static void go_on(struct sluice_loop *l, struct session *s) {
    struct session *guest = s->move.guest;
    s->move.guest = NULL;
    if (!guest_waits(guest)) {
        guest_release(guest);
        lost(l, s, OTHER_LOST_TEXT);
        return;
    }
    struct connection *c = guest_give(l, guest, s);
    guest_release(guest);
    c->tx.sequence = s->move.sent;
    c->tx.acked = s->move.acked;
    unacked_continue(c);
    s->adopted = true;
    c->handshake = HANDSHAKE_MOVES;
    s->move.step = MOVE_CONFIRMS;
    s->move.heard = s->move.told = false;
    s->move.tells = s->link_config.dialing;
    s->resume.waits = true;
    s->move.silent = true;
    session_begin(l, s);
    s->move.silent = false;
    take_early(l, c);
    if (session_connection(s) == c)
        move_progress(l, s);
}

static struct sluice_loop *target(const struct session *s) {
    return session_mail(s->move.guest);
}

bool move_drained(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->move.step != MOVE_DRAINS)
        return false;
    if (target(s) == l)
        go_on(l, s);
    else
        hand_over_wait(l, s);
    return true;
}

bool move_hands_over(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->move.step == MOVE_DRAINS && s->move.guest)
        return hand_over_try(l, s, target(s));
    hand_over_forget(l, s);
    return false;
}

void move_handed_over(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->move.step == MOVE_DRAINS && s->move.guest) /* else it was lost, or ends */
        go_on(l, s);
}

const char *move_confirmed(struct sluice_loop *l, struct connection *c, uint32_t received) {
    struct session *s = c->session;
    loop_assert_inside(l);
    c->handshake = HANDSHAKE_NONE;
    if (received != c->tx.sequence)
        return "it has not received what was sent before the move";
    if (session_connection(s) != c || s->move.step != MOVE_CONFIRMS)
        return NULL; /* and it is lost by now */
    finish(l, s);
    s->move.tells |= !s->link_config.dialing;
    s->resume.waits = false;
    replay_begin(l, s, received);
    return NULL;
}
