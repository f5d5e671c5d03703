/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record_test.c - the negotiation records: exact bytes, every wrong form refused for its own
 * reason, random bytes harmless, and decisions that always lie within both proposals.
 *
 * Input is copied into heap memory of the exact length, so that the address sanitizer sees a read
 * behind it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/record.h"

enum { RANDOM_RECORDS = 1000000 };

static uint64_t seed;

static uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint32_t below(uint32_t bound) {
    return (uint32_t)(next_random() % bound);
}

static void random_fill(uint8_t *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)next_random();
}

/* ---- the three kinds behind one face --------------------------------------------------------- */

union any_record {
    struct record_req req;
    struct record_rep rep;
    struct record_rej rej;
};
enum kind { REQ, REP, REJ, KINDS };
static const size_t kind_bytes[KINDS] = {RECORD_REQ_BYTES, RECORD_REP_BYTES, RECORD_REJ_BYTES};

static sluice_reason decode_exact(enum kind kind, union any_record *out, const void *data,
                                  size_t len) {
    switch (kind) {
    case REQ:
        return record_req_decode(&out->req, data, len);
    case REP:
        return record_rep_decode(&out->rep, data, len);
    case REJ:
    case KINDS:
        break;
    }
    return record_rej_decode(&out->rej, data, len);
}

/* From a copy of exactly len bytes; checks that a refusal leaves the output alone. */
static sluice_reason decode(enum kind kind, union any_record *out, const uint8_t *data,
                            size_t len) {
    union any_record before;
    memset(&before, 0xa5, sizeof before);
    memcpy(out, &before, sizeof before);
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, data, len);
    sluice_reason reason = decode_exact(kind, out, copy, len);
    free(copy);
    if (reason != SLUICE_REASON_NONE)
        assert_memory_equal(out, &before, sizeof before);
    return reason;
}

static size_t encode(enum kind kind, const union any_record *record, uint8_t out[256]) {
    memset(out, 0, 256);
    switch (kind) {
    case REQ:
        record_req_encode(&record->req, out);
        return RECORD_REQ_BYTES;
    case REP:
        record_rep_encode(&record->rep, out);
        return RECORD_REP_BYTES;
    case REJ:
    case KINDS:
        break;
    }
    return record_rej_encode(&record->rej, out);
}

static struct record_req sample_req(void) {
    struct record_req req = {
        .version_min = 1,
        .version_max = 1,
        .eager_log2 = 14,
        .message_log2 = 26,
        .depth_in = 16,
        .depth_out = 8,
        .credits = 0x0123,
        .keepalive = 0x4567,
        .last_sequence = 0x89abcdef,
        .key_id = 0x01020304,
    };
    for (uint8_t i = 0; i < 16; i++) {
        req.session_id[i] = (uint8_t)(0x10 + i);
        req.nonce[i] = (uint8_t)(0xf0 - i);
    }
    return req;
}

static struct record_rep sample_rep(void) {
    struct record_rep rep = {
        .version = 1,
        .eager_log2 = 12,
        .message_log2 = 20,
        .depth_in = 4,
        .depth_out = 3,
        .credits = 0x0321,
        .keepalive = 0x7654,
        .last_sequence = 0xfedcba98,
    };
    for (uint8_t i = 0; i < 32; i++) {
        rep.session_id[i % 16] = (uint8_t)(0x20 + i % 16);
        rep.nonce[i % 16] = (uint8_t)(0xe0 - i % 16);
        rep.mac[i] = (uint8_t)(0x80 + i);
    }
    return rep;
}

static union any_record sample(enum kind kind) {
    union any_record record;
    memset(&record, 0, sizeof record);
    if (kind == REQ)
        record.req = sample_req();
    else if (kind == REP)
        record.rep = sample_rep();
    else
        record.rej = (struct record_rej){.reason = 5, .code = 4711, .text = "not today"};
    return record;
}

static void assert_same(enum kind kind, const union any_record *a, const union any_record *b) {
    uint8_t x[256], y[256];
    size_t n = encode(kind, a, x);
    assert_int_equal(encode(kind, b, y), n);
    assert_memory_equal(x, y, sizeof x);
}

/* ---- layout ---------------------------------------------------------------------------------- */

