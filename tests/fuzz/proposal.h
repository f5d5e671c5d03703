/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * proposal.h - a proposal as a side would really make it, from 12 bytes of fuzz input: everything in
 * range, so that what is proved of it is proved of every node.
 */
#ifndef TESTS_FUZZ_PROPOSAL_H
#define TESTS_FUZZ_PROPOSAL_H

#include "core/wire/private_data.h"
#include "fuzz/fuzz.h"

#define PROPOSAL_BYTES 12

static inline struct private_data_req proposal_take(struct fuzz_input *in) {
    struct private_data_req own = {
        .version_min = PRIVATE_DATA_VERSION_MIN,
        .version_max = PRIVATE_DATA_VERSION_MAX,
        .features = (uint32_t)fuzz_take(in, 2) | PRIVATE_DATA_FEATURE_HANDSHAKE,
    };
    if (fuzz_take(in, 1) & 1) {
        own.features |= PRIVATE_DATA_FEATURE_HMAC;
        own.key_id = 7;
    }
    own.eager_log2 = (uint8_t)(9 + fuzz_take(in, 1) % 8);
    own.message_log2 = (uint8_t)(own.eager_log2 + fuzz_take(in, 1) % (41u - own.eager_log2));
    own.depth_in = (uint8_t)fuzz_take(in, 1);
    own.depth_out = (uint8_t)fuzz_take(in, 1);
    own.credits = (uint16_t)(4 + fuzz_take(in, 2) % 1021);
    own.keepalive = (uint16_t)fuzz_take(in, 2);
    memset(own.session_id, 0x51 + (int)(fuzz_take(in, 1) & 1), sizeof own.session_id);
    memset(own.nonce, 0x17, sizeof own.nonce);
    return own;
}

#endif
