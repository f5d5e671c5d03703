/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_fuzz.c - any bytes as a stream of iWARP, or as MPA's handshake, in any pieces: what comes of them depends on the
 * bytes alone and not on the pieces, payload goes where the owner said and nowhere else, and what is told is in order.
 *
 * Input: how it is done (bit 0: check values; 1: RFC 7306; 2: a handshake; 3: a reply; 4: check values are put right, without
 * which the fuzzer would hardly get past the first frame), receives, seed of the pieces; then the bytes.
 */
#include "fuzz/fuzz.h"
#include "soft/iwarp/handshake.h"
#include "soft/iwarp/rx.h"
#include "soft/iwarp/wire.h"

#define MOST 512u
#define ROOM 64u       /* of a receive, and of the window */
#define STAG 7u        /* of the window, at offset 16 */
#define READ_BYTES 40u /* of each READ of this side; sink STag 9, offset 0 */
#define DEPTH 3u       /* atomics of the peer; they are never answered */

struct owner {
    struct iwarp_rx rx;
    unsigned receives, taken, delivered, reads, atomics, asked;
    bool invalidated;
    uint64_t told; /* all that was told, in order, as a hash */
    /* Allocated each, so that the address sanitizer knows their ends. */
    uint8_t *receive, *window, *sink;
};

static void tell(struct owner *o, uint64_t what) {
    o->told = (o->told ^ what) * 0x100000001b3u + 0x9e3779b9;
}

static void tell_bytes(struct owner *o, const uint8_t *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        tell(o, at[i]);
}

static bool take(void *owner) {
    struct owner *o = owner;
    PROVE(o->taken == o->delivered);
    if (o->taken == o->receives)
        return false;
    o->taken++;
    memset(o->receive, 0, ROOM);
    return true;
}

static enum iwarp_refusal place(uint8_t *base, uint64_t at, uint32_t bytes,
                                struct iwarp_place *to) {
    PROVE(bytes > 0 && to->count == 0);
    if (at > ROOM || bytes > ROOM - at)
        return IWARP_UNTAGGED_TOO_LONG;
    uint32_t first = bytes / 2;
    PROVE(iwarp_place_add(to, base + at, first) &&
          iwarp_place_add(to, base + at + first, bytes - first));
    return IWARP_FINE;
}

static enum iwarp_refusal receive(void *owner, uint32_t at, uint32_t bytes,
                                  struct iwarp_place *to) {
    struct owner *o = owner;
    PROVE(o->taken == o->delivered + 1);
    return place(o->receive, at, bytes, to);
}

static enum iwarp_refusal invalidate(void *owner, uint32_t stag) {
    struct owner *o = owner;
    if (stag != STAG || o->invalidated)
        return IWARP_REMOTE_INVALIDATE;
    o->invalidated = true;
    tell(o, stag);
    return IWARP_FINE;
}

static void deliver(void *owner, const struct iwarp_message *m) {
    struct owner *o = owner;
    PROVE(o->taken == o->delivered + 1 && m->bytes <= ROOM);
    PROVE(o->rx.extended || !iwarp_opcode_extended(m->opcode));
    PROVE(iwarp_opcode_send(m->opcode) || iwarp_opcode_immediate(m->opcode));
    PROVE(m->written || m->written_bytes == 0);
    o->delivered++;
    tell(o, m->opcode);
    tell(o, m->bytes);
    tell(o, (uint64_t)m->stag << 32 | m->written_bytes);
    tell_bytes(o, m->immediate, sizeof m->immediate);
    tell_bytes(o, o->receive, m->bytes);
}

static enum iwarp_refusal write_to(void *owner, uint32_t stag, uint64_t offset, uint32_t bytes,
                                   struct iwarp_place *to) {
    struct owner *o = owner;
    PROVE(bytes - 1 <= UINT64_MAX - offset);
    tell(o, offset);
    if (stag != STAG || o->invalidated || offset < 16)
        return IWARP_TAGGED_STAG;
    return place(o->window, offset - 16, bytes, to);
}

