/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* iwarp.c - see iwarp.h. */
#include "support/test.h"

#include "support/iwarp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soft/iwarp/crc32c.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/wire.h"

__attribute__((format(printf, 2, 3))) static void say(struct iwarp_end *end, const char *format,
                                                      ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(end->log + end->log_bytes, sizeof end->log - end->log_bytes, format, args);
    va_end(args);
    assert_true(n >= 0 && end->log_bytes + (size_t)n < sizeof end->log);
    end->log_bytes += (size_t)n;
}

static bool take(void *owner) {
    struct iwarp_end *end = owner;
    end->takes++;
    if (end->taken == end->receives)
        return false;
    end->taken++;
    return true;
}

/* In three pieces, that a part of it may lie anywhere across them. */
static void place(struct iwarp_end *end, uint8_t *base, uint32_t at, uint32_t bytes,
                  struct iwarp_place *to) {
    static const uint32_t edges[] = {7, 1000, UINT32_MAX};
    assert_int_equal(to->count, 0);
    bytes -= end->mistake < bytes ? end->mistake : bytes;
    for (unsigned i = 0; i < 3 && bytes > 0; i++) {
        if (at >= edges[i])
            continue;
        uint32_t room = edges[i] - at, n = bytes < room ? bytes : room;
        assert_true(iwarp_place_add(to, base + at, n));
        at += n;
        bytes -= n;
    }
}

static enum iwarp_refusal receive(void *owner, uint32_t at, uint32_t bytes,
                                  struct iwarp_place *to) {
    struct iwarp_end *end = owner;
    assert_true(bytes > 0 && end->taken == end->delivered + 1);
    if (at > IWARP_END_ROOM || bytes > IWARP_END_ROOM - at)
        return IWARP_UNTAGGED_TOO_LONG;
    place(end, end->receive[end->taken - 1], at, bytes, to);
    return IWARP_FINE;
}

static enum iwarp_refusal invalidate(void *owner, uint32_t stag) {
    struct iwarp_end *end = owner;
    if (stag != IWARP_END_STAG || end->window_closed)
        return IWARP_REMOTE_INVALIDATE;
    end->window_closed = true;
    say(end, "invalidate %x\n", stag);
    return IWARP_FINE;
}

static void deliver(void *owner, const struct iwarp_message *m) {
    struct iwarp_end *end = owner;
    assert_int_equal(end->taken, end->delivered + 1);
    say(end, "deliver %u: %u bytes %08x stag %x", m->opcode, m->bytes,
        iwarp_crc32c(0, end->receive[end->delivered], m->bytes), m->stag);
    if (iwarp_opcode_immediate(m->opcode))
        say(end, " immediate %016llx written %u %u", (unsigned long long)iwarp_get64(m->immediate),
            m->written, m->written_bytes);
    if (iwarp_opcode_send_immediate(m->opcode))
        say(end, " immediate %08x", iwarp_get32(m->immediate));
    say(end, "\n");
    end->delivered++;
}

static enum iwarp_refusal write_to(void *owner, uint32_t stag, uint64_t offset, uint32_t bytes,
                                   struct iwarp_place *to) {
    struct iwarp_end *end = owner;
    assert_true(bytes > 0);
    if (stag != IWARP_END_STAG || end->window_closed)
        return IWARP_TAGGED_STAG;
    if (offset < IWARP_END_BASE || offset - IWARP_END_BASE > IWARP_END_WINDOW ||
        bytes > IWARP_END_WINDOW - (offset - IWARP_END_BASE))
        return IWARP_TAGGED_BOUNDS;
    place(end, end->window, (uint32_t)(offset - IWARP_END_BASE), bytes, to);
    return IWARP_FINE;
}

static bool reading(void *owner, struct iwarp_read *read) {
    struct iwarp_end *end = owner;
    if (end->answered == end->reads)
        return false;
    *read = end->read[end->answered];
    return true;
}

static enum iwarp_refusal response(void *owner, uint32_t at, uint32_t bytes,
                                   struct iwarp_place *to) {
    struct iwarp_end *end = owner;
    assert_true(bytes > 0 && at + bytes <= end->read[end->answered].bytes);
    place(end, end->sink + end->read_at[end->answered], at, bytes, to);
    return IWARP_FINE;
}

static void read_done(void *owner) {
    struct iwarp_end *end = owner;
    assert_true(end->answered < end->reads);
    say(end, "read done: %u bytes %08x\n", end->read[end->answered].bytes,
        iwarp_crc32c(0, end->sink + end->read_at[end->answered], end->read[end->answered].bytes));
    end->answered++;
}

static enum iwarp_refusal read_request(void *owner, const struct iwarp_read *read) {
    say(owner, "read %x %llx <- %x %llx, %u bytes\n", read->sink_stag,
        (unsigned long long)read->sink_offset, read->source_stag,
        (unsigned long long)read->source_offset, read->bytes);
    return read->bytes > 0 && read->source_stag != IWARP_END_STAG ? IWARP_REMOTE_STAG : IWARP_FINE;
}

