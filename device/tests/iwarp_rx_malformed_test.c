/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_rx_malformed_test.c - the receiving end of a stream: every malformed input with its Terminate, however it is cut,
 * and nothing is delivered.
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "support/iwarp.h"
#include "support/iwarp_said.h"
#include "support/rows.h"

static struct iwarp_said s;

/* ---- what is malformed ----------------------------------------------------------------------------------- */

enum twist { NOTHING, CUT, RAW };

struct part {
    struct iwarp_ddp ddp;
    uint32_t bytes; /* of payload */
    enum twist twist;
    uint8_t raw[2]; /* RAW: the first two bytes of the header */
};

struct malformed {
    struct part part[2]; /* the last that there is, is refused */
    enum iwarp_refusal refusal;
    uint8_t header; /* bytes of it in the Terminate */
    bool extended;  /* RFC 7306 was agreed on */
};

static void add_part(const struct part *part) {
    uint8_t segment[IWARP_HEADER_MAX + IWARP_SAID_DATA];
    size_t n = iwarp_ddp_put(segment, &part->ddp);
    if (part->twist == CUT) /* `bytes` of all of the segment */
        n = 0;
    if (part->twist == RAW)
        memcpy(segment, part->raw, 2);
    if (part->twist != CUT)
        memcpy(segment + n, s.data, part->bytes);
    s.bytes += iwarp_frame_raw(s.stream + s.bytes, segment, n + part->bytes);
}

static void it_is_refused(void **state) {
    const struct malformed *m = *state;
    static const size_t ways[] = {IWARP_SAID_STREAM, 1, 3, 0, 0};
    unsigned parts = 0;
    iwarp_say_begin(&s);
    do
        add_part(&m->part[parts++]);
    while (parts < 2 && m->part[parts].bytes > 0);
    for (unsigned i = 0; i < 2 * sizeof ways / sizeof *ways; i++) {
        bool crc = i & 1;
        struct iwarp_end *end = iwarp_end(4, crc, m->extended);
        struct iwarp_terminate t;
        iwarp_end_read(end, 0x501, 0x80, 100);
        iwarp_end_feed(end, s.stream, s.bytes, ways[i / 2], i & 4 ? 8 : 0, false);
        assert_int_equal(end->rx.status, IWARP_RX_REFUSED);
        assert_int_equal(end->rx.refusal, m->refusal);
        assert_int_equal(end->rx.frames, parts - 1);
        assert_int_equal(end->delivered, 0);
        assert_int_equal(end->answered, 0);
        iwarp_rx_terminate(&end->rx, &t);
        assert_int_equal(t.refusal, m->refusal);
        assert_int_equal(t.header_bytes, m->header);
        /* That was all: nothing is taken any more. */
        assert_int_equal(iwarp_rx_feed(&end->rx, s.stream, s.bytes), 0);
        free(end);
    }
}

TEST(a_read_that_is_refused_is_told_with_its_request) {
    uint8_t bytes[IWARP_READ_BYTES];
    struct iwarp_terminate t;
    iwarp_say_begin(&s);
    iwarp_read_put(bytes, &(struct iwarp_read){1, 2, 3, 4, 5});
    iwarp_say_own(&s, IWARP_READ_REQUEST, 1, bytes, sizeof bytes);
    struct iwarp_end *end = iwarp_end(0, true, false);
    iwarp_end_feed(end, s.stream, s.bytes, 1, 0, false);
    assert_int_equal(end->rx.refusal, IWARP_REMOTE_STAG);
    iwarp_rx_terminate(&end->rx, &t);
    assert_true(t.read);
    assert_memory_equal(t.read_request, bytes, sizeof bytes);
    assert_int_equal(t.header_bytes, 18);
    assert_int_equal(t.segment, 46);
    free(end);
}

/* Others of this device alone have them, and only in this form. */
TEST(an_atomic_with_a_mask_is_refused) {
    uint8_t bytes[IWARP_ATOMIC_BYTES];
    iwarp_say_begin(&s);
    iwarp_atomic_put(bytes, &(struct iwarp_atomic){.kind = IWARP_FETCH_AND_ADD});
    bytes[30] = 1;
    iwarp_say_own(&s, IWARP_ATOMIC_REQUEST, 1, bytes, sizeof bytes);
    struct iwarp_end *end = iwarp_end(0, true, true);
    iwarp_end_feed(end, s.stream, s.bytes, 0, 0, false);
    assert_int_equal(end->rx.refusal, IWARP_OPERATION_OPCODE);
    free(end);
}

#define MALFORMED(name, ...) ROW(name##_is_refused, it_is_refused, malformed, __VA_ARGS__, false)
/* Where RFC 7306 was agreed on. */
#define AGREED(name, ...) ROW(name##_is_refused, it_is_refused, malformed, __VA_ARGS__, true)
/* Parts of an untagged message, of a tagged one; a SEND, a WRITE, a response to the READ. END: it is the last. */
#define END true
#define MORE false
#define NO_RAW                                                                                     \
    { 0, 0 }
#define UNTAGGED(opcode, last, stag, queue, msn, mo, bytes)                                        \
    { {opcode, last, stag, 0, queue, msn, mo}, bytes, NOTHING, NO_RAW }
