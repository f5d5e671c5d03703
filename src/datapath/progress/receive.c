/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive.c - frames that arrive: checked, delivered in place or put together, and their buffers
 * posted again.
 *
 * Two steps. On arrival a frame's header is read once and checked, and the credits it returns are
 * taken. Then the frame is processed; or held, when the session is not up yet, when an earlier
 * frame still waits for memory, or when the application takes no events: order is kept, nothing is dropped.
 * Held frames are receive buffers, so their number is bounded by the credits given.
 *
 * A buffer goes from the device to the application and back: it is posted again, and its credit
 * returned, after the handler returned or the next poll (recv_queue.c). If the application keeps it, the
 * credit is withheld until it is freed (retain.c), which slows down this peer and no other.
 *
 * Owner: the loop's thread. Everything read from a frame is hostile.
 */
#include <string.h>

#include "datapath/progress/receive.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/loop/loop.h"
#include "datapath/rma/one_sided.h"
#include "datapath/rndv/again.h"
#include "datapath/rndv/deliver.h"
#include "datapath/rx/landing.h"
#include "datapath/rndv/incoming.h"
#include "datapath/rndv/outgoing.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rpc/client.h"
#include "datapath/rpc/server.h"
#include "datapath/progress/unpack.h"
#include "datapath/rx/coalesced.h"
#include "datapath/rx/loans.h"
#include "datapath/rx/credits.h"
#include "datapath/progress/receive_plain.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"
#include "datapath/session/close.h"
#include "datapath/session/failure.h"
#include "datapath/session/guest.h"
#include "datapath/session/handshake.h"
#include "datapath/session/move.h"
#include "datapath/session/open.h"

/* A held frame keeps the fields of its header in its control block. */
static inline void hold_fields(struct sluice_msg *msg, const struct frame *f) {
    msg->frame_type = f->type;
    msg->rx.frame_flags = f->flags;
    msg->size = f->length;
    msg->rx.total = f->total;
}

/* ---- processing ------------------------------------------------------------------------------ */

/* A frame that was not counted: its receive was no credit of this session, or the session is over. */
static void give_up(struct sluice_loop *l, struct sluice_msg *msg) {
    if (msg->flags & MSG_SHARED)
        srq_restore(l, msg);
    else
        recv_buffer_put(l, msg);
}

bool receive_broken(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                    const char *text) {
    loop_assert_inside(l);
    session_stop(s);
    event_return(l, msg); /* a frame, or a message that lies in one */
    session_close(l, s, SLUICE_REASON_PROTOCOL, 0, text); /* also while it is down: it is stopped */
    return true;
}

/* The size of a message in fragments, from the first one: a request's or a reply's lies in front of the piece. */
static uint64_t whole_bytes(const struct sluice_msg *msg, uint64_t ahead) {
    if (ahead == 0)
        return msg->rx.total;
    return msg->size < ahead ? 0 : le64toh(*(const uint64_t *)(const void *)msg->data);
}

/* False: no memory for it now. */
static bool begin_whole(struct sluice_loop *l, struct session *s, const struct sluice_msg *msg,
                        uint64_t total) {
    if (msg->frame_type == FRAME_REQUEST && !rpc_server_ready(s))
        return false;
    struct sluice_msg *whole = landing_for(l, s, total);
    if (!whole)
        return false;
    if (msg->frame_type != FRAME_FRAG)
        whole->rx.arrived_ns = msg->rx.arrived_ns ? msg->rx.arrived_ns : loop_clock(l);
    s->rx.partial = whole;
    s->rx.partial_bytes = 0;
    s->rx.partial_type = msg->frame_type;
    s->rx.partial_total = msg->rx.total;
    return true;
}

