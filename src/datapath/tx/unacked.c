/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * unacked.c - frames that stay in the send queue until the peer has acknowledged them: marking them as they are posted.
 *
 * The entry of a numbered frame has SQ_NUMBERED, and ends when the device is done with it *and* the peer's library has said that
 * it has that number (session/acknowledged.c). Both are needed: what a peer says is no reason to let go of memory that the device
 * still reads. So an entry has all that its frame is made of: nothing goes inline but small messages, which are framed, and are kept
 * besides, or copies of them.
 *
 * A receiver says by itself what it has after 32 frames, or 1 ms (rx/acks.c). Where that is too late the frame asks for it: when its
 * outcome is wanted, or half of the window or of the send queue is used. Of many whose outcome is wanted one at a time asks; only
 * where there are few frames each one does. So the last ones of many, behind one that asks, may wait for the millisecond.
 *
 * Owner: the loop's thread.
 */
#include "datapath/tx/unacked.h"

#include <string.h>

#include "base/less.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/tx/confirm.h"
#include "datapath/tx/framed.h"

#define FEW 8u /* frames on their way, of which each one may ask */

uint32_t unacked_limit(const struct connection *c) {
    return c->sq.depth - SQ_RESERVE - 1 - (c->confirm.on ? CONFIRMS_MAX : 0);
}

/* Where a header of the ring is followed by no more than a size. */
#define SLICE_AT (HEADER_BYTES - sizeof(struct ibv_sge))
_Static_assert(FRAME_BYTES + FRAME_WHOLE_BYTES <= SLICE_AT, "there is room behind it");

static void put_slice(uint8_t *header, const struct ibv_sge *slice) {
    memcpy(header + SLICE_AT, slice, sizeof *slice);
}

struct ibv_sge unacked_slice(const uint8_t *header) {
    struct ibv_sge slice;
    memcpy(&slice, header + SLICE_AT, sizeof slice);
    return slice;
}

/* What is needed to build it again, where the entry does not say it (replay.c). */
static void note_frame(const struct ibv_send_wr *wr, const struct sq_entry *entry,
                       uint8_t *header) {
    unsigned what = entry->bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK;
    if (what == SQ_COALESCED)
        entry->msg->tx.sent = (uint64_t)(header + FRAME_BYTES - entry->msg->data);
    else if (what != SQ_IOV && wr->num_sge == 2)
        put_slice(header, &wr->sg_list[1]);
}

/* ---- framed ---------------------------------------------------------------------------------------- */

/*
 * Messages that are framed (framed.h), but what is sent is kept. Over iWARP, where a READ has to confirm what arrived, there are
 * none.
 */
static void begin_framed(struct connection *c) {
    struct session *s = c->session;
    c->unacked.framed_end = c->confirm.on ? 0 : s->framed_end;
    s->framed_end = 0; /* those that are not kept */
    uint64_t every = less(s->window.messages / 2, c->sq.limit / 2);
    if (c->unacked.framed_end > 0)
        every = less(every, s->window.bytes / 2 / c->unacked.framed_end);
    c->unacked.ask_every = (uint16_t)less(every > 0 ? every : 1, UINT16_MAX);
}

static bool has_room(struct session *s, uint64_t id, uint64_t bytes) {
    const struct connection *c = session_connection(s);
    return atomic_load_explicit(&s->id, memory_order_relaxed) == id && s->state == SESSION_UP &&
           bytes < c->unacked.framed_end && !s->tx.queue.head && c->tx.credits > c->tx.reserve &&
           sq_used(c) < c->sq.limit && session_ref_count_open(&s->ref) == 0 &&
           framed_has_room(s, bytes);
}

/* What is kept: the message, unless that is lent or there is none; then memory for a copy. NULL: none at hand. */
static inline struct sluice_msg *kept_of(struct sluice_loop *l, struct sluice_msg *msg,
                                         uint64_t bytes) {
    if (msg && msg->state == MSG_APP && msg->pool == l->pool)
        return msg;
    struct sluice_msg *copy = NULL;
    if (likely(pool_is_quick(l->cache, bytes)))
        copy = message_of(pool_get_quick(l->cache, bytes, MSG_APP));
    return likely(copy) ? copy : message_of(pool_get(l->pool, l->cache, bytes));
}

/* So many are on their way since the peer said something, and since it was asked. */
static bool asks_now(struct connection *c) {
    uint32_t every = c->unacked.ask_every, next = c->tx.sequence + 1;
    if (likely(next - c->tx.acked < every) || next - c->unacked.asked < every)
        return false;
    c->unacked.asked = next;
    return true;
}

/* It is on its way, from data: what is kept of it is what replay.c needs to send it again. */
static inline void keep(struct sluice_msg *kept, uint64_t id, const uint64_t *word,
                        const uint8_t *data, uint64_t bytes) {
    if (kept->data != data)
        copy_short(kept->data, data, (uint32_t)bytes);
    memcpy(kept->data - FRAME_BYTES, word, FRAME_BYTES);
    kept->state = MSG_SENDING;
    kept->kind = MSG_PLAIN;
    kept->foreign = false;
    kept->tx.tag = kept->tx.deadline_ns = kept->tx.sent = kept->tx.id = 0;
    kept->tx.session_id = id;
}