#define TAGGED(opcode, last, stag, offset, bytes)                                                  \
    { {opcode, last, stag, offset, 0, 0, 0}, bytes, NOTHING, NO_RAW }
#define SEND(last, msn, mo, bytes) UNTAGGED(IWARP_SEND, last, 0, 0, msn, mo, bytes)
#define INVALIDATE(last, stag, mo, bytes)                                                          \
    UNTAGGED(IWARP_SEND_INVALIDATE, last, stag, 0, 1, mo, bytes)
#define READ(last, bytes) UNTAGGED(IWARP_READ_REQUEST, last, 0, 1, 1, 0, bytes)
#define WRITE(last, at, bytes)                                                                     \
    TAGGED(IWARP_WRITE, last, IWARP_END_STAG, IWARP_END_BASE + (at), bytes)
#define RESPONSE(last, stag, offset, bytes) TAGGED(IWARP_READ_RESPONSE, last, stag, offset, bytes)
/* So many bytes of a segment; one whose control bytes are these. */
#define SEGMENT(bytes)                                                                             \
    { {IWARP_SEND, true, 0, 0, 0, 1, 0}, bytes, CUT, NO_RAW }
#define CONTROL(opcode, ...)                                                                       \
    {                                                                                              \
        {opcode, true, 0, 0, 0, 1, 0}, 4, RAW, {                                                   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

TEST_CASES(
    MALFORMED(a_segment_of_nothing, {SEGMENT(0)}, IWARP_MPA_FRAMING, 0),
    MALFORMED(a_segment_shorter_than_any_header, {SEGMENT(13)}, IWARP_MPA_FRAMING, 0),
    MALFORMED(a_segment_shorter_than_its_header, {SEGMENT(17)}, IWARP_MPA_FRAMING, 0),
    MALFORMED(another_ddp, {CONTROL(IWARP_SEND, 0x42, 0x43)}, IWARP_UNTAGGED_VERSION, 18),
    MALFORMED(another_ddp_tagged, {CONTROL(IWARP_WRITE, 0xc3, 0x40)}, IWARP_TAGGED_VERSION, 14),
    MALFORMED(another_rdmap, {CONTROL(IWARP_SEND, 0x41, 0x03)}, IWARP_OPERATION_VERSION, 18),
    MALFORMED(an_unknown_opcode, {CONTROL(IWARP_SEND, 0x41, 0x4f)}, IWARP_OPERATION_OPCODE, 18),
    MALFORMED(immediate_data_of_a_stranger, {UNTAGGED(IWARP_IMMEDIATE, END, 0, 0, 1, 0, 8)},
              IWARP_OPERATION_OPCODE, 18),
    MALFORMED(an_atomic_of_a_stranger, {UNTAGGED(IWARP_ATOMIC_REQUEST, END, 0, 1, 1, 0, 52)},
              IWARP_OPERATION_OPCODE, 18),
    MALFORMED(a_tagged_send, {CONTROL(IWARP_WRITE, 0xc1, 0x43)}, IWARP_OPERATION_OPCODE, 14),
    MALFORMED(an_untagged_write, {CONTROL(IWARP_SEND, 0x41, 0x40)}, IWARP_OPERATION_OPCODE, 18),
    MALFORMED(another_queue, {UNTAGGED(IWARP_SEND, END, 0, 4, 1, 0, 4)}, IWARP_UNTAGGED_QUEUE, 18),
    MALFORMED(a_number_that_was, {SEND(END, 0, 0, 4)}, IWARP_UNTAGGED_MSN, 18),
    MALFORMED(a_number_that_is_to_come, {SEND(END, 2, 0, 4)}, IWARP_UNTAGGED_MSN, 18),
    MALFORMED(a_number_that_changes_within_a_message, {SEND(MORE, 1, 0, 4), SEND(END, 2, 4, 4)},
              IWARP_UNTAGGED_MSN, 18),
    MALFORMED(a_beginning_that_is_not_at_0, {SEND(END, 1, 4, 4)}, IWARP_UNTAGGED_MO, 18),
    MALFORMED(a_gap_within_a_message, {SEND(MORE, 1, 0, 4), SEND(END, 1, 8, 4)}, IWARP_UNTAGGED_MO,
              18),
    MALFORMED(a_part_that_comes_again, {SEND(MORE, 1, 0, 4), SEND(END, 1, 0, 4)}, IWARP_UNTAGGED_MO,
              18),
    MALFORMED(another_kind_of_send_within_one,
              {SEND(MORE, 1, 0, 4), UNTAGGED(IWARP_SEND_SOLICITED, END, 0, 0, 1, 4, 4)},
              IWARP_OPERATION_OPCODE, 18),
    MALFORMED(a_request_within_a_message, {SEND(MORE, 1, 0, 4), READ(END, 28)},
              IWARP_OPERATION_OPCODE, 18),
    MALFORMED(another_stag_to_invalidate_within_a_message,
              {INVALIDATE(MORE, 1, 0, 4), INVALIDATE(END, 2, 4, 4)}, IWARP_OPERATION_OTHER, 18),
    AGREED(other_immediate_data_within_a_message,
           {UNTAGGED(IWARP_SEND_IMMEDIATE, MORE, 1, 0, 1, 0, 4),
            UNTAGGED(IWARP_SEND_IMMEDIATE, END, 2, 0, 1, 4, 4)},
           IWARP_OPERATION_OTHER, 18),
    MALFORMED(a_send_with_immediate_data_of_a_stranger,
              {UNTAGGED(IWARP_SEND_IMMEDIATE, END, 1, 0, 1, 0, 4)}, IWARP_OPERATION_OPCODE, 18),
    AGREED(immediate_data_in_parts, {UNTAGGED(IWARP_IMMEDIATE, MORE, 0, 0, 1, 0, 8)},
           IWARP_UNTAGGED_TOO_LONG, 18),
    AGREED(short_immediate_data, {UNTAGGED(IWARP_IMMEDIATE, END, 0, 0, 1, 0, 7)},
           IWARP_OPERATION_OTHER, 18),
    AGREED(immediate_data_within_a_message,
           {SEND(MORE, 1, 0, 4), UNTAGGED(IWARP_IMMEDIATE, END, 0, 0, 1, 4, 8)},
           IWARP_OPERATION_OPCODE, 18),
    AGREED(an_atomic_on_the_queue_of_sends, {UNTAGGED(IWARP_ATOMIC_REQUEST, END, 0, 0, 1, 0, 52)},
           IWARP_UNTAGGED_QUEUE, 18),
    AGREED(an_atomic_in_parts, {UNTAGGED(IWARP_ATOMIC_REQUEST, MORE, 0, 1, 1, 0, 52)},
           IWARP_UNTAGGED_TOO_LONG, 18),
    AGREED(a_long_atomic, {UNTAGGED(IWARP_ATOMIC_REQUEST, END, 0, 1, 1, 0, 53)},
           IWARP_UNTAGGED_TOO_LONG, 18),
    AGREED(an_atomics_answer_out_of_order, {UNTAGGED(IWARP_ATOMIC_RESPONSE, END, 0, 3, 2, 0, 12)},
           IWARP_UNTAGGED_MSN, 18),
    MALFORMED(a_message_longer_than_its_receive,
              {SEND(MORE, 1, 0, IWARP_SAID_DATA), SEND(END, 1, IWARP_SAID_DATA, 1097)},
              IWARP_UNTAGGED_TOO_LONG, 18),
    MALFORMED(a_stag_that_cannot_be_invalidated, {INVALIDATE(END, 3, 0, 4)},
              IWARP_REMOTE_INVALIDATE, 18),
    MALFORMED(an_unknown_stag, {TAGGED(IWARP_WRITE, END, IWARP_END_STAG + 1, IWARP_END_BASE, 4)},
              IWARP_TAGGED_STAG, 14),
    MALFORMED(a_write_that_ends_outside, {WRITE(END, IWARP_END_WINDOW - 3, 4)}, IWARP_TAGGED_BOUNDS,
              14),
    MALFORMED(a_write_that_wraps, {TAGGED(IWARP_WRITE, END, IWARP_END_STAG, UINT64_MAX - 2, 4)},
              IWARP_TAGGED_WRAP, 14),
    MALFORMED(a_gap_within_a_write, {WRITE(MORE, 0, 4), WRITE(END, 5, 4)}, IWARP_TAGGED_BOUNDS, 14),
    MALFORMED(another_stag_within_a_write,
              {WRITE(MORE, 0, 4), TAGGED(IWARP_WRITE, END, 1, IWARP_END_BASE + 4, 4)},
              IWARP_TAGGED_STAG, 14),
    MALFORMED(a_response_within_a_write, {WRITE(MORE, 0, 4), RESPONSE(END, 0x501, 0x80, 100)},
              IWARP_OPERATION_OPCODE, 14),
    MALFORMED(a_response_to_another_stag, {RESPONSE(END, 0x502, 0x80, 100)}, IWARP_TAGGED_STAG, 14),
    MALFORMED(a_response_to_another_offset, {RESPONSE(END, 0x501, 0x81, 100)}, IWARP_TAGGED_BOUNDS,
              14),
    MALFORMED(a_response_that_is_too_short, {RESPONSE(END, 0x501, 0x80, 99)}, IWARP_TAGGED_BOUNDS,
              14),
    MALFORMED(a_response_that_is_too_long, {RESPONSE(END, 0x501, 0x80, 101)}, IWARP_TAGGED_BOUNDS,
              14),
    MALFORMED(a_response_that_does_not_end, {RESPONSE(MORE, 0x501, 0x80, 100)}, IWARP_TAGGED_BOUNDS,
              14),
    MALFORMED(a_short_read_request, {READ(END, 27)}, IWARP_OPERATION_OTHER, 18),
    MALFORMED(a_long_read_request, {READ(END, 29)}, IWARP_UNTAGGED_TOO_LONG, 18),
    MALFORMED(a_read_request_in_parts, {READ(MORE, 28)}, IWARP_UNTAGGED_TOO_LONG, 18));
