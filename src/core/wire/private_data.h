/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * private_data.h - the negotiation records that ride in rdma_cm private data, byte by byte.
 *
 * REQ 56 bytes (proposal), REP 100 (decision), REJ 8 to 128 (refusal); all multi-byte fields little
 * endian; unused bytes zero. The layout is documented in docs/protocol.md. Pure functions over
 * bytes: no state, no allocation, safe on hostile input of any length.
 */
#ifndef CORE_WIRE_PRIVATE_DATA_H
#define CORE_WIRE_PRIVATE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

#define PRIVATE_DATA_MAGIC 0x4c53u /* "SL" */
#define PRIVATE_DATA_VERSION_MIN 1
#define PRIVATE_DATA_VERSION_MAX 1
#define PRIVATE_DATA_REQ_BYTES 56
#define PRIVATE_DATA_REP_BYTES 100 /* used part; rdma_cm pads to 196 with zeros */
#define PRIVATE_DATA_REJ_BYTES 128 /* used part, at most; fits 148 */
#define PRIVATE_DATA_REJ_TEXT 120

/*
 * Features, 24 bits. A proposal's unknown bits of the lower 16 are left out of the decision; one of the
 * upper 8 must be understood, else the proposal is refused (UNSUPPORTED).
 */
#define PRIVATE_DATA_FEATURE_PROBE                                                                 \
    (1u << 0) /* HELLO and WELCOME name a byte of their sender's that the other may READ */
#define PRIVATE_DATA_FEATURE_ENDED                                                                 \
    (1u << 1) /* a side that hangs up answers what it was asked with the code ENDED */
#define PRIVATE_DATA_FEATURE_NUMBERS (1u << 2) /* there are 32 rendezvous numbers and not 16 */
#define PRIVATE_DATA_FEATURE_SHARED (1u << 3)  /* a large message may be named that both can map */
#define PRIVATE_DATA_FEATURE_ANSWERS (1u << 4) /* an RTS may answer others, and one ATS several */
#define PRIVATE_DATA_FEATURE_PIECES                                                                \
    (1u << 5) /* a request or a reply may be cut into frames, as a message may */
#define PRIVATE_DATA_FEATURE_RESUME                                                                \
    (1u                                                                                            \
     << 6) /* a frame is its receiver's when it is acknowledged; the sender keeps it until then */
#define PRIVATE_DATA_FEATURE_AGAIN                                                                 \
    (1u << 7) /* with RESUME: a large message whose connection was lost is announced again */
#define PRIVATE_DATA_FEATURE_MOVE                                                                  \
    (1u << 8) /* with RESUME: a session may go on over a connection that was made beside its own */
#define PRIVATE_DATA_FEATURE_HANDSHAKE                                                             \
    (1u << 16) /* the dialer's first frame is HELLO, the answer WELCOME */
#define PRIVATE_DATA_FEATURE_HMAC                                                                  \
    (1u << 17) /* both sides prove with HMAC-SHA-256 that they have key_id */
#define PRIVATE_DATA_FEATURE_RESUMES                                                               \
    (1u << 18) /* a connection for the session with this id, which both sides have */
#define PRIVATE_DATA_FEATURE_JOINS                                                                 \
    (1u << 19) /* a connection beside that of the session with this id, which goes on over it */
#define PRIVATE_DATA_FEATURES_MUST 0xff0000u
#define PRIVATE_DATA_FEATURES_KNOWN                                                                \
    (PRIVATE_DATA_FEATURE_HANDSHAKE | PRIVATE_DATA_FEATURE_HMAC | PRIVATE_DATA_FEATURE_RESUMES |   \
     PRIVATE_DATA_FEATURE_JOINS)
#define PRIVATE_DATA_REJ_WANTS_HANDSHAKE 1u /* which the listener cannot do without */
#define PRIVATE_DATA_CHECK_BYTES 16
#define PRIVATE_DATA_MAC_BYTES 32
#define PRIVATE_DATA_KEEPALIVE_NS 10000000ull /* unit of the keepalive interval */

struct private_data_req {
    uint8_t version_min, version_max;
    uint32_t features;           /* 24 bits */
    uint8_t eager_log2;          /* frame bytes, header included: 9..16 */
    uint8_t message_log2;        /* largest message: eager..40 */
    uint8_t depth_in, depth_out; /* one-sided depths, from the sender's point of view */
    uint16_t credits;            /* receives the sender of the record posts: 4..1024 */
    uint16_t keepalive;          /* 10 ms units, 0 = off */
    uint8_t session_id[16];
    uint32_t last_sequence; /* with RESUMES: of the frames received; else 0 */
    uint32_t key_id;        /* authentication; 0 = none */
    uint8_t nonce[16];
};

struct private_data_rep {
    uint8_t version;
    uint32_t features;
    uint8_t eager_log2, message_log2, depth_in, depth_out;
    uint16_t credits; /* receives the listener's side posts */
    uint16_t keepalive;
    uint8_t session_id[16];
    uint32_t last_sequence;
    uint8_t nonce[16];
    /* the listener's proof (auth.h); zero without authentication */
    uint8_t mac[PRIVATE_DATA_MAC_BYTES];
    uint8_t check[PRIVATE_DATA_CHECK_BYTES];
};

struct private_data_rej {
    uint16_t reason; /* sluice_reason of the refusing side */
    uint16_t code;   /* application's code with REASON_REFUSED; or the next, with UNSUPPORTED */
    char text[PRIVATE_DATA_REJ_TEXT + 1];
};

/* Write exactly RECORD_*_BYTES into out. rej: returns the bytes used. */
void private_data_req_encode(const struct private_data_req *req,
                             uint8_t out[PRIVATE_DATA_REQ_BYTES]);
void private_data_rep_encode(const struct private_data_rep *rep,
                             uint8_t out[PRIVATE_DATA_REP_BYTES]);
size_t private_data_rej_encode(const struct private_data_rej *rej,
                               uint8_t out[PRIVATE_DATA_REJ_BYTES]);

/*
 * Decode len bytes of private data (longer is fine when the rest is zero padding). Return
 * SLUICE_REASON_NONE and fill the output, or the reason: NOT_SLUICE (magic, too short to tell),
 * MALFORMED (length field, padding), VERSION (no overlap), UNSUPPORTED (feature that must be
 * understood), VALUE (range).
 * The output is written only on success.
 */
sluice_reason private_data_req_decode(struct private_data_req *req, const void *data, size_t len);
sluice_reason private_data_rep_decode(struct private_data_rep *rep, const void *data, size_t len);
sluice_reason private_data_rej_decode(struct private_data_rej *rej, const void *data, size_t len);

/* The listener's decision: the common subset of a proposal and its own limits (as a proposal). */
sluice_reason private_data_decide(struct private_data_rep *rep, const struct private_data_req *req,
                                  const struct private_data_req *own);
/* The dialer's check that the decision lies within what it proposed. */
sluice_reason private_data_check(const struct private_data_rep *rep,
                                 const struct private_data_req *req);

#endif
