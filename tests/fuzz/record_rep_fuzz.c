/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record_rep_fuzz.c - any bytes as a decision: refused and nothing written, or decoded without loss;
 * and what passes the dialer's check lies within what the dialer proposed.
 *
 * Input: the dialer's proposal (proposal.h), then the REP.
 */
#include "fuzz/proposal.h"

static bool zero(const uint8_t *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i])
            return false;
    return true;
}

static void prove_within(const struct private_data_rep *rep, const struct private_data_req *req) {
    PROVE(rep->version >= req->version_min && rep->version <= req->version_max);
    PROVE((rep->features & ~req->features) == 0);
    PROVE((rep->features & PRIVATE_DATA_FEATURES_MUST) ==
          (req->features & PRIVATE_DATA_FEATURES_MUST));
    PROVE(rep->eager_log2 >= 9 && rep->eager_log2 <= req->eager_log2);
    PROVE(rep->message_log2 >= rep->eager_log2 && rep->message_log2 <= req->message_log2);
    PROVE(rep->depth_in <= req->depth_out && rep->depth_out <= req->depth_in);
    PROVE(rep->credits >= 4 && rep->credits <= 1024);
    PROVE(rep->keepalive == 0 || (req->keepalive != 0 && rep->keepalive >= req->keepalive));
    PROVE(memcmp(rep->session_id, req->session_id, 16) == 0);
    PROVE(rep->last_sequence == 0 || (req->features & PRIVATE_DATA_FEATURE_RESUMES));
    PROVE(req->key_id || (zero(rep->mac, sizeof rep->mac) && zero(rep->check, sizeof rep->check)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    struct private_data_req req = proposal_take(&in);
    struct private_data_rep rep, before;
    memset(&before, 0xa5, sizeof before);
    memcpy(&rep, &before, sizeof rep);
    if (private_data_rep_decode(&rep, in.at, in.left) != SLUICE_REASON_NONE) {
        PROVE(memcmp(&rep, &before, sizeof rep) == 0);
        return 0;
    }
    PROVE(in.left >= PRIVATE_DATA_REP_BYTES);
    uint8_t again[PRIVATE_DATA_REP_BYTES];
    private_data_rep_encode(&rep, again);
    PROVE(memcmp(again, in.at, sizeof again) == 0);
    if (private_data_check(&rep, &req) == SLUICE_REASON_NONE)
        prove_within(&rep, &req);
    return 0;
}
