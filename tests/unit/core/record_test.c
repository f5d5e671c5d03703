/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record_test.c - the negotiation records: exact bytes, and every wrong form refused for its own
 * reason, in the order docs/protocol.md lists the checks.
 */
#include "support/record.h"

/* ---- layout ---------------------------------------------------------------------------------- */

TEST(req_layout) {
    union any_record record = record_sample(REQ);
    const uint8_t expected[PRIVATE_DATA_REQ_BYTES] = {
        'S',  'L',  1,    1,    56,   0x41, 0x80, 0x03, 14,   26,   16,   8,    0x23, 0x01,
        0x67, 0x45, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b,
        0x1c, 0x1d, 0x1e, 0x1f, 0xef, 0xcd, 0xab, 0x89, 0x04, 0x03, 0x02, 0x01, 0xf0, 0xef,
        0xee, 0xed, 0xec, 0xeb, 0xea, 0xe9, 0xe8, 0xe7, 0xe6, 0xe5, 0xe4, 0xe3, 0xe2, 0xe1};
    uint8_t got[256];
    assert_int_equal(record_encode(REQ, &record, got), sizeof expected);
    assert_memory_equal(got, expected, sizeof expected);
    record.req.features = 0x123456;
    record_encode(REQ, &record, got);
    assert_int_equal(got[5], 0x56);
    assert_int_equal(got[6], 0x34);
    assert_int_equal(got[7], 0x12);
}

TEST(rep_layout) {
    union any_record record = record_sample(REP);
    uint8_t got[256];
    record_encode(REP, &record, got);
    const uint8_t expected[PRIVATE_DATA_REP_BYTES] = {
        'S',  'L',  1,    100,  0x41, 0x80, 0x03, 0,    12,   20,   4,    3,    0x21, 0x03, 0x54,
        0x76, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d,
        0x2e, 0x2f, 0x98, 0xba, 0xdc, 0xfe, 0xe0, 0xdf, 0xde, 0xdd, 0xdc, 0xdb, 0xda, 0xd9, 0xd8,
        0xd7, 0xd6, 0xd5, 0xd4, 0xd3, 0xd2, 0xd1, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87,
        0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x8d, 0x8e, 0x8f, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96,
        0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5,
        0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf};
    assert_int_equal(record_encode(REP, &record, got), sizeof expected);
    assert_memory_equal(got, expected, sizeof expected);
    record.rep.features = 0x123456;
    record_encode(REP, &record, got);
    assert_int_equal(got[4], 0x56);
    assert_int_equal(got[5], 0x34);
    assert_int_equal(got[6], 0x12);
}

