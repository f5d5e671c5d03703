/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_rx_test.c - the receiving end of a stream: every kind of message, in pieces of any size with the same result,
 * with receives that come late and payload that is read into its place; and nothing of a frame whose check value is wrong.
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "support/iwarp.h"
#include "support/iwarp_said.h"
#include "support/rows.h"

static struct iwarp_said s;

/* ---- every kind of message ------------------------------------------------------------------------------- */

static void add_requests(void) {
    uint8_t bytes[IWARP_ATOMIC_BYTES];
    iwarp_read_put(bytes, &(struct iwarp_read){0xabc, 0x1122334455, 5000, IWARP_END_STAG, 0x10008});
    iwarp_say_own(&s, IWARP_READ_REQUEST, 1, bytes, IWARP_READ_BYTES);
    iwarp_read_put(bytes, &(struct iwarp_read){1, 0, 0, 0, 0}); /* an RTR */
    iwarp_say_own(&s, IWARP_READ_REQUEST, 2, bytes, IWARP_READ_BYTES);
    iwarp_atomic_put(bytes, &(struct iwarp_atomic){IWARP_COMPARE_AND_SWAP, 7, 0x77, 0x10010, 8, 9});
    iwarp_say_own(&s, IWARP_ATOMIC_REQUEST, 3, bytes, IWARP_ATOMIC_BYTES);
    iwarp_atomic_put(bytes, &(struct iwarp_atomic){IWARP_FETCH_AND_ADD, 8, 0x77, 0x10018, 3, 0});
    iwarp_say_own(&s, IWARP_ATOMIC_REQUEST, 4, bytes, IWARP_ATOMIC_BYTES);
    iwarp_atomic_response_put(bytes, &(struct iwarp_atomic_response){9, 0xfedcba9876543210});
    iwarp_say_own(&s, IWARP_ATOMIC_RESPONSE, 1, bytes, IWARP_ATOMIC_RESPONSE_BYTES);
}

