/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record_util.h - what the tests of the negotiation records share: the three kinds behind one face,
 * a sample of each that decodes, and random numbers that are the same in every run.
 *
 * Input is copied into heap memory of the exact length, so that the address sanitizer sees a read
 * behind it. Every function is static: not every test uses all of them.
 */
#ifndef TESTS_RECORD_UTIL_H
#define TESTS_RECORD_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire/private_data.h"

static uint64_t seed __attribute__((unused));

static inline uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t below(uint32_t bound) {
    return (uint32_t)(next_random() % bound);
}

static inline void random_fill(uint8_t *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)next_random();
}

/* ---- the three kinds behind one face --------------------------------------------------------- */

union any_record {
    struct private_data_req req;
    struct private_data_rep rep;
    struct private_data_rej rej;
};
enum kind { REQ, REP, REJ, KINDS };
static const size_t kind_bytes[KINDS] = {PRIVATE_DATA_REQ_BYTES, PRIVATE_DATA_REP_BYTES,
                                         PRIVATE_DATA_REJ_BYTES};

static inline sluice_reason decode_exact(enum kind kind, union any_record *out, const void *data,
                                         size_t len) {
    switch (kind) {
    case REQ:
        return private_data_req_decode(&out->req, data, len);
    case REP:
        return private_data_rep_decode(&out->rep, data, len);
    case REJ:
    case KINDS:
        break;
    }
    return private_data_rej_decode(&out->rej, data, len);
}

/* From a copy of exactly len bytes; checks that a refusal leaves the output alone. */
static inline sluice_reason decode(enum kind kind, union any_record *out, const uint8_t *data,
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

static inline size_t encode(enum kind kind, const union any_record *record, uint8_t out[256]) {
    memset(out, 0, 256);
    switch (kind) {
    case REQ:
        private_data_req_encode(&record->req, out);
        return PRIVATE_DATA_REQ_BYTES;
    case REP:
        private_data_rep_encode(&record->rep, out);
        return PRIVATE_DATA_REP_BYTES;
    case REJ:
    case KINDS:
        break;
    }
    return private_data_rej_encode(&record->rej, out);
}

/* Everything a peer may propose: authentication, and two features nobody has defined yet. */
#define SAMPLE_FEATURES (PRIVATE_DATA_FEATURE_HANDSHAKE | PRIVATE_DATA_FEATURE_HMAC | 0x8041u)

static inline struct private_data_req sample_req(void) {
    struct private_data_req req = {
        .version_min = 1,
        .version_max = 1,
        .features = SAMPLE_FEATURES,
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

static inline struct private_data_rep sample_rep(void) {
    struct private_data_rep rep = {
        .version = 1,
        .features = SAMPLE_FEATURES,
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
        rep.check[i % 16] = (uint8_t)(0xc0 + i % 16);
    }
    return rep;
}

static inline union any_record sample(enum kind kind) {
    union any_record record;
    memset(&record, 0, sizeof record);
    if (kind == REQ)
        record.req = sample_req();
    else if (kind == REP)
        record.rep = sample_rep();
    else
        record.rej = (struct private_data_rej){.reason = 5, .code = 4711, .text = "not today"};
    return record;
}

static inline void assert_same(enum kind kind, const union any_record *a,
                               const union any_record *b) {
    uint8_t x[256], y[256];
    size_t n = encode(kind, a, x);
    assert_int_equal(encode(kind, b, y), n);
    assert_memory_equal(x, y, sizeof x);
}

#endif