/* Each byte lands in its own field: what is decoded, field by field, not only encoded again. */
TEST(every_field_is_read_where_it_is_written) {
    union any_record got;
    uint8_t bytes[256];
    union any_record record = record_sample(REQ);
    record_encode(REQ, &record, bytes);
    assert_int_equal(record_decode(REQ, &got, bytes, 56), SLUICE_REASON_NONE);
    struct private_data_req req = record_sample_req();
    assert_int_equal(got.req.version_min, req.version_min);
    assert_int_equal(got.req.version_max, req.version_max);
    assert_int_equal(got.req.features, req.features);
    assert_int_equal(got.req.eager_log2, req.eager_log2);
    assert_int_equal(got.req.message_log2, req.message_log2);
    assert_int_equal(got.req.depth_in, req.depth_in);
    assert_int_equal(got.req.depth_out, req.depth_out);
    assert_int_equal(got.req.credits, req.credits);
    assert_int_equal(got.req.keepalive, req.keepalive);
    assert_memory_equal(got.req.session_id, req.session_id, 16);
    assert_int_equal(got.req.last_sequence, req.last_sequence);
    assert_int_equal(got.req.key_id, req.key_id);
    assert_memory_equal(got.req.nonce, req.nonce, 16);

    record = record_sample(REP);
    record_encode(REP, &record, bytes);
    assert_int_equal(record_decode(REP, &got, bytes, 196), SLUICE_REASON_NONE);
    struct private_data_rep rep = record_sample_rep();
    assert_int_equal(got.rep.version, rep.version);
    assert_int_equal(got.rep.features, rep.features);
    assert_int_equal(got.rep.eager_log2, rep.eager_log2);
    assert_int_equal(got.rep.message_log2, rep.message_log2);
    assert_int_equal(got.rep.depth_in, rep.depth_in);
    assert_int_equal(got.rep.depth_out, rep.depth_out);
    assert_int_equal(got.rep.credits, rep.credits);
    assert_int_equal(got.rep.keepalive, rep.keepalive);
    assert_memory_equal(got.rep.session_id, rep.session_id, 16);
    assert_int_equal(got.rep.last_sequence, rep.last_sequence);
    assert_memory_equal(got.rep.nonce, rep.nonce, 16);
    assert_memory_equal(got.rep.mac, rep.mac, 32);
    assert_memory_equal(got.rep.check, rep.check, 16);

    record = record_sample(REJ);
    size_t used = record_encode(REJ, &record, bytes);
    assert_int_equal(record_decode(REJ, &got, bytes, used), SLUICE_REASON_NONE);
    assert_int_equal(got.rej.reason, 5);
    assert_int_equal(got.rej.code, 4711);
    assert_string_equal(got.rej.text, "not today");
}

/* A reason of a later version has no name here; its number arrives all the same. */
TEST(a_reason_nobody_knows_is_passed_on) {
    union any_record record = record_sample(REJ), got;
    uint8_t bytes[256];
    record.rej.reason = 0xfedc;
    record.rej.text[0] = 0;
    assert_int_equal(record_encode(REJ, &record, bytes), 8);
    assert_int_equal(record_decode(REJ, &got, bytes, 8), SLUICE_REASON_NONE);
    assert_int_equal(got.rej.reason, 0xfedc);
    assert_string_equal(got.rej.text, "");
}

TEST(rej_layout) {
    union any_record record = record_sample(REJ);
    const uint8_t expected[17] = {'S', 'L', 0,   17,  5,   0,   0x67, 0x12, 'n',
                                  'o', 't', ' ', 't', 'o', 'd', 'a',  'y'};
    uint8_t got[256];
    assert_int_equal(record_encode(REJ, &record, got), sizeof expected);
    assert_memory_equal(got, expected, sizeof expected);
    memset(record.rej.text, 'x', PRIVATE_DATA_REJ_TEXT);
    assert_int_equal(record_encode(REJ, &record, got), PRIVATE_DATA_REJ_BYTES);
    assert_int_equal(got[3], PRIVATE_DATA_REJ_BYTES);
}

/* What rdma_cm delivers is padded; what iWARP delivers is not. */
TEST(round_trip_at_every_padding) {
    for (enum kind kind = REQ; kind < KINDS; kind++) {
        union any_record record = record_sample(kind), got;
        uint8_t bytes[256];
        size_t used = record_encode(kind, &record, bytes);
        for (size_t len = used; len <= sizeof bytes; len++) {
            assert_int_equal(record_decode(kind, &got, bytes, len), SLUICE_REASON_NONE);
            record_assert_same(kind, &got, &record);
        }
    }
}

/* ---- wrong forms ----------------------------------------------------------------------------- */

TEST(truncated_at_every_length) {
    for (enum kind kind = REQ; kind < KINDS; kind++) {
        union any_record record = record_sample(kind), got;
        uint8_t bytes[256];
        size_t used = record_encode(kind, &record, bytes);
        for (size_t len = 0; len < used; len++)
            assert_int_equal(record_decode(kind, &got, bytes, len),
                             len < 2 ? SLUICE_REASON_NOT_SLUICE : SLUICE_REASON_MALFORMED);
        assert_int_equal(record_decode_exact(kind, &got, NULL, 0), SLUICE_REASON_NOT_SLUICE);
        assert_int_equal(record_decode_exact(kind, &got, NULL, 56), SLUICE_REASON_NOT_SLUICE);
    }
}

