/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_ddp_test.c - frames, headers and the payloads that the device reads: the bytes that the standard and Linux's
 * Soft-iWARP have for them, and what is refused with which code.
 */
#include "support/test.h"

#include <string.h>

#include "soft/iwarp/ddp.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/rdmap.h"
#include "support/rows.h"

/* ---- frames ---------------------------------------------------------------------------------------------- */

TEST(a_frame_is_a_multiple_of_four) {
    for (unsigned n = 0; n <= IWARP_SEGMENT_MAX; n++) {
        assert_int_equal(iwarp_fpdu_bytes(n) % 4, 0);
        assert_true(iwarp_pad(n) < 4);
        assert_int_equal(iwarp_fpdu_bytes(n), 2 + n + iwarp_pad(n) + 4);
    }
    assert_int_equal(iwarp_pad(24), 2); /* "hello!" in a SEND */
    assert_int_equal(iwarp_pad(14), 0); /* an empty WRITE */
}

TEST(a_frame_of_the_longest_segment_fits_tcps) {
    assert_int_equal(iwarp_mulpdu(1460), 1454);
    assert_int_equal(iwarp_mulpdu(1448), 1442);
    assert_int_equal(iwarp_mulpdu(1463), 1454);
    assert_int_equal(iwarp_mulpdu(0), IWARP_MULPDU_MIN);
    assert_int_equal(iwarp_mulpdu(UINT32_MAX), IWARP_MULPDU_MAX);
    for (unsigned mss = 136; mss < 70000; mss++)
        assert_true(iwarp_fpdu_bytes(iwarp_mulpdu(mss)) <= mss);
}

/* ---- headers --------------------------------------------------------------------------------------------- */

struct header {
    struct iwarp_ddp ddp;
    size_t count;
    uint8_t bytes[IWARP_HEADER_MAX];
};

static void a_header_has_these_bytes(void **state) {
    const struct header *h = *state;
    uint8_t out[IWARP_HEADER_MAX];
    struct iwarp_ddp back;
    memset(&back, 0xa5, sizeof back);
    assert_int_equal(iwarp_ddp_put(out, &h->ddp), h->count);
    assert_memory_equal(out, h->bytes, h->count);
    assert_int_equal(iwarp_ddp_bytes(out[0]), h->count);
    assert_int_equal(iwarp_ddp_get(&back, out, true), IWARP_FINE);
    assert_int_equal(back.opcode, h->ddp.opcode);
    assert_int_equal(back.last, h->ddp.last);
    assert_int_equal(back.stag, h->ddp.stag);
    assert_int_equal(back.offset, h->ddp.offset);
    assert_int_equal(back.queue, h->ddp.queue);
    assert_int_equal(back.msn, h->ddp.msn);
    assert_int_equal(back.mo, h->ddp.mo);
}

TEST(reserved_bits_are_not_looked_at) {
    uint8_t bytes[IWARP_HEADER_MAX];
    struct iwarp_ddp ddp = {.opcode = IWARP_SEND, .msn = 1}, back;
    iwarp_ddp_put(bytes, &ddp);
    bytes[0] |= 0x3c;
    bytes[1] |= 0x30;
    assert_int_equal(iwarp_ddp_get(&back, bytes, false), IWARP_FINE);
    assert_int_equal(back.opcode, IWARP_SEND);
    assert_false(back.last);
}

/* All values of the two control bytes and of the low byte of the queue. */
TEST(what_is_not_refused_is_a_message_on_its_queue) {
    for (unsigned control = 0; control < 0x10000; control++)
        for (unsigned queue = 0; queue < 6; queue++)
            for (unsigned extended = 0; extended < 2; extended++) {
                uint8_t bytes[IWARP_HEADER_MAX] = {
                    (uint8_t)(control >> 8), (uint8_t)control, [9] = (uint8_t)queue, [13] = 1};
                struct iwarp_ddp ddp;
                enum iwarp_refusal refusal = iwarp_ddp_get(&ddp, bytes, extended);
                unsigned opcode = control & 15;
                bool tagged = control & 0x8000, sent_so = tagged == (opcode == 0 || opcode == 2);
                bool versions = (control & 0x0300) == 0x0100 && (control & 0xc0) == 0x40;
                static const uint8_t queues[] = {9, 1, 9, 0, 0, 0, 0, 2, 0, 0, 1, 3, 0, 0};
                bool fine = versions && sent_so && opcode < (extended ? 14u : 8u) &&
                            (tagged || queue == queues[opcode]);
                assert_int_equal(refusal == IWARP_FINE, fine);
            }
}

