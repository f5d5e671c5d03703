/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * token.c - tokens as bytes, and back.
 *
 * The check value protects from mistakes (bytes of something else, a token cut short), not from malice:
 * a peer that can make one up can also compute it. Memory is kept safe by the device, which checks the keys.
 */
#include "core/wire/token.h"

#include <endian.h>
#include <string.h>

#define CHECK_FACTOR 0x9e3779b97f4a7c15u

/* Of 32 bytes: four words, big endian, the last of which is the check value. */
static uint64_t check_value(const uint64_t word[3]) {
    uint64_t h = 0;
    for (unsigned i = 0; i < 3; i++) {
        h = (h ^ be64toh(word[i])) * CHECK_FACTOR;
        h ^= h >> 32;
    }
    return h;
}

void token_put(sluice_token *out, const struct token *token) {
    uint64_t word[4];
    word[0] = htobe64((uint64_t)TOKEN_MAGIC << 48 | (uint64_t)TOKEN_VERSION << 40 |
                      (uint64_t)(token->rights & 0xff) << 32 | token->rkey);
    word[1] = htobe64(token->addr);
    word[2] = htobe64(token->bytes);
    word[3] = htobe64(check_value(word));
    memcpy(out->bytes, word, sizeof word);
}

bool token_get(struct token *out, const sluice_token *in) {
    uint64_t word[4];
    memcpy(word, in->bytes, sizeof word);
    uint64_t head = be64toh(word[0]), addr = be64toh(word[1]), bytes = be64toh(word[2]);
    uint32_t rights = (uint32_t)(head >> 32) & 0xff;
    if (head >> 40 != (TOKEN_MAGIC << 8 | TOKEN_VERSION) || be64toh(word[3]) != check_value(word))
        return false;
    if (rights == 0 || (rights & ~TOKEN_RIGHTS) || bytes == 0 || addr + (bytes - 1) < addr)
        return false;
    *out = (struct token){rights, (uint32_t)head, addr, bytes};
    return true;
}
