/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * token_fuzz.c - any bytes as a token: no token and nothing written, or values that a token may have and
 * that encode to the same bytes.
 *
 * Input: one byte that says whether the check value is put right, then the token. Without that the fuzzer
 * would hardly ever get past it.
 */
#include "core/wire/token.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    struct token token, before;
    sluice_token given = {{0}}, again;
    bool right = fuzz_take(&in, 1) & 1;
    memcpy(given.bytes, in.at, in.left < sizeof given.bytes ? in.left : sizeof given.bytes);
    if (right) { /* of the values as they are, possible or not; magic and version are then right too */
        uint64_t addr = 0, bytes = 0;
        for (unsigned i = 0; i < 8; i++) {
            addr = addr << 8 | given.bytes[8 + i];
            bytes = bytes << 8 | given.bytes[16 + i];
        }
        uint32_t rkey = (uint32_t)given.bytes[4] << 24 | (uint32_t)given.bytes[5] << 16 |
                        (uint32_t)given.bytes[6] << 8 | given.bytes[7];
        token_put(&given, &(struct token){given.bytes[3], rkey, addr, bytes});
    }
    memset(&before, 0xa5, sizeof before);
    memcpy(&token, &before, sizeof token);
    if (!token_get(&token, &given)) {
        PROVE(memcmp(&token, &before, sizeof token) == 0);
        return 0;
    }
    PROVE(token.rights != 0 && (token.rights & ~TOKEN_RIGHTS) == 0);
    PROVE(token.bytes > 0 && token.bytes - 1 <= UINT64_MAX - token.addr);
    token_put(&again, &token);
    PROVE(memcmp(&again, &given, sizeof given) == 0);
    return 0;
}
