/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive.c - frames that arrive: checked, delivered in place or put together, and their buffers
 * posted again.
 *
 * Two steps. On arrival a frame's header is read once and checked, and the credits it returns are
 * taken. Then the frame is processed; or held, when the session is not up yet, when an earlier
 * frame still waits for memory, or when nobody takes events: order is kept, nothing is dropped.
 * What is held are receive buffers, so it is bounded by the credits given.
 *
 * A buffer goes from the device to the application and back: it is posted again, and its credit
 * returned, after the handler returned or the next poll. If the application keeps it, a fresh one
 * takes its place; while the pool has none the credit is withheld, which slows the peer down and
 * nobody else.
 *
 * Owner: the loop's thread. Everything read from a frame is hostile.
 */
#include <string.h>

#include "datapath/post.h"
#include "node/node.h"

/* What was found in the header of a frame that is held lies in its control block. */
static inline void hold_fields(struct sluice_msg *msg, const struct frame *f) {
    msg->send_flags = f->type;
    msg->pieces = f->flags;
    msg->size = f->length;
    msg->tag = f->total;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static inline bool wants_receives(const struct session *s) {
    return s->qp && s->state < SESSION_DRAINING;
}

void receive_give_back(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    if (!wants_receives(s)) {
        msg->owner = NULL;
        msg_discard(l, msg);
        return;
    }
    msg->state = MSG_RECEIVE;
    msg->next = s->repost;
    s->repost = msg;
    if (++s->repost_count + s->rx_missing >= s->repost_batch)
        loop_dirty(l, s);
}

static struct sluice_msg *fresh(struct sluice_loop *l, struct session *s) {
    struct sluice_msg *msg = pool_get(l->pool, l->cache, s->frame_bytes);
    if (msg) {
        msg->state = MSG_RECEIVE;
        msg->flags = MSG_RX;
        msg->owner = s;
    }
    return msg;
}

static void want_retry(struct sluice_loop *l, struct session *s) {
    l->totals.memory_stalls++;
    l->totals_moved = true;
    if (!s->retry) {
        s->retry = true;
        l->retries++;
    }
}

/* Posts up to LOOP_CHAIN buffers of the repost list; false when the device refused. */
static bool post_some(struct sluice_loop *l, struct session *s) {
    unsigned n = 0;
    struct sluice_msg *msg;
    while (n < LOOP_CHAIN && (msg = s->repost)) {
        s->repost = msg->next;
        l->recv_sge[n] =
            (struct ibv_sge){(uintptr_t)(msg->data - FRAME_BYTES), s->frame_bytes, msg->lkey};
        l->recv_wr[n] =
            (struct ibv_recv_wr){.wr_id = (uintptr_t)msg, .sg_list = &l->recv_sge[n], .num_sge = 1};
        if (n > 0)
            l->recv_wr[n - 1].next = &l->recv_wr[n];
        n++;
    }
    struct ibv_recv_wr *bad = NULL;
    s->repost_count -= n;
    int error = ibv_post_recv(s->qp, l->recv_wr, &bad);
    if (error == 0) {
        s->rx_posted += n;
        s->rx_owed += n;
        return true;
    }
    unsigned posted = bad >= l->recv_wr && bad < l->recv_wr + n ? (unsigned)(bad - l->recv_wr) : 0;
    s->rx_posted += posted;
    for (unsigned i = posted; i < n; i++) {
        msg = (struct sluice_msg *)(uintptr_t)l->recv_wr[i].wr_id;
        msg->owner = NULL;
        msg_discard(l, msg);
    }
    return false;
}

void receive_repost(struct sluice_loop *l, struct session *s) {
    if (!wants_receives(s))
        return;
    while (s->rx_missing > 0) {
        struct sluice_msg *msg = fresh(l, s);
        if (!msg) {
            want_retry(l, s);
            break;
        }
        s->rx_missing--;
        msg->next = s->repost;
        s->repost = msg;
        s->repost_count++;
    }
    while (s->repost)
        if (!post_some(l, s)) {
            session_close(l, s, SLUICE_REASON_DEVICE_ERROR, 0, "the device refused a receive");
            return;
        }
}

/* count more receives, which the peer is told of otherwise than by returned credits. */
static bool prime(struct sluice_loop *l, struct session *s, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct sluice_msg *msg = fresh(l, s);
        if (!msg)
            return false;
        msg->next = s->repost;
        s->repost = msg;
        s->repost_count++;
    }
    uint32_t owed = s->rx_owed + s->repost_count - count;
    while (s->repost)
        if (!post_some(l, s))
            return false;
    s->rx_owed = owed;
    s->rx_granted += count;
    return true;
}

