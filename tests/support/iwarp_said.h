/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_said.h - a stream of iWARP for tests, frame behind frame. One thread.
 */
#ifndef TESTS_SUPPORT_IWARP_SAID_H
#define TESTS_SUPPORT_IWARP_SAID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/iwarp/ddp.h"

#define IWARP_SAID_STREAM 65536u
#define IWARP_SAID_DATA 3000u /* bytes of a message of several segments */

struct iwarp_said {
    uint8_t stream[IWARP_SAID_STREAM];
    size_t bytes;
    uint8_t data[IWARP_SAID_DATA];
};

void iwarp_say_begin(struct iwarp_said *s);
void iwarp_say(struct iwarp_said *s, struct iwarp_ddp ddp, const void *payload, size_t bytes);
/* A segment of one of SEND, with the data from mo on. */
void iwarp_say_send(struct iwarp_said *s, uint8_t opcode, uint32_t msn, uint32_t stag, uint32_t mo,
                    size_t bytes, bool last);
/* A segment of a WRITE or of a response, which begins at that offset, with the data from `at` on. */
void iwarp_say_tagged(struct iwarp_said *s, uint8_t opcode, uint32_t stag, uint64_t offset,
                      uint32_t at, size_t bytes, bool last);
/* An untagged message of one segment. */
void iwarp_say_own(struct iwarp_said *s, uint8_t opcode, uint32_t msn, const void *payload,
                   size_t bytes);

#endif
