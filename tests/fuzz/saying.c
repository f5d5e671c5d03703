/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * saying.c - what the stranger says: frames that are right by what it knows, with one field changed where
 * the input wants that; and what it said, to be held against what is delivered.
 */
#include "stranger.h"

#include "core/session.h"

/* Values that break things more often than any other. */
static uint64_t nasty(uint64_t choice) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     4,
                                     15,
                                     16,
                                     255,
                                     256,
                                     STRANGER_PAYLOAD,
                                     STRANGER_PAYLOAD + 1,
                                     0xffff,
                                     0x10000,
                                     0x7fffffff,
                                     0x80000000,
                                     UINT32_MAX,
                                     (uint64_t)UINT32_MAX << 32,
                                     UINT64_MAX - STRANGER_PAYLOAD,
                                     UINT64_MAX};
    return edges[choice % (sizeof edges / sizeof *edges)];
}

/* ---- what was said --------------------------------------------------------------------------- */

/* From here on half of STRANGER_SOURCE is to be had. */
const uint8_t *stranger_pattern(const struct stranger *st, uint32_t from) {
    return st->source + from % (STRANGER_SOURCE / 2);
}

uint32_t stranger_note(struct stranger *st, unsigned kind, uint64_t bytes, uint32_t from) {
    if (st->said_count == STRANGER_SAID) {
        st->trusted = false;
        return 0;
    }
    st->said[st->said_count] =
        (struct stranger_word){.type = (uint8_t)kind, .bytes = bytes, .from = from};
    return st->said_count++;
}

static bool holds(const struct stranger *st, const struct stranger_word *word,
                  const uint8_t *data) {
    const uint8_t *pattern = stranger_pattern(st, word->from);
    if (!word->loose)
        return memcmp(data, pattern, word->bytes) == 0;
    for (uint64_t i = 0; i < word->bytes; i++)
        if (data[i] != 0 && !(data[i] & 0x80)) /* what it wrote earlier may be there still */
            return false;
    return true;
}

/* Messages and requests come in their order; some requests never, because their time was over. */
void stranger_check(struct stranger *st, unsigned kind, const uint8_t *data, uint64_t bytes) {
    if (!st->trusted)
        return;
    while (st->heard_next < st->said_count) {
        const struct stranger_word *word = &st->said[st->heard_next++];
        if (word->type == kind && word->bytes == bytes && (!data || holds(st, word, data)))
            return;
        PROVE(word->type == FRAME_REQUEST);
    }
    PROVE(!"a message that nobody sent");
}

/* ---- saying ---------------------------------------------------------------------------------- */

bool stranger_may(const struct stranger *st) {
    return st->id && st->id->qp && st->flying < STRANGER_SLOTS - 2;
}

static void remember_before(struct stranger *st) {
    st->answered = st->used = 0;
    st->moving = false;
    for (unsigned i = 0; i < STRANGER_NUMBERS; i++) {
        st->answered |= (uint32_t)(st->theirs[i].announced && !st->theirs[i].ready) << i;
        st->moving |= st->mine[i].announced;
        st->used |= (uint32_t)st->mine[i].announced << i;
    }
    st->had_credits = st->credits;
    st->was_recalled = st->recalled;
    st->answering = UINT32_MAX;
}

/* A credit that it has not, and room that nobody has set aside for it, are taken where the input insists. */
bool stranger_begin(struct stranger *st, struct stranger_frame *f, unsigned type, unsigned flags,
                    struct fuzz_input *in) {
    if (!stranger_may(st))
        return false;
    bool may = (flags & FRAME_RESERVED) ? st->asked_count > 0 : st->credits > 0;
    if (!may && fuzz_take(in, 1) < 250)
        return false;
    st->trusted &= may && !st->said_bye;
    remember_before(st);
    uint32_t slot = st->next_slot % STRANGER_SLOTS;
    *f =
        (struct stranger_frame){.payload = st->frames + (size_t)slot * STRANGER_FRAME + FRAME_BYTES,
                                .slot = slot,
                                .head = {.type = (uint8_t)type, .flags = (uint8_t)flags}};
    return true;
}

