/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * private_data.c - encodes, decodes, decides and checks the negotiation records.
 *
 * Pure functions; callable from any thread. Decoders read nothing behind len, write their output
 * only on success, and test in a fixed order: magic, version, length, features, values, padding.
 * The version comes before the length because a later version may have another length.
 */
#include "core/wire/private_data.h"

#include <stdbool.h>
#include <string.h>

/* Common to all records: magic at 0, length at REQ 4, REP and REJ 3. See docs/protocol.md. */
enum { REQ_LENGTH_AT = 4, REP_LENGTH_AT = 3, REJ_LENGTH_AT = 3, REJ_TEXT_AT = 8 };

enum {
    EAGER_LOG2_MIN = 9,
    EAGER_LOG2_MAX = 16,
    MESSAGE_LOG2_MAX = 40,
    CREDITS_MIN = 4,
    CREDITS_MAX = 1024,
};

/* ---- little endian --------------------------------------------------------------------------- */

static void put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void put24(uint8_t *at, uint32_t value) {
    put16(at, value);
    at[2] = (uint8_t)(value >> 16);
}

static void put32(uint8_t *at, uint32_t value) {
    put16(at, value);
    put16(at + 2, value >> 16);
}

static uint16_t get16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t get24(const uint8_t *at) {
    return get16(at) | (uint32_t)at[2] << 16;
}

static uint32_t get32(const uint8_t *at) {
    return get16(at) | (uint32_t)get16(at + 2) << 16;
}

static bool all_zero(const uint8_t *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != 0)
            return false;
    return true;
}

static bool has_magic(const uint8_t *bytes, size_t len) {
    return bytes && len >= 2 && get16(bytes) == PRIVATE_DATA_MAGIC;
}

/* ---- encode ---------------------------------------------------------------------------------- */

void private_data_req_encode(const struct private_data_req *req,
                             uint8_t out[PRIVATE_DATA_REQ_BYTES]) {
    put16(out, PRIVATE_DATA_MAGIC);
    out[2] = req->version_min;
    out[3] = req->version_max;
    out[REQ_LENGTH_AT] = PRIVATE_DATA_REQ_BYTES;
    put24(out + 5, req->features);
    out[8] = req->eager_log2;
    out[9] = req->message_log2;
    out[10] = req->depth_in;
    out[11] = req->depth_out;
    put16(out + 12, req->credits);
    put16(out + 14, req->keepalive);
    memcpy(out + 16, req->session_id, 16);
    put32(out + 32, req->last_sequence);
    put32(out + 36, req->key_id);
    memcpy(out + 40, req->nonce, 16);
}

void private_data_rep_encode(const struct private_data_rep *rep,
                             uint8_t out[PRIVATE_DATA_REP_BYTES]) {
    put16(out, PRIVATE_DATA_MAGIC);
    out[2] = rep->version;
    out[REP_LENGTH_AT] = PRIVATE_DATA_REP_BYTES;
    put24(out + 4, rep->features);
    out[7] = 0;
    out[8] = rep->eager_log2;
    out[9] = rep->message_log2;
    out[10] = rep->depth_in;
    out[11] = rep->depth_out;
    put16(out + 12, rep->credits);
    put16(out + 14, rep->keepalive);
    memcpy(out + 16, rep->session_id, 16);
    put32(out + 32, rep->last_sequence);
    memcpy(out + 36, rep->nonce, 16);
    memcpy(out + 52, rep->mac, PRIVATE_DATA_MAC_BYTES);
    memcpy(out + 84, rep->check, PRIVATE_DATA_CHECK_BYTES);
}

size_t private_data_rej_encode(const struct private_data_rej *rej,
                               uint8_t out[PRIVATE_DATA_REJ_BYTES]) {
    size_t text = strnlen(rej->text, PRIVATE_DATA_REJ_TEXT);
    memset(out, 0, PRIVATE_DATA_REJ_BYTES);
    put16(out, PRIVATE_DATA_MAGIC);
    out[REJ_LENGTH_AT] = (uint8_t)(REJ_TEXT_AT + text);
    put16(out + 4, rej->reason);
    put16(out + 6, rej->code);
    memcpy(out + REJ_TEXT_AT, rej->text, text);
    return REJ_TEXT_AT + text;
}

/* ---- decode ---------------------------------------------------------------------------------- */

static bool limits_in_range(uint8_t eager_log2, uint8_t message_log2, uint16_t credits) {
    return eager_log2 >= EAGER_LOG2_MIN && eager_log2 <= EAGER_LOG2_MAX &&
           message_log2 >= eager_log2 && message_log2 <= MESSAGE_LOG2_MAX &&
           credits >= CREDITS_MIN && credits <= CREDITS_MAX;
}

static bool asks_too_much(uint32_t features) {
    return (features & PRIVATE_DATA_FEATURES_MUST & ~PRIVATE_DATA_FEATURES_KNOWN) != 0;
}

