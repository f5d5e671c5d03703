/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rndv.c - large messages: which messages use the rendezvous, and how their requests are posted.
 *
 * Owner: the loop's thread.
 */
#include "datapath/rndv/rndv.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/techniques.h"
#include "core/wire/private_data.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/internal.h"
#include "datapath/tx/iov.h"
#include "datapath/tx/post.h"
#include "datapath/tx/unacked.h"
#include "fabric/fast.h"

/*
 * Measured with sluice-bw on the software device: from there on a stream is faster so. Over TCP one message alone is
 * there sooner in fragments, by two round trips, or half the time of threads that sleep: measured with sluice-lat and
 * lib-busy up to SWITCH_TCP_ALONE, which CREDITS_DEFAULT frames hold. A NIC's was not measured: a round trip more and two requests are worth some fragments there.
 */
#define SWITCH_SHARED ((8u << 10) - FRAME_BYTES) /* one frame, unless frames are smaller */
#define SWITCH_COPIED (8u << 10)
#define SWITCH_TCP (32u << 10)
#define SWITCH_TCP_ALONE (256u << 10)
#define SWITCH_NIC (64u << 10)
/*
 * Fragments, where keys are not for one message alone. On Soft-RoCE 64 KiB messages by READ or WRITE were measured
 * to reach a third more, asleep between events; but there a READ may deliver wrong bytes (fabric.h).
 */
#define SWITCH_OTHER UINT64_MAX

uint64_t rndv_threshold(const struct session *s) {
    const struct connection *c = session_connection(s);
    const struct node_options *options = &s->node->options;
    uint64_t above = options->rendezvous_bytes;
    if ((options->without & WITHOUT_RENDEZVOUS) || (connection_keeps(c) && !s->resume.again))
        return UINT64_MAX; /* what the peer would not hear of again lies in frames */
    if (above == 0 && c->shares && options->rendezvous == SLUICE_RENDEZVOUS_AUTO)
        above = SWITCH_SHARED;
    else if (above == 0 && !s->node->traits.exact_windows)
        above = SWITCH_OTHER;
    else if (above == 0 && c->copies)
        above = SWITCH_COPIED;
    else if (above == 0)
        above = s->info.transport == SLUICE_TRANSPORT_TCP ? SWITCH_TCP : SWITCH_NIC;
    return above > s->tx.frame_payload ? above : s->tx.frame_payload;
}

uint64_t rndv_rpc_threshold(const struct session *s) {
    bool agreed = session_connection(s)->cm.rep.features & PRIVATE_DATA_FEATURE_PIECES;
    if (connection_keeps(session_connection(s)) && !s->resume.again)
        return UINT64_MAX;
    return agreed && rndv_alone_max(s) > 0 ? s->tx.rndv_above : s->tx.frame_payload;
}

uint64_t rndv_alone_max(const struct session *s) {
    const struct node_options *options = &s->node->options;
    bool chosen = options->rendezvous_bytes != 0 || options->without & WITHOUT_RENDEZVOUS ||
                  options->rendezvous != SLUICE_RENDEZVOUS_AUTO;
    bool over_tcp = s->info.transport == SLUICE_TRANSPORT_TCP && s->node->traits.exact_windows;
    return over_tcp && !chosen ? SWITCH_TCP_ALONE : 0;
}

static bool is_rpc(const struct sluice_msg *msg) {
    return msg->kind == MSG_REQUEST || msg->kind == MSG_REPLY;
}

/* There are credits and room for all of its fragments, so that it does not stop in the middle. */
static bool is_covered(const struct session *s, const struct sluice_msg *msg) {
    const struct connection *c = session_connection(s);
    uint64_t bytes = msg->size + (is_rpc(msg) ? FRAME_WHOLE_BYTES : 0);
    uint64_t frames = (bytes + s->tx.frame_payload - 1) / s->tx.frame_payload;
    return frames + c->tx.reserve < c->tx.credits && frames + sq_used(c) <= c->sq.limit;
}

/* The peer has all that was sent, which its last frame said, and nothing waits behind the message. */
static bool is_alone(const struct session *s, const struct sluice_msg *msg) {
    const struct connection *c = session_connection(s);
    return c->tx.acked == c->tx.sequence && !msg->next && !(s->rndv && s->rndv->out_count > 0);
}

/* A reply waits for no credit, and the fragments of one message do not mix with another's. */
static bool reply_may_wait(const struct session *s, const struct sluice_msg *msg) {
    const struct sluice_msg *begun = s->tx.queue.head;
    return !is_covered(s, msg) || (begun && begun->tx.sent > 0);
}