bool receive_prime(struct sluice_loop *l, struct session *s) {
    return prime(l, s, s->greeting ? GREETING_CREDITS : s->credits);
}

/* The peer knows them since the negotiation, and did not use them: HELLO is all it could say. */
bool receive_prime_rest(struct sluice_loop *l, struct session *s) {
    return prime(l, s, s->credits - GREETING_CREDITS);
}

void receive_drop(struct sluice_loop *l, struct session *s) {
    struct sluice_msg *msg;
    while ((msg = msg_queue_pop(&s->held))) {
        msg->owner = NULL;
        msg_discard(l, msg);
    }
    if (s->partial)
        msg_discard(l, s->partial);
    s->partial = NULL;
    while ((msg = s->repost)) {
        s->repost = msg->next;
        msg->owner = NULL;
        msg_discard(l, msg);
    }
    s->repost_count = 0;
}

/* ---- processing ------------------------------------------------------------------------------ */

static bool broken(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   const char *text) {
    s->deaf = true;
    receive_give_back(l, s, msg);
    session_close(l, s, SLUICE_REASON_PROTOCOL, 0, text);
    return true;
}

/* False: no memory for the message now; the frame must be kept and tried again. */
static bool process_fragment(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    unsigned flags = msg->pieces;
    uint64_t length = msg->size, total = msg->tag;
    if (flags & FRAME_FIRST) {
        if (s->partial || total <= length)
            return broken(l, s, msg, "a first fragment out of place");
        if (total > s->rx_message_max)
            return broken(l, s, msg, "a message larger than agreed");
        s->partial = pool_get(l->pool, l->cache, total);
        if (!s->partial)
            return false;
        s->partial->state = MSG_RECEIVE;
        s->partial_bytes = 0;
    }
    struct sluice_msg *whole = s->partial;
    if (!whole || length == 0 || length > whole->size - s->partial_bytes)
        return broken(l, s, msg, "a fragment that does not fit its message");
    memcpy(whole->data + s->partial_bytes, msg->data, length);
    s->partial_bytes += length;
    bool complete = s->partial_bytes == whole->size;
    if (complete != ((flags & FRAME_LAST) != 0))
        return broken(l, s, msg, "a message that ends too early or too late");
    receive_give_back(l, s, msg);
    if (complete) {
        s->partial = NULL;
        whole->owner = s;
        event_message(l, s, whole);
    }
    return true;
}

static inline bool process(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    switch ((enum frame_type)msg->send_flags) {
    case FRAME_DATA:
        event_message(l, s, msg);
        return true;
    case FRAME_FRAG:
        return process_fragment(l, s, msg);
    case FRAME_CREDIT: /* taken on arrival */
        break;
    case FRAME_BYE:
        receive_give_back(l, s, msg);
        session_peer_bye(l, s);
        return true;
    case FRAME_HELLO: /* not here: greet.c takes these before the session is up */
    case FRAME_WELCOME:
    case FRAME_REFUSE:
    case FRAME_ALIVE: /* taken on arrival */
        break;
    }
    return broken(l, s, msg, "a frame of unknown type"); /* cannot be: checked on arrival */
}