/* An authentication needs a key, a key an authentication, and both the frames that carry it. */
static bool features_fit(uint32_t features, uint32_t key_id) {
    bool hmac = features & PRIVATE_DATA_FEATURE_HMAC;
    return hmac == (key_id != 0) && (!hmac || (features & PRIVATE_DATA_FEATURE_HANDSHAKE));
}

sluice_reason private_data_req_decode(struct private_data_req *req, const void *data, size_t len) {
    const uint8_t *in = data;
    if (!has_magic(in, len))
        return SLUICE_REASON_NOT_SLUICE;
    if (len <= REQ_LENGTH_AT)
        return SLUICE_REASON_MALFORMED;
    uint8_t version_min = in[2], version_max = in[3];
    if (version_min == 0 || version_min > version_max)
        return SLUICE_REASON_VALUE;
    if (version_min > PRIVATE_DATA_VERSION_MAX || version_max < PRIVATE_DATA_VERSION_MIN)
        return SLUICE_REASON_VERSION;
    if (in[REQ_LENGTH_AT] != PRIVATE_DATA_REQ_BYTES || len < PRIVATE_DATA_REQ_BYTES)
        return SLUICE_REASON_MALFORMED;
    struct private_data_req got = {
        .version_min = version_min,
        .version_max = version_max,
        .features = get24(in + 5),
        .eager_log2 = in[8],
        .message_log2 = in[9],
        .depth_in = in[10],
        .depth_out = in[11],
        .credits = get16(in + 12),
        .keepalive = get16(in + 14),
        .last_sequence = get32(in + 32),
        .key_id = get32(in + 36),
    };
    memcpy(got.session_id, in + 16, 16);
    memcpy(got.nonce, in + 40, 16);
    if (asks_too_much(got.features))
        return SLUICE_REASON_UNSUPPORTED;
    if (!limits_in_range(got.eager_log2, got.message_log2, got.credits) ||
        !features_fit(got.features, got.key_id))
        return SLUICE_REASON_VALUE;
    if (!all_zero(in + PRIVATE_DATA_REQ_BYTES, len - PRIVATE_DATA_REQ_BYTES))
        return SLUICE_REASON_MALFORMED;
    *req = got;
    return SLUICE_REASON_NONE;
}

sluice_reason private_data_rep_decode(struct private_data_rep *rep, const void *data, size_t len) {
    const uint8_t *in = data;
    if (!has_magic(in, len))
        return SLUICE_REASON_NOT_SLUICE;
    if (len <= REP_LENGTH_AT)
        return SLUICE_REASON_MALFORMED;
    uint8_t version = in[2];
    if (version < PRIVATE_DATA_VERSION_MIN || version > PRIVATE_DATA_VERSION_MAX)
        return SLUICE_REASON_VERSION;
    if (in[REP_LENGTH_AT] != PRIVATE_DATA_REP_BYTES || len < PRIVATE_DATA_REP_BYTES)
        return SLUICE_REASON_MALFORMED;
    struct private_data_rep got = {
        .version = version,
        .features = get24(in + 4),
        .eager_log2 = in[8],
        .message_log2 = in[9],
        .depth_in = in[10],
        .depth_out = in[11],
        .credits = get16(in + 12),
        .keepalive = get16(in + 14),
        .last_sequence = get32(in + 32),
    };
    memcpy(got.session_id, in + 16, 16);
    memcpy(got.nonce, in + 36, 16);
    memcpy(got.mac, in + 52, PRIVATE_DATA_MAC_BYTES);
    memcpy(got.check, in + 84, PRIVATE_DATA_CHECK_BYTES);
    if (asks_too_much(got.features))
        return SLUICE_REASON_UNSUPPORTED;
    if (!limits_in_range(got.eager_log2, got.message_log2, got.credits))
        return SLUICE_REASON_VALUE;
    if (in[7] != 0 || !all_zero(in + PRIVATE_DATA_REP_BYTES, len - PRIVATE_DATA_REP_BYTES))
        return SLUICE_REASON_MALFORMED;
    *rep = got;
    return SLUICE_REASON_NONE;
}

/* Length of the well-formed UTF-8 character at in, 0 if there is none. Control characters of both
 * ranges count as none: the text of a peer ends up on a terminal. */
static size_t printable_length(const uint8_t *in, size_t left) {
    uint8_t lead = in[0];
    if (lead < 0x80)
        return lead >= 0x20 && lead != 0x7f;
    size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((in[i] & 0xc0) != 0x80)
            return 0;
    bool control = lead == 0xc2 && in[1] < 0xa0;
    bool overlong = (lead == 0xe0 && in[1] < 0xa0) || (lead == 0xf0 && in[1] < 0x90);
    return control || overlong ? 0 : length;
}

static void copy_printable(char *out, const uint8_t *in, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        size_t length = printable_length(in + at, bytes - at);
        if (length == 0)
            out[at++] = '?';
        for (; length > 0; length--, at++)
            out[at] = (char)in[at];
    }
}

