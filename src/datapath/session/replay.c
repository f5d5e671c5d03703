/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * replay.c - frames that were lost with a connection: kept, and sent again over the next one.
 *
 * The entries of the send queue are kept where they are, in the connection that was lost, and with them the headers of those frames
 * that had theirs in its ring of headers. When the session has another connection, what the peer has not received goes over it, in
 * order: the same bytes, with the credits and the acknowledgement of now, and announcements of large messages with the keys of now. Those
 * that the peer has are announced again before (rndv/again.c), as it delivers nothing that is behind them. Until all of it is posted
 * nothing else is: the limit of the new send queue is 0. If that connection is lost as well, what it has comes before what is still kept.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/replay.h"

#include <string.h>

#include "core/wire/frame.h"
#include "datapath/loop/discard.h"
#include "datapath/rndv/again.h"
#include "datapath/session/acknowledged.h"
#include "datapath/session/drain.h"
#include "datapath/session/fence.h"
#include "datapath/session/send_completion.h"
#include "datapath/tx/iov.h"
#include "datapath/tx/unacked.h"

static struct sq_entry *first_of(const struct connection *c) {
    return &c->sq.entries[c->sq.head & c->sq.mask];
}

/* Up to the first frame that stays; false: there is none. */
static bool skip_ended(struct connection *c) {
    while (c->sq.head != c->sq.tail && !(first_of(c)->bytes & SQ_NUMBERED) &&
           !fence_is_operation(first_of(c)))
        c->sq.head++;
    return c->sq.head != c->sq.tail;
}

bool replay_keep(struct sluice_loop *l, struct connection *c) {
    struct session *s = c->session;
    loop_assert_inside(l);
    uint32_t acked = c->tx.acked, sent = c->tx.sequence;
    acknowledged_last(l, c);
    acknowledged_others(l, c, SLUICE_EUNKNOWN);
    if (!s->resume.kept || (int32_t)(sent - s->resume.sent) > 0)
        s->resume.sent = sent;
    s->resume.acked = acked;
    s->resume.failed |= c->unacked.failed;
    if (!skip_ended(c))
        return false;
    c->kept_next = s->resume.kept;
    s->resume.kept = c;
    return true;
}

/* All of it is posted again, or has ended. */
static void forget(struct sluice_loop *l, struct session *s) {
    struct connection *c = s->resume.kept;
    s->resume.kept = c->kept_next;
    c->kept_next = NULL;
    drain_free_queues(l, c);
    if (c->drain.over)
        l->retired++; /* connections_reap() */
}

/* Up to the first frame that stays, of all that are kept. */
static void trim(struct sluice_loop *l, struct session *s) {
    while (s->resume.kept && !skip_ended(s->resume.kept))
        forget(l, s);
}

void replay_begin(struct sluice_loop *l, struct session *s, uint32_t received) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    fence_settle(l, s, received);
    trim(l, s);
    if (rndv_again_begin(s, received) || s->resume.kept)
        c->sq.limit = 0;
    session_disturb(s);
    loop_dirty(l, s);
}

/* The header of its frame: in front of the payload, or in the ring. */
static bool is_in_ring(const struct session *s, const struct sq_entry *entry) {
    unsigned what = entry->bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK;
    return !entry->msg || what == SQ_IOV ||
           (what != SQ_COALESCED && what != SQ_ONE_SIDED && entry->msg->size > s->tx.frame_payload);
}

static uint8_t *header_in_front(const struct sq_entry *entry) {
    unsigned what = entry->bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK;
    uint64_t skipped = what == SQ_COALESCED ? entry->msg->tx.sent : 0; /* unacked_batch() */
    return entry->msg->data + skipped - FRAME_BYTES;
}

uint8_t *replay_header(const struct connection *kept, uint32_t at) {
    const struct sq_entry *entry = &kept->sq.entries[at & kept->sq.mask];
    if (!is_in_ring(kept->session, entry))
        return header_in_front(entry);
    return kept->sq.headers->data + (at & kept->sq.mask) * HEADER_BYTES;
}

/* A header of the ring and what is behind it there, copied into the next place of the new one. NULL: no memory, now. */
static uint8_t *copy_header(struct sluice_loop *l, struct session *s, const uint8_t *from,
                            uint32_t *lkey) {
    uint8_t *at = wr_batch_header(l, s, lkey);
    if (at)
        memcpy(at, from, HEADER_BYTES);
    return at;
}

