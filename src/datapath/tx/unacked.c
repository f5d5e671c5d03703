/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * unacked.c - frames that stay in the send queue until the peer has acknowledged them: marking them as they are posted.
 *
 * The entry of a numbered frame has SQ_NUMBERED, and ends when the device is done with it *and* the peer's library has said that
 * it has that number (session/acknowledged.c). Both are needed: what a peer says is no reason to let go of memory that the device
 * still reads. No frame goes inline, so that an entry has all that its frame is made of.
 *
 * A receiver says by itself what it has after 32 frames, or 1 ms (rx/acks.c). Where that is too late the frame asks for it: when its
 * outcome is wanted, or a quarter of the window or of the send queue is used. One such frame is on its way at a time; only where
 * there are few frames each one asks. So the last ones of many, behind one that asks, may wait for the millisecond.
 *
 * Owner: the loop's thread.
 */
#include "datapath/tx/unacked.h"

#include <string.h>

#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/tx/confirm.h"

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

void unacked_begin(struct connection *c) {
    c->sq.follow |= SQ_ACKS;
    c->sq.blocked |= SQ_ACKS;
    c->sq.quick = 0;
    c->sq.limit = unacked_limit(c); /* one place is for an acknowledgement: post.c */
    c->sq.inline_max = 0;
    c->unacked.done = c->unacked.proved = c->sq.head;
    c->unacked.next = c->tx.sequence + 1;
    c->unacked.asked = c->tx.acked;
}

/* The window, or the send queue, is used so far that it may soon be full. */
static bool a_quarter_is_used(struct session *s) {
    const struct connection *c = session_connection(s);
    const struct session_window *window = &s->window;
    uint64_t messages = atomic_load_explicit(&window->own_messages, memory_order_relaxed) +
                        session_ref_count(&s->ref);
    uint64_t bytes = atomic_load_explicit(&window->own_bytes, memory_order_relaxed) +
                     atomic_load_explicit(&s->foreign.bytes, memory_order_relaxed);
    return messages >= window->messages / 4 || bytes >= window->bytes / 4 ||
           sq_used(c) >= c->sq.limit / 4;
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
    if ((asking && !few) || !(wanted || a_quarter_is_used(s)))
        return;
    struct frame f = frame_get(last);
    f.flags |= FRAME_ASKS;
    frame_put(last, &f);
    c->unacked.asked = f.sequence;
}