static void req_layout(void **state) {
    (void)state;
    union any_record record = sample(REQ);
    const uint8_t expected[RECORD_REQ_BYTES] = {
        'S',  'L',  1,    1,    56,   0,    0,    0,    14,   26,   16,   8,    0x23, 0x01,
        0x67, 0x45, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b,
        0x1c, 0x1d, 0x1e, 0x1f, 0xef, 0xcd, 0xab, 0x89, 0x04, 0x03, 0x02, 0x01, 0xf0, 0xef,
        0xee, 0xed, 0xec, 0xeb, 0xea, 0xe9, 0xe8, 0xe7, 0xe6, 0xe5, 0xe4, 0xe3, 0xe2, 0xe1};
    uint8_t got[256];
    assert_int_equal(encode(REQ, &record, got), sizeof expected);
    assert_memory_equal(got, expected, sizeof expected);
    record.req.features = 0x123456;
    encode(REQ, &record, got);
    assert_int_equal(got[5], 0x56);
    assert_int_equal(got[6], 0x34);
    assert_int_equal(got[7], 0x12);
}

static void rep_layout(void **state) {
    (void)state;
    union any_record record = sample(REP);
    uint8_t got[256];
    encode(REP, &record, got);
    const uint8_t head[16] = {'S', 'L', 1, 84, 0, 0, 0, 0, 12, 20, 4, 3, 0x21, 0x03, 0x54, 0x76};
    assert_memory_equal(got, head, sizeof head);
    assert_memory_equal(got + 16, record.rep.session_id, 16);
    const uint8_t sequence[4] = {0x98, 0xba, 0xdc, 0xfe};
    assert_memory_equal(got + 32, sequence, 4);
    assert_memory_equal(got + 36, record.rep.nonce, 16);
    assert_memory_equal(got + 52, record.rep.mac, 32);
}

static void rej_layout(void **state) {
    (void)state;
    union any_record record = sample(REJ);
    const uint8_t expected[17] = {'S', 'L', 0,   17,  5,   0,   0x67, 0x12, 'n',
                                  'o', 't', ' ', 't', 'o', 'd', 'a',  'y'};
    uint8_t got[256];
    assert_int_equal(encode(REJ, &record, got), sizeof expected);
    assert_memory_equal(got, expected, sizeof expected);
    memset(record.rej.text, 'x', RECORD_REJ_TEXT);
    assert_int_equal(encode(REJ, &record, got), RECORD_REJ_BYTES);
    assert_int_equal(got[3], RECORD_REJ_BYTES);
}

/* What rdma_cm delivers is padded; what iWARP delivers is not. */
static void round_trip_at_every_padding(void **state) {
    (void)state;
    for (enum kind kind = REQ; kind < KINDS; kind++) {
        union any_record record = sample(kind), got;
        uint8_t bytes[256];
        size_t used = encode(kind, &record, bytes);
        for (size_t len = used; len <= sizeof bytes; len++) {
            assert_int_equal(decode(kind, &got, bytes, len), SLUICE_REASON_NONE);
            assert_same(kind, &got, &record);
        }
    }
}

/* ---- wrong forms ----------------------------------------------------------------------------- */

static void truncated_at_every_length(void **state) {
    (void)state;
    for (enum kind kind = REQ; kind < KINDS; kind++) {
        union any_record record = sample(kind), got;
        uint8_t bytes[256];
        size_t used = encode(kind, &record, bytes);
        for (size_t len = 0; len < used; len++)
            assert_int_equal(decode(kind, &got, bytes, len),
                             len < 2 ? SLUICE_REASON_NOT_SLUICE : SLUICE_REASON_MALFORMED);
        assert_int_equal(decode_exact(kind, &got, NULL, 0), SLUICE_REASON_NOT_SLUICE);
        assert_int_equal(decode_exact(kind, &got, NULL, 56), SLUICE_REASON_NOT_SLUICE);
    }
}

