/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * frame_fuzz.c - any 24 bytes as a frame header, on a session in any state: taken apart without
 * loss, and what the checks let through cannot run over a buffer, a window or a counter.
 *
 * Input: the session's counters, the bytes that arrived and the state of the greeting, then the
 * header. The receive side is compiled into this program, because the check is private to it.
 */
#include "datapath/progress/receive.c" /* NOLINT(bugprone-suspicious-include) */
#include "fuzz/fuzz.h"

static struct session session;
static struct connection connection = {.session = &session};
static struct session session = {.connection = &connection};

/* Each side takes what it waits for, once, and nothing else. */
static void prove_greeting(const struct session *s, const struct frame *f) {
    PROVE(f->flags == 0 && f->total == 0);
    if (s->connection->cm.passive) {
        PROVE(f->type == FRAME_HELLO && s->connection->handshake == HANDSHAKE_HELLO);
    } else {
        PROVE(f->type == FRAME_WELCOME || f->type == FRAME_REFUSE);
        PROVE(f->type == FRAME_REFUSE || s->connection->handshake == HANDSHAKE_ANSWER);
        PROVE(f->type == FRAME_REFUSE || f->length == 0);
    }
}

/* The table of docs/protocol.md. */
static bool is_numbered(unsigned type) {
    return type == FRAME_DATA || type == FRAME_FRAG || type == FRAME_REQUEST ||
           type == FRAME_REPLY || type == FRAME_COALESCED || type == FRAME_RTS ||
           type == FRAME_NOTIFY;
}

static void prove_in_order(const struct session *s, const struct frame *f, uint32_t bytes) {
    PROVE(bytes - FRAME_BYTES == f->length && f->length <= s->tx.frame_payload);
    PROVE((uint64_t)s->connection->tx.credits + f->credits <= s->connection->tx.credits_max);
    /* Not below what was acknowledged, not above what was sent, on a circle. */
    PROVE((uint32_t)(f->ack - s->connection->tx.acked) <=
          (uint32_t)(s->connection->tx.sequence - s->connection->tx.acked));
    bool numbered = is_numbered(f->type);
    PROVE(f->sequence == (uint32_t)(s->connection->rx.sequence + (numbered ? 1 : 0)));
    if (s->connection->handshake) {
        prove_greeting(s, f);
        return;
    }
    bool reserves = f->type == FRAME_REPLY || f->type == FRAME_COALESCED || f->type == FRAME_RTS;
    PROVE(f->type > 0 && f->type < FRAME_TYPES);
    PROVE(f->type != FRAME_HELLO && f->type != FRAME_WELCOME && f->type != FRAME_REFUSE);
    PROVE(f->type == FRAME_FRAG ? f->flags <= 3 : reserves ? (f->flags & ~4) == 0 : f->flags == 0);
    if (f->type == FRAME_DATA || f->type == FRAME_CREDIT || f->type == FRAME_BYE ||
        f->type == FRAME_ALIVE || f->type == FRAME_COALESCED)
        PROVE(f->total == 0);
    if (f->type == FRAME_FRAG)
        PROVE(f->length > 0);
    else if (f->type == FRAME_COALESCED)
        PROVE(f->length >= 16);
    else if (f->type == FRAME_RTS || f->type == FRAME_RTR)
        PROVE(f->length == (f->type == FRAME_RTR ? 24 : 40));
    else if (f->type != FRAME_DATA && f->type != FRAME_REQUEST && f->type != FRAME_REPLY)
        PROVE(f->length == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    session.tx.frame_payload = (1u << (9 + fuzz_take(&in, 1) % 8)) - FRAME_BYTES;
    connection.rx.payload_max = session.tx.frame_payload;
    connection.tx.credits_max = 4 + (uint32_t)fuzz_take(&in, 2) % 1021;
    connection.tx.credits = (uint32_t)fuzz_take(&in, 2) % (connection.tx.credits_max + 1);
    connection.tx.acked = (uint32_t)fuzz_take(&in, 4);
    connection.tx.sequence = connection.tx.acked + (uint32_t)fuzz_take(&in, 2);
    connection.rx.sequence = (uint32_t)fuzz_take(&in, 4);
    uint32_t bytes = FRAME_BYTES + (uint32_t)fuzz_take(&in, 2) % (session.tx.frame_payload + 1);
    uint64_t greets = fuzz_take(&in, 1);
    connection.handshake = greets & 3; /* all but RESUME, which ends with the frame */
    connection.cm.passive = greets & 4;
    connection.sq.follow = greets & 8 ? SQ_ACKS : 0;
    if (in.left < FRAME_BYTES)
        return 0;
    uint64_t wire[FRAME_BYTES / 8], again[FRAME_BYTES / 8];
    memcpy(wire, in.at, sizeof wire);
    struct frame f = frame_get((const uint8_t *)wire);
    frame_put((uint8_t *)again, &f);
    PROVE(memcmp(wire, again, sizeof wire) == 0);
    if (!check_header(NULL, &connection, &f, bytes))
        prove_in_order(&session, &f, bytes);
    return 0;
}
