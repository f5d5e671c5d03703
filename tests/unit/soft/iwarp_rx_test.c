/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_rx_test.c - the receiving end of a stream: every kind of message, in pieces of any size with the same result;
 * every malformed input with its Terminate; and nothing of a frame whose check value is wrong.
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "soft/iwarp/wire.h"
#include "support/iwarp.h"
#include "support/pattern.h"
#include "support/rows.h"

#define STREAM 65536u
#define MANY 3000u /* bytes of a message of several segments */

static uint8_t stream[STREAM];
static size_t stream_bytes;
static uint8_t data[MANY];

static void begin(void) {
    stream_bytes = 0;
    pattern_fill(data, 0, sizeof data, 5);
}

static void add(struct iwarp_ddp ddp, const void *payload, size_t bytes) {
    assert_true(stream_bytes + bytes + 64 < STREAM);
    stream_bytes += iwarp_frame(stream + stream_bytes, &ddp, payload, bytes);
}

static void add_send(uint8_t opcode, uint32_t msn, uint32_t stag, uint32_t mo, size_t bytes,
                     bool last) {
    add((struct iwarp_ddp){.opcode = opcode, .last = last, .stag = stag, .msn = msn, .mo = mo},
        data + mo, bytes);
}

static void add_tagged(uint8_t opcode, uint32_t stag, uint64_t offset, uint32_t at, size_t bytes,
                       bool last) {
    add((struct iwarp_ddp){.opcode = opcode, .last = last, .stag = stag, .offset = offset + at},
        data + at, bytes);
}

static void add_own(uint8_t opcode, uint32_t msn, const void *payload, size_t bytes) {
    add(
        (struct iwarp_ddp){
            .opcode = opcode, .last = true, .queue = iwarp_opcode_queue(opcode), .msn = msn},
        payload, bytes);
}

/* ---- every kind of message ------------------------------------------------------------------------------- */

static void add_requests(void) {
    uint8_t bytes[IWARP_ATOMIC_BYTES];
    iwarp_read_put(bytes, &(struct iwarp_read){0xabc, 0x1122334455, 5000, IWARP_END_STAG, 0x10008});
    add_own(IWARP_READ_REQUEST, 1, bytes, IWARP_READ_BYTES);
    iwarp_read_put(bytes, &(struct iwarp_read){1, 0, 0, 0, 0}); /* an RTR */
    add_own(IWARP_READ_REQUEST, 2, bytes, IWARP_READ_BYTES);
    iwarp_atomic_put(bytes, &(struct iwarp_atomic){IWARP_COMPARE_AND_SWAP, 7, 0x77, 0x10010, 8, 9});
    add_own(IWARP_ATOMIC_REQUEST, 3, bytes, IWARP_ATOMIC_BYTES);
    iwarp_atomic_put(bytes, &(struct iwarp_atomic){IWARP_FETCH_AND_ADD, 8, 0x77, 0x10018, 3, 0});
    add_own(IWARP_ATOMIC_REQUEST, 4, bytes, IWARP_ATOMIC_BYTES);
    iwarp_atomic_response_put(bytes, &(struct iwarp_atomic_response){9, 0xfedcba9876543210});
    add_own(IWARP_ATOMIC_RESPONSE, 1, bytes, IWARP_ATOMIC_RESPONSE_BYTES);
}

