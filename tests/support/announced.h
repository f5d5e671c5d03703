/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* announced.h - a large message that b has announced to a and nobody has moved yet. One thread. */
#ifndef TESTS_SUPPORT_ANNOUNCED_H
#define TESTS_SUPPORT_ANNOUNCED_H

#include "support/pair.h"

/* From now on both ends announce what they would send in frames where nothing else is on its way. */
void announced_always(struct pair *p);
/* How many b has announced so far. */
uint64_t announced(struct pair *p);
/* Sends one of so many bytes and makes turns until it is announced, and a none. */
void announced_send(struct pair *p, uint32_t bytes);
/* announced_send(), read by a when its memory is gone, as with a killed process: that is the peer's end. */
void announced_lost(struct pair *p, uint32_t bytes);

#endif
