/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * again.c - large messages that were on their way when the connection was lost; docs/protocol.md has the rules.
 *
 * Their announcements are numbered frames, which arrive once (replay.c). What is lost with a connection is all that is not: keys,
 * READs and WRITEs, and the answers. So when the old queue pair is gone the sender takes back all keys, and over the next
 * connection it says of each message without an answer where that is now: by AGAIN if the peer has the announcement, else in the
 * announcement itself. The receiver keeps the memory that it has found, does nothing until it has heard that, and begins anew. A
 * number that it does not know any more is that of a message which it has had: it answers so again.
 *
 * AGAINs go before anything else. The receiver delivers nothing that is behind such a message, so frames could take all credits.
 *
 * Owner: the loop's thread. Everything read from a frame is hostile.
 */
#include "datapath/rndv/again.h"

#include <string.h>

#include "core/wire/frame.h"
#include "datapath/rndv/internal.h"
#include "datapath/rndv/rndv.h"
#include "datapath/tx/post.h"
#include "datapath/tx/unacked.h"

#define WORDS (FRAME_RTS_BYTES / sizeof(uint64_t))

void rndv_lost(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!s->rndv)
        return;
    rndv_rx_lost(l, s);
    rndv_tx_lost(l, s);
}

/* ---- sender ---------------------------------------------------------------------------------- */

bool rndv_again_begin(struct session *s, uint32_t received) {
    struct rndv *r = s->rndv;
    if (!r)
        return false;
    for (uint32_t left = r->out_again; left != 0; left &= left - 1) {
        uint32_t number = (uint32_t)__builtin_ctz(left);
        if ((int32_t)(r->out[number].sequence - received) > 0)
            r->out_replay |= UINT32_C(1) << number;
    }
    r->out_again &= ~r->out_replay;
    r->todo = true;
    return r->out_again != 0;
}

/* Two requests, and the last credit only with some in return. */
static bool may_post(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    uint32_t lkey;
    if (batch->count + 2 > LOOP_WR_BATCH)
        wr_batch_post(l, s, batch);
    return s->state <= SESSION_FLUSHING && session_connection(s) == c &&
           (c->tx.credits > 1 || (c->tx.credits == 1 && c->rx.unreported > 0)) &&
           sq_used(c) + 2 <= unacked_limit(c) && wr_batch_header(l, s, &lkey) != NULL;
}

bool rndv_again_flush(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    if (!r || r->out_again == 0)
        return true;
    struct wr_batch batch;
    wr_batch_begin(&batch);
    for (struct rndv_tx *d; (d = rndv_tx_oldest(r, r->out_again)) && may_post(l, s, &batch);) {
        uint64_t payload[WORDS];
        if (!rndv_rts_again(l, s, &batch, d, payload))
            break;
        const struct frame f = {
            .type = FRAME_AGAIN, .length = FRAME_RTS_BYTES, .total = d->msg->size};
        rndv_post_frame(l, s, &batch, f, payload);
        batch.waited_for = true;
        r->out_again &= ~(UINT32_C(1) << (d - r->out));
    }
    wr_batch_post(l, s, &batch);
    return s->state <= SESSION_FLUSHING && s->state >= SESSION_UP && r->out_again == 0;
}

bool rndv_again_replay(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                       uint8_t *payload) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    uint64_t word[WORDS], fresh[WORDS];
    memcpy(word, payload, sizeof word);
    uint32_t number = le64toh(word[0]) & 0xffff;
    ASSERT(r && number < RNDV_NUMBERS);
    if (!(r->out_replay >> number & 1))
        return true; /* it has its place, and only its frame did not go out */
    const struct connection *c = session_connection(s);
    if (batch->count + 2 > LOOP_WR_BATCH || sq_used(c) + 2 > unacked_limit(c) ||
        !rndv_rts_again(l, s, batch, &r->out[number], fresh))
        return false;
    fresh[2] = word[2]; /* and no answers: they were of before */
    memcpy(payload, fresh, sizeof fresh);
    r->out_replay &= ~(UINT32_C(1) << number);
    return true;
}

void rndv_again_fenced(struct sluice_loop *l, struct session *s, const uint8_t *payload) {
    loop_assert_inside(l);
    rndv_tx_fenced(l, s, (uint32_t)le64toh(*(const uint64_t *)(const void *)payload) & 0xffff);
}

/* ---- receiver -------------------------------------------------------------------------------- */

/* It was whole, or refused, and its sender has not heard of it. */
static void tell_again(struct rndv *r, uint32_t number) {
    uint32_t bit = UINT32_C(1) << number;
    if (r->refused & bit)
        r->refuse |= bit;
    else
        r->taken |= bit;
}

const char *rndv_again_arrived(struct sluice_loop *l, struct session *s, const struct frame *f,
                               const uint8_t *payload) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    const uint64_t *from = (const uint64_t *)(const void *)payload;
    uint64_t word[WORDS];
    for (unsigned i = 0; i < WORDS; i++)
        word[i] = le64toh(__atomic_load_n(&from[i], __ATOMIC_RELAXED));
    uint32_t number = word[0] & 0xffff, type = word[0] >> 16 & 0xff;
    if (!r || !s->resume.again || !s->resume.another || number >= rndv_numbers(s) || word[2] ||
        word[3] || word[4])
        return "an AGAIN of no RTS";
    const char *wrong = rndv_wrong_way(s, word);
    if (wrong)
        return wrong;
    struct rndv_rx *a = r->by_number[number];
    if (!a) {
        tell_again(r, number);
    } else {
        if (!a->stale || a->type != type || a->bytes != f->total)
            return "an AGAIN of another message";
        a->stale = false;
        r->stale--;
        a->way = word[0] >> 24 & 0xff;
        a->rkey = (uint32_t)(word[0] >> 32);
        a->address = word[1];
    }
    rndv_dirty(l, s);
    return NULL;
}
