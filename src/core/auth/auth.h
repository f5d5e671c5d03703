/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * auth.h - proofs of identity that two sides with a common secret send each other, and HELLO, the
 * frame that carries the dialer's proof. docs/protocol.md has every byte, docs/security.md the
 * protection it gives.
 *
 * A proof has two parts. The check covers the two nonces and nothing else, so it shows whether the
 * other side has the key at all; the MAC covers all that was negotiated, so it shows whether that
 * was changed on its way. The listener and the dialer use different keys, both derived from the
 * secret, so a proof of one side cannot be sent back to it as the other side's.
 *
 * Pure functions over bytes, from any thread: no state, no allocation, derived keys are wiped. The
 * time a verification takes depends on lengths, never on the secret or on how much is right.
 */
#ifndef CORE_AUTH_AUTH_H
#define CORE_AUTH_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/sluice.h>

#include "core/wire/private_data.h"

#define AUTH_HMAC_BYTES 32
#define AUTH_REP_COVERED 52 /* of the REP, what the listener's MAC covers: all in front of it */

struct auth_proof {
    uint8_t check[PRIVATE_DATA_CHECK_BYTES];
    uint8_t mac[PRIVATE_DATA_MAC_BYTES];
};

/* A secret as keyring_find() returns it. */
struct auth_secret {
    const uint8_t *bytes;
    uint32_t count; /* SLUICE_SECRET_MIN..SLUICE_SECRET_MAX */
};

/* Makes the cryptographic library ready; again and again is fine. False: it cannot be used. */
bool auth_init(void);

/* HMAC-SHA-256 over up to three pieces that follow each other; a piece of no bytes may be NULL. */
struct auth_piece {
    const void *bytes;
    size_t count;
};
void auth_hmac(uint8_t out[AUTH_HMAC_BYTES], const void *key, size_t key_bytes,
               const struct auth_piece *pieces, size_t count);

/* The listener's proof; of the REP only the first AUTH_REP_COVERED bytes are read. */
void auth_prove_listener(struct auth_proof *out, const struct auth_secret *secret,
                         const uint8_t req[PRIVATE_DATA_REQ_BYTES],
                         const uint8_t rep[PRIVATE_DATA_REP_BYTES]);

/* The dialer's, over the whole REP, the listener's proof included, and its own private data. */
void auth_prove_dialer(struct auth_proof *out, const struct auth_secret *secret,
                       const uint8_t req[PRIVATE_DATA_REQ_BYTES],
                       const uint8_t rep[PRIVATE_DATA_REP_BYTES], const void *private_data,
                       uint32_t private_bytes);

/*
 * NONE: the proof is good. AUTH_FAILED: the check is wrong, the other side does not have the key.
 * AUTH_ALTERED: the check is right and the MAC is not. Both are always computed.
 */
sluice_reason auth_verify_listener(const struct auth_proof *proof, const struct auth_secret *secret,
                                   const uint8_t req[PRIVATE_DATA_REQ_BYTES],
                                   const uint8_t rep[PRIVATE_DATA_REP_BYTES]);
sluice_reason auth_verify_dialer(const struct auth_proof *proof, const struct auth_secret *secret,
                                 const uint8_t req[PRIVATE_DATA_REQ_BYTES],
                                 const uint8_t rep[PRIVATE_DATA_REP_BYTES],
                                 const void *private_data, uint32_t private_bytes);

/* ---- HELLO ----------------------------------------------------------------------------------- */

#define HELLO_CHECK_AT 0
#define HELLO_MAC_AT 16
#define HELLO_LENGTH_AT 48
#define HELLO_DATA_AT 50
#define HELLO_BYTES_MIN HELLO_DATA_AT
#define HELLO_BYTES_MAX (HELLO_DATA_AT + SLUICE_PRIVATE_MAX) /* fits the smallest frame */

struct auth_hello {
    struct auth_proof proof; /* zero without authentication */
    uint32_t private_bytes;  /* 0..SLUICE_PRIVATE_MAX */
    uint8_t private_data[SLUICE_PRIVATE_MAX];
};

/* Returns the bytes used. */
size_t auth_hello_encode(const struct auth_hello *hello, uint8_t out[HELLO_BYTES_MAX]);
/*
 * The payload of a HELLO, len bytes. MALFORMED: its length is not what it says; VALUE: more private
 * data than there may be; PROTOCOL: a proof where none was agreed (authenticated false). The output
 * is written only on success. With authentication the proof is still to be verified.
 */
sluice_reason auth_hello_decode(struct auth_hello *hello, const void *data, size_t len,
                                bool authenticated);

#endif
