/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * token.h - the 32 bytes that name memory to a peer. docs/protocol.md holds the byte table.
 *
 * A token from the application may have been changed by its maker, or on its way: it is read once
 * into a private copy, and only a copy that passed every check is used. Pure functions, any thread.
 */
#ifndef CORE_WIRE_TOKEN_H
#define CORE_WIRE_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/memory.h>

#define TOKEN_MAGIC 0x5354u /* the characters ST */
#define TOKEN_VERSION 1u
#define TOKEN_RIGHTS (SLUICE_MAY_READ | SLUICE_MAY_WRITE | SLUICE_MAY_ATOMIC)

struct token {
    uint32_t rights, rkey;
    uint64_t addr, bytes;
};

void token_put(sluice_token *out, const struct token *token);
/* False: this is no token, and *out is not touched. */
bool token_get(struct token *out, const sluice_token *in);

#endif