struct refused {
    enum iwarp_refusal refusal;
    uint8_t bytes[IWARP_HEADER_MAX];
    bool extended;
};

static void a_header_is_refused(void **state) {
    const struct refused *r = *state;
    struct iwarp_ddp ddp;
    assert_int_equal(iwarp_ddp_get(&ddp, r->bytes, r->extended), r->refusal);
}

/* ---- payloads -------------------------------------------------------------------------------------------- */

TEST(a_read_request_has_these_bytes) {
    static const uint8_t bytes[IWARP_READ_BYTES] = {
        0x11, 0x22, 0x33, 0x44, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x00, 0x10,
        0x00, 0x01, 0x55, 0x66, 0x77, 0x88, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8};
    struct iwarp_read read = {0x11223344, 0x0102030405060708, 0x100001, 0x55667788,
                              0xa1a2a3a4a5a6a7a8},
                      back;
    uint8_t out[IWARP_READ_BYTES];
    iwarp_read_put(out, &read);
    assert_memory_equal(out, bytes, sizeof out);
    iwarp_read_get(&back, bytes);
    assert_int_equal(back.sink_stag, read.sink_stag);
    assert_int_equal(back.sink_offset, read.sink_offset);
    assert_int_equal(back.bytes, read.bytes);
    assert_int_equal(back.source_stag, read.source_stag);
    assert_int_equal(back.source_offset, read.source_offset);
}

struct atomic {
    struct iwarp_atomic atomic;
    uint8_t bytes[IWARP_ATOMIC_BYTES];
};

static void an_atomic_request_has_these_bytes(void **state) {
    const struct atomic *a = *state;
    uint8_t out[IWARP_ATOMIC_BYTES];
    struct iwarp_atomic back;
    iwarp_atomic_put(out, &a->atomic);
    assert_memory_equal(out, a->bytes, sizeof out);
    assert_true(iwarp_atomic_get(&back, out));
    assert_int_equal(back.kind, a->atomic.kind);
    assert_int_equal(back.id, a->atomic.id);
    assert_int_equal(back.stag, a->atomic.stag);
    assert_int_equal(back.offset, a->atomic.offset);
    assert_int_equal(back.value, a->atomic.value);
    assert_int_equal(back.compare, a->atomic.compare);
}

TEST(an_atomic_with_masks_or_of_another_kind_is_refused) {
    static const enum iwarp_atomic_kind kinds[] = {IWARP_FETCH_AND_ADD, IWARP_COMPARE_AND_SWAP};
    for (unsigned k = 0; k < 2; k++) {
        uint8_t bytes[IWARP_ATOMIC_BYTES];
        struct iwarp_atomic back;
        iwarp_atomic_put(bytes, &(struct iwarp_atomic){.kind = kinds[k]});
        assert_true(iwarp_atomic_get(&back, bytes));
        bytes[35] ^= 1;
        assert_false(iwarp_atomic_get(&back, bytes));
        bytes[35] ^= 1;
        bytes[3] ^= 1;
        assert_false(iwarp_atomic_get(&back, bytes));
        bytes[3] ^= 1;
        bytes[0] = 0xff; /* reserved */
        assert_true(iwarp_atomic_get(&back, bytes));
    }
}

TEST(an_atomic_response_has_these_bytes) {
    static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct iwarp_atomic_response back;
    uint8_t out[IWARP_ATOMIC_RESPONSE_BYTES];
    iwarp_atomic_response_get(&back, bytes);
    assert_int_equal(back.id, 0x01020304);
    assert_int_equal(back.before, 0x05060708090a0b0c);
    iwarp_atomic_response_put(out, &back);
    assert_memory_equal(out, bytes, sizeof out);
}

#define HEADER(name, ...) ROW(name##_has_these_bytes, a_header_has_these_bytes, header, __VA_ARGS__)
#define REFUSED(name, ...) ROW(name##_is_refused, a_header_is_refused, refused, __VA_ARGS__)

