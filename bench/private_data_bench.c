/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* private_data_bench.c - encoding and decoding what rides in rdma_cm private data. */
#include <string.h>

#include "core/wire/private_data.h"
#include "shim.h"

static struct private_data_req proposal(void) {
    return (struct private_data_req){.version_min = 1,
                                     .version_max = 1,
                                     .eager_log2 = 14,
                                     .message_log2 = 26,
                                     .depth_in = 16,
                                     .depth_out = 16,
                                     .credits = 32};
}

static void req_encode(bench_state *state, void *arg) {
    (void)arg;
    struct private_data_req req = proposal();
    uint8_t bytes[PRIVATE_DATA_REQ_BYTES];
    while (bench_next(state)) {
        bench_keep(&req);
        private_data_req_encode(&req, bytes);
        bench_keep(bytes);
    }
}

static void req_decode(bench_state *state, void *arg) {
    (void)arg;
    struct private_data_req req = proposal(), out;
    uint8_t bytes[PRIVATE_DATA_REQ_BYTES];
    private_data_req_encode(&req, bytes);
    while (bench_next(state)) {
        bench_keep(bytes);
        if (private_data_req_decode(&out, bytes, sizeof bytes) != SLUICE_REASON_NONE) {
            bench_fail(state, "the private data does not decode");
            return;
        }
        bench_keep(&out);
    }
}

/* What a listener does with a proposal, and the dialer with the answer. */
static void negotiate(bench_state *state, void *arg) {
    (void)arg;
    struct private_data_req req = proposal(), own = proposal(), got;
    struct private_data_rep rep, back;
    uint8_t req_bytes[PRIVATE_DATA_REQ_BYTES], rep_bytes[196];
    memset(rep_bytes, 0, sizeof rep_bytes);
    while (bench_next(state)) {
        private_data_req_encode(&req, req_bytes);
        sluice_reason reason = private_data_req_decode(&got, req_bytes, sizeof req_bytes);
        if (reason == SLUICE_REASON_NONE)
            reason = private_data_decide(&rep, &got, &own);
        if (reason == SLUICE_REASON_NONE) {
            private_data_rep_encode(&rep, rep_bytes);
            reason = private_data_rep_decode(&back, rep_bytes, sizeof rep_bytes);
        }
        if (reason == SLUICE_REASON_NONE)
            reason = private_data_check(&back, &req);
        if (reason != SLUICE_REASON_NONE) {
            bench_fail(state, "the negotiation fails");
            return;
        }
        bench_keep(&back);
    }
}

static void rej_decode(bench_state *state, void *arg) {
    (void)arg;
    struct private_data_rej rej = {.reason = 5, .code = 1}, out;
    memset(rej.text, 'x', PRIVATE_DATA_REJ_TEXT);
    uint8_t bytes[148] = {0};
    private_data_rej_encode(&rej, bytes);
    while (bench_next(state)) {
        bench_keep(bytes);
        if (private_data_rej_decode(&out, bytes, sizeof bytes) != SLUICE_REASON_NONE) {
            bench_fail(state, "the private data does not decode");
            return;
        }
        bench_keep(&out);
    }
}

BENCH_SETUP {
    bench_register("private_data/req_encode", req_encode, NULL);
    bench_register("private_data/req_decode", req_decode, NULL);
    bench_register("private_data/rej_decode_120_bytes_of_text", rej_decode, NULL);
    bench_register("private_data/negotiate", negotiate, NULL);
}