bool rndv_wanted(const struct session *s, const struct sluice_msg *msg) {
    if (msg->tx.sent > 0 || (msg->kind == MSG_REPLY && reply_may_wait(s, msg)))
        return msg->tx.sent == 0;
    uint64_t above = is_rpc(msg) ? s->tx.rpc_above : s->tx.rndv_above;
    bool agreed = !is_rpc(msg) || above > s->tx.frame_payload;
    return msg->size > above &&
           !(agreed && msg->size <= s->tx.alone_max && is_alone(s, msg) && is_covered(s, msg));
}

uint32_t rndv_depth(const struct session *s) {
    const struct connection *c = session_connection(s);
    /* The record's depths are the listener's point of view. */
    uint32_t depth = c->cm.passive ? c->cm.rep.depth_out : c->cm.rep.depth_in;
    return depth ? depth : 1;
}

void rndv_retry(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    l->totals.alloc_stalls++;
    l->totals_moved = true;
    session_block(s);
    (void)loop_retry(l, s);
}

/* While it is down, of the connection that was lost. */
static uint32_t features(const struct session *s) {
    return s->state == SESSION_DOWN ? s->resume.features : session_connection(s)->cm.rep.features;
}

uint32_t rndv_numbers(const struct session *s) {
    bool agreed = features(s) & PRIVATE_DATA_FEATURE_NUMBERS;
    return agreed ? RNDV_NUMBERS : RNDV_NUMBERS_FEW;
}

bool rndv_agreed_answers(const struct session *s) {
    return features(s) & PRIVATE_DATA_FEATURE_ANSWERS;
}

bool rndv_agreed_copy(const struct session *s) {
    return s->node->traits.shares && (features(s) & PRIVATE_DATA_FEATURE_SHARED) != 0;
}

struct rndv *rndv_get(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!s->rndv) {
        s->rndv = calloc(1, sizeof *s->rndv);
        if (!s->rndv) {
            rndv_retry(l, s);
            return NULL;
        }
        s->rndv->last = &s->rndv->first;
        s->rndv->out_in[RNDV_TX_FREE] = UINT32_MAX;
    }
    return s->rndv;
}

/* ---- posting --------------------------------------------------------------------------------- */

bool rndv_room(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (batch->count == LOOP_WR_BATCH)
        wr_batch_post(l, s, batch);
    if (!rndv_is_over(s, c) && sq_used(c) < sq_places(c))
        return true;
    session_block(s);
    return false;
}

bool rndv_room_control(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    /* The frame that takes the last credit must return some, or both sides could be without. */
    if (c->tx.credits > 1 || (c->tx.credits == 1 && c->rx.unreported > 0))
        return rndv_room(l, s, batch);
    session_block(s);
    return false;
}

struct ibv_send_wr *rndv_wr(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                            void *whose, uint64_t counted) {
    loop_assert_inside(l);
    struct ibv_send_wr *wr = wr_batch_add(l, s, batch, 0, 0);
    wr->sg_list = NULL;
    wr_batch_entry(s, whose, counted, SQ_RNDV);
    batch->frameless++;
    if (whose)
        batch->waited_for = true;
    wr_batch_signal(s, batch, wr);
    return wr;
}

void rndv_post_mw(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                  const struct ibv_send_wr *as, void *whose, uint64_t counted) {
    loop_assert_inside(l);
    struct ibv_send_wr *wr = rndv_wr(l, s, batch, whose, counted);
    wr->opcode = as->opcode;
    if (as->opcode == IBV_WR_BIND_MW)
        wr->bind_mw = as->bind_mw;
    else
        wr->invalidate_rkey = as->invalidate_rkey;
}

bool rndv_post_frame(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                     struct frame f, const uint64_t *payload) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint32_t lkey;
    uint8_t *at = wr_batch_header(l, s, &lkey);
    if (!at)
        return false;
    uint32_t bytes = FRAME_BYTES + f.length;
    l->send_sge[batch->count][0] = (struct ibv_sge){(uintptr_t)at, bytes, lkey};
    struct ibv_send_wr *wr =
        wr_batch_add(l, s, batch, 1, bytes <= c->sq.inline_max ? IBV_SEND_INLINE : 0);
    post_header(c, at, f.type, f.flags, f.length, f.total);
    if (f.length > 0)
        memcpy(at + FRAME_BYTES, payload, f.length);
    if (!(f.flags & FRAME_RESERVED))
        c->tx.credits--;
    wr_batch_entry(s, NULL, 0, SQ_RNDV);
    wr_batch_signal(s, batch, wr);
    return true;
}

