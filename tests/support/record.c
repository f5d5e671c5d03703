/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* record.c - see record.h. */
#include "support/record.h"

uint64_t record_seed;

static uint64_t record_random(void) { /* splitmix64 */
    uint64_t z = record_seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t record_below(uint32_t bound) {
    return (uint32_t)(record_random() % bound);
}

void record_random_fill(uint8_t *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)record_random();
}

/* ---- the three kinds behind one face --------------------------------------------------------- */

const size_t record_kind_bytes[KINDS] = {PRIVATE_DATA_REQ_BYTES, PRIVATE_DATA_REP_BYTES,
                                         PRIVATE_DATA_REJ_BYTES};

sluice_reason record_decode_exact(enum kind kind, union any_record *out, const void *data,
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

sluice_reason record_decode(enum kind kind, union any_record *out, const uint8_t *data,
                            size_t len) {
    union any_record before;
    memset(&before, 0xa5, sizeof before);
    memcpy(out, &before, sizeof before);
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, data, len);
    sluice_reason reason = record_decode_exact(kind, out, copy, len);
    free(copy);
    if (reason != SLUICE_REASON_NONE)
        assert_memory_equal(out, &before, sizeof before);
    return reason;
}

size_t record_encode(enum kind kind, const union any_record *record, uint8_t out[256]) {
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

struct private_data_req record_sample_req(void) {
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

struct private_data_rep record_sample_rep(void) {
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

union any_record record_sample(enum kind kind) {
    union any_record record;
    memset(&record, 0, sizeof record);
    if (kind == REQ)
        record.req = record_sample_req();
    else if (kind == REP)
        record.rep = record_sample_rep();
    else
        record.rej = (struct private_data_rej){.reason = 5, .code = 4711, .text = "not today"};
    return record;
}

void record_assert_same(enum kind kind, const union any_record *a, const union any_record *b) {
    uint8_t x[256], y[256];
    size_t n = record_encode(kind, a, x);
    assert_int_equal(record_encode(kind, b, y), n);
    assert_memory_equal(x, y, sizeof x);
}
