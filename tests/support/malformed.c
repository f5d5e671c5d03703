/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* malformed.c - see malformed.h. */
#include "support/malformed.h"

#include <string.h>

#include "soft/iwarp/ddp.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/handshake.h"
#include "soft/iwarp/rdmap.h"
#include "soft/iwarp/wire.h"

/* ---- requests -------------------------------------------------------------------------------------------- */

enum { M = 0x80, C = 0x40, R = 0x20, S = 0x10 };  /* of the flags */
enum { PEER_TO_PEER = 0x8000, BY_SEND = 0x4000 }; /* of IRD */

struct request {
    const char *name, *key;
    uint8_t flags, revision;
    uint16_t length; /* that it says, of what is behind the head */
    int more;        /* so many more, or fewer, are there */
    uint16_t ird, ord;
    enum malformed_end end;
    bool frame; /* one behind it, before the reply */
};

#define KEY "MPA ID Req Frame"
static const struct request plain = {"", KEY, C, 1, 0, 0, 0, 0, MALFORMED_OPEN, false};
static const struct request enhanced = {"", KEY, C | S, 2, 4, 0, 1, 1, MALFORMED_OPEN, false};

static const struct request requests[] = {
    {"another key", "MPA ID Bad Frame", C, 1, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"the key of a reply", "MPA ID Rep Frame", C, 1, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"revision 0", KEY, C, 0, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"revision 3", KEY, C | S, 3, 4, 0, 1, 1, MALFORMED_OPEN, false},
    {"revision 255", KEY, C, 255, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"revision 1 with the bit of revision 2", KEY, C | S, 1, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"revision 2 without its bit", KEY, C, 2, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"the bit of a reply that rejects", KEY, C | R, 1, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"reserved bits", KEY, C | 0xc, 1, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"markers wanted", KEY, C | M, 1, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"markers wanted by revision 2", KEY, C | S | M, 2, 4, 0, 1, 1, MALFORMED_OPEN, false},
    {"private data of 300 bytes", KEY, C, 1, 300, 0, 0, 0, MALFORMED_OPEN, false},
    {"private data of 513 bytes", KEY, C, 1, 513, 0, 0, 0, MALFORMED_OPEN, false},
    {"private data of 65535 bytes", KEY, C, 1, 65535, -65535, 0, 0, MALFORMED_OPEN, false},
    {"revision 2 without depths", KEY, C | S, 2, 0, 0, 0, 0, MALFORMED_OPEN, false},
    {"revision 2 with half of its depths", KEY, C | S, 2, 2, 0, 0, 0, MALFORMED_OPEN, false},
    {"peer to peer by a SEND", KEY, C | S, 2, 4, 0, PEER_TO_PEER | BY_SEND | 1, 1, MALFORMED_OPEN,
     false},
    {"peer to peer by nothing", KEY, C | S, 2, 4, 0, PEER_TO_PEER | 1, 1, MALFORMED_OPEN, false},
    {"more data than the request says", KEY, C, 1, 8, 8, 0, 0, MALFORMED_OPEN, false},
    {"less data than the request says, and FIN", KEY, C, 1, 8, -4, 0, 0, MALFORMED_FIN, false},
    {"a frame before the reply", KEY, C, 1, 0, 0, 0, 0, MALFORMED_OPEN, true},
    {"FIN within the request", NULL, 0, 0, 0, 0, 0, 0, MALFORMED_FIN, false},
    {"RST within the request", NULL, 0, 0, 0, 0, 0, 0, MALFORMED_RST, false},
    {"FIN behind the request", KEY, C, 1, 0, 0, 0, 0, MALFORMED_FIN, false},
    {"nothing for longer than a request may take", NULL, 0, 0, 0, 0, 0, 0, MALFORMED_OPEN, false},
};

static void add(struct malformed *m, const void *bytes, size_t count) {
    memcpy(m->bytes + m->count, bytes, count);
    m->count += count;
}

static void add_request(struct malformed *m, const struct request *r) {
    static const uint8_t data[1024];
    uint8_t head[IWARP_HANDSHAKE_HEAD + 4] = {0};
    size_t behind = (size_t)(r->length + r->more), fields = r->flags & S ? 4 : 0;
    memcpy(head, r->key, 16);
    head[16] = r->flags;
    head[17] = r->revision;
    iwarp_put16(head + 18, r->length);
    iwarp_put16(head + 20, r->ird);
    iwarp_put16(head + 22, r->ord);
    fields = fields < behind ? fields : behind;
    add(m, head, IWARP_HANDSHAKE_HEAD + fields);
    add(m, data, behind - fields);
}

/* ---- frames ---------------------------------------------------------------------------------------------- */