bool rndv_post_words(struct sluice_loop *l, struct session *s, struct frame f,
                     const uint64_t *payload) {
    loop_assert_inside(l);
    struct connection *c = session_connection(s);
    uint64_t words[FABRIC_WORDS];
    if (!c->shares || sq_used(c) >= c->sq.quick || FRAME_BYTES + f.length > c->sq.inline_max ||
        !c->sq.headers) /* whose memory the first frame asks for, and not one that comes late */
        return false;
    bool signalled = c->sq.unsignalled + 1 >= c->sq.signal_every;
    f.credits = (uint16_t)c->rx.unreported;
    f.sequence = c->tx.sequence + (FRAME_NUMBERED >> f.type & 1);
    f.ack = c->rx.sequence;
    frame_put((uint8_t *)words, &f);
    if (f.length > 0)
        memcpy(words + FRAME_BYTES / sizeof *words, payload, f.length);
    if (fabric_post_words(s->node->fabric, c->qp, words, (FRAME_BYTES + f.length) / sizeof *words,
                          signalled, wr_send_id(c, c->sq.tail)) != 0)
        return false;
    wr_batch_entry(s, NULL, 0, SQ_RNDV);
    post_header_sent(c);
    c->tx.sequence = f.sequence;
    c->tx.credits--;
    c->sq.unsignalled = signalled ? 0 : c->sq.unsignalled + 1;
    l->totals.posts++;
    l->totals.send_wrs++;
    l->totals.frames_sent++;
    l->totals_moved = true;
    return true;
}

uint32_t rndv_slice(const struct iov_part *parts, uint32_t part_count, uint64_t offset,
                    uint32_t max, struct ibv_sge out[2], unsigned *count) {
    uint32_t bytes = 0;
    *count = 0;
    for (uint32_t i = 0; i < part_count && *count < 2 && bytes < max; i++) {
        if (offset >= parts[i].bytes) {
            offset -= parts[i].bytes;
            continue;
        }
        uint64_t left = parts[i].bytes - offset;
        uint32_t take = left < max - bytes ? (uint32_t)left : max - bytes;
        out[(*count)++] = (struct ibv_sge){parts[i].addr + offset, take, parts[i].lkey};
        bytes += take;
        offset = 0;
    }
    return bytes;
}

static void move(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    struct wr_batch batch;
    uint32_t bytes = c->copies ? RNDV_SHARE_COPIED : RNDV_SHARE;
    s->rndv->todo = s->rndv->goes_on = false;
    c->sq.blocked &= (uint8_t)~SQ_WAITS;
    wr_batch_begin(&batch);
    rndv_rx_flush(l, s, &batch, &bytes);
    if (!rndv_is_over(s, c))
        rndv_tx_flush(l, s, &batch, &bytes);
    if (session_connection(s) != c)
        return; /* the device refused, and with it what was in the batch */
    wr_batch_post(l, s, &batch);
    s->rndv->todo |= (c->sq.blocked & SQ_WAITS) != 0;
}

/*
 * The last WRITE of a message takes a credit and returns none, so it never takes the last one. If held frames have
 * all other credits, the side that waits for the WRITE must give one more. Both sides could do
 * that for ever; so the listener does it only if it keeps one itself, and the dialer in any case.
 */
static bool credit_due(const struct session *s) {
    const struct connection *c = session_connection(s);
    const struct rndv *r = s->rndv;
    return (r->ready > 0 || r->out_writes > 0) && c->rx.granted <= 1 && c->rx.unreported > 0 &&
           c->tx.credits >= (c->cm.passive ? 2 : 1);
}

void rndv_flush(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->rndv->todo)
        move(l, s);
    if (s->state <= SESSION_FLUSHING && credit_due(s))
        send_control(l, s, FRAME_CREDIT);
}

/* ---- completion and end ---------------------------------------------------------------------- */

static bool is_rndv_tx(const struct rndv *r, const void *whose) {
    const char *at = whose, *from = (const char *)r->out;
    return at >= from && at < from + sizeof r->out;
}

void rndv_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                    sluice_status status) {
    loop_assert_inside(l);
    void *whose = msg; /* not a message: what the entry was posted for */
    if (is_rndv_tx(s->rndv, whose))
        rndv_tx_completed(l, s, whose, status);
    else
        rndv_rx_completed(l, s, whose, status);
}

bool rndv_goes_on(const struct session *s) {
    return s->rndv && s->rndv->goes_on;
}

bool rndv_is_stale(const struct session *s) {
    return s->rndv && s->rndv->stale > 0;
}

bool rndv_pending(const struct session *s) {
    return s->rndv && (s->rndv->out_count > 0 || (s->rndv->taken | s->rndv->refuse) != 0);
}

void rndv_end(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!s->rndv)
        return;
    rndv_rx_end(l, s);
    rndv_tx_end(l, s);
}

void rndv_drop(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!s->rndv)
        return;
    rndv_answer_forget(l, s);
    rndv_rx_drop(l, s);
    ASSERT(s->rndv->landing_bytes == 0 && s->rndv->out_count == 0 && s->rndv->out_writes == 0);
    free(s->rndv);
    s->rndv = NULL;
}