/* The last fragment goes back when the message does: until then its credit is used. */
static void end_whole(struct sluice_loop *l, struct session *s, struct sluice_msg *last) {
    struct sluice_msg *whole = s->rx.partial;
    s->rx.partial = NULL;
    landing_done(l, s, whole->size);
    whole->owner = last->owner;
    struct sluice_msg *kept = s->rx.partial_reply;
    if (kept) {
        s->rx.partial_reply = NULL;
        rpc_client_reply_deliver(l, s, whole, s->rx.partial_total);
        recv_queue_give_back(l, kept);
        recv_queue_give_back(l, last);
        return;
    }
    event_escort(whole, last);
    if (s->rx.partial_type == FRAME_REQUEST)
        rpc_server_deliver(l, s, whole, s->rx.partial_total);
    else
        event_message(l, s, whole);
}

/* False: no memory for the message now; the frame must be kept and tried again. */
static bool process_fragment(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    bool first = msg->rx.frame_flags & FRAME_FIRST;
    uint64_t ahead = msg->frame_type == FRAME_FRAG ? 0 : FRAME_WHOLE_BYTES;
    uint64_t length = msg->size - ahead;
    if (first) {
        uint64_t total = whole_bytes(msg, ahead);
        if (s->rx.partial || msg->size <= ahead || total <= length)
            return receive_broken(l, s, msg, "an unexpected first fragment");
        if (total > s->rx.message_max)
            return receive_broken(l, s, msg, "a message larger than agreed");
        if (!begin_whole(l, s, msg, total))
            return false;
    }
    struct sluice_msg *whole = s->rx.partial;
    if (!whole || length == 0 || length > whole->size - s->rx.partial_bytes)
        return receive_broken(l, s, msg, "a fragment that does not fit its message");
    memcpy(whole->data + s->rx.partial_bytes, msg->data + ahead, length);
    s->rx.partial_bytes += length;
    bool complete = s->rx.partial_bytes == whole->size;
    if (complete != ((msg->rx.frame_flags & FRAME_LAST) != 0))
        return receive_broken(l, s, msg, "a message that ends too early or too late");
    if (complete)
        end_whole(l, s, msg);
    else if (msg->frame_type == FRAME_REPLY)
        s->rx.partial_reply = msg;
    else
        recv_queue_give_back(l, msg);
    return true;
}

/* A request or a reply: in this frame, or this is the first of its fragments. */
static enum recv_result process_rpc(struct sluice_loop *l, struct session *s,
                                    struct sluice_msg *msg) {
    if (unlikely(msg->rx.frame_flags & FRAME_FIRST)) {
        if (msg->frame_type == FRAME_REPLY && !(msg->rx.frame_flags & FRAME_RESERVED)) {
            receive_broken(l, s, msg, "a reply that takes a credit");
            return RECV_DONE;
        }
        return process_fragment(l, s, msg) ? RECV_DONE : RECV_NO_MEMORY;
    }
    return msg->frame_type == FRAME_REQUEST ? rpc_server_take(l, s, msg)
                                            : rpc_client_reply_take(l, s, msg);
}

static enum recv_result process(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    switch ((enum frame_type)msg->frame_type) {
    case FRAME_DATA:
        event_message(l, s, msg);
        return RECV_DONE;
    case FRAME_FRAG:
        return process_fragment(l, s, msg) ? RECV_DONE : RECV_NO_MEMORY;
    case FRAME_BYE:
        recv_queue_give_back(l, msg);
        session_peer_bye(l, s);
        return RECV_DONE;
    case FRAME_REQUEST:
    case FRAME_REPLY:
        return process_rpc(l, s, msg);
    case FRAME_COALESCED:
        return coalesced_take(l, s, msg);
    case FRAME_RTS:
        return rndv_take(l, s, msg);
    case FRAME_NOTIFY:
        return notify_take(l, s, msg);
    case FRAME_HELLO: /* not here: handshake.c takes these before the session is up */
    case FRAME_WELCOME:
    case FRAME_REFUSE:
    case FRAME_CREDIT: /* nor these: controls, taken on arrival */
    case FRAME_ALIVE:
    case FRAME_RTR:
    case FRAME_ATS:
    case FRAME_CANCEL:
    case FRAME_RECALL:
    case FRAME_RETURN:
    case FRAME_AGAIN:
    case FRAME_SWITCH:
    case FRAME_MOVE:
    case FRAME_TYPES:
        break;
    }
    receive_broken(l, s, msg, "a frame of unknown type"); /* cannot be: checked on arrival */
    return RECV_DONE;
}