static void padding_must_be_zero(void **state) {
    (void)state;
    for (enum kind kind = REQ; kind < KINDS; kind++) {
        union any_record record = sample(kind), got;
        uint8_t bytes[256];
        size_t used = encode(kind, &record, bytes);
        for (size_t at = used; at < sizeof bytes; at++) {
            bytes[at] = 1;
            assert_int_equal(decode(kind, &got, bytes, sizeof bytes), SLUICE_REASON_MALFORMED);
            assert_int_equal(decode(kind, &got, bytes, at + 1), SLUICE_REASON_MALFORMED);
            assert_int_equal(decode(kind, &got, bytes, at), SLUICE_REASON_NONE);
            bytes[at] = 0;
        }
    }
    uint8_t bytes[256];
    union any_record record = sample(REP), got;
    encode(REP, &record, bytes);
    bytes[7] = 1; /* the one unused byte inside */
    assert_int_equal(decode(REP, &got, bytes, 196), SLUICE_REASON_MALFORMED);
}

static sluice_reason with_byte(enum kind kind, size_t at, uint8_t value) {
    union any_record record = sample(kind), got;
    uint8_t bytes[256];
    encode(kind, &record, bytes);
    bytes[at] = value;
    return decode(kind, &got, bytes, kind_bytes[kind]);
}

static void wrong_magic(void **state) {
    (void)state;
    uint8_t zero[196] = {0};
    union any_record got;
    for (enum kind kind = REQ; kind < KINDS; kind++) {
        assert_int_equal(with_byte(kind, 0, 'L'), SLUICE_REASON_NOT_SLUICE);
        assert_int_equal(with_byte(kind, 1, 'S'), SLUICE_REASON_NOT_SLUICE);
        for (size_t len = 0; len <= sizeof zero; len++) /* an application that sent nothing */
            assert_int_equal(decode(kind, &got, zero, len), SLUICE_REASON_NOT_SLUICE);
    }
}

static void wrong_length_field(void **state) {
    (void)state;
    for (unsigned value = 0; value < 256; value++) {
        if (value != 56)
            assert_int_equal(with_byte(REQ, 4, (uint8_t)value), SLUICE_REASON_MALFORMED);
        if (value != 84)
            assert_int_equal(with_byte(REP, 3, (uint8_t)value), SLUICE_REASON_MALFORMED);
        /* A longer text than sent is zero bytes, which are no text but not out of bounds. */
        if (value != 17 && (value < 17 || value > 128))
            assert_int_equal(with_byte(REJ, 3, (uint8_t)value), SLUICE_REASON_MALFORMED);
    }
}

static void wrong_version(void **state) {
    (void)state;
    union any_record record = sample(REQ), got;
    uint8_t bytes[256];
    for (unsigned low = 0; low < 256; low++)
        for (unsigned high = 0; high < 256; high++) {
            record.req.version_min = (uint8_t)low;
            record.req.version_max = (uint8_t)high;
            encode(REQ, &record, bytes);
            sluice_reason expected = SLUICE_REASON_NONE;
            if (low == 0 || low > high)
                expected = SLUICE_REASON_VALUE;
            else if (low > RECORD_VERSION_MAX || high < RECORD_VERSION_MIN)
                expected = SLUICE_REASON_VERSION;
            assert_int_equal(decode(REQ, &got, bytes, 56), expected);
            /* A later version may be longer or shorter; it is still told that it is the version. */
            bytes[4] = 99;
            assert_int_equal(decode(REQ, &got, bytes, 56),
                             expected ? expected : SLUICE_REASON_MALFORMED);
        }
    for (unsigned version = 0; version < 256; version++) {
        if (version < RECORD_VERSION_MIN || version > RECORD_VERSION_MAX)
            assert_int_equal(with_byte(REP, 2, (uint8_t)version), SLUICE_REASON_VERSION);
        if (version != 0)
            assert_int_equal(with_byte(REJ, 2, (uint8_t)version), SLUICE_REASON_VERSION);
    }
}

static void unknown_features(void **state) {
    (void)state;
    for (unsigned bit = 0; bit < 24; bit++) {
        bool known = RECORD_FEATURES_KNOWN >> bit & 1;
        sluice_reason expected = known ? SLUICE_REASON_NONE : SLUICE_REASON_UNSUPPORTED;
        assert_int_equal(with_byte(REQ, 5 + bit / 8, (uint8_t)(1u << bit % 8)), expected);
        assert_int_equal(with_byte(REP, 4 + bit / 8, (uint8_t)(1u << bit % 8)), expected);
    }
}

