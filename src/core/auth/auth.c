/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * auth.c - proofs and HELLO, see auth.h. The layout is in docs/protocol.md, section "Proofs".
 *
 * Owner: none, pure functions; any thread. The proof that is verified and the bytes of a HELLO are
 * hostile. Every change must keep this: the two roles derive different keys, and nothing derived
 * from a secret stays on the stack.
 */
#include "core/auth/auth.h"

#include <string.h>

#include <sodium.h>

#define NONCE_BYTES 16
#define REQ_NONCE_AT 40
#define REP_NONCE_AT 36

/* The context strings from which the keys of the two directions are derived. No terminator goes into the hash. */
static const char role_listener[] = "sluice 1 listener";
static const char role_dialer[] = "sluice 1 dialer";
static const char label_check[] = "check";
static const char label_mac[] = "mac";

#define TEXT(array) ((struct auth_piece){(array), sizeof(array) - 1})

_Static_assert(AUTH_HMAC_BYTES == crypto_auth_hmacsha256_BYTES, "what HMAC-SHA-256 returns");
_Static_assert(PRIVATE_DATA_MAC_BYTES == AUTH_HMAC_BYTES, "a MAC is not cut short");
_Static_assert(PRIVATE_DATA_CHECK_BYTES <= AUTH_HMAC_BYTES, "a check is the front of one");

bool auth_init(void) {
    return sodium_init() >= 0;
}

void auth_hmac(uint8_t out[AUTH_HMAC_BYTES], const void *key, size_t key_bytes,
               const struct auth_piece *pieces, size_t count) {
    crypto_auth_hmacsha256_state hash;
    crypto_auth_hmacsha256_init(&hash, key, key_bytes);
    for (size_t i = 0; i < count; i++)
        if (pieces[i].count > 0)
            crypto_auth_hmacsha256_update(&hash, pieces[i].bytes, pieces[i].count);
    crypto_auth_hmacsha256_final(&hash, out);
    sodium_memzero(&hash, sizeof hash);
}

/* ---- proofs ---------------------------------------------------------------------------------- */

#define COVERED_MAX 4 /* pieces behind the label of a MAC */

/* The proof of a role: its check over the nonces, its MAC over what is covered. */
static void prove(struct auth_proof *out, const struct auth_secret *secret, struct auth_piece role,
                  const uint8_t *req, const uint8_t *rep, const struct auth_piece *covered,
                  size_t count) {
    uint8_t key[AUTH_HMAC_BYTES], whole[AUTH_HMAC_BYTES];
    struct auth_piece pieces[1 + COVERED_MAX] = {
        TEXT(label_check),
        {req + REQ_NONCE_AT, NONCE_BYTES},
        {rep + REP_NONCE_AT, NONCE_BYTES},
    };
    auth_hmac(key, secret->bytes, secret->count, &role, 1);
    auth_hmac(whole, key, sizeof key, pieces, 3);
    memcpy(out->check, whole, sizeof out->check);
    pieces[0] = TEXT(label_mac);
    memcpy(pieces + 1, covered, count * sizeof *covered);
    auth_hmac(out->mac, key, sizeof key, pieces, 1 + count);
    sodium_memzero(key, sizeof key);
    sodium_memzero(whole, sizeof whole);
}

void auth_prove_listener(struct auth_proof *out, const struct auth_secret *secret,
                         const uint8_t req[PRIVATE_DATA_REQ_BYTES],
                         const uint8_t rep[PRIVATE_DATA_REP_BYTES]) {
    const struct auth_piece covered[] = {{req, PRIVATE_DATA_REQ_BYTES}, {rep, AUTH_REP_COVERED}};
    prove(out, secret, TEXT(role_listener), req, rep, covered, 2);
}

