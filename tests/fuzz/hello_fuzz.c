/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hello_fuzz.c - any bytes as the payload of a HELLO, with authentication and without: refused itself
 * and nothing written, or decoded without a read behind its end into what encodes to the same bytes.
 *
 * Input: one byte that says whether a proof was agreed on, then the payload.
 */
#include "core/auth/auth.h"
#include "fuzz/fuzz.h"

static bool is_zero(const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != 0)
            return false;
    return true;
}

/* Exactly as long as it is: the address sanitizer sees a read behind it. */
static sluice_reason decode(struct auth_hello *hello, const uint8_t *data, size_t bytes,
                            bool authenticated) {
    uint8_t *copy = malloc(bytes ? bytes : 1);
    PROVE(copy != NULL);
    memcpy(copy, data, bytes);
    sluice_reason reason = auth_hello_decode(hello, copy, bytes, authenticated);
    free(copy);
    return reason;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    struct auth_hello hello, before;
    uint8_t bytes[HELLO_BYTES_MAX];
    bool authenticated = fuzz_take(&in, 1) & 1;
    memset(&before, 0xa5, sizeof before);
    memcpy(&hello, &before, sizeof hello);
    sluice_reason reason = decode(&hello, in.at, in.left, authenticated);
    if (reason != SLUICE_REASON_NONE) {
        PROVE(memcmp(&hello, &before, sizeof hello) == 0);
        PROVE(reason == SLUICE_REASON_MALFORMED || reason == SLUICE_REASON_VALUE ||
              (reason == SLUICE_REASON_PROTOCOL && !authenticated));
        return 0;
    }
    PROVE(hello.private_bytes <= SLUICE_PRIVATE_MAX);
    PROVE(authenticated || is_zero(&hello.proof, sizeof hello.proof));
    PROVE(auth_hello_encode(&hello, bytes) == in.left);
    PROVE(memcmp(bytes, in.at, in.left) == 0);
    /* What was not said is nothing, and not what lay there before. */
    PROVE(is_zero(hello.private_data + hello.private_bytes,
                  sizeof hello.private_data - hello.private_bytes));
    return 0;
}