/* Frames that are processed at once, whatever waits before them. */
static void control(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                    const struct frame *f) {
    struct session *s = c->session;
    const char *wrong = NULL;
    c->recv.controls++;
    if (f->type == FRAME_RTR || f->type == FRAME_ATS) {
        if (!c->copies) /* many are on their way, and each takes a credit */
            c->credits.seen--;
        wrong = rndv_answer_arrived(l, s, f, msg->data);
    } else if (f->type == FRAME_AGAIN) {
        wrong = rndv_again_arrived(l, s, f, msg->data);
    } else if (f->type == FRAME_CANCEL) {
        wrong = rpc_server_cancelled(l, s, f);
    } else if (f->type == FRAME_RECALL || f->type == FRAME_RETURN) {
        wrong = credits_control(l, c, f);
    } else if (f->type == FRAME_SWITCH) {
        wrong = move_heard(l, c);
    } else if (f->type == FRAME_MOVE) {
        wrong = move_asked(l, c);
    }
    if (unlikely(wrong != NULL))
        receive_broken(l, s, msg, wrong);
    else
        recv_queue_give_back(l, msg);
}

/* The first frame of a message in frames, which gets memory when it is the next to process. */
static bool begins(const struct sluice_msg *msg) {
    return msg->rx.frame_flags & FRAME_FIRST;
}

unsigned receive_held(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    unsigned count = 0;
    struct sluice_msg *msg;
    while (!s->rx.stopped && (msg = s->rx.held.head) && loop_room(l, s)) {
        struct sluice_msg *next = msg->next;
        bool began = begins(msg);
        enum recv_result taken = process(l, s, msg);
        if (taken == RECV_NO_MEMORY)
            recv_queue_retry(l, s);
        s->rx.held_pending = taken == RECV_PENDING;
        if (taken != RECV_DONE)
            break;
        if (unlikely(began))
            landing_found(l, s);
        /* process() may have linked the buffer elsewhere: unlink by what was next. */
        s->rx.held.head = next;
        if (!next)
            s->rx.held.tail = &s->rx.held.head;
        count++;
    }
    return count;
}

/* ---- arrival --------------------------------------------------------------------------------- */

/* Its sender waits to hear that it arrived. False: that was not agreed, or it is no frame that arrives in order. */
static bool take_ask(struct connection *c, struct frame *f) {
    if (!connection_keeps(c) || !(FRAME_NUMBERED >> f->type & 1))
        return false;
    c->acks.asked = true;
    f->flags &= (uint8_t)~FRAME_ASKS;
    return true;
}

static const char *check_data(struct connection *c, struct frame *f) {
    if (likely(!f->flags && !f->total))
        return NULL;
    return f->flags == FRAME_ASKS && !f->total && take_ask(c, f)
               ? NULL
               : "a data frame with unknown flags";
}

/* Of a connection that failed in the moment it was to be up. */
static const char is_over[] = "the connection is over";

/* The peer of a session that was down says by any frame that its connection is up. */
static const char *adopt_early(struct sluice_loop *l, struct connection *c) {
    session_arrived(l, c->session);
    session_adopt(l, c->session);
    return session_connection(c->session) == c && c->session->state < SESSION_RELEASED &&
                   !c->handshake
               ? NULL
               : is_over;
}

/* A frame that is no plain message, or not the next one; nothing is agreed upon any more. */
static inline const char *check_other(struct connection *c, struct frame *f) {
    if (f->type >= FRAME_TYPES)
        return "a frame of unknown type";
    if (f->sequence != c->rx.sequence + (FRAME_NUMBERED >> f->type & 1))
        return "a frame out of sequence";
    if (f->type == FRAME_DATA)
        return check_data(c, f);
    if (unlikely(f->flags & (FRAME_FIRST | FRAME_ASKS))) {
        if ((f->flags & FRAME_ASKS) && !take_ask(c, f))
            return "a frame with unknown flags";
        if ((f->flags & FRAME_FIRST) && f->type != FRAME_FRAG &&
            !(c->cm.rep.features & PRIVATE_DATA_FEATURE_PIECES))
            return "a request or reply in fragments, which was not agreed";
    }
    return frame_wrong(f);
}