static void values_out_of_range(void **state) {
    (void)state;
    for (unsigned eager = 0; eager < 256; eager++)
        for (unsigned message = 0; message < 256; message++) {
            bool good = eager >= 9 && eager <= 16 && message >= eager && message <= 40;
            sluice_reason expected = good ? SLUICE_REASON_NONE : SLUICE_REASON_VALUE;
            for (enum kind kind = REQ; kind <= REP; kind++) {
                union any_record record = sample(kind), got;
                uint8_t bytes[256];
                encode(kind, &record, bytes);
                bytes[8] = (uint8_t)eager;
                bytes[9] = (uint8_t)message;
                assert_int_equal(decode(kind, &got, bytes, kind_bytes[kind]), expected);
            }
        }
    for (uint32_t credits = 0; credits < 65536; credits++) {
        bool good = credits >= 4 && credits <= 1024;
        sluice_reason expected = good ? SLUICE_REASON_NONE : SLUICE_REASON_VALUE;
        union any_record req = sample(REQ), rep = sample(REP), got;
        uint8_t bytes[256];
        req.req.credits = rep.rep.credits = (uint16_t)credits;
        encode(REQ, &req, bytes);
        assert_int_equal(record_req_decode(&got.req, bytes, 56), expected);
        encode(REP, &rep, bytes);
        assert_int_equal(record_rep_decode(&got.rep, bytes, 196), expected);
    }
}