enum twist {
    SAID,    /* as the header says */
    CUT,     /* so many bytes of the segment are all of it */
    CONTROL, /* the first two bytes of the header are others */
    CHECK,   /* one bit of the check value is wrong */
    PAD,     /* the pad is not 0 */
    HALF,    /* the second half does not come */
};

struct part {
    struct iwarp_ddp ddp;
    uint16_t bytes; /* of payload */
    enum twist twist;
    uint8_t control[2];
};

struct frames {
    const char *name;
    struct part part[2]; /* the second is there if it has a payload */
    enum malformed_end end;
};

#define STAG 0x77777700u /* nobody's */
#define SEND(last, queue, msn, mo)                                                                 \
    { IWARP_SEND, last, 0, 0, queue, msn, mo }
#define OF(opcode, queue)                                                                          \
    { opcode, true, STAG, 0, queue, 1, 0 }
#define CONTROLS(opcode, bytes, first, second)                                                     \
    {                                                                                              \
        OF(opcode, 0), bytes, CONTROL, {                                                           \
            first, second                                                                          \
        }                                                                                          \
    }
#define WHOLE(...)                                                                                 \
    {                                                                                              \
        __VA_ARGS__, SAID, {                                                                       \
            0, 0                                                                                   \
        }                                                                                          \
    }
#define TWISTED(twist, ...)                                                                        \
    {                                                                                              \
        __VA_ARGS__, twist, {                                                                      \
            0, 0                                                                                   \
        }                                                                                          \
    }

