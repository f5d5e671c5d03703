/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* iwarp_terminate_test.c - the Terminate message: its bytes, Soft-iWARP's swapped ones, and the statuses of its codes. */
#include "support/test.h"

#include <string.h>

#include "soft/iwarp/terminate.h"
#include "support/rows.h"

static const uint8_t untagged[18] = {0x41, 0x43, [13] = 5}, tagged[14] = {0xc1, 0x40, [5] = 9};

struct message {
    unsigned refusal;
    const uint8_t *header;
    uint8_t header_bytes;
    bool read;
    size_t count;
    uint8_t bytes[8]; /* the first of them */
};

static void a_terminate_has_these_bytes(void **state) {
    const struct message *m = *state;
    struct iwarp_terminate t = {.refusal = m->refusal, .segment = 24, .read = m->read}, back;
    uint8_t out[IWARP_TERMINATE_MAX];
    t.header_bytes = m->header_bytes;
    if (m->header)
        memcpy(t.header, m->header, m->header_bytes);
    memset(t.read_request, 0x5a, sizeof t.read_request);
    assert_int_equal(iwarp_terminate_put(out, &t), m->count);
    assert_memory_equal(out, m->bytes, m->count < 8 ? m->count : 8);
    iwarp_terminate_get(&back, out, m->count);
    assert_int_equal(back.refusal, m->refusal);
    assert_int_equal(back.header_bytes, m->header_bytes);
    assert_memory_equal(back.header, t.header, m->header_bytes);
    assert_int_equal(back.segment, m->header_bytes ? 24 : 0);
    assert_int_equal(back.read, m->read);
    if (m->read)
        assert_memory_equal(back.read_request, t.read_request, sizeof t.read_request);
    /* A part of it says as much of it as there is. */
    for (size_t n = 4; n < m->count; n++) {
        iwarp_terminate_get(&back, out, n);
        assert_int_equal(back.refusal, m->refusal);
        assert_false(back.read);
        assert_true(back.header_bytes == 0 || n >= 6u + m->header_bytes);
    }
}

struct said {
    uint8_t bytes[4];
    unsigned refusal;
};

static void a_peer_means_this(void **state) {
    const struct said *s = *state;
    struct iwarp_terminate t;
    iwarp_terminate_get(&t, s->bytes, sizeof s->bytes);
    assert_int_equal(t.refusal, s->refusal);
    assert_int_equal(t.header_bytes, 0);
}

TEST(a_swapped_one_with_its_header_is_read_as_a_right_one) {
    uint8_t bytes[6 + sizeof untagged] = {0x21, 0x02, 0x03, 0x00, 0x00, 0x18};
    struct iwarp_terminate t;
    memcpy(bytes + 6, untagged, sizeof untagged);
    iwarp_terminate_get(&t, bytes, sizeof bytes);
    assert_int_equal(t.refusal, IWARP_UNTAGGED_NO_BUFFER);
    assert_int_equal(t.segment, 24);
    assert_int_equal(t.header_bytes, sizeof untagged);
    assert_memory_equal(t.header, untagged, sizeof untagged);
}

TEST(any_bytes_are_read_within_their_bounds) {
    uint32_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[IWARP_TERMINATE_MAX];
        struct iwarp_terminate t;
        for (size_t k = 0; k < sizeof bytes; k++) {
            seed = seed * 1664525 + 1013904223;
            bytes[k] = (uint8_t)(seed >> 24);
        }
        size_t n = (seed >> 8) % (sizeof bytes + 1);
        iwarp_terminate_get(&t, bytes, n);
        assert_true(t.header_bytes == 0 || t.header_bytes == 14 || t.header_bytes == 18);
        assert_true(!t.read || t.header_bytes > 0);
        assert_int_not_equal(iwarp_refusal_of_request(t.refusal), IBV_WC_SUCCESS);
        assert_int_not_equal(iwarp_refusal_of_receive(t.refusal), IBV_WC_SUCCESS);
    }
}