static bool reading(void *owner, struct iwarp_read *read) {
    struct owner *o = owner;
    *read = (struct iwarp_read){.sink_stag = 9, .bytes = READ_BYTES};
    return o->reads > 0;
}

static enum iwarp_refusal response(void *owner, uint32_t at, uint32_t bytes,
                                   struct iwarp_place *to) {
    struct owner *o = owner;
    PROVE(o->reads > 0 && at + bytes <= READ_BYTES);
    return place(o->sink, at, bytes, to);
}

static void read_done(void *owner) {
    struct owner *o = owner;
    PROVE(o->reads-- > 0);
    tell_bytes(o, o->sink, READ_BYTES);
}

static enum iwarp_refusal read_request(void *owner, const struct iwarp_read *read) {
    tell(owner, read->sink_offset ^ read->source_offset);
    tell(owner, (uint64_t)read->sink_stag << 32 | read->source_stag);
    tell(owner, read->bytes);
    return read->bytes == 13 ? IWARP_REMOTE_BOUNDS : IWARP_FINE;
}

/* On a word of the window. */
static enum iwarp_refusal atomic(void *owner, const struct iwarp_atomic *a) {
    struct owner *o = owner;
    PROVE(o->rx.extended && o->atomics <= DEPTH);
    PROVE(a->kind == IWARP_FETCH_AND_ADD || a->kind == IWARP_COMPARE_AND_SWAP);
    tell(o, a->offset ^ a->value);
    tell(o, a->compare ^ a->id);
    if (o->atomics == DEPTH)
        return IWARP_OPERATION_STREAM;
    if (a->offset % 8 != 0)
        return IWARP_OPERATION_OTHER;
    if (a->stag != STAG || o->invalidated || a->offset < 16 || a->offset - 16 > ROOM - 8)
        return IWARP_REMOTE_BOUNDS;
    uint64_t before;
    memcpy(&before, o->window + a->offset - 16, sizeof before);
    uint64_t after = a->kind == IWARP_FETCH_AND_ADD ? before + a->value
                     : before == a->compare         ? a->value
                                                    : before;
    memcpy(o->window + a->offset - 16, &after, sizeof after);
    o->atomics++;
    return IWARP_FINE;
}

/* Two are asked for, with the numbers 0 and 1. */
static enum iwarp_refusal atomic_done(void *owner, const struct iwarp_atomic_response *r) {
    struct owner *o = owner;
    PROVE(o->rx.extended && o->asked <= 2);
    if (o->asked == 2 || r->id != o->asked)
        return IWARP_DDP_CATASTROPHIC;
    o->asked++;
    tell(o, r->before ^ r->id);
    return IWARP_FINE;
}

static void terminated(void *owner, const struct iwarp_terminate *t) {
    PROVE(t->header_bytes == 0 || t->header_bytes == 14 || t->header_bytes == 18);
    tell(owner, t->refusal);
    tell_bytes(owner, t->header, t->header_bytes);
}

static const struct iwarp_rx_ops ops = {take,        receive,    invalidate, deliver,      write_to,
                                        reading,     response,   read_done,  read_request, atomic,
                                        atomic_done, terminated, NULL};

static void open_owner(struct owner *o, unsigned how, unsigned receives) {
    memset(o, 0, sizeof *o);
    o->receives = receives & 7;
    o->reads = receives >> 3 & 3;
    o->receive = calloc(1, ROOM);
    o->window = calloc(1, ROOM);
    o->sink = calloc(1, ROOM);
    PROVE(o->receive && o->window && o->sink);
    iwarp_rx_init(&o->rx, &ops, o, how & 1, how & 2);
}

static void close_owner(struct owner *o) {
    free(o->receive);
    free(o->window);
    free(o->sink);
}