static const struct frames frames[] = {
    {"a wrong check value", {TWISTED(CHECK, SEND(true, 0, 1, 0), 8)}, MALFORMED_OPEN},
    {"a segment of nothing", {TWISTED(CUT, SEND(true, 0, 1, 0), 0)}, MALFORMED_OPEN},
    {"a segment of 13 bytes", {TWISTED(CUT, SEND(true, 0, 1, 0), 13)}, MALFORMED_OPEN},
    {"a SEND of 17 bytes with its header", {TWISTED(CUT, SEND(true, 0, 1, 0), 17)}, MALFORMED_OPEN},
    {"a WRITE of 13 bytes with its header", {TWISTED(CUT, OF(IWARP_WRITE, 0), 13)}, MALFORMED_OPEN},
    {"another DDP", {CONTROLS(IWARP_SEND, 4, 0x42, 0x43)}, MALFORMED_OPEN},
    {"another DDP in a tagged segment", {CONTROLS(IWARP_WRITE, 4, 0xc2, 0x40)}, MALFORMED_OPEN},
    {"another RDMAP", {CONTROLS(IWARP_SEND, 4, 0x41, 0x83)}, MALFORMED_OPEN},
    {"an unknown opcode", {CONTROLS(IWARP_SEND, 4, 0x41, 0x4f)}, MALFORMED_OPEN},
    {"an unknown opcode in a tagged segment",
     {CONTROLS(IWARP_WRITE, 4, 0xc1, 0x4e)},
     MALFORMED_OPEN},
    {"a tagged SEND", {CONTROLS(IWARP_WRITE, 16, 0xc1, 0x43)}, MALFORMED_OPEN},
    {"a tagged READ request", {CONTROLS(IWARP_WRITE, 32, 0xc1, 0x41)}, MALFORMED_OPEN},
    {"an untagged WRITE", {CONTROLS(IWARP_SEND, 4, 0x41, 0x40)}, MALFORMED_OPEN},
    {"an untagged READ response", {CONTROLS(IWARP_SEND, 4, 0x41, 0x42)}, MALFORMED_OPEN},
    {"a SEND on an unknown queue", {WHOLE(SEND(true, 4, 1, 0), 4)}, MALFORMED_OPEN},
    {"a SEND on the queue of READs", {WHOLE(SEND(true, 1, 1, 0), 4)}, MALFORMED_OPEN},
    {"a READ request on the queue of SENDs",
     {WHOLE(OF(IWARP_READ_REQUEST, 0), 28)},
     MALFORMED_OPEN},
    {"a message number that was", {WHOLE(SEND(true, 0, 0, 0), 4)}, MALFORMED_OPEN},
    {"a message number that is to come", {WHOLE(SEND(true, 0, 2, 0), 4)}, MALFORMED_OPEN},
    {"a READ request's number that is to come",
     {WHOLE({IWARP_READ_REQUEST, true, 0, 0, 1, 2, 0}, 28)},
     MALFORMED_OPEN},
    {"another message number within a message",
     {WHOLE(SEND(false, 0, 1, 0), 4), WHOLE(SEND(true, 0, 2, 4), 4)},
     MALFORMED_OPEN},
    {"a message that does not begin at 0", {WHOLE(SEND(true, 0, 1, 4), 4)}, MALFORMED_OPEN},
    {"a gap within a message",
     {WHOLE(SEND(false, 0, 1, 0), 4), WHOLE(SEND(true, 0, 1, 8), 4)},
     MALFORMED_OPEN},
    {"a part that comes again",
     {WHOLE(SEND(false, 0, 1, 0), 4), WHOLE(SEND(true, 0, 1, 0), 4)},
     MALFORMED_OPEN},
    {"a READ request that does not begin at 0",
     {WHOLE({IWARP_READ_REQUEST, true, 0, 0, 1, 1, 4}, 28)},
     MALFORMED_OPEN},
    {"a SEND longer than its receive",
     {WHOLE(SEND(true, 0, 1, 0), MALFORMED_RECEIVE)},
     MALFORMED_OPEN},
    {"another kind of SEND within one",
     {WHOLE(SEND(false, 0, 1, 0), 4), WHOLE({IWARP_SEND_SOLICITED, true, 0, 0, 0, 1, 4}, 4)},
     MALFORMED_OPEN},
    {"a READ request within a SEND",
     {WHOLE(SEND(false, 0, 1, 0), 4), WHOLE(OF(IWARP_READ_REQUEST, 1), 28)},
     MALFORMED_OPEN},
    {"a WRITE to an unknown STag", {WHOLE(OF(IWARP_WRITE, 0), 4)}, MALFORMED_OPEN},
    {"a READ of an unknown STag", {WHOLE(OF(IWARP_READ_REQUEST, 1), 28)}, MALFORMED_OPEN},
    {"a READ request of 27 bytes", {WHOLE(OF(IWARP_READ_REQUEST, 1), 27)}, MALFORMED_OPEN},
    {"a READ request of 29 bytes", {WHOLE(OF(IWARP_READ_REQUEST, 1), 29)}, MALFORMED_OPEN},
    {"a READ request in parts",
     {WHOLE({IWARP_READ_REQUEST, false, 0, 0, 1, 1, 0}, 28)},
     MALFORMED_OPEN},
    {"a READ response that nobody asked for",
     {WHOLE(OF(IWARP_READ_RESPONSE, 0), 4)},
     MALFORMED_OPEN},
    {"a READ response of nothing that nobody asked for",
     {WHOLE(OF(IWARP_READ_RESPONSE, 0), 0)},
     MALFORMED_OPEN},
    {"a SEND that invalidates an unknown STag",
     {WHOLE(OF(IWARP_SEND_INVALIDATE, 0), 4)},
     MALFORMED_OPEN},
    {"a solicited one that does",
     {WHOLE(OF(IWARP_SEND_SOLICITED_INVALIDATE, 0), 4)},
     MALFORMED_OPEN},
    {"immediate data", {WHOLE(OF(IWARP_IMMEDIATE, 0), 8)}, MALFORMED_OPEN},
    {"an atomic", {WHOLE(OF(IWARP_ATOMIC_REQUEST, 1), 52)}, MALFORMED_OPEN},
    {"an answer to an atomic", {WHOLE(OF(IWARP_ATOMIC_RESPONSE, 3), 12)}, MALFORMED_OPEN},
    {"a SEND with immediate data", {WHOLE(OF(IWARP_SEND_IMMEDIATE, 0), 4)}, MALFORMED_OPEN},
    {"a Terminate", {WHOLE(OF(IWARP_TERMINATE, 2), 4)}, MALFORMED_OPEN},
    {"a Terminate on the queue of SENDs", {WHOLE(OF(IWARP_TERMINATE, 0), 4)}, MALFORMED_OPEN},
    {"a Terminate with another number",
     {WHOLE({IWARP_TERMINATE, true, 0, 0, 2, 2, 0}, 4)},
     MALFORMED_OPEN},
    {"reserved bits in a header", {CONTROLS(IWARP_WRITE, 0, 0xfd, 0x70)}, MALFORMED_OPEN},
    {"a pad that is not 0", {TWISTED(PAD, SEND(false, 0, 1, 0), 5)}, MALFORMED_OPEN},
    {"FIN behind a frame", {WHOLE(OF(IWARP_WRITE, 0), 0)}, MALFORMED_FIN},
    {"FIN within a message", {WHOLE(SEND(false, 0, 1, 0), 4)}, MALFORMED_FIN},
    {"FIN within a frame", {TWISTED(HALF, SEND(true, 0, 1, 0), 8)}, MALFORMED_FIN},
    {"RST within a frame", {TWISTED(HALF, SEND(true, 0, 1, 0), 8)}, MALFORMED_RST},
};

/* As the first frame it lets the listener speak. */
static const struct part nothing = WHOLE(OF(IWARP_WRITE, 0), 0);