/* The pieces of memory behind a header of the ring. Returns how many. */
static unsigned pieces(struct sluice_loop *l, struct session *s, const struct sq_entry *entry,
                       const uint8_t *header, const struct frame *f, struct ibv_sge *sge) {
    uint32_t ahead = (f->flags & FRAME_FIRST) && f->type != FRAME_FRAG ? FRAME_WHOLE_BYTES : 0;
    if ((entry->bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK) == SQ_IOV)
        return iov_again(l, s, entry->msg, entry->bytes & SQ_BYTES, f->length, sge + 1);
    if (f->length == ahead || f->type == FRAME_RTS)
        return 0;
    sge[1] = unacked_slice(header);
    return 1;
}

/* As it is posted anew. */
static uint64_t without_marks(uint64_t bytes) {
    bool message = (bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK) == SQ_MESSAGE;
    return bytes & ~(SQ_FAILED | SQ_NUMBERED | (message ? SQ_FRAMED : 0));
}

/* The frame that is kept first. False: no credit, or no memory. */
static bool build(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s), *kept = s->resume.kept;
    struct sq_entry *entry = first_of(kept);
    bool ring = is_in_ring(s, entry);
    uint32_t lkey = entry->msg ? entry->msg->lkey : 0;
    uint8_t *at = replay_header(kept, kept->sq.head);
    struct frame f = frame_get(at);
    bool reserved = f.flags & FRAME_RESERVED;
    if (!reserved && c->tx.credits <= c->tx.reserve)
        return false;
    if (f.type == FRAME_RTS && !rndv_again_replay(l, s, batch, at + FRAME_BYTES))
        return false;
    if (ring && !(at = copy_header(l, s, at, &lkey)))
        return false;
    struct ibv_sge *sge = ring ? l->iov_sge[batch->count] : l->send_sge[batch->count];
    unsigned count = ring ? pieces(l, s, entry, at, &f, sge) : 0;
    uint32_t behind = 0;
    for (unsigned i = 1; i <= count; i++)
        behind += sge[i].length;
    sge[0] = (struct ibv_sge){(uintptr_t)at, FRAME_BYTES + f.length - behind, lkey};
    struct ibv_send_wr *wr = wr_batch_add(l, s, batch, count + 1, 0);
    wr->sg_list = sge;
    c->tx.sequence++; /* less than it was, if frames before it were fenced off */
    ASSERT((int32_t)(f.sequence - c->tx.sequence) >= 0);
    c->rma.posted += !ring && fence_is_operation(entry); /* NOTIFY */
    post_header(c, at, f.type, f.flags & ~FRAME_ASKS, f.length, f.total);
    c->tx.credits -= !reserved;
    c->sq.entries[c->sq.tail++ & c->sq.mask] =
        (struct sq_entry){entry->msg, without_marks(entry->bytes)};
    *entry = (struct sq_entry){0};
    kept->unacked.next++;
    batch->waited_for = true;
    wr_batch_signal(s, batch, wr);
    return true;
}

void replay_flush(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if ((s->state != SESSION_UP && s->state != SESSION_FLUSHING) || s->resume.waits)
        return;
    if (!rndv_again_flush(l, s))
        return;
    for (unsigned built = 1; built > 0 && s->resume.kept;) {
        struct wr_batch batch;
        wr_batch_begin(&batch);
        while (batch.count < l->wr_batch_max && sq_used(c) < unacked_limit(c) && s->resume.kept &&
               build(l, s, &batch))
            trim(l, s); /* headers were copied, and what else is read belongs to messages */
        built = batch.count;
        wr_batch_post(l, s, &batch);
        if (s->state > SESSION_FLUSHING || s->state < SESSION_UP)
            return; /* the device refused */
    }
    if (s->resume.kept)
        return;
    c->sq.limit = unacked_limit(c);
    session_disturb(s);
}

void replay_drop(struct sluice_loop *l, struct session *s, sluice_status status) {
    loop_assert_inside(l);
    while (s->resume.kept) {
        send_abandon(l, s->resume.kept, status);
        forget(l, s);
    }
}