/* Before the connection is up, as this side knows. */
static __attribute__((noinline)) const char *check_early(struct sluice_loop *l,
                                                         struct connection *c, struct frame *f) {
    if (c->handshake == HANDSHAKE_OVER)
        return is_over;
    if (f->type >= FRAME_TYPES)
        return "a frame of unknown type";
    if (f->sequence != c->rx.sequence + (FRAME_NUMBERED >> f->type & 1))
        return "a frame out of sequence";
    if (c->handshake == HANDSHAKE_MOVES) {
        const char *wrong = move_confirmed(l, c, f->ack);
        return wrong ? wrong : check_other(c, f);
    }
    if (c->handshake != HANDSHAKE_RESUME)
        return handshake_check(c->session, f);
    const char *over = adopt_early(l, c);
    return over ? over : check_other(c, f);
}

/* NULL: the header is in order. */
static const char *check_header(struct sluice_loop *l, struct connection *c, struct frame *f,
                                uint32_t bytes) {
    struct session *s = c->session;
    if (f->length != bytes - FRAME_BYTES || f->length > s->tx.frame_payload)
        return "a frame whose length is not what arrived";
    if (c->tx.credits + f->credits > c->tx.credits_max)
        return "more credits returned than were taken";
    if (f->ack - c->tx.acked > c->tx.sequence - c->tx.acked)
        return "an acknowledgement of what was never sent";
    if (likely(f->type == FRAME_DATA && f->sequence == c->rx.sequence + 1 && !c->handshake))
        return check_data(c, f);
    return unlikely(c->handshake) ? check_early(l, c, f) : check_other(c, f);
}

static void refuse(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                   sluice_reason reason, const char *text) {
    struct session *s = c->session;
    give_up(l, msg);
    if (c->handshake == HANDSHAKE_OVER || text == is_over) {
        connection_progress(l, c);
        return;
    }
    if (s->state != SESSION_DOWN || session_connection(s) != c)
        session_stop(s); /* else it is not known yet whose frame it is */
    session_close(l, s, reason, 0, text);
}

/* Time goes on for a request that is held. */
static void hold(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    if (msg->frame_type != FRAME_DATA && msg->frame_type != FRAME_FRAG)
        msg->rx.arrived_ns = loop_clock(l);
    s->landing.begun += begins(msg);
    msg_queue_push(&s->rx.held, msg);
    session_disturb(s);
}

/* A large message was written where this side had said: a credit, and no frame. */
static void written(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                    const struct ibv_wc *wc) {
    struct session *s = c->session;
    if (unlikely(c->handshake)) {
        refuse(l, c, msg, SLUICE_REASON_PROTOCOL, "a write before UP");
        return;
    }
    if (c->rx.granted == 0) {
        refuse(l, c, msg, SLUICE_REASON_CREDITS, "a write without a credit");
        return;
    }
    c->rx.granted--;
    c->recv.controls++;
    l->totals.frames_received++;
    l->totals_moved = true;
    const char *wrong =
        s->announced ? rndv_write_arrived(l, s, be32toh(wc->imm_data)) : "a write before UP";
    if (wrong) {
        receive_broken(l, s, msg, wrong);
        return;
    }
    if (c->rx.granted < c->credits.low)
        loop_dirty(l, s);
    recv_queue_give_back(l, msg);
    if (s->state >= SESSION_FLUSHING)
        session_progress(l, s);
}