/* ---- a stream -------------------------------------------------------------------------------------------- */

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

/* As a socket does that is read straight into its place. */
static size_t fill(struct owner *o, const uint8_t *data, size_t bytes) {
    const struct iovec *piece;
    size_t done = 0;
    unsigned count = iwarp_rx_want(&o->rx, 1, &piece);
    for (unsigned i = 0; i < count; i++) {
        size_t n = piece[i].iov_len < bytes - done ? piece[i].iov_len : bytes - done;
        memcpy(piece[i].iov_base, data + done, n);
        done += n;
    }
    iwarp_rx_filled(&o->rx, done);
    return done;
}

static void feed(struct owner *o, const uint8_t *data, size_t bytes, bool cut, uint32_t seed) {
    size_t done = 0;
    while (done < bytes && o->rx.status == IWARP_RX_OPEN) {
        size_t n = cut ? 1 + next(&seed) % (next(&seed) & 1 ? 4 : 60) : bytes;
        n = n < bytes - done ? n : bytes - done;
        size_t straight = cut && next(&seed) & 1 ? fill(o, data + done, n) : 0;
        /* Ends where the piece ends: a read behind it is seen. */
        uint8_t *piece = malloc(n - straight + 1);
        PROVE(piece);
        memcpy(piece, data + done + straight, n - straight);
        size_t fed = iwarp_rx_feed(&o->rx, piece, n - straight);
        free(piece);
        PROVE(fed <= n - straight && (fed == n - straight || o->rx.status != IWARP_RX_OPEN));
        done += straight + fed;
    }
    if (o->rx.status >= IWARP_RX_REFUSED) /* for good */
        PROVE(iwarp_rx_feed(&o->rx, data, bytes) == 0);
}

static void put_checks_right(uint8_t *data, size_t bytes) {
    for (size_t at = 0; at + 2 <= bytes;) {
        size_t frame = iwarp_fpdu_bytes(iwarp_get16(data + at));
        if (frame > bytes - at)
            return;
        iwarp_crc32c_put(data + at + frame - 4, iwarp_crc32c(0, data + at, frame - 4));
        at += frame;
    }
}

static void streams(const uint8_t *data, size_t bytes, unsigned how, unsigned receives,
                    uint32_t seed) {
    static struct owner whole, cut;
    open_owner(&whole, how, receives);
    open_owner(&cut, how, receives);
    feed(&whole, data, bytes, false, 0);
    feed(&cut, data, bytes, true, seed);
    /* A whole frame that is bad is asked nothing about; one in pieces is, before it is known to be. */
    bool bad = whole.rx.refusal == IWARP_MPA_CRC;
    PROVE(whole.rx.status == cut.rx.status || bad);
    PROVE(whole.rx.refusal == cut.rx.refusal || cut.rx.status == IWARP_RX_WAITING);
    PROVE(whole.rx.frames == cut.rx.frames && whole.delivered == cut.delivered);
    PROVE(whole.told == cut.told || bad);
    if (whole.rx.status == IWARP_RX_REFUSED) {
        struct iwarp_terminate t;
        iwarp_rx_terminate(&whole.rx, &t);
        PROVE(t.refusal == whole.rx.refusal && t.refusal != IWARP_FINE);
        PROVE(t.header_bytes == 0 || t.header_bytes == 14 || t.header_bytes == 18);
    }
    if (!bad && whole.rx.status != IWARP_RX_REFUSED) {
        PROVE(memcmp(whole.window, cut.window, ROOM) == 0);
        PROVE(memcmp(whole.sink, cut.sink, ROOM) == 0);
    }
    close_owner(&whole);
    close_owner(&cut);
}

/* ---- a handshake ----------------------------------------------------------------------------------------- */