/* A refusal's text goes to a terminal: no control character of any kind survives. */
static void refusal_texts_are_made_printable(void **state) {
    (void)state;
    const struct {
        const char *sent, *shown;
    } texts[] = {
        {"plain text, 100 %", "plain text, 100 %"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x1b[2J\a\r\n\t\x7f", "?[2J?????"},
        {"\x9b"
         "31m",
         "?31m"}, /* 8-bit control */
        {"\xc2\x9b"
         "31m",
         "??31m"},               /* the same as UTF-8 */
        {"\xe0\x82\x9b", "???"}, /* and overlong */
        {"\xf0\x80\x82\x9b", "????"},
        {"\xff\xfe\xc0\x80\xf8", "?????"},
        {"cut \xe2\x82", "cut ??"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        union any_record record = sample(REJ), got;
        uint8_t bytes[256];
        snprintf(record.rej.text, sizeof record.rej.text, "%s", texts[i].sent);
        size_t used = encode(REJ, &record, bytes);
        assert_int_equal(decode(REJ, &got, bytes, used), SLUICE_REASON_NONE);
        assert_string_equal(got.rej.text, texts[i].shown);
    }
    /* A zero byte inside would end the text early for some readers and not for others. */
    union any_record record = sample(REJ), got;
    uint8_t bytes[256];
    size_t used = encode(REJ, &record, bytes);
    bytes[10] = 0;
    assert_int_equal(decode(REJ, &got, bytes, used), SLUICE_REASON_NONE);
    assert_string_equal(got.rej.text, "no? today");
}

/* ---- random records -------------------------------------------------------------------------- */

/* A record that is right, then damaged a little: pure noise would never get past the magic. */
static size_t random_record(enum kind kind, uint8_t out[256]) {
    memset(out, 0, 256);
    size_t bytes = kind_bytes[kind];
    random_fill(out, bytes);
    if (below(16) == 0)
        return below(257);
    out[0] = 'S';
    out[1] = 'L';
    out[2] = kind == REJ ? 0 : 1;
    if (kind == REJ) {
        out[3] = (uint8_t)(8 + below(121));
        memset(out + out[3], 0, 256u - out[3]);
    } else {
        size_t features = kind == REQ ? 5 : 4;
        out[3] = kind == REQ ? 1 + (uint8_t)below(3) : 84;
        if (kind == REQ)
            out[4] = 56;
        else
            out[7] = 0;
        memset(out + features, 0, 3);
        out[8] = (uint8_t)(9 + below(8));
        out[9] = (uint8_t)(out[8] + below(41u - out[8]));
        uint32_t credits = 4 + below(1021);
        out[12] = (uint8_t)credits;
        out[13] = (uint8_t)(credits >> 8);
    }
    for (uint32_t damage = below(3); damage > 0; damage--)
        out[below(256)] ^= (uint8_t)(1u << below(8));
    return below(4) == 0 ? below(257) : bytes + below(257 - (uint32_t)bytes);
}

static void a_million_random_records(void **state) {
    (void)state;
    seed = 20240229;
    unsigned good[KINDS] = {0};
    unsigned reasons[32] = {0};
    for (int i = 0; i < RANDOM_RECORDS; i++) {
        enum kind kind = (enum kind)(i % KINDS);
        uint8_t in[256], again[256];
        union any_record record, back;
        size_t len = random_record(kind, in);
        /* Reads behind len are seen by the sanitizer: the record ends where the memory ends. */
        uint8_t *exact = malloc(len ? len : 1);
        assert_non_null(exact);
        memcpy(exact, in, len);
        sluice_reason reason = decode_exact(kind, &record, exact, len);
        free(exact);
        reasons[reason]++;
        if (reason != SLUICE_REASON_NONE)
            continue;
        good[kind]++;
        size_t used = encode(kind, &record, again);
        if (kind != REJ) /* every byte of the input is in the record */
            assert_memory_equal(in, again, used);
        assert_int_equal(decode_exact(kind, &back, again, used), SLUICE_REASON_NONE);
        assert_same(kind, &back, &record);
    }
    /* The generator reaches what it is meant to reach. */
    for (enum kind kind = REQ; kind < KINDS; kind++)
        assert_in_range(good[kind], RANDOM_RECORDS / 100, RANDOM_RECORDS / 2);
    const sluice_reason reached[] = {SLUICE_REASON_NOT_SLUICE, SLUICE_REASON_MALFORMED,
                                     SLUICE_REASON_VERSION, SLUICE_REASON_UNSUPPORTED,
                                     SLUICE_REASON_VALUE};
    unsigned total = good[REQ] + good[REP] + good[REJ];
    for (size_t i = 0; i < sizeof reached / sizeof reached[0]; i++) {
        assert_true(reasons[reached[i]] > 100);
        total += reasons[reached[i]];
    }
    assert_int_equal(total, RANDOM_RECORDS); /* and no other reason is ever given */
}

/* ---- decide and check ------------------------------------------------------------------------ */

static struct record_req random_proposal(void) {
    struct record_req req = {.version_min = 1, .version_max = (uint8_t)(1 + below(3))};
    req.eager_log2 = (uint8_t)(9 + below(8));
    req.message_log2 = (uint8_t)(req.eager_log2 + below(41u - req.eager_log2));
    req.depth_in = (uint8_t)below(256);
    req.depth_out = (uint8_t)below(256);
    req.credits = (uint16_t)(4 + below(1021));
    req.keepalive = below(4) ? (uint16_t)below(65536) : 0;
    random_fill(req.session_id, 16);
    random_fill(req.nonce, 16);
    return req;
}

static void decisions_lie_within_both_proposals(void **state) {
    (void)state;
    seed = 7;
    for (int i = 0; i < 100000; i++) {
        struct record_req req = random_proposal(), own = random_proposal();
        own.version_max = RECORD_VERSION_MAX;
        struct record_rep rep;
        assert_int_equal(record_decide(&rep, &req, &own), SLUICE_REASON_NONE);
        assert_int_equal(record_check(&rep, &req), SLUICE_REASON_NONE);
        assert_true(rep.eager_log2 <= req.eager_log2 && rep.eager_log2 <= own.eager_log2);
        assert_true(rep.message_log2 <= req.message_log2 && rep.message_log2 <= own.message_log2);
        assert_true(rep.depth_in <= own.depth_in && rep.depth_in <= req.depth_out);
        assert_true(rep.depth_out <= own.depth_out && rep.depth_out <= req.depth_in);
        assert_int_equal(rep.credits, own.credits);
        assert_true(rep.keepalive == 0
                        ? !req.keepalive || !own.keepalive
                        : rep.keepalive >= req.keepalive && rep.keepalive >= own.keepalive);
        assert_memory_equal(rep.session_id, req.session_id, 16);
        assert_memory_equal(rep.nonce, own.nonce, 16);
        /* What was decided can be sent. */
        uint8_t bytes[RECORD_REP_BYTES];
        struct record_rep back;
        record_rep_encode(&rep, bytes);
        assert_int_equal(record_rep_decode(&back, bytes, sizeof bytes), SLUICE_REASON_NONE);
        assert_int_equal(record_check(&back, &req), SLUICE_REASON_NONE);
    }
}

static void decide_refuses_what_it_cannot_do(void **state) {
    (void)state;
    struct record_req own = sample_req(), req = sample_req();
    struct record_rep rep;
    req.key_id = req.last_sequence = 0;
    assert_int_equal(record_decide(&rep, &req, &own), SLUICE_REASON_NONE);
    req.version_min = 2;
    req.version_max = 3;
    assert_int_equal(record_decide(&rep, &req, &own), SLUICE_REASON_VERSION);
    req.version_min = req.version_max = 1;
    own.version_min = own.version_max = 2;
    assert_int_equal(record_decide(&rep, &req, &own), SLUICE_REASON_VERSION);
    own.version_min = own.version_max = 1;
    req.key_id = 1; /* wants authentication */
    assert_int_equal(record_decide(&rep, &req, &own), SLUICE_REASON_UNSUPPORTED);
    req.key_id = 0;
    req.last_sequence = 1; /* wants to resume */
    assert_int_equal(record_decide(&rep, &req, &own), SLUICE_REASON_UNSUPPORTED);
}

static void check_refuses_more_than_was_proposed(void **state) {
    (void)state;
    struct record_req req = sample_req(), own = sample_req();
    req.key_id = req.last_sequence = 0;
    struct record_rep good, rep;
    assert_int_equal(record_decide(&good, &req, &own), SLUICE_REASON_NONE);
    assert_int_equal(record_check(&good, &req), SLUICE_REASON_NONE);
#define REFUSED(change, reason)                                                                    \
    do {                                                                                           \
        rep = good;                                                                                \
        change;                                                                                    \
        assert_int_equal(record_check(&rep, &req), reason);                                        \
    } while (0)
    REFUSED(rep.version = 2, SLUICE_REASON_VERSION);
    REFUSED(rep.version = 0, SLUICE_REASON_VERSION);
    REFUSED(rep.features = 1, SLUICE_REASON_UNSUPPORTED);
    REFUSED(rep.eager_log2 = req.eager_log2 + 1, SLUICE_REASON_VALUE);
    REFUSED(rep.message_log2 = req.message_log2 + 1, SLUICE_REASON_VALUE);
    REFUSED(rep.depth_in = req.depth_out + 1, SLUICE_REASON_VALUE);
    REFUSED(rep.depth_out = req.depth_in + 1, SLUICE_REASON_VALUE);
    REFUSED(rep.keepalive = req.keepalive - 1, SLUICE_REASON_VALUE);
    REFUSED(rep.keepalive = req.keepalive + 1, SLUICE_REASON_NONE);
    REFUSED(rep.keepalive = 0, SLUICE_REASON_NONE);
    REFUSED(rep.session_id[15] ^= 1, SLUICE_REASON_PROTOCOL);
    REFUSED(rep.last_sequence = 1, SLUICE_REASON_PROTOCOL);
    REFUSED(rep.mac[31] = 1, SLUICE_REASON_PROTOCOL);
    req.keepalive = 0;
    REFUSED(rep.keepalive = 1, SLUICE_REASON_VALUE);
#undef REFUSED
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(req_layout),
        cmocka_unit_test(rep_layout),
        cmocka_unit_test(rej_layout),
        cmocka_unit_test(round_trip_at_every_padding),
        cmocka_unit_test(truncated_at_every_length),
        cmocka_unit_test(padding_must_be_zero),
        cmocka_unit_test(wrong_magic),
        cmocka_unit_test(wrong_length_field),
        cmocka_unit_test(wrong_version),
        cmocka_unit_test(unknown_features),
        cmocka_unit_test(values_out_of_range),
        cmocka_unit_test(refusal_texts_are_made_printable),
        cmocka_unit_test(a_million_random_records),
        cmocka_unit_test(decisions_lie_within_both_proposals),
        cmocka_unit_test(decide_refuses_what_it_cannot_do),
        cmocka_unit_test(check_refuses_more_than_was_proposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
