/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record.h - what the tests of the negotiation records share: the three kinds behind one face,
 * a sample of each that decodes, and random numbers that are the same in every run.
 *
 * Input is copied into heap memory of the exact length, so that the address sanitizer sees a read
 * behind it.
 */
#ifndef TESTS_SUPPORT_RECORD_H
#define TESTS_SUPPORT_RECORD_H

#include "support/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire/private_data.h"

extern uint64_t record_seed; /* of the numbers that follow */

/* A number below bound. */
uint32_t record_below(uint32_t bound);
/* Random bytes. */
void record_random_fill(uint8_t *out, size_t bytes);

/* ---- the three kinds behind one face --------------------------------------------------------- */

union any_record {
    struct private_data_req req;
    struct private_data_rep rep;
    struct private_data_rej rej;
};

enum kind { REQ, REP, REJ, KINDS };

extern const size_t record_kind_bytes[KINDS];

/* Decodes from that memory itself. */
sluice_reason record_decode_exact(enum kind kind, union any_record *out, const void *data,
                                  size_t len);
/* From a copy of exactly len bytes; checks that a refusal leaves the output alone. */
sluice_reason record_decode(enum kind kind, union any_record *out, const uint8_t *data, size_t len);
/* Encodes into cleared memory; how many bytes. */
size_t record_encode(enum kind kind, const union any_record *record, uint8_t out[256]);

/* Everything a peer may propose: authentication, and two features nobody has defined yet. */
#define SAMPLE_FEATURES (PRIVATE_DATA_FEATURE_HANDSHAKE | PRIVATE_DATA_FEATURE_HMAC | 0x8041u)

/* A REQ that decodes. */
struct private_data_req record_sample_req(void);
/* A REP that decodes. */
struct private_data_rep record_sample_rep(void);
/* A sample of each kind. */
union any_record record_sample(enum kind kind);
/* Both encode to the same bytes. */
void record_assert_same(enum kind kind, const union any_record *a, const union any_record *b);

#endif