struct status {
    unsigned refusal;
    enum ibv_wc_status request, receive;
};

static void a_refusal_completes_so(void **state) {
    const struct status *s = *state;
    assert_int_equal(iwarp_refusal_of_request(s->refusal), s->request);
    assert_int_equal(iwarp_refusal_of_receive(s->refusal), s->receive);
}

#define MESSAGE(name, ...)                                                                         \
    ROW(name##_has_these_bytes, a_terminate_has_these_bytes, message, __VA_ARGS__)
#define SAID(name, ...) ROW(name, a_peer_means_this, said, __VA_ARGS__)
#define STATUS(name, ...) ROW(name##_completes_so, a_refusal_completes_so, status, __VA_ARGS__)

TEST_CASES(MESSAGE(no_buffer, IWARP_UNTAGGED_NO_BUFFER, untagged, 18, false, 24,
                   {0x12, 0x02, 0xc0, 0x00, 0x00, 0x18, 0x41, 0x43}),
           MESSAGE(bounds_of_a_write, IWARP_TAGGED_BOUNDS, tagged, 14, false, 20,
                   {0x11, 0x01, 0xc0, 0x00, 0x00, 0x18, 0xc1, 0x40}),
           MESSAGE(a_read_that_is_refused, IWARP_REMOTE_RIGHTS, untagged, 18, true, 52,
                   {0x01, 0x02, 0xe0, 0x00, 0x00, 0x18, 0x41, 0x43}),
           MESSAGE(a_bad_check_value, IWARP_MPA_CRC, NULL, 0, false, 4, {0x20, 0x02, 0, 0}),
           MESSAGE(the_first_of_all_codes, IWARP_LOCAL_CATASTROPHIC, NULL, 0, false, 4, {0}),
           /* Soft-iWARP: halves swapped, flags from the other end */
           SAID(swapped_no_buffer_is_known_by_its_flags, {0x21, 0x02, 0x03, 0x00},
                IWARP_UNTAGGED_NO_BUFFER),
           SAID(swapped_bad_check_value_is_known_by_what_exists, {0x02, 0x02, 0, 0}, IWARP_MPA_CRC),
           SAID(swapped_opcode_is_known_by_what_exists, {0x20, 0xff, 0, 0}, IWARP_OPERATION_OTHER),
           SAID(an_unknown_code_stays_as_it_is, {0x73, 0x11, 0, 0}, IWARP_REFUSAL(7, 3, 0x11)),
           STATUS(a_bad_stag_of_a_write, IWARP_TAGGED_STAG, IBV_WC_REM_ACCESS_ERR,
                  IBV_WC_GENERAL_ERR),
           STATUS(bounds_of_a_read, IWARP_REMOTE_BOUNDS, IBV_WC_REM_ACCESS_ERR, IBV_WC_GENERAL_ERR),
           STATUS(a_missing_receive, IWARP_UNTAGGED_NO_BUFFER, IBV_WC_RNR_RETRY_EXC_ERR,
                  IBV_WC_GENERAL_ERR),
           STATUS(a_message_that_is_too_long, IWARP_UNTAGGED_TOO_LONG, IBV_WC_REM_INV_REQ_ERR,
                  IBV_WC_LOC_LEN_ERR),
           STATUS(an_unknown_opcode, IWARP_OPERATION_OPCODE, IBV_WC_REM_INV_REQ_ERR,
                  IBV_WC_GENERAL_ERR),
           STATUS(a_catastrophe, IWARP_LOCAL_CATASTROPHIC, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR),
           STATUS(a_bad_check_value, IWARP_MPA_CRC, IBV_WC_GENERAL_ERR, IBV_WC_GENERAL_ERR),
           STATUS(a_lost_connection, IWARP_MPA_LOST, IBV_WC_RETRY_EXC_ERR, IBV_WC_GENERAL_ERR),
           STATUS(a_code_that_nobody_knows, IWARP_REFUSAL(7, 3, 0x11), IBV_WC_REM_OP_ERR,
                  IBV_WC_GENERAL_ERR));