void auth_prove_dialer(struct auth_proof *out, const struct auth_secret *secret,
                       const uint8_t req[PRIVATE_DATA_REQ_BYTES],
                       const uint8_t rep[PRIVATE_DATA_REP_BYTES], const void *private_data,
                       uint32_t private_bytes) {
    const uint8_t length[4] = {(uint8_t)private_bytes, (uint8_t)(private_bytes >> 8),
                               (uint8_t)(private_bytes >> 16), (uint8_t)(private_bytes >> 24)};
    const struct auth_piece covered[COVERED_MAX] = {
        {req, PRIVATE_DATA_REQ_BYTES},
        {rep, PRIVATE_DATA_REP_BYTES},
        {length, sizeof length},
        {private_data, private_bytes},
    };
    prove(out, secret, TEXT(role_dialer), req, rep, covered, COVERED_MAX);
}

static sluice_reason verify(const struct auth_proof *proof, struct auth_proof *right) {
    bool check = sodium_memcmp(proof->check, right->check, sizeof right->check) == 0;
    bool mac = sodium_memcmp(proof->mac, right->mac, sizeof right->mac) == 0;
    sodium_memzero(right, sizeof *right); /* the right answer to a wrong one must not leak */
    if (!check)
        return SLUICE_REASON_AUTH_FAILED;
    return mac ? SLUICE_REASON_NONE : SLUICE_REASON_AUTH_ALTERED;
}

sluice_reason auth_verify_listener(const struct auth_proof *proof, const struct auth_secret *secret,
                                   const uint8_t req[PRIVATE_DATA_REQ_BYTES],
                                   const uint8_t rep[PRIVATE_DATA_REP_BYTES]) {
    struct auth_proof right;
    auth_prove_listener(&right, secret, req, rep);
    return verify(proof, &right);
}

sluice_reason auth_verify_dialer(const struct auth_proof *proof, const struct auth_secret *secret,
                                 const uint8_t req[PRIVATE_DATA_REQ_BYTES],
                                 const uint8_t rep[PRIVATE_DATA_REP_BYTES],
                                 const void *private_data, uint32_t private_bytes) {
    struct auth_proof right;
    auth_prove_dialer(&right, secret, req, rep, private_data, private_bytes);
    return verify(proof, &right);
}

/* ---- HELLO ----------------------------------------------------------------------------------- */

size_t auth_hello_encode(const struct auth_hello *hello, uint8_t out[HELLO_BYTES_MAX]) {
    memcpy(out + HELLO_CHECK_AT, hello->proof.check, PRIVATE_DATA_CHECK_BYTES);
    memcpy(out + HELLO_MAC_AT, hello->proof.mac, PRIVATE_DATA_MAC_BYTES);
    out[HELLO_LENGTH_AT] = (uint8_t)hello->private_bytes;
    out[HELLO_LENGTH_AT + 1] = (uint8_t)(hello->private_bytes >> 8);
    memcpy(out + HELLO_DATA_AT, hello->private_data, hello->private_bytes);
    return HELLO_DATA_AT + hello->private_bytes;
}

sluice_reason auth_hello_decode(struct auth_hello *hello, const void *data, size_t len,
                                bool authenticated) {
    uint8_t in[HELLO_BYTES_MAX]; /* a copy: the peer's device may write again where data is */
    if (!data || len < HELLO_BYTES_MIN)
        return SLUICE_REASON_MALFORMED;
    memcpy(in, data, len < sizeof in ? len : sizeof in);
    uint32_t private_bytes = (uint32_t)in[HELLO_LENGTH_AT] | (uint32_t)in[HELLO_LENGTH_AT + 1] << 8;
    if (len != HELLO_DATA_AT + private_bytes)
        return SLUICE_REASON_MALFORMED;
    if (private_bytes > SLUICE_PRIVATE_MAX)
        return SLUICE_REASON_VALUE;
    struct auth_hello got = {.private_bytes = private_bytes};
    memcpy(got.proof.check, in + HELLO_CHECK_AT, PRIVATE_DATA_CHECK_BYTES);
    memcpy(got.proof.mac, in + HELLO_MAC_AT, PRIVATE_DATA_MAC_BYTES);
    memcpy(got.private_data, in + HELLO_DATA_AT, private_bytes);
    if (!authenticated && !sodium_is_zero((const uint8_t *)&got.proof, sizeof got.proof))
        return SLUICE_REASON_PROTOCOL;
    *hello = got;
    return SLUICE_REASON_NONE;
}