sluice_reason private_data_rej_decode(struct private_data_rej *rej, const void *data, size_t len) {
    const uint8_t *in = data;
    if (!has_magic(in, len))
        return SLUICE_REASON_NOT_SLUICE;
    if (len < REJ_TEXT_AT)
        return SLUICE_REASON_MALFORMED;
    /* One layout for all protocol versions, so that a refusal for the version can be read. */
    if (in[2] != 0)
        return SLUICE_REASON_VERSION;
    size_t used = in[REJ_LENGTH_AT];
    if (used < REJ_TEXT_AT || used > PRIVATE_DATA_REJ_BYTES || used > len)
        return SLUICE_REASON_MALFORMED;
    if (!all_zero(in + used, len - used))
        return SLUICE_REASON_MALFORMED;
    struct private_data_rej got = {.reason = get16(in + 4), .code = get16(in + 6)};
    copy_printable(got.text, in + REJ_TEXT_AT, used - REJ_TEXT_AT);
    *rej = got;
    return SLUICE_REASON_NONE;
}

/* ---- decide and check ------------------------------------------------------------------------ */

static uint8_t smaller(uint8_t a, uint8_t b) {
    return a < b ? a : b;
}

/* Off if either side has it off, else the longer one: no side is asked for more than it offered. */
static uint16_t slower_keepalive(uint16_t a, uint16_t b) {
    if (a == 0 || b == 0)
        return 0;
    return a > b ? a : b;
}

sluice_reason private_data_decide(struct private_data_rep *rep, const struct private_data_req *req,
                                  const struct private_data_req *own) {
    uint8_t version = smaller(req->version_max, own->version_max);
    if (version < req->version_min || version < own->version_min)
        return SLUICE_REASON_VERSION;
    const uint32_t another = PRIVATE_DATA_FEATURE_RESUMES | PRIVATE_DATA_FEATURE_JOINS;
    if (req->features & another & ~own->features)
        return SLUICE_REASON_SESSION_UNKNOWN;
    if ((req->features & another) == another)
        return SLUICE_REASON_UNSUPPORTED;
    if (req->last_sequence != 0 && !(req->features & PRIVATE_DATA_FEATURE_RESUMES))
        return SLUICE_REASON_UNSUPPORTED;
    if ((own->features & PRIVATE_DATA_FEATURE_HMAC) && req->key_id == 0)
        return SLUICE_REASON_AUTH_REQUIRED;
    if (req->key_id != 0 && !(own->features & PRIVATE_DATA_FEATURE_HMAC))
        return SLUICE_REASON_AUTH_KEY;
    struct private_data_rep decided = {
        .version = version,
        .features = req->features & own->features,
        .eager_log2 = smaller(req->eager_log2, own->eager_log2),
        .message_log2 = smaller(req->message_log2, own->message_log2),
        .depth_in = smaller(own->depth_in, req->depth_out),
        .depth_out = smaller(own->depth_out, req->depth_in),
        .credits = own->credits,
        .keepalive = slower_keepalive(req->keepalive, own->keepalive),
    };
    memcpy(decided.session_id, req->session_id, sizeof decided.session_id);
    memcpy(decided.nonce, own->nonce, sizeof decided.nonce);
    *rep = decided;
    return SLUICE_REASON_NONE;
}

sluice_reason private_data_check(const struct private_data_rep *rep,
                                 const struct private_data_req *req) {
    if (rep->version < req->version_min || rep->version > req->version_max)
        return SLUICE_REASON_VERSION;
    if (rep->features & ~req->features)
        return SLUICE_REASON_UNSUPPORTED;
    if (req->features & ~rep->features & PRIVATE_DATA_FEATURE_HMAC)
        return SLUICE_REASON_AUTH_ALTERED; /* a party on the way removed the authentication */
    if (req->features & ~rep->features & PRIVATE_DATA_FEATURES_MUST)
        return SLUICE_REASON_UNSUPPORTED;
    if (rep->eager_log2 > req->eager_log2 || rep->message_log2 > req->message_log2 ||
        rep->depth_in > req->depth_out || rep->depth_out > req->depth_in)
        return SLUICE_REASON_VALUE;
    if (rep->keepalive != 0 && (req->keepalive == 0 || rep->keepalive < req->keepalive))
        return SLUICE_REASON_VALUE;
    /* The answer of another session, or of a resume or an authentication that we did not ask for. */
    if (memcmp(rep->session_id, req->session_id, sizeof rep->session_id) != 0 ||
        (!(req->features & PRIVATE_DATA_FEATURE_RESUMES) && rep->last_sequence != 0) ||
        (req->key_id == 0 &&
         !(all_zero(rep->mac, sizeof rep->mac) && all_zero(rep->check, sizeof rep->check))))
        return SLUICE_REASON_PROTOCOL;
    return SLUICE_REASON_NONE;
}