static enum iwarp_parsed parse(struct iwarp_handshake_parser *p, bool reply, const uint8_t *data,
                               size_t bytes, uint32_t *seed, size_t *taken,
                               struct iwarp_handshake *h) {
    enum iwarp_parsed parsed = IWARP_PARSED_MORE;
    *taken = 0;
    iwarp_handshake_expect(p, reply);
    while (parsed == IWARP_PARSED_MORE && *taken < bytes) {
        size_t n = seed ? 1 + next(seed) % 30 : bytes, took, wants = iwarp_handshake_wants(p);
        n = n < bytes - *taken ? n : bytes - *taken;
        PROVE(wants > 0 && wants <= IWARP_HANDSHAKE_BEHIND + IWARP_HANDSHAKE_HEAD);
        parsed = iwarp_handshake_take(p, data + *taken, n, &took, h);
        PROVE(took <= n);
        *taken += took;
    }
    return parsed;
}

/* What is said of it holds when it is written again, and whoever answers it agrees with who asked. */
static void agree(const struct iwarp_handshake *h, unsigned how) {
    struct iwarp_offer own = {how & 1, how & 2, how & 4, 3, 5, 16};
    struct iwarp_terms ours, theirs;
    struct iwarp_handshake reply;
    enum iwarp_refusal refusal;
    if (h->reply) {
        struct iwarp_handshake request = iwarp_handshake_request(&own, NULL, 0);
        if (iwarp_handshake_conclude(&own, &request, h, &ours, &refusal) == IWARP_VERDICT_ACCEPT)
            PROVE(ours.ird <= 16 && ours.ord <= 5 && (ours.crc || !(how & 1)));
    } else if (iwarp_handshake_answer(&own, h, &theirs, &reply) == IWARP_VERDICT_ACCEPT) {
        struct iwarp_offer asked = {.ird = h->ird, .ord = h->ord, .depth_max = IWARP_DEPTH_NONE};
        PROVE(theirs.ird <= 16 && theirs.ord <= 5);
        PROVE(iwarp_handshake_conclude(&asked, h, &reply, &ours, &refusal) == IWARP_VERDICT_ACCEPT);
        PROVE(ours.crc == theirs.crc && ours.rtr == theirs.rtr && ours.extended == theirs.extended);
        PROVE(!h->enhanced || (ours.ord <= theirs.ird && theirs.ord <= ours.ird));
    }
}

static void handshakes(const uint8_t *data, size_t bytes, unsigned how, uint32_t seed) {
    static struct iwarp_handshake_parser once, again;
    struct iwarp_handshake a, b;
    bool reply = how & 8;
    size_t taken, taken_cut;
    enum iwarp_parsed parsed = parse(&once, reply, data, bytes, NULL, &taken, &a);
    PROVE(parse(&again, reply, data, bytes, &seed, &taken_cut, &b) == parsed);
    if (parsed != IWARP_PARSED_DONE)
        return;
    PROVE(taken == taken_cut && a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0);
    agree(&a, how);
    uint8_t out[IWARP_HANDSHAKE_MAX];
    size_t n = iwarp_handshake_put(out, &a);
    PROVE((n == 0) == (a.bytes > IWARP_PRIVATE_MAX));
    if (n > 0) {
        PROVE(parse(&again, reply, out, n, NULL, &taken, &b) == IWARP_PARSED_DONE && taken == n);
        PROVE(a.ird == b.ird || a.reject);
        PROVE(a.extended == b.extended && a.crc == b.crc && a.bytes == b.bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    uint8_t bytes[MOST];
    unsigned how = (unsigned)fuzz_take(&in, 1), receives = (unsigned)fuzz_take(&in, 1);
    uint32_t seed = (uint32_t)fuzz_take(&in, 1);
    size_t n = in.left < MOST ? in.left : MOST;
    if (n > 0)
        memcpy(bytes, in.at, n);
    if (how & 4) {
        handshakes(bytes, n, how, seed);
        return 0;
    }
    if (how & 16)
        put_checks_right(bytes, n);
    streams(bytes, n, how, receives, seed);
    return 0;
}
