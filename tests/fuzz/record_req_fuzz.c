/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record_req_fuzz.c - any bytes as a proposal: refused and nothing written, or decoded without loss
 * and decided such that the dialer's check agrees.
 *
 * Input: the listener's own proposal (proposal.h), then the REQ.
 */
#include "fuzz/proposal.h"

static void prove_round_trip(const struct record_req *req, const uint8_t *data) {
    uint8_t again[RECORD_REQ_BYTES];
    record_req_encode(req, again);
    PROVE(memcmp(again, data, sizeof again) == 0);
}

static void prove_decision(const struct record_req *req, const struct record_req *own) {
    struct record_rep rep, before, back;
    memset(&before, 0xa5, sizeof before);
    memcpy(&rep, &before, sizeof rep);
    sluice_reason reason = record_decide(&rep, req, own);
    if (reason != SLUICE_REASON_NONE) {
        PROVE(memcmp(&rep, &before, sizeof rep) == 0);
        PROVE(reason == SLUICE_REASON_VERSION || reason == SLUICE_REASON_UNSUPPORTED ||
              reason == SLUICE_REASON_AUTH_REQUIRED || reason == SLUICE_REASON_AUTH_KEY);
        return;
    }
    PROVE(record_check(&rep, req) == SLUICE_REASON_NONE);
    PROVE((rep.features & ~RECORD_FEATURES_MUST & ~own->features) == 0);
    PROVE(!(own->features & RECORD_FEATURE_HMAC) || (rep.features & RECORD_FEATURE_HMAC));
    PROVE(rep.eager_log2 <= own->eager_log2 && rep.message_log2 <= own->message_log2);
    PROVE(rep.eager_log2 <= rep.message_log2);
    PROVE(rep.depth_in <= own->depth_in && rep.depth_out <= own->depth_out);
    uint8_t bytes[RECORD_REP_BYTES];
    record_rep_encode(&rep, bytes);
    PROVE(record_rep_decode(&back, bytes, sizeof bytes) == SLUICE_REASON_NONE);
    PROVE(record_check(&back, req) == SLUICE_REASON_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    struct record_req own = proposal_take(&in), req, before;
    memset(&before, 0xa5, sizeof before);
    memcpy(&req, &before, sizeof req);
    if (record_req_decode(&req, in.at, in.left) != SLUICE_REASON_NONE) {
        PROVE(memcmp(&req, &before, sizeof req) == 0);
        return 0;
    }
    PROVE(in.left >= RECORD_REQ_BYTES);
    prove_round_trip(&req, in.at);
    prove_decision(&req, &own);
    return 0;
}