static void add_part(struct malformed *m, const struct part *part) {
    static const uint8_t terminate[4] = {0x12, 3, 0, 0};
    uint8_t *frame = m->bytes + m->count, *segment = frame + IWARP_LENGTH_BYTES;
    size_t bytes = iwarp_ddp_put(segment, &part->ddp);
    memset(segment + bytes, 0, part->bytes + IWARP_READ_BYTES);
    if (part->ddp.opcode == IWARP_READ_REQUEST)
        iwarp_read_put(segment + bytes, &(struct iwarp_read){1, 0, 64, STAG, 4096});
    if (part->ddp.opcode == IWARP_TERMINATE)
        memcpy(segment + bytes, terminate, sizeof terminate);
    if (part->twist == CONTROL)
        memcpy(segment, part->control, 2);
    bytes = part->twist == CUT ? part->bytes : bytes + part->bytes;
    iwarp_put16(frame, (uint16_t)bytes);
    memset(segment + bytes, part->twist == PAD ? 0x5a : 0, IWARP_PAD_MAX);
    size_t all = iwarp_fpdu_bytes((unsigned)bytes), summed = all - IWARP_CRC_BYTES;
    iwarp_crc32c_put(frame + summed, iwarp_crc32c(0, frame, summed));
    if (part->twist == CHECK)
        frame[summed] ^= 1;
    m->count += part->twist == HALF ? all / 2 : all;
}

/* ---- all of them ----------------------------------------------------------------------------------------- */

/* How they differ from the right one. */
enum { ASKED_BYTES = 64 };
static const struct answer {
    const char *name;
    uint32_t stag;
    int offset, bytes;
    bool last;
    int times;
} answers[] = {
    {"an answer to another STag", 256, 0, 0, true, 1},
    {"an answer to another offset", 0, 1, 0, true, 1},
    {"an answer that is too short", 0, 0, -1, true, 1},
    {"an answer that is too long", 0, 0, 1, true, 1},
    {"an answer of nothing", 0, 0, -ASKED_BYTES, true, 1},
    {"an answer that does not end", 0, 0, 0, false, 1},
    {"an answer twice", 0, 0, 0, true, 2},
    {"the answer", 0, 0, 0, true, 1},
};

static void begin(struct malformed *m, const char *name, enum malformed_end end) {
    m->name = name;
    m->end = end;
    m->early = false;
    m->count = 0;
}

void malformed_offer(struct malformed *m) {
    static const struct part offer = WHOLE(SEND(true, 0, 1, 0), 16);
    begin(m, "an offer", MALFORMED_OPEN);
    add_part(m, &offer);
    /* An address of 0, a key and a length, and the check value again. */
    uint8_t *check = m->bytes + m->count - IWARP_CRC_BYTES, *frame = check - 36;
    iwarp_put32(check - 8, STAG);
    iwarp_put32(check - 4, ASKED_BYTES);
    iwarp_crc32c_put(check, iwarp_crc32c(0, frame, 36));
}

bool malformed_answer(size_t number, const struct iwarp_read *asked, struct malformed *m) {
    if (number >= sizeof answers / sizeof *answers)
        return false;
    const struct answer *a = &answers[number];
    begin(m, a->name, MALFORMED_OPEN);
    for (int i = 0; i < a->times; i++) {
        struct part part = {{IWARP_READ_RESPONSE, a->last, asked->sink_stag + a->stag,
                             asked->sink_offset + a->offset, 0, 0, 0},
                            (uint16_t)(ASKED_BYTES + a->bytes),
                            SAID,
                            {0, 0}};
        add_part(m, &part);
    }
    return true;
}

bool malformed_request(size_t number, struct malformed *m) {
    if (number >= sizeof requests / sizeof *requests)
        return false;
    const struct request *r = &requests[number];
    begin(m, r->name, r->end);
    m->early = r->end != MALFORMED_OPEN || (r->flags & S && r->ird & PEER_TO_PEER);
    if (r->key)
        add_request(m, r);
    else if (r->end != MALFORMED_OPEN)
        add(m, KEY, 10);
    if (r->frame)
        add_part(m, &nothing);
    return true;
}

bool malformed_frames(size_t number, struct malformed *m) {
    if (number >= sizeof frames / sizeof *frames)
        return false;
    const struct frames *f = &frames[number];
    begin(m, f->name, f->end);
    add_part(m, &f->part[0]);
    if (f->part[1].bytes > 0)
        add_part(m, &f->part[1]);
    return true;
}

void malformed_ask(unsigned revision, struct malformed *m) {
    begin(m, "a request", MALFORMED_OPEN);
    add_request(m, revision == 1 ? &plain : &enhanced);
}

void malformed_nothing(struct malformed *m) {
    begin(m, "a WRITE of nothing", MALFORMED_OPEN);
    add_part(m, &nothing);
}

void malformed_probe(struct malformed *m) {
    static const struct part probe = CONTROLS(IWARP_WRITE, 4, 0xc3, 0x40);
    begin(m, "another DDP in a tagged segment", MALFORMED_OPEN);
    add_part(m, &probe);
}