TEST(padding_must_be_zero) {
    for (enum kind kind = REQ; kind < KINDS; kind++) {
        union any_record record = record_sample(kind), got;
        uint8_t bytes[256];
        size_t used = record_encode(kind, &record, bytes);
        for (size_t at = used; at < sizeof bytes; at++) {
            bytes[at] = 1;
            assert_int_equal(record_decode(kind, &got, bytes, sizeof bytes),
                             SLUICE_REASON_MALFORMED);
            assert_int_equal(record_decode(kind, &got, bytes, at + 1), SLUICE_REASON_MALFORMED);
            assert_int_equal(record_decode(kind, &got, bytes, at), SLUICE_REASON_NONE);
            bytes[at] = 0;
        }
    }
    uint8_t bytes[256];
    union any_record record = record_sample(REP), got;
    record_encode(REP, &record, bytes);
    bytes[7] = 1; /* the one unused byte inside */
    assert_int_equal(record_decode(REP, &got, bytes, 196), SLUICE_REASON_MALFORMED);
}

static sluice_reason with_byte(enum kind kind, size_t at, uint8_t value) {
    union any_record record = record_sample(kind), got;
    uint8_t bytes[256];
    record_encode(kind, &record, bytes);
    bytes[at] = value;
    return record_decode(kind, &got, bytes, record_kind_bytes[kind]);
}

TEST(wrong_magic) {
    uint8_t zero[196] = {0};
    union any_record got;
    for (enum kind kind = REQ; kind < KINDS; kind++) {
        assert_int_equal(with_byte(kind, 0, 'L'), SLUICE_REASON_NOT_SLUICE);
        assert_int_equal(with_byte(kind, 1, 'S'), SLUICE_REASON_NOT_SLUICE);
        for (size_t len = 0; len <= sizeof zero; len++) /* an application that sent nothing */
            assert_int_equal(record_decode(kind, &got, zero, len), SLUICE_REASON_NOT_SLUICE);
    }
}

TEST(wrong_length_field) {
    for (unsigned value = 0; value < 256; value++) {
        if (value != 56)
            assert_int_equal(with_byte(REQ, 4, (uint8_t)value), SLUICE_REASON_MALFORMED);
        if (value != 100)
            assert_int_equal(with_byte(REP, 3, (uint8_t)value), SLUICE_REASON_MALFORMED);
        /* A longer text than sent is zero bytes, which are no text but not out of bounds. */
        if (value != 17 && (value < 17 || value > 128))
            assert_int_equal(with_byte(REJ, 3, (uint8_t)value), SLUICE_REASON_MALFORMED);
    }
}

TEST(wrong_version) {
    union any_record record = record_sample(REQ), got;
    uint8_t bytes[256];
    for (unsigned low = 0; low < 256; low++)
        for (unsigned high = 0; high < 256; high++) {
            record.req.version_min = (uint8_t)low;
            record.req.version_max = (uint8_t)high;
            record_encode(REQ, &record, bytes);
            sluice_reason expected = SLUICE_REASON_NONE;
            if (low == 0 || low > high)
                expected = SLUICE_REASON_VALUE;
            else if (low > PRIVATE_DATA_VERSION_MAX || high < PRIVATE_DATA_VERSION_MIN)
                expected = SLUICE_REASON_VERSION;
            assert_int_equal(record_decode(REQ, &got, bytes, 56), expected);
            /* A later version may be longer or shorter; it is still told that it is the version. */
            bytes[4] = 99;
            assert_int_equal(record_decode(REQ, &got, bytes, 56),
                             expected ? expected : SLUICE_REASON_MALFORMED);
        }
    for (unsigned version = 0; version < 256; version++) {
        if (version < PRIVATE_DATA_VERSION_MIN || version > PRIVATE_DATA_VERSION_MAX)
            assert_int_equal(with_byte(REP, 2, (uint8_t)version), SLUICE_REASON_VERSION);
        if (version != 0)
            assert_int_equal(with_byte(REJ, 2, (uint8_t)version), SLUICE_REASON_VERSION);
    }
}