/* What a frame brings to whom it is for, now or, where order or room want it, later. False: it was refused. */
static inline bool pass_on(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                           const struct frame *f) {
    struct session *s = c->session;
    if (unlikely(c->handshake)) {
        handshake_arrived(l, s, msg);
    } else if (FRAME_CONTROLS >> f->type & 1) {
        control(l, c, msg, f);
    } else if (unlikely(f->type == FRAME_RTS) && !rndv_rts_arrived(l, s, msg)) {
        return false;
    } else if (unlikely(!s->announced || s->rx.held.head || !loop_room(l, s))) {
        if (unlikely(!s->announced && !s->rx.held.head))
            session_arrived(l, s);
        if (unlikely(rndv_is_stale(s)) && FRAME_NUMBERED >> f->type & 1)
            return !receive_broken(l, s, msg,
                                   "a frame before all that was lost is announced again");
        hold(l, s, msg);
        if (s->announced && !s->retry && !s->rx.held_pending)
            event_notice(l, s, NOTICE_HELD);
    } else {
        enum recv_result taken = process(l, s, msg);
        if (unlikely(taken != RECV_DONE)) {
            hold(l, s, msg);
            s->rx.held_pending = taken == RECV_PENDING;
            if (taken == RECV_NO_MEMORY)
                recv_queue_retry(l, s);
            else if (taken == RECV_NO_ROOM)
                event_notice(l, s, NOTICE_HELD);
        }
    }
    return true;
}

void receive_completed(struct sluice_loop *l, const struct ibv_wc *wc) {
    loop_assert_inside(l);
    struct sluice_msg *msg = (struct sluice_msg *)(uintptr_t)wc->wr_id;
    struct connection *c = msg->owner;
    struct session *s = c->session;
    c->rx.queue->posted--;
    if (unlikely(wc->status != IBV_WC_SUCCESS)) {
        give_up(l, msg);
        connection_wc_error(l, c, wc);
        connection_progress(l, c);
        return;
    }
    if (unlikely(s->rx.stopped)) {
        if (unlikely(c->waits)) {
            if (!guest_holds(l, c, msg, wc))
                refuse(l, c, msg, SLUICE_REASON_PROTOCOL, "a frame too many, or none of a move");
            return;
        }
        give_up(l, msg);
        connection_progress(l, c);
        return;
    }
    if (unlikely(wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)) {
        written(l, c, msg, wc);
        return;
    }
    if (unlikely(wc->byte_len < FRAME_BYTES)) {
        refuse(l, c, msg, SLUICE_REASON_PROTOCOL, "a frame shorter than its header");
        return;
    }
    receive_frame(l, c, msg, wc->byte_len);
}

void receive_frame(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                   uint32_t bytes) {
    struct session *s = c->session;
    loop_assert_inside(l);
    struct frame f = frame_get(msg->data - FRAME_BYTES);
    const char *wrong = check_header(l, c, &f, bytes);
    if (unlikely(wrong != NULL)) {
        refuse(l, c, msg, SLUICE_REASON_PROTOCOL, wrong);
        return;
    }
    if (unlikely(f.flags & FRAME_RESERVED)) {
        if (!rpc_client_reserved(s)) {
            refuse(l, c, msg, SLUICE_REASON_CREDITS, "a reply without a request");
            return;
        }
        msg->flags |= MSG_RESERVED;
        if (session_connection(s) != c) /* what is set aside is counted where the session sends */
            c->recv.reserved--;
    } else if (unlikely(c->rx.granted == 0)) {
        refuse(l, c, msg, SLUICE_REASON_CREDITS, "a frame without a credit");
        return;
    } else {
        c->rx.granted--;
    }
    if (unlikely(c->rx.granted < c->credits.low))
        loop_dirty(l, s);
    c->rx.sequence = f.sequence;
    c->tx.acked = f.ack;
    c->tx.credits += f.credits;
    if (s->tx.queue.head || unlikely(c->credits.returned | s->rpc.cancels | c->sq.blocked))
        loop_dirty(l, s);
    msg->kind = MSG_PLAIN;
    msg->rx.arrived_ns = 0; /* when it arrived: now */
    hold_fields(msg, &f);
    l->totals.frames_received++;
    l->totals_moved = true;
    if (!pass_on(l, c, msg, &f))
        return;
    if (unlikely(s->state >= SESSION_FLUSHING))
        session_progress(l, s);
    else
        s->plain_rx = !c->sq.blocked && session_receives_plain(s); /* else acknowledged_flush() */
}