void stranger_fill(struct stranger *st, struct stranger_frame *f, uint32_t bytes, unsigned kind) {
    uint32_t from = st->said_count * 64;
    memcpy(f->payload + f->head.length, stranger_pattern(st, from), bytes);
    f->head.length += bytes;
    if (kind)
        stranger_note(st, kind, bytes, from);
}

static uint64_t changed(uint64_t old, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    return how < 64 ? old ^ 1ull << how : how < 128 ? old + how - 96 : nasty(how);
}

/* One field of it. Returns how many bytes go. */
static uint32_t change(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    struct frame *head = &f->head;
    uint64_t which = fuzz_take(in, 1) % 10;
    st->trusted = false;
    if (which == 0)
        head->type = (uint8_t)changed(head->type, in);
    else if (which == 1)
        head->flags = (uint8_t)changed(head->flags, in);
    else if (which == 2)
        head->credits = (uint16_t)changed(head->credits, in);
    else if (which == 3)
        head->sequence = (uint32_t)changed(head->sequence, in);
    else if (which == 4)
        head->ack = (uint32_t)changed(head->ack, in);
    else if (which == 5)
        head->length = (uint32_t)changed(head->length, in);
    else if (which == 6)
        head->total = changed(head->total, in);
    else if (which == 7) /* as long as it says, but of another length */
        head->length = (uint32_t)(fuzz_take(in, 2) % (STRANGER_PAYLOAD + 1));
    if (which >= 8) {
        uint64_t words = which == 8 ? FRAME_RTS_BYTES / 8 : STRANGER_PAYLOAD / 8, word;
        uint64_t at = fuzz_take(in, 1) % words;
        memcpy(&word, f->payload + at * 8, sizeof word);
        word = changed(word, in);
        memcpy(f->payload + at * 8, &word, sizeof word);
    }
    return FRAME_BYTES + (head->length < STRANGER_PAYLOAD ? head->length : STRANGER_PAYLOAD);
}

static void post(struct stranger *st, struct ibv_send_wr *wr) {
    struct ibv_send_wr *bad;
    wr->wr_id = st->next_slot % STRANGER_SLOTS;
    if (ibv_post_send(st->id->qp, wr, &bad) != 0)
        return;
    st->next_slot++;
    st->flying++;
    st->calm = false;
}

void stranger_say(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    struct frame *head = &f->head;
    bool numbered = FRAME_NUMBERED >> head->type & 1;
    if (st->partial && numbered &&
        head->type != FRAME_FRAG) /* what is numbered waits for a fragment's end */
        st->trusted = false;
    head->credits = (uint16_t)st->owed;
    head->sequence = st->tx_sequence + numbered;
    head->ack = st->rx_sequence;
    uint32_t bytes = FRAME_BYTES + head->length;
    st->calm &= st->trusted; /* what it believes of the other side is true until the first change */
    if (fuzz_take(in, 1) >= 224)
        bytes = change(st, f, in);
    st->credits -= head->type == FRAME_FRAG || !(head->flags & FRAME_RESERVED);
    /* Without a credit it may not even arrive. */
    st->broke = st->had_credits > 0 && stranger_breaks(st, head, f->payload, bytes);
    st->owed = 0;
    st->tx_sequence = head->sequence;
    frame_put(f->payload - FRAME_BYTES, head);
    struct ibv_sge sge = {(uintptr_t)f->payload - FRAME_BYTES, bytes, st->frames_mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    post(st, &wr);
}

void stranger_touch(struct stranger *st, enum ibv_wr_opcode opcode, uint64_t address, uint32_t rkey,
                    uint32_t from, uint32_t bytes, uint32_t immediate) {
    if (!stranger_may(st))
        return;
    bool reads = opcode == IBV_WR_RDMA_READ;
    struct ibv_sge sge = {reads ? (uintptr_t)st->target : (uintptr_t)stranger_pattern(st, from),
                          bytes, reads ? st->target_mr->lkey : st->source_mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = bytes > 0,
                             .opcode = opcode,
                             .imm_data = htobe32(immediate),
                             .wr.rdma = {address, rkey}};
    if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        st->trusted &= st->credits-- > 0 && !st->said_bye;
    post(st, &wr);
}