static sluice_reason with_features(enum kind kind, uint32_t features, uint32_t key_id) {
    union any_record record = record_sample(kind), got;
    uint8_t bytes[256];
    if (kind == REQ) {
        record.req.features = features;
        record.req.key_id = key_id;
    } else {
        record.rep.features = features;
    }
    record_encode(kind, &record, bytes);
    sluice_reason reason = record_decode(kind, &got, bytes, record_kind_bytes[kind]);
    if (reason == SLUICE_REASON_NONE)
        assert_int_equal(kind == REQ ? got.req.features : got.rep.features, features);
    return reason;
}

/* Bits 0 to 15 may be anything; of bits 16 to 23 those nobody defined must not be set. */
TEST(unknown_features) {
    assert_int_equal(PRIVATE_DATA_FEATURE_RESUMES, 1u << 18);
    assert_int_equal(PRIVATE_DATA_FEATURE_JOINS, 1u << 19);
    assert_int_equal(PRIVATE_DATA_FEATURE_HANDSHAKE, 1u << 16);
    assert_int_equal(PRIVATE_DATA_FEATURE_HMAC, 1u << 17);
    for (unsigned bit = 0; bit < 24; bit++) {
        if (bit == 17) /* HMAC alone has a test of its own */
            continue;
        sluice_reason expected =
            bit <= 16 || bit == 18 || bit == 19 ? SLUICE_REASON_NONE : SLUICE_REASON_UNSUPPORTED;
        assert_int_equal(with_features(REQ, 1u << bit, 0), expected);
        assert_int_equal(with_features(REP, 1u << bit, 0), expected);
        assert_int_equal(with_features(REQ, SAMPLE_FEATURES | 1u << bit, 1), expected);
        assert_int_equal(with_features(REP, SAMPLE_FEATURES | 1u << bit, 1), expected);
    }
    assert_int_equal(with_features(REQ, 0xffff, 0), SLUICE_REASON_NONE);
    assert_int_equal(with_features(REP, 0xffff, 0), SLUICE_REASON_NONE);
}

/* A proposal with a key and no proof, a proof and no key, or a proof and no frame to carry it. */
TEST(authentication_comes_with_a_key_and_a_greeting) {
    for (unsigned bits = 0; bits < 8; bits++) {
        bool greeting = bits & 1, hmac = bits & 2, key = bits & 4;
        uint32_t features = (greeting ? PRIVATE_DATA_FEATURE_HANDSHAKE : 0) |
                            (hmac ? PRIVATE_DATA_FEATURE_HMAC : 0);
        bool good = hmac == key && (greeting || !hmac);
        sluice_reason expected = good ? SLUICE_REASON_NONE : SLUICE_REASON_VALUE;
        for (unsigned shift = 0; shift < 32; shift++)
            assert_int_equal(with_features(REQ, features, key ? 1u << shift : 0), expected);
        assert_int_equal(with_features(REQ, features | 0x1234, key), expected);
    }
}