unsigned receive_held(struct sluice_loop *l, struct session *s) {
    unsigned count = 0;
    struct sluice_msg *msg;
    while (!s->deaf && (msg = s->held.head) && loop_room(l, s)) {
        struct sluice_msg *next = msg->next;
        if (!process(l, s, msg)) {
            want_retry(l, s);
            break;
        }
        /* process() may have linked the buffer elsewhere: unlink by what was next. */
        s->held.head = next;
        if (!next)
            s->held.tail = &s->held.head;
        count++;
    }
    return count;
}

/* ---- arrival --------------------------------------------------------------------------------- */

/* NULL: the header is in order. */
static const char *check_header(struct session *s, const struct frame *f, uint32_t bytes) {
    if (f->length != bytes - FRAME_BYTES || f->length > s->frame_payload)
        return "a frame whose length is not what arrived";
    if (s->tx_credits + f->credits > s->tx_credits_max)
        return "more credits returned than were taken";
    if (f->ack - s->acked > s->tx_sequence - s->acked)
        return "an acknowledgement of what was never sent";
    bool data = f->type == FRAME_DATA || f->type == FRAME_FRAG;
    if (f->sequence != s->rx_sequence + data)
        return "a frame out of sequence";
    if (unlikely(s->greeting))
        return greet_check(s, f);
    if (f->type == FRAME_DATA)
        return f->flags || f->total ? "a data frame with unknown flags" : NULL;
    if (f->type == FRAME_FRAG)
        return f->flags & ~(FRAME_FIRST | FRAME_LAST) ? "a fragment with unknown flags" : NULL;
    if (f->type == FRAME_CREDIT || f->type == FRAME_BYE || f->type == FRAME_ALIVE)
        return f->length || f->flags || f->total ? "a control frame with content" : NULL;
    return "a frame of unknown type";
}

static void refuse(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_reason reason, const char *text) {
    s->deaf = true;
    receive_give_back(l, s, msg);
    session_close(l, s, reason, 0, text);
}

void receive_completed(struct sluice_loop *l, const struct ibv_wc *wc) {
    struct sluice_msg *msg = (struct sluice_msg *)(uintptr_t)wc->wr_id;
    struct session *s = msg->owner;
    s->rx_posted--;
    if (unlikely(wc->status != IBV_WC_SUCCESS)) {
        msg->owner = NULL;
        msg_discard(l, msg);
        session_wc_error(l, s, wc);
        session_progress(l, s);
        return;
    }
    if (unlikely(s->deaf)) {
        receive_give_back(l, s, msg);
        session_progress(l, s);
        return;
    }
    if (unlikely(wc->byte_len < FRAME_BYTES)) {
        refuse(l, s, msg, SLUICE_REASON_PROTOCOL, "a frame shorter than its header");
        return;
    }
    struct frame f = frame_get(msg->data - FRAME_BYTES);
    const char *wrong = check_header(s, &f, wc->byte_len);
    if (unlikely(wrong != NULL)) {
        refuse(l, s, msg, SLUICE_REASON_PROTOCOL, wrong);
        return;
    }
    if (unlikely(s->rx_granted == 0)) {
        refuse(l, s, msg, SLUICE_REASON_CREDITS, "a frame without a credit");
        return;
    }
    s->rx_granted--;
    s->rx_sequence = f.sequence;
    s->acked = f.ack;
    s->tx_credits += f.credits;
    if (s->queue.head)
        loop_dirty(l, s);
    hold_fields(msg, &f);
    l->totals.frames_received++;
    l->totals_moved = true;
    if (unlikely(s->greeting)) {
        greet_arrived(l, s, msg);
    } else if (f.type == FRAME_CREDIT || f.type == FRAME_ALIVE) {
        s->rx_controls++;
        receive_give_back(l, s, msg);
    } else if (unlikely(!s->announced || s->held.head || !loop_room(l, s))) {
        msg_queue_push(&s->held, msg);
        if (s->announced && !s->retry)
            event_notice(l, s, NOTICE_HELD);
    } else if (unlikely(!process(l, s, msg))) {
        msg_queue_push(&s->held, msg);
        want_retry(l, s);
    }
    if (unlikely(s->state >= SESSION_FLUSHING))
        session_progress(l, s);
}
