/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * replay.h - a memory of the tags that were used last, so that one is not used twice.
 *
 * It holds the last REPLAY_TAGS different tags; the oldest makes room for the next. A tag should be
 * proven before it is put in (the nonce of a dialer whose proof was good), else any peer could
 * fill the memory and make it forget.
 *
 * Any thread, one lock inside, held for a few loads: twice a connection, never for a message. No
 * allocation after opening.
 */
#ifndef CORE_AUTH_REPLAY_H
#define CORE_AUTH_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"

#define REPLAY_TAGS 4096u
#define REPLAY_TAG_BYTES 16u

struct replay;

/* NULL: no memory, or no random numbers. The random numbers of the environment key the hash. */
struct replay *replay_open(const struct sluice_env *env);
void replay_close(struct replay *replay); /* NULL is fine */

/* Whether the tag is remembered; changes nothing. */
bool replay_seen(struct replay *replay, const uint8_t tag[REPLAY_TAG_BYTES]);
/* Remembers the tag. True: it was there already, of two threads exactly one gets false. */
bool replay_add(struct replay *replay, const uint8_t tag[REPLAY_TAG_BYTES]);

#endif