bool unacked_framed(struct sluice_loop *l, struct session *s, uint64_t id, struct sluice_msg *msg,
                    const uint8_t *data, uint64_t bytes, bool nested) {
    struct connection *c = session_connection(s);
    struct sluice_msg *kept;
    loop_assert_inside(l);
    if (unlikely(!has_room(s, id, bytes) || framed_may_share(l, nested) ||
                 !(kept = kept_of(l, msg, bytes))))
        return false;
    uint32_t asked = c->unacked.asked;
    uint64_t flags = asks_now(c) ? FRAME_ASKS : 0;
    uint32_t signalled = c->sq.unsignalled + 1 >= c->sq.signal_every ? FABRIC_FRAMED_SIGNALED : 0;
    uint64_t word[3] = {htole64(FRAME_DATA | flags << 8 |
                                (uint64_t)(uint16_t)c->rx.unreported << 16 |
                                (uint64_t)(c->tx.sequence + 1) << 32),
                        htole64(c->rx.sequence | bytes << 32)};
    if (unlikely(l->post_framed(c->qp, word[0], word[1], data, (uint32_t)bytes | signalled,
                                wr_send_id(c, c->sq.tail)) != 0)) {
        c->unacked.asked = asked;
        if (kept != msg)
            msg_discard(l, kept);
        return false;
    }
    keep(kept, id, word, data, bytes);
    if (c->rx.unreported > 0)
        c->acks.returned = c->rx.sequence;
    struct sq_entry *entry = &c->sq.entries[c->sq.tail & c->sq.mask];
    framed_account(l, s, bytes, signalled);
    s->tokens = 1;
    entry->msg = kept;
    entry->bytes |= SQ_NUMBERED | SQ_FRAMED;
    if (msg && kept != msg)
        framed_done(l, msg);
    return true;
}

/* ---- from the send queue ----------------------------------------------------------------------------- */

void unacked_begin(struct connection *c) {
    c->sq.follow |= SQ_ACKS;
    c->sq.blocked |= SQ_ACKS;
    c->sq.quick = 0;
    c->sq.limit = unacked_limit(c); /* one place is for an acknowledgement: post.c */
    c->sq.inline_max = 0;
    c->unacked.done = c->unacked.ended = c->unacked.proved = c->unacked.had = c->sq.head;
    c->unacked.next = c->tx.sequence + 1;
    c->unacked.asked = c->tx.acked;
    begin_framed(c);
}

void unacked_continue(struct connection *c) {
    c->unacked.next = c->tx.sequence + 1;
    c->unacked.asked = c->tx.acked;
}

/*
 * The window, or the send queue, is used so far that it may soon be full, and most of what is on its way was sent since the peer
 * was asked last.
 */
static bool may_be_full(struct session *s) {
    const struct connection *c = session_connection(s);
    if (2 * (c->tx.sequence - c->unacked.asked) <= c->tx.sequence + 1 - c->unacked.next)
        return false;
    const struct session_window *window = &s->window;
    uint64_t messages = atomic_load_explicit(&window->own_messages, memory_order_relaxed) +
                        session_ref_count(&s->ref);
    uint64_t bytes = atomic_load_explicit(&window->own_bytes, memory_order_relaxed) +
                     atomic_load_explicit(&s->foreign.bytes, memory_order_relaxed);
    return messages >= window->messages / 2 || bytes >= window->bytes / 2 ||
           sq_used(c) >= c->sq.limit / 2;
}

void unacked_batch(struct sluice_loop *l, struct session *s, unsigned count) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint8_t *last = NULL;
    bool wanted = false;
    for (unsigned i = 0; i < count; i++) {
        const struct ibv_send_wr *wr = &l->send_wr[i];
        struct sq_entry *entry = &c->sq.entries[(c->sq.tail - count + i) & c->sq.mask];
        if (wr->opcode != IBV_WR_SEND)
            continue;
        uint8_t *header = (uint8_t *)(uintptr_t)wr->sg_list[0].addr;
        struct frame f = frame_get(header);
        if (f.credits > 0)
            c->acks.returned = c->rx.sequence;
        if (!(FRAME_NUMBERED >> f.type & 1))
            continue;
        wanted |= confirm_is_wanted(entry);
        note_frame(wr, entry, header);
        entry->bytes |= SQ_NUMBERED;
        last = header;
    }
    if (!last)
        return;
    bool asking = (int32_t)(c->unacked.asked - c->tx.acked) > 0;
    bool few = c->tx.sequence - c->tx.acked < FEW;
    if (!(wanted && (few || !asking)) && !may_be_full(s))
        return;
    struct frame f = frame_get(last);
    f.flags |= FRAME_ASKS;
    frame_put(last, &f);
    c->unacked.asked = f.sequence;
}