/* One message of each kind and more; those that may interleave do. Two READs were asked. */
static void add_dialogue(bool extended) {
    static const uint8_t immediate[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    add_tagged(IWARP_WRITE, 1, 0, 0, 0, true); /* an RTR */
    add_send(IWARP_SEND, 1, 0, 0, 6, true);
    add_send(IWARP_SEND_SOLICITED, 2, 0, 0, 0, true);
    add_send(IWARP_SEND, 3, 0, 0, 1000, false);
    add_tagged(IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE + 5, 0, 999, false);
    add_send(IWARP_SEND, 3, 0, 1000, 1001, false);
    add_tagged(IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE + 5, 999, 2001, true);
    add_send(IWARP_SEND, 3, 0, 2001, 999, true);
    if (extended) {
        add_own(IWARP_IMMEDIATE, 4, immediate, 8);
        add_tagged(IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE + 4000, 0, 8, true);
        add_own(IWARP_IMMEDIATE_SOLICITED, 5, immediate, 8);
        add_requests();
    }
    add_tagged(IWARP_READ_RESPONSE, 0x501, 0x80, 0, 1500, false);
    add_send(IWARP_SEND, extended ? 6 : 4, 0, 0, 77, true);
    add_tagged(IWARP_READ_RESPONSE, 0x501, 0x80, 1500, 1500, true);
    add_tagged(IWARP_READ_RESPONSE, 0x502, 0, 0, 0, true);
    add_send(IWARP_SEND_INVALIDATE, extended ? 7 : 5, IWARP_END_STAG, 0, 5, false);
    add_send(IWARP_SEND_INVALIDATE, extended ? 7 : 5, IWARP_END_STAG, 5, 5, true);
    static const uint8_t why[] = {0x12, 0x02, 0x00, 0x00};
    add_own(IWARP_TERMINATE, 1, why, sizeof why);
}

static struct iwarp_end *listen_to(bool crc, bool extended, size_t piece, size_t least, bool post) {
    struct iwarp_end *end = iwarp_end(post ? 0 : IWARP_END_RECEIVES, crc, extended);
    iwarp_end_read(end, 0x501, 0x80, MANY);
    iwarp_end_read(end, 0x502, 0, 0);
    iwarp_end_feed(end, stream, stream_bytes, piece, least, post);
    return end;
}

static void every_kind_of_message_is_told(void **state) {
    (void)state;
    begin();
    add_dialogue(true);
    struct iwarp_end *end = listen_to(true, true, STREAM, 0, false);
    assert_string_equal(
        end->log, "deliver 3: 6 bytes eaaeea47 stag 0\n"
                  "deliver 5: 0 bytes 00000000 stag 0\n"
                  "deliver 3: 3000 bytes 89eda811 stag 0\n"
                  "deliver 8: 0 bytes 00000000 stag 0 immediate 0102030405060708 written 0 0\n"
                  "deliver 9: 0 bytes 00000000 stag 0 immediate 0102030405060708 written 1 8\n"
                  "read abc 1122334455 <- 77 10008, 5000 bytes\n"
                  "read 1 0 <- 0 0, 0 bytes\n"
                  "atomic 2: id 7 stag 77 offset 10010 value 8 compare 9\n"
                  "atomic 0: id 8 stag 77 offset 10018 value 3 compare 0\n"
                  "atomic done 9: fedcba9876543210\n"
                  "deliver 3: 77 bytes c20ae726 stag 0\n"
                  "read done: 3000 bytes 89eda811\n"
                  "read done: 0 bytes 00000000\n"
                  "invalidate 77\n"
                  "deliver 4: 10 bytes bf309f04 stag 77\n"
                  "terminated 11202, 0 bytes of a header\n");
    assert_memory_equal(end->receive[2], data, MANY);
    assert_memory_equal(end->window + 5, data, MANY);
    assert_memory_equal(end->sink, data, MANY);
    assert_int_equal(end->rx.status, IWARP_RX_TERMINATED);
    assert_false(iwarp_rx_inside(&end->rx));
    free(end);
}

struct feeding {
    bool crc, extended, post;
    size_t piece, least;
};

static void the_result_is_that_of_the_whole(void **state) {
    const struct feeding *f = *state;
    begin();
    add_dialogue(f->extended);
    size_t once = stream_bytes;
    struct iwarp_end *whole = listen_to(f->crc, f->extended, STREAM, 0, false);
    struct iwarp_end *cut = listen_to(f->crc, f->extended, f->piece, f->least, f->post);
    assert_int_equal(whole->rx.status, IWARP_RX_TERMINATED);
    iwarp_end_assert_same(whole, cut);
    free(whole);
    free(cut);
    for (size_t n = 0; f->piece == 1 && n < once; n += 13) { /* two pieces, cut anywhere */
        whole = listen_to(f->crc, f->extended, STREAM, 0, false);
        cut = listen_to(f->crc, f->extended, n + 1, f->least, false);
        iwarp_end_assert_same(whole, cut);
        free(whole);
        free(cut);
    }
}

/* As Linux's Soft-iWARP sends it, with check values: an RTR and "hello!". */
static void recorded_bytes_are_understood(void **state) {
    (void)state;
    static const uint8_t recorded[] = {
        0x00, 0x0e, 0xc1, 0x40, 0,    0,    0,    1,    0,    0,    0,    0,    0,
        0,    0,    0,    0xeb, 0xd3, 0x4c, 0x5f, 0x00, 0x18, 0x41, 0x43, 0,    0,
        0,    0,    0,    0,    0,    0,    0,    0,    0,    1,    0,    0,    0,
        0,    'h',  'e',  'l',  'l',  'o',  '!',  0,    0,    0xa0, 0x0a, 0xcd, 0x2d};
    for (size_t piece = 0; piece <= sizeof recorded; piece++) {
        struct iwarp_end *end = iwarp_end(1, true, false);
        assert_int_equal(iwarp_end_feed(end, recorded, sizeof recorded, piece, 1, false),
                         sizeof recorded);
        assert_int_equal(end->rx.status, IWARP_RX_OPEN);
        assert_int_equal(end->rx.frames, 2);
        assert_int_equal(end->delivered, 1);
        assert_memory_equal(end->receive[0], "hello!", 7);
        free(end);
    }
}

static void message_numbers_wrap_through_zero(void **state) {
    (void)state;
    struct iwarp_end *end = iwarp_end(4, true, false);
    begin();
    end->rx.msn[0] = UINT32_MAX - 1;
    for (uint32_t i = 0; i < 4; i++)
        add_send(IWARP_SEND, UINT32_MAX - 1 + i, 0, 0, 8, true);
    iwarp_end_feed(end, stream, stream_bytes, 0, 0, false);
    assert_int_equal(end->delivered, 4);
    free(end);
}

/* ---- waiting for a receive ------------------------------------------------------------------------------- */

static void without_a_receive_nothing_more_is_taken(void **state) {
    (void)state;
    begin();
    add_send(IWARP_SEND, 1, 0, 0, 100, true);
    size_t first = stream_bytes;
    add_tagged(IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 50, true);
    struct iwarp_end *end = iwarp_end(0, true, false);
    size_t done = iwarp_rx_feed(&end->rx, stream, stream_bytes);
    assert_int_equal(end->rx.status, IWARP_RX_WAITING);
    assert_true(done < first);
    assert_int_equal(iwarp_rx_feed(&end->rx, NULL, 0), 0);
    assert_int_equal(end->rx.status, IWARP_RX_WAITING);
    assert_int_equal(end->window[0], 0);
    assert_true(iwarp_rx_inside(&end->rx));
    end->receives = 1;
    assert_int_equal(iwarp_rx_feed(&end->rx, stream + done, stream_bytes - done),
                     stream_bytes - done);
    assert_int_equal(end->rx.status, IWARP_RX_OPEN);
    assert_int_equal(end->delivered, 1);
    assert_memory_equal(end->window, data, 50);
    free(end);
}

/* ---- large payload straight into its place --------------------------------------------------------------- */

static void large_payload_is_read_into_its_place(void **state) {
    (void)state;
    const struct iovec *piece;
    begin();
    add_tagged(IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 2000, true);
    struct iwarp_end *end = iwarp_end(0, true, false);
    assert_int_equal(iwarp_rx_want(&end->rx, 1, &piece), 0);
    iwarp_rx_feed(&end->rx, stream, 16);
    assert_int_equal(iwarp_rx_want(&end->rx, 2001, &piece), 0);
    assert_int_equal(iwarp_rx_want(&end->rx, 2000, &piece), 3);
    assert_ptr_equal(piece[0].iov_base, end->window);
    assert_int_equal(piece[0].iov_len, 7);
    iwarp_rx_filled(&end->rx, 3000); /* more than there is: no */
    assert_int_equal(iwarp_rx_want(&end->rx, 2000, &piece), 3);
    assert_true(iwarp_rx_uses(&end->rx, end->window + 1999, 1));
    assert_false(iwarp_rx_uses(&end->rx, end->window + 2000, 1));
    memcpy(piece[0].iov_base, data, 7);
    memcpy(piece[1].iov_base, data + 7, 500);
    iwarp_rx_filled(&end->rx, 507);
    assert_false(iwarp_rx_uses(&end->rx, end->window, 507));
    assert_int_equal(iwarp_rx_want(&end->rx, 1493, &piece), 2);
    memcpy(end->window + 507, data + 507, 1493);
    iwarp_rx_filled(&end->rx, 1493);
    assert_int_equal(iwarp_rx_want(&end->rx, 1, &piece), 0);
    assert_int_equal(iwarp_rx_feed(&end->rx, stream + 2016, stream_bytes - 2016),
                     stream_bytes - 2016);
    assert_int_equal(end->rx.frames, 1);
    free(end);
}

static void a_changed_byte_that_was_read_into_its_place_is_seen(void **state) {
    (void)state;
    begin();
    add_send(IWARP_SEND, 1, 0, 0, 2000, true);
    stream[1500] ^= 1;
    struct iwarp_end *end = iwarp_end(1, true, false);
    iwarp_end_feed(end, stream, stream_bytes, 700, 1, false);
    assert_int_equal(end->rx.refusal, IWARP_MPA_CRC);
    assert_int_equal(end->delivered, 0);
    free(end);
}

static void memory_that_goes_away_is_written_no_more(void **state) {
    (void)state;
    for (unsigned crc = 0; crc < 2; crc++) {
        begin();
        add_tagged(IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 2000, true);
        struct iwarp_end *end = iwarp_end(0, crc, false);
        iwarp_rx_feed(&end->rx, stream, 16 + 1000);
        assert_true(iwarp_rx_uses(&end->rx, end->window, IWARP_END_WINDOW));
        iwarp_rx_withdraw(&end->rx, IWARP_TAGGED_STAG);
        assert_false(iwarp_rx_uses(&end->rx, end->window, IWARP_END_WINDOW));
        iwarp_rx_feed(&end->rx, stream + 1016, stream_bytes - 1016);
        assert_int_equal(end->rx.status, IWARP_RX_REFUSED);
        assert_int_equal(end->rx.refusal, IWARP_TAGGED_STAG);
        assert_int_equal(end->window[1000], 0);
        free(end);
    }
}

static void a_place_of_another_size_is_this_sides_mistake(void **state) {
    (void)state;
    begin();
    add_tagged(IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 20, true);
    struct iwarp_end *end = iwarp_end(0, true, false);
    end->mistake = 1;
    iwarp_rx_feed(&end->rx, stream, stream_bytes);
    assert_int_equal(end->rx.refusal, IWARP_LOCAL_CATASTROPHIC);
    assert_int_equal(end->window[0], 0);
    free(end);
}

/* ---- check values ---------------------------------------------------------------------------------------- */

/* Any bit of a frame: it is not told, counted or answered; where only its length changed, more may be waited for. */
static void a_frame_with_a_changed_bit_delivers_nothing(void **state) {
    (void)state;
    static const size_t ways[] = {STREAM, 1, 50};
    begin();
    add_send(IWARP_SEND, 1, 0, 0, 40, true);
    size_t good = stream_bytes;
    add_send(IWARP_SEND_SOLICITED, 2, 0, 0, 41, true);
    for (size_t bit = 8 * good; bit < 8 * stream_bytes; bit++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            struct iwarp_end *end = iwarp_end(4, true, true);
            stream[bit / 8] ^= (uint8_t)(1u << bit % 8);
            iwarp_end_feed(end, stream, stream_bytes, ways[i], 1, false);
            stream[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(end->delivered, 1);
            assert_int_equal(end->rx.frames, 1);
            if (bit / 8 >= good + 2) {
                assert_int_equal(end->rx.status, IWARP_RX_REFUSED);
                assert_int_equal(end->rx.refusal, IWARP_MPA_CRC);
            }
            free(end);
        }
}

static void a_whole_frame_that_is_bad_places_nothing(void **state) {
    (void)state;
    begin();
    add_tagged(IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 100, true);
    stream[stream_bytes - 1] ^= 1;
    struct iwarp_end *end = iwarp_end(0, true, false);
    iwarp_rx_feed(&end->rx, stream, stream_bytes);
    assert_int_equal(end->rx.refusal, IWARP_MPA_CRC);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(end->window[i], 0);
    free(end);
}

static void without_check_values_none_is_looked_at(void **state) {
    (void)state;
    begin();
    add_send(IWARP_SEND, 1, 0, 0, 40, true);
    memset(stream + stream_bytes - 4, 0, 4); /* as Soft-iWARP fills it then */
    struct iwarp_end *end = iwarp_end(1, false, false);
    iwarp_end_feed(end, stream, stream_bytes, 0, 0, false);
    assert_int_equal(end->delivered, 1);
    free(end);
}

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
};

static void add_part(const struct part *part) {
    uint8_t segment[IWARP_HEADER_MAX + MANY];
    size_t n = iwarp_ddp_put(segment, &part->ddp);
    if (part->twist == CUT) /* `bytes` of all of the segment */
        n = 0;
    if (part->twist == RAW)
        memcpy(segment, part->raw, 2);
    if (part->twist != CUT)
        memcpy(segment + n, data, part->bytes);
    stream_bytes += iwarp_frame_raw(stream + stream_bytes, segment, n + part->bytes);
}

static void it_is_refused(void **state) {
    const struct malformed *m = *state;
    static const size_t ways[] = {STREAM, 1, 3, 0, 0};
    unsigned parts = 0;
    begin();
    do
        add_part(&m->part[parts++]);
    while (parts < 2 && m->part[parts].bytes > 0);
    for (unsigned i = 0; i < 2 * sizeof ways / sizeof *ways; i++) {
        bool crc = i & 1;
        struct iwarp_end *end = iwarp_end(4, crc, false);
        struct iwarp_terminate t;
        iwarp_end_read(end, 0x501, 0x80, 100);
        iwarp_end_feed(end, stream, stream_bytes, ways[i / 2], i & 4 ? 8 : 0, false);
        assert_int_equal(end->rx.status, IWARP_RX_REFUSED);
        assert_int_equal(end->rx.refusal, m->refusal);
        assert_int_equal(end->rx.frames, parts - 1);
        assert_int_equal(end->delivered, 0);
        assert_int_equal(end->answered, 0);
        iwarp_rx_terminate(&end->rx, &t);
        assert_int_equal(t.refusal, m->refusal);
        assert_int_equal(t.header_bytes, m->header);
        /* That was all: nothing is taken any more. */
        assert_int_equal(iwarp_rx_feed(&end->rx, stream, stream_bytes), 0);
        free(end);
    }
}

static void a_read_that_is_refused_is_told_with_its_request(void **state) {
    (void)state;
    uint8_t bytes[IWARP_READ_BYTES];
    struct iwarp_terminate t;
    begin();
    iwarp_read_put(bytes, &(struct iwarp_read){1, 2, 3, 4, 5});
    add_own(IWARP_READ_REQUEST, 1, bytes, sizeof bytes);
    struct iwarp_end *end = iwarp_end(0, true, false);
    iwarp_end_feed(end, stream, stream_bytes, 1, 0, false);
    assert_int_equal(end->rx.refusal, IWARP_REMOTE_STAG);
    iwarp_rx_terminate(&end->rx, &t);
    assert_true(t.read);
    assert_memory_equal(t.read_request, bytes, sizeof bytes);
    assert_int_equal(t.header_bytes, 18);
    assert_int_equal(t.segment, 46);
    free(end);
}

/* Others of this device alone have them, and only in this form. */
static void an_atomic_with_a_mask_is_refused(void **state) {
    (void)state;
    uint8_t bytes[IWARP_ATOMIC_BYTES];
    begin();
    iwarp_atomic_put(bytes, &(struct iwarp_atomic){.kind = IWARP_FETCH_AND_ADD});
    bytes[30] = 1;
    add_own(IWARP_ATOMIC_REQUEST, 1, bytes, sizeof bytes);
    struct iwarp_end *end = iwarp_end(0, true, true);
    iwarp_end_feed(end, stream, stream_bytes, 0, 0, false);
    assert_int_equal(end->rx.refusal, IWARP_OPERATION_OPCODE);
    free(end);
}

/* Whoever ends a stream in the middle of a message says so. */
static void a_terminate_may_come_in_the_middle_of_a_message(void **state) {
    (void)state;
    static const uint8_t why[] = {0x21, 0x02, 0x03, 0x00, 0, 24};
    begin();
    add_send(IWARP_SEND, 1, 0, 0, 100, false);
    add_own(IWARP_TERMINATE, 1, why, sizeof why);
    struct iwarp_end *end = iwarp_end(1, true, false);
    iwarp_end_feed(end, stream, stream_bytes, 1, 0, false);
    assert_int_equal(end->rx.status, IWARP_RX_TERMINATED);
    assert_string_equal(end->log, "terminated 11202, 0 bytes of a header\n");
    free(end);
}

static void a_terminate_of_any_length_is_one(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 3, 4, 52, 53, 1000}, ways[] = {1, 30, 60, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        begin();
        add_own(IWARP_TERMINATE, 1, data, sizes[i]);
        struct iwarp_end *whole = listen_to(true, false, STREAM, 0, false);
        assert_int_equal(whole->rx.status, IWARP_RX_TERMINATED);
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            struct iwarp_end *cut = listen_to(true, false, ways[k], 8, false);
            iwarp_end_assert_same(whole, cut);
            free(cut);
        }
        free(whole);
    }
}

