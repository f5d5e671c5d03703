/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rules.c - whether what the stranger is about to say breaks a rule of docs/protocol.md for certain, whatever
 * the honest side has on its way: then its session must end. Written from that page, not from the library.
 */
#include "stranger.h"
#include "datapath/rndv/internal.h"

#define LARGEST (1u << 17)

static uint64_t word_at(const uint8_t *at, unsigned index) {
    uint64_t word;
    memcpy(&word, at + (size_t)index * 8, sizeof word);
    return le64toh(word);
}

static bool header_breaks(const struct stranger *st, const struct frame *f, uint32_t bytes) {
    bool reserves = f->type == FRAME_REPLY || f->type == FRAME_COALESCED || f->type == FRAME_RTS;
    bool pieces = f->type == FRAME_REQUEST || f->type == FRAME_REPLY;
    unsigned flags = f->type == FRAME_FRAG ? 3 : (reserves ? 4 : 0) | (pieces ? 1 : 0);
    bool plain = f->type == FRAME_DATA || f->type == FRAME_CREDIT || f->type == FRAME_BYE ||
                 f->type == FRAME_ALIVE || f->type == FRAME_COALESCED;
    if (bytes < FRAME_BYTES || f->length != bytes - FRAME_BYTES || f->type == 0 ||
        f->type >= FRAME_TYPES || f->type == FRAME_HELLO || f->type == FRAME_WELCOME ||
        f->type == FRAME_REFUSE)
        return true;
    return f->sequence != st->tx_sequence + (FRAME_NUMBERED >> f->type & 1) ||
           (f->flags & ~flags) || (plain && f->total != 0) || f->credits > STRANGER_RECEIVES;
}

/* Nothing of the honest side's is on its way: what it has announced is known. */
static bool several_break(const struct stranger *st, uint64_t numbers) {
    return numbers & ~(uint64_t)st->answered;
}

static bool announcement_breaks(const struct stranger *st, const struct frame *f,
                                const uint8_t *payload) {
    uint64_t word = word_at(payload, 0);
    unsigned number = word & 0xffff, type = word >> 16 & 0xff, way = word >> 24 & 0xff;
    if (f->length != FRAME_RTS_BYTES || number >= STRANGER_NUMBERS || way < RNDV_BY_READ ||
        way > RNDV_BY_COPY || f->total > LARGEST || f->total <= STRANGER_PAYLOAD)
        return true;
    if (type != FRAME_DATA && type != FRAME_REQUEST && type != FRAME_REPLY)
        return true;
    uint64_t numbers = word_at(payload, 3);
    if (numbers >> STRANGER_NUMBERS || (st->calm && several_break(st, numbers)))
        return true;
    return (type == FRAME_REPLY) != !!(f->flags & FRAME_RESERVED) ||
           (st->calm && (st->used >> number & 1));
}

static bool is_asked(const struct stranger *st, uint32_t id) {
    for (uint32_t i = 0; i < st->asked_count; i++)
        if (st->asked[i] == id)
            return true;
    return id == st->answering;
}

/* Nothing of the honest side's is on its way: what it has said is known. */
static bool answer_breaks(const struct stranger *st, const struct frame *f) {
    unsigned outcome = (unsigned)(f->total >> 32);
    switch (f->type) {
    case FRAME_REPLY: /* a reply is looked at in its turn */
        return st->asked_count < STRANGER_ASKED && !is_asked(st, (uint32_t)f->total) && !st->moving;
    case FRAME_RTR:
        return f->length != FRAME_RTR_BYTES || f->total >= STRANGER_NUMBERS ||
               !(st->answered >> f->total & 1);
    case FRAME_ATS:
        if (outcome == RNDV_OUTCOME_SEVERAL)
            return (uint32_t)f->total == 0 || several_break(st, (uint32_t)f->total);
        return (uint32_t)f->total >= STRANGER_NUMBERS || outcome > 1 ||
               !(st->answered >> (uint32_t)f->total & 1);
    case FRAME_RETURN:
        return st->was_recalled == 0 ||
               (f->total > 0 && (int64_t)f->total > st->had_credits - st->was_recalled);
    case FRAME_RECALL:
        return f->total < 4;
    default:
        return false;
    }
}

/* `st` as it was before this frame, but for what is being answered with it. */
bool stranger_breaks(const struct stranger *st, const struct frame *f, const uint8_t *payload,
                     uint32_t bytes) {
    if (header_breaks(st, f, bytes))
        return true;
    bool none = st->asked_count == 0 && st->answering == UINT32_MAX;
    if (f->type != FRAME_FRAG && (f->flags & FRAME_RESERVED) && st->calm && none && !st->moving)
        return true; /* the room of a reply that nobody waits for */
    if (f->type == FRAME_RTS)
        return announcement_breaks(st, f, payload);
    if (f->type == FRAME_AGAIN || f->type == FRAME_SWITCH || f->type == FRAME_MOVE)
        return true; /* no connection was lost, and none is to be left */
    if (f->type == FRAME_CANCEL && f->total > UINT32_MAX)
        return true;
    if (f->type == FRAME_NOTIFY && f->total > UINT32_MAX) /* looked at in its turn */
        return st->calm && !st->moving;
    return st->calm && answer_breaks(st, f);
}
