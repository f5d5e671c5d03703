/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record_req_fuzz.c - any bytes as a proposal: refused and nothing written, or decoded without loss
 * and decided such that the dialer's check agrees.
 *
 * Input: the listener's own proposal (proposal.h), then the REQ.
 */
#include "fuzz/proposal.h"

static void prove_round_trip(const struct private_data_req *req, const uint8_t *data) {
    uint8_t again[PRIVATE_DATA_REQ_BYTES];
    private_data_req_encode(req, again);
    PROVE(memcmp(again, data, sizeof again) == 0);
}

static void prove_decision(const struct private_data_req *req, const struct private_data_req *own) {
    struct private_data_rep rep, before, back;
    memset(&before, 0xa5, sizeof before);
    memcpy(&rep, &before, sizeof rep);
    sluice_reason reason = private_data_decide(&rep, req, own);
    if (reason != SLUICE_REASON_NONE) {
        PROVE(memcmp(&rep, &before, sizeof rep) == 0);
        PROVE(reason == SLUICE_REASON_VERSION || reason == SLUICE_REASON_UNSUPPORTED ||
              (reason == SLUICE_REASON_SESSION_UNKNOWN &&
               (req->features & (PRIVATE_DATA_FEATURE_RESUMES | PRIVATE_DATA_FEATURE_JOINS) &
                ~own->features)) ||
              reason == SLUICE_REASON_AUTH_REQUIRED || reason == SLUICE_REASON_AUTH_KEY);
        return;
    }
    PROVE(private_data_check(&rep, req) == SLUICE_REASON_NONE);
    PROVE((rep.features & ~PRIVATE_DATA_FEATURES_MUST & ~own->features) == 0);
    PROVE(!(own->features & PRIVATE_DATA_FEATURE_HMAC) ||
          (rep.features & PRIVATE_DATA_FEATURE_HMAC));
    PROVE(rep.eager_log2 <= own->eager_log2 && rep.message_log2 <= own->message_log2);
    PROVE(rep.eager_log2 <= rep.message_log2);
    PROVE(rep.depth_in <= own->depth_in && rep.depth_out <= own->depth_out);
    uint8_t bytes[PRIVATE_DATA_REP_BYTES];
    private_data_rep_encode(&rep, bytes);
    PROVE(private_data_rep_decode(&back, bytes, sizeof bytes) == SLUICE_REASON_NONE);
    PROVE(private_data_check(&back, req) == SLUICE_REASON_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    struct private_data_req own = proposal_take(&in), req, before;
    memset(&before, 0xa5, sizeof before);
    memcpy(&req, &before, sizeof req);
    if (private_data_req_decode(&req, in.at, in.left) != SLUICE_REASON_NONE) {
        PROVE(memcmp(&req, &before, sizeof req) == 0);
        return 0;
    }
    PROVE(in.left >= PRIVATE_DATA_REQ_BYTES);
    prove_round_trip(&req, in.at);
    prove_decision(&req, &own);
    return 0;
}