/* One message of each kind and more; those that may interleave do. Two READs were asked. */
static void add_dialogue(bool extended) {
    static const uint8_t immediate[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    iwarp_say_tagged(&s, IWARP_WRITE, 1, 0, 0, 0, true); /* an RTR */
    iwarp_say_send(&s, IWARP_SEND, 1, 0, 0, 6, true);
    iwarp_say_send(&s, IWARP_SEND_SOLICITED, 2, 0, 0, 0, true);
    iwarp_say_send(&s, IWARP_SEND, 3, 0, 0, 1000, false);
    iwarp_say_tagged(&s, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE + 5, 0, 999, false);
    iwarp_say_send(&s, IWARP_SEND, 3, 0, 1000, 1001, false);
    iwarp_say_tagged(&s, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE + 5, 999, 2001, true);
    iwarp_say_send(&s, IWARP_SEND, 3, 0, 2001, 999, true);
    if (extended) {
        iwarp_say_own(&s, IWARP_IMMEDIATE, 4, immediate, 8);
        iwarp_say_tagged(&s, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE + 4000, 0, 8, true);
        iwarp_say_own(&s, IWARP_IMMEDIATE_SOLICITED, 5, immediate, 8);
        iwarp_say_send(&s, IWARP_SEND_IMMEDIATE, 6, 0x0a0b0c0d, 0, 1000, false);
        iwarp_say_send(&s, IWARP_SEND_IMMEDIATE, 6, 0x0a0b0c0d, 1000, 10, true);
        add_requests();
    }
    iwarp_say_tagged(&s, IWARP_READ_RESPONSE, 0x501, 0x80, 0, 1500, false);
    iwarp_say_send(&s, IWARP_SEND, extended ? 7 : 4, 0, 0, 77, true);
    iwarp_say_tagged(&s, IWARP_READ_RESPONSE, 0x501, 0x80, 1500, 1500, true);
    iwarp_say_tagged(&s, IWARP_READ_RESPONSE, 0x502, 0, 0, 0, true);
    iwarp_say_send(&s, IWARP_SEND_INVALIDATE, extended ? 8 : 5, IWARP_END_STAG, 0, 5, false);
    iwarp_say_send(&s, IWARP_SEND_INVALIDATE, extended ? 8 : 5, IWARP_END_STAG, 5, 5, true);
    static const uint8_t why[] = {0x12, 0x02, 0x00, 0x00};
    iwarp_say_own(&s, IWARP_TERMINATE, 1, why, sizeof why);
}

static struct iwarp_end *listen_to(bool crc, bool extended, size_t piece, size_t least, bool post) {
    struct iwarp_end *end = iwarp_end(post ? 0 : IWARP_END_RECEIVES, crc, extended);
    iwarp_end_read(end, 0x501, 0x80, IWARP_SAID_DATA);
    iwarp_end_read(end, 0x502, 0, 0);
    iwarp_end_feed(end, s.stream, s.bytes, piece, least, post);
    return end;
}

TEST(every_kind_of_message_is_told) {
    iwarp_say_begin(&s);
    add_dialogue(true);
    struct iwarp_end *end = listen_to(true, true, IWARP_SAID_STREAM, 0, false);
    assert_string_equal(
        end->log, "deliver 3: 6 bytes eaaeea47 stag 0\n"
                  "deliver 5: 0 bytes 00000000 stag 0\n"
                  "deliver 3: 3000 bytes 89eda811 stag 0\n"
                  "deliver 8: 0 bytes 00000000 stag 0 immediate 0102030405060708 written 0 0\n"
                  "deliver 9: 0 bytes 00000000 stag 0 immediate 0102030405060708 written 1 8\n"
                  "deliver 12: 1010 bytes 0270adc0 stag 0 immediate 0a0b0c0d\n"
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
    assert_memory_equal(end->receive[2], s.data, IWARP_SAID_DATA);
    assert_memory_equal(end->window + 5, s.data, IWARP_SAID_DATA);
    assert_memory_equal(end->sink, s.data, IWARP_SAID_DATA);
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
    iwarp_say_begin(&s);
    add_dialogue(f->extended);
    size_t once = s.bytes;
    struct iwarp_end *whole = listen_to(f->crc, f->extended, IWARP_SAID_STREAM, 0, false);
    struct iwarp_end *cut = listen_to(f->crc, f->extended, f->piece, f->least, f->post);
    assert_int_equal(whole->rx.status, IWARP_RX_TERMINATED);
    iwarp_end_assert_same(whole, cut);
    free(whole);
    free(cut);
    for (size_t n = 0; f->piece == 1 && n < once; n += 13) { /* two pieces, cut anywhere */
        whole = listen_to(f->crc, f->extended, IWARP_SAID_STREAM, 0, false);
        cut = listen_to(f->crc, f->extended, n + 1, f->least, false);
        iwarp_end_assert_same(whole, cut);
        free(whole);
        free(cut);
    }
}

/* As Linux's Soft-iWARP sends it, with check values: an RTR and "hello!". */
TEST(recorded_bytes_are_understood) {
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

TEST(message_numbers_wrap_through_zero) {
    struct iwarp_end *end = iwarp_end(4, true, false);
    iwarp_say_begin(&s);
    end->rx.msn[0] = UINT32_MAX - 1;
    for (uint32_t i = 0; i < 4; i++)
        iwarp_say_send(&s, IWARP_SEND, UINT32_MAX - 1 + i, 0, 0, 8, true);
    iwarp_end_feed(end, s.stream, s.bytes, 0, 0, false);
    assert_int_equal(end->delivered, 4);
    free(end);
}

/* ---- waiting for a receive ------------------------------------------------------------------------------- */

TEST(without_a_receive_nothing_more_is_taken) {
    for (unsigned crc = 0; crc < 2; crc++) {
        iwarp_say_begin(&s);
        iwarp_say_send(&s, IWARP_SEND, 1, 0, 0, 100, true);
        size_t first = s.bytes;
        iwarp_say_tagged(&s, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 50, true);
        struct iwarp_end *end = iwarp_end(0, crc, false);
        size_t done = iwarp_rx_feed(&end->rx, s.stream, s.bytes);
        assert_int_equal(end->rx.status, IWARP_RX_WAITING);
        assert_true(done < first);
        assert_int_equal(end->takes, 1); /* a fault plan counts how often */
        assert_int_equal(iwarp_rx_feed(&end->rx, NULL, 0), 0);
        assert_int_equal(end->rx.status, IWARP_RX_WAITING);
        assert_int_equal(end->takes, 2);
        assert_int_equal(end->window[0], 0);
        assert_true(iwarp_rx_inside(&end->rx));
        end->receives = 1;
        assert_int_equal(iwarp_rx_feed(&end->rx, s.stream + done, s.bytes - done), s.bytes - done);
        assert_int_equal(end->takes, 3);
        assert_int_equal(end->rx.status, IWARP_RX_OPEN);
        assert_int_equal(end->delivered, 1);
        assert_memory_equal(end->window, s.data, 50);
        free(end);
    }
}

/* ---- large payload straight into its place --------------------------------------------------------------- */

TEST(large_payload_is_read_into_its_place) {
    const struct iovec *piece;
    iwarp_say_begin(&s);
    iwarp_say_tagged(&s, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 2000, true);
    struct iwarp_end *end = iwarp_end(0, true, false);
    assert_int_equal(iwarp_rx_want(&end->rx, 1, &piece), 0);
    iwarp_rx_feed(&end->rx, s.stream, 16);
    assert_int_equal(iwarp_rx_want(&end->rx, 2001, &piece), 0);
    assert_int_equal(iwarp_rx_want(&end->rx, 2000, &piece), 3);
    assert_ptr_equal(piece[0].iov_base, end->window);
    assert_int_equal(piece[0].iov_len, 7);
    iwarp_rx_filled(&end->rx, 3000); /* more than there is: no */
    assert_int_equal(iwarp_rx_want(&end->rx, 2000, &piece), 3);
    assert_true(iwarp_rx_uses(&end->rx, end->window + 1999, 1));
    assert_false(iwarp_rx_uses(&end->rx, end->window + 2000, 1));
    memcpy(piece[0].iov_base, s.data, 7);
    memcpy(piece[1].iov_base, s.data + 7, 500);
    iwarp_rx_filled(&end->rx, 507);
    assert_false(iwarp_rx_uses(&end->rx, end->window, 507));
    assert_int_equal(iwarp_rx_want(&end->rx, 1493, &piece), 2);
    memcpy(end->window + 507, s.data + 507, 1493);
    iwarp_rx_filled(&end->rx, 1493);
    assert_int_equal(iwarp_rx_want(&end->rx, 1, &piece), 0);
    assert_int_equal(iwarp_rx_feed(&end->rx, s.stream + 2016, s.bytes - 2016), s.bytes - 2016);
    assert_int_equal(end->rx.frames, 1);
    free(end);
}

TEST(a_changed_byte_that_was_read_into_its_place_is_seen) {
    iwarp_say_begin(&s);
    iwarp_say_send(&s, IWARP_SEND, 1, 0, 0, 2000, true);
    s.stream[1500] ^= 1;
    struct iwarp_end *end = iwarp_end(1, true, false);
    iwarp_end_feed(end, s.stream, s.bytes, 700, 1, false);
    assert_int_equal(end->rx.refusal, IWARP_MPA_CRC);
    assert_int_equal(end->delivered, 0);
    free(end);
}

TEST(memory_that_goes_away_is_written_no_more) {
    for (unsigned crc = 0; crc < 2; crc++) {
        iwarp_say_begin(&s);
        iwarp_say_tagged(&s, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 2000, true);
        struct iwarp_end *end = iwarp_end(0, crc, false);
        iwarp_rx_feed(&end->rx, s.stream, 16 + 1000);
        assert_true(iwarp_rx_uses(&end->rx, end->window, IWARP_END_WINDOW));
        iwarp_rx_withdraw(&end->rx, IWARP_TAGGED_STAG);
        assert_false(iwarp_rx_uses(&end->rx, end->window, IWARP_END_WINDOW));
        iwarp_rx_feed(&end->rx, s.stream + 1016, s.bytes - 1016);
        assert_int_equal(end->rx.status, IWARP_RX_REFUSED);
        assert_int_equal(end->rx.refusal, IWARP_TAGGED_STAG);
        assert_int_equal(end->window[1000], 0);
        free(end);
    }
}

TEST(a_place_of_another_size_is_this_sides_mistake) {
    for (unsigned is_send = 0; is_send < 2; is_send++) {
        iwarp_say_begin(&s);
        if (is_send)
            iwarp_say_send(&s, IWARP_SEND, 1, 0, 0, 20, true);
        else
            iwarp_say_tagged(&s, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 20, true);
        struct iwarp_end *end = iwarp_end(1, true, false);
        end->mistake = 1;
        iwarp_rx_feed(&end->rx, s.stream, s.bytes);
        assert_int_equal(end->rx.status, IWARP_RX_REFUSED);
        assert_int_equal(end->rx.refusal, IWARP_LOCAL_CATASTROPHIC);
        assert_int_equal(end->delivered, 0);
        assert_int_equal(end->window[0] | end->receive[0][0], 0);
        free(end);
    }
}

/* ---- check values ---------------------------------------------------------------------------------------- */

/* Any bit of a frame: it is not told, counted or answered; where only its length changed, more may be waited for. */
TEST(a_frame_with_a_changed_bit_delivers_nothing) {
    static const size_t ways[] = {IWARP_SAID_STREAM, 1, 50};
    iwarp_say_begin(&s);
    iwarp_say_send(&s, IWARP_SEND, 1, 0, 0, 40, true);
    size_t good = s.bytes;
    iwarp_say_send(&s, IWARP_SEND_SOLICITED, 2, 0, 0, 41, true);
    for (size_t bit = 8 * good; bit < 8 * s.bytes; bit++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            struct iwarp_end *end = iwarp_end(4, true, true);
            s.stream[bit / 8] ^= (uint8_t)(1u << bit % 8);
            iwarp_end_feed(end, s.stream, s.bytes, ways[i], 1, false);
            s.stream[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(end->delivered, 1);
            assert_int_equal(end->rx.frames, 1);
            if (bit / 8 >= good + 2) {
                assert_int_equal(end->rx.status, IWARP_RX_REFUSED);
                assert_int_equal(end->rx.refusal, IWARP_MPA_CRC);
            }
            free(end);
        }
}

TEST(a_whole_frame_that_is_bad_places_nothing) {
    iwarp_say_begin(&s);
    iwarp_say_tagged(&s, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE, 0, 100, true);
    s.stream[s.bytes - 1] ^= 1;
    struct iwarp_end *end = iwarp_end(0, true, false);
    iwarp_rx_feed(&end->rx, s.stream, s.bytes);
    assert_int_equal(end->rx.refusal, IWARP_MPA_CRC);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(end->window[i], 0);
    free(end);
}

TEST(without_check_values_none_is_looked_at) {
    iwarp_say_begin(&s);
    iwarp_say_send(&s, IWARP_SEND, 1, 0, 0, 40, true);
    memset(s.stream + s.bytes - 4, 0, 4); /* as Soft-iWARP fills it then */
    struct iwarp_end *end = iwarp_end(1, false, false);
    iwarp_end_feed(end, s.stream, s.bytes, 0, 0, false);
    assert_int_equal(end->delivered, 1);
    free(end);
}

/* Whoever ends a stream in the middle of a message says so. */
TEST(a_terminate_may_come_in_the_middle_of_a_message) {
    static const uint8_t why[] = {0x21, 0x02, 0x03, 0x00, 0, 24};
    iwarp_say_begin(&s);
    iwarp_say_send(&s, IWARP_SEND, 1, 0, 0, 100, false);
    iwarp_say_own(&s, IWARP_TERMINATE, 1, why, sizeof why);
    struct iwarp_end *end = iwarp_end(1, true, false);
    iwarp_end_feed(end, s.stream, s.bytes, 1, 0, false);
    assert_int_equal(end->rx.status, IWARP_RX_TERMINATED);
    assert_string_equal(end->log, "terminated 11202, 0 bytes of a header\n");
    free(end);
}

TEST(a_terminate_of_any_length_is_one) {
    static const size_t sizes[] = {0, 3, 4, 52, 53, 1000}, ways[] = {1, 30, 60, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        iwarp_say_begin(&s);
        iwarp_say_own(&s, IWARP_TERMINATE, 1, s.data, sizes[i]);
        struct iwarp_end *whole = listen_to(true, false, IWARP_SAID_STREAM, 0, false);
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

TEST_CASES(FEEDING(byte_by_byte, true, true, false, 1, 0),
           FEEDING(byte_by_byte_and_straight, true, true, false, 1, 1),
           FEEDING(byte_by_byte_with_late_receives, true, true, true, 1, 0),
           FEEDING(byte_by_byte_without_check_values, false, true, false, 1, 0),
           FEEDING(byte_by_byte_of_the_standard_alone, true, false, false, 1, 0),
           FEEDING(in_random_pieces, true, true, false, 0, 0),
           FEEDING(in_random_pieces_and_straight, true, true, false, 0, 1),
           FEEDING(in_random_pieces_and_straight_where_large, true, true, true, 0, 500),
           FEEDING(in_random_pieces_without_check_values, false, false, true, 0, 100),
           FEEDING(whole_with_late_receives, true, true, true, IWARP_SAID_STREAM, 0),
           FEEDING(whole_and_straight_without_check_values, false, true, true, IWARP_SAID_STREAM,
                   1));