#define FEEDING(name, ...) ROW(name, the_result_is_that_of_the_whole, feeding, __VA_ARGS__)
#define MALFORMED(name, ...) ROW(name##_is_refused, it_is_refused, malformed, __VA_ARGS__)
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_kind_of_message_is_told),
    FEEDING(byte_by_byte, true, true, false, 1, 0),
    FEEDING(byte_by_byte_and_straight, true, true, false, 1, 1),
    FEEDING(byte_by_byte_with_late_receives, true, true, true, 1, 0),
    FEEDING(byte_by_byte_without_check_values, false, true, false, 1, 0),
    FEEDING(byte_by_byte_of_the_standard_alone, true, false, false, 1, 0),
    FEEDING(in_random_pieces, true, true, false, 0, 0),
    FEEDING(in_random_pieces_and_straight, true, true, false, 0, 1),
    FEEDING(in_random_pieces_and_straight_where_large, true, true, true, 0, 500),
    FEEDING(in_random_pieces_without_check_values, false, false, true, 0, 100),
    FEEDING(whole_with_late_receives, true, true, true, STREAM, 0),
    FEEDING(whole_and_straight_without_check_values, false, true, true, STREAM, 1),
    cmocka_unit_test(recorded_bytes_are_understood),
    cmocka_unit_test(message_numbers_wrap_through_zero),
    cmocka_unit_test(without_a_receive_nothing_more_is_taken),
    cmocka_unit_test(large_payload_is_read_into_its_place),
    cmocka_unit_test(a_changed_byte_that_was_read_into_its_place_is_seen),
    cmocka_unit_test(memory_that_goes_away_is_written_no_more),
    cmocka_unit_test(a_place_of_another_size_is_this_sides_mistake),
    cmocka_unit_test(a_frame_with_a_changed_bit_delivers_nothing),
    cmocka_unit_test(a_whole_frame_that_is_bad_places_nothing),
    cmocka_unit_test(without_check_values_none_is_looked_at),
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
    MALFORMED(a_message_longer_than_its_receive, {SEND(MORE, 1, 0, MANY), SEND(END, 1, MANY, 1097)},
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
    MALFORMED(a_read_request_in_parts, {READ(MORE, 28)}, IWARP_UNTAGGED_TOO_LONG, 18),
    cmocka_unit_test(a_read_that_is_refused_is_told_with_its_request),
    cmocka_unit_test(an_atomic_with_a_mask_is_refused),
    cmocka_unit_test(a_terminate_may_come_in_the_middle_of_a_message),
    cmocka_unit_test(a_terminate_of_any_length_is_one),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