static enum iwarp_refusal atomic(void *owner, const struct iwarp_atomic *a) {
    say(owner, "atomic %u: id %x stag %x offset %llx value %llx compare %llx\n", a->kind, a->id,
        a->stag, (unsigned long long)a->offset, (unsigned long long)a->value,
        (unsigned long long)a->compare);
    return IWARP_FINE;
}

static enum iwarp_refusal atomic_done(void *owner, const struct iwarp_atomic_response *response) {
    say(owner, "atomic done %x: %llx\n", response->id, (unsigned long long)response->before);
    return IWARP_FINE;
}

static void terminated(void *owner, const struct iwarp_terminate *terminate) {
    say(owner, "terminated %x, %u bytes of a header\n", terminate->refusal,
        terminate->header_bytes);
}

static const struct iwarp_rx_ops ops = {take,        receive,    invalidate, deliver,      write_to,
                                        reading,     response,   read_done,  read_request, atomic,
                                        atomic_done, terminated, NULL};

struct iwarp_end *iwarp_end(unsigned receives, bool crc, bool extended) {
    struct iwarp_end *end = calloc(1, sizeof *end);
    assert_non_null(end);
    assert_true(receives <= IWARP_END_RECEIVES);
    end->receives = receives;
    iwarp_rx_init(&end->rx, &ops, end, crc, extended);
    return end;
}

void iwarp_end_read(struct iwarp_end *end, uint32_t stag, uint64_t offset, uint32_t bytes) {
    assert_true(end->reads < IWARP_END_READS);
    uint32_t at = end->reads * (IWARP_END_SINK / IWARP_END_READS);
    assert_true(bytes <= IWARP_END_SINK / IWARP_END_READS);
    end->read_at[end->reads] = at;
    end->read[end->reads++] =
        (struct iwarp_read){.sink_stag = stag, .sink_offset = offset, .bytes = bytes};
}

void iwarp_end_assert_same(const struct iwarp_end *a, const struct iwarp_end *b) {
    assert_string_equal(a->log, b->log);
    assert_int_equal(a->rx.status, b->rx.status);
    assert_int_equal(a->rx.refusal, b->rx.refusal);
    assert_int_equal(a->rx.frames, b->rx.frames);
    assert_int_equal(a->delivered, b->delivered);
    assert_int_equal(a->answered, b->answered);
    assert_memory_equal(a->receive, b->receive, sizeof a->receive);
    assert_memory_equal(a->window, b->window, sizeof a->window);
    assert_memory_equal(a->sink, b->sink, sizeof a->sink);
}

uint32_t iwarp_random(uint32_t *seed) {
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* As a socket does that is read straight into the payload's place. */
static size_t fill(struct iwarp_end *end, const uint8_t *data, size_t bytes, size_t least) {
    const struct iovec *piece;
    unsigned count = least > 0 ? iwarp_rx_want(&end->rx, least, &piece) : 0;
    size_t done = 0;
    for (unsigned i = 0; i < count && done < bytes; i++) {
        size_t n = piece[i].iov_len < bytes - done ? piece[i].iov_len : bytes - done;
        memcpy(piece[i].iov_base, data + done, n);
        done += n;
    }
    iwarp_rx_filled(&end->rx, done);
    return done;
}

size_t iwarp_end_feed(struct iwarp_end *end, const uint8_t *data, size_t bytes, size_t piece,
                      size_t least, bool post) {
    uint32_t seed = (uint32_t)(bytes * 2654435761u) ^ (uint32_t)least;
    size_t done = 0;
    while (done < bytes) {
        size_t n =
            piece > 0 ? piece : 1 + iwarp_random(&seed) % (iwarp_random(&seed) % 8 ? 30 : 3000);
        n = n < bytes - done ? n : bytes - done;
        size_t straight = fill(end, data + done, n, least);
        size_t fed = straight < n || straight == 0
                         ? iwarp_rx_feed(&end->rx, data + done + straight, n - straight)
                         : 0;
        done += straight + fed;
        if (end->rx.status == IWARP_RX_WAITING && post)
            end->receives++;
        else if (end->rx.status != IWARP_RX_OPEN)
            break;
        else
            assert_int_equal(straight + fed, n);
    }
    return done;
}

/* ---- frames ---------------------------------------------------------------------------------------------- */

size_t iwarp_frame_raw(uint8_t *out, const void *segment, size_t bytes) {
    size_t at = IWARP_LENGTH_BYTES + bytes;
    iwarp_put16(out, (uint16_t)bytes);
    memcpy(out + IWARP_LENGTH_BYTES, segment, bytes);
    for (unsigned pad = iwarp_pad((unsigned)bytes); pad > 0; pad--)
        out[at++] = 0;
    iwarp_crc32c_put(out + at, iwarp_crc32c(0, out, at));
    return at + IWARP_CRC_BYTES;
}

size_t iwarp_frame(uint8_t *out, const struct iwarp_ddp *ddp, const void *payload, size_t bytes) {
    static uint8_t segment[IWARP_SEGMENT_MAX];
    size_t header = iwarp_ddp_put(segment, ddp);
    assert_true(header + bytes <= sizeof segment);
    if (bytes > 0)
        memcpy(segment + header, payload, bytes);
    return iwarp_frame_raw(out, segment, header + bytes);
}