/* One thing after the other is broken, from the last check to the first. */
TEST(the_first_check_that_fails_is_the_reason) {
    union any_record record = record_sample(REQ), got;
    uint8_t bytes[256];
    record_encode(REQ, &record, bytes);
#define NOW(kind, change, reason)                                                                  \
    do {                                                                                           \
        change;                                                                                    \
        assert_int_equal(record_decode(kind, &got, bytes, 120), reason);                           \
    } while (0)
    NOW(REQ, bytes[119] = 1, SLUICE_REASON_MALFORMED); /* padding */
    NOW(REQ, bytes[12] = bytes[13] = 0, SLUICE_REASON_VALUE);
    NOW(REQ, bytes[7] |= 0x80, SLUICE_REASON_UNSUPPORTED);
    NOW(REQ, bytes[4] = 55, SLUICE_REASON_MALFORMED);
    NOW(REQ, bytes[2] = bytes[3] = 2, SLUICE_REASON_VERSION);
    NOW(REQ, bytes[2] = 3, SLUICE_REASON_VALUE);
    NOW(REQ, bytes[0] = 0, SLUICE_REASON_NOT_SLUICE);
    record_encode(REQ, &record, bytes);
    NOW(REQ, bytes[119] = 1, SLUICE_REASON_MALFORMED);
    NOW(REQ, memset(bytes + 36, 0, 4), SLUICE_REASON_VALUE); /* HMAC without a key */
    NOW(REQ, bytes[7] |= 0x10, SLUICE_REASON_UNSUPPORTED);

    record = record_sample(REP);
    record_encode(REP, &record, bytes);
    NOW(REP, bytes[7] = bytes[119] = 1, SLUICE_REASON_MALFORMED);
    NOW(REP, bytes[8] = 17, SLUICE_REASON_VALUE);
    NOW(REP, bytes[6] |= 0x80, SLUICE_REASON_UNSUPPORTED);
    NOW(REP, bytes[3] = 99, SLUICE_REASON_MALFORMED);
    NOW(REP, bytes[2] = 2, SLUICE_REASON_VERSION);
    NOW(REP, bytes[1] = 0, SLUICE_REASON_NOT_SLUICE);

    record = record_sample(REJ);
    record_encode(REJ, &record, bytes);
    NOW(REJ, bytes[119] = 1, SLUICE_REASON_MALFORMED);
    NOW(REJ, bytes[2] = 1, SLUICE_REASON_VERSION);
    NOW(REJ, bytes[0] = 0, SLUICE_REASON_NOT_SLUICE);
#undef NOW
    /* A record of a later version, cut where only its version can be told. */
    const uint8_t later_req[5] = {'S', 'L', 2, 3, 40}, later_rep[4] = {'S', 'L', 2, 40};
    assert_int_equal(record_decode(REQ, &got, later_req, 5), SLUICE_REASON_VERSION);
    assert_int_equal(record_decode(REP, &got, later_rep, 4), SLUICE_REASON_VERSION);
}

TEST(values_out_of_range) {
    for (unsigned eager = 0; eager < 256; eager++)
        for (unsigned message = 0; message < 256; message++) {
            bool good = eager >= 9 && eager <= 16 && message >= eager && message <= 40;
            sluice_reason expected = good ? SLUICE_REASON_NONE : SLUICE_REASON_VALUE;
            for (enum kind kind = REQ; kind <= REP; kind++) {
                union any_record record = record_sample(kind), got;
                uint8_t bytes[256];
                record_encode(kind, &record, bytes);
                bytes[8] = (uint8_t)eager;
                bytes[9] = (uint8_t)message;
                assert_int_equal(record_decode(kind, &got, bytes, record_kind_bytes[kind]),
                                 expected);
            }
        }
    for (uint32_t credits = 0; credits < 65536; credits++) {
        bool good = credits >= 4 && credits <= 1024;
        sluice_reason expected = good ? SLUICE_REASON_NONE : SLUICE_REASON_VALUE;
        union any_record req = record_sample(REQ), rep = record_sample(REP), got;
        uint8_t bytes[256];
        req.req.credits = rep.rep.credits = (uint16_t)credits;
        record_encode(REQ, &req, bytes);
        assert_int_equal(private_data_req_decode(&got.req, bytes, 56), expected);
        record_encode(REP, &rep, bytes);
        assert_int_equal(private_data_rep_decode(&got.rep, bytes, 196), expected);
    }
}