TEST_CASES(
    HEADER(send, {.opcode = IWARP_SEND, .last = true, .msn = 1}, 18, {0x41, 0x43, [13] = 1}),
    HEADER(empty_write, {.opcode = IWARP_WRITE, .last = true, .stag = 1}, 14,
           {0xc1, 0x40, [5] = 1}),
    HEADER(write_that_goes_on,
           {.opcode = IWARP_WRITE, .stag = 0xa1b2c3d4, .offset = 0x1122334455667788}, 14,
           {0x81, 0x40, 0xa1, 0xb2, 0xc3, 0xd4, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}),
    HEADER(read_request, {.opcode = IWARP_READ_REQUEST, .last = true, .queue = 1, .msn = 7}, 18,
           {0x41, 0x41, [9] = 1, [13] = 7}),
    HEADER(read_response, {.opcode = IWARP_READ_RESPONSE, .last = true, .offset = 5}, 14,
           {0xc1, 0x42, [13] = 5}),
    HEADER(solicited_send_that_invalidates,
           {.opcode = IWARP_SEND_SOLICITED_INVALIDATE,
            .stag = 0x01020304,
            .msn = 0xfffffffe,
            .mo = 0x10203040},
           18,
           {0x01, 0x46, 1, 2, 3, 4, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xfe, 0x10, 0x20, 0x30, 0x40}),
    HEADER(terminate, {.opcode = IWARP_TERMINATE, .last = true, .queue = 2, .msn = 1}, 18,
           {0x41, 0x47, [9] = 2, [13] = 1}),
    HEADER(immediate, {.opcode = IWARP_IMMEDIATE, .last = true, .msn = 2}, 18,
           {0x41, 0x48, [13] = 2}),
    HEADER(send_with_immediate,
           {.opcode = IWARP_SEND_IMMEDIATE, .last = true, .stag = 0x01020304, .msn = 2}, 18,
           {0x41, 0x4c, 1, 2, 3, 4, [13] = 2}),
    HEADER(atomic_request, {.opcode = IWARP_ATOMIC_REQUEST, .last = true, .queue = 1, .msn = 3}, 18,
           {0x41, 0x4a, [9] = 1, [13] = 3}),
    HEADER(atomic_response, {.opcode = IWARP_ATOMIC_RESPONSE, .last = true, .queue = 3, .msn = 1},
           18, {0x41, 0x4b, [9] = 3, [13] = 1}),
    REFUSED(an_untagged_segment_of_another_ddp, IWARP_UNTAGGED_VERSION, {0x42, 0x43, [13] = 1}, 0),
    REFUSED(a_tagged_segment_of_another_ddp, IWARP_TAGGED_VERSION, {0xc0, 0x40}, 0),
    REFUSED(another_rdmap, IWARP_OPERATION_VERSION, {0x41, 0x83, [13] = 1}, 0),
    REFUSED(an_opcode_that_does_not_exist, IWARP_OPERATION_OPCODE, {0x41, 0x4e, [13] = 1}, 1),
    REFUSED(a_send_with_immediate_data_without_an_agreement, IWARP_OPERATION_OPCODE,
            {0x41, 0x4c, [13] = 1}, 0),
    REFUSED(immediate_data_without_an_agreement, IWARP_OPERATION_OPCODE, {0x41, 0x48, [13] = 1}, 0),
    REFUSED(an_atomic_without_an_agreement, IWARP_OPERATION_OPCODE, {0x41, 0x4a, [9] = 1, [13] = 1},
            0),
    REFUSED(a_tagged_send, IWARP_OPERATION_OPCODE, {0xc1, 0x43}, 0),
    REFUSED(an_untagged_write, IWARP_OPERATION_OPCODE, {0x41, 0x40, [13] = 1}, 0),
    REFUSED(a_send_on_the_queue_of_requests, IWARP_UNTAGGED_QUEUE, {0x41, 0x43, [9] = 1, [13] = 1},
            0),
    REFUSED(a_queue_that_does_not_exist, IWARP_UNTAGGED_QUEUE, {0x41, 0x43, [6] = 1, [13] = 1}, 0),
    ROW(fetch_and_add_has_these_bytes, an_atomic_request_has_these_bytes, atomic,
        {IWARP_FETCH_AND_ADD, 0x01020304, 0x05060708, 0x1112131415161718, 5, 0},
        {0,        0,           0,    0,    1,    2,    3,    4,    5,    6,
         7,        8,           0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
         [27] = 5, [44] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
    ROW(compare_and_swap_has_these_bytes, an_atomic_request_has_these_bytes, atomic,
        {IWARP_COMPARE_AND_SWAP, 9, 8, 16, 5, 6},
        {[3] = 2, [7] = 9, [11] = 8, [19] = 16, [27] = 5, [28] = 0xff, 0xff,        0xff,
         0xff,    0xff,    0xff,     0xff,      0xff,     [43] = 6,    [44] = 0xff, 0xff,
         0xff,    0xff,    0xff,     0xff,      0xff,     0xff}));
