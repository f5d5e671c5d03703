/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * request.h - what the tests of requests share, on top of pair.h.
 */
#ifndef TESTS_SUPPORT_REQUEST_H
#define TESTS_SUPPORT_REQUEST_H

#include "support/pair.h"

/* Sends a request of that pattern; the status of sluice_request(). */
int pair_request(struct side *side, size_t bytes, unsigned seed, const sluice_send_options *o);
/* Replies with that pattern; the status of sluice_reply(). */
int pair_reply(struct side *side, uint64_t token, size_t bytes, unsigned seed);
/* Turns until the peer's device has what was posted, and its loop has looked at it. */
void pair_settle(struct pair *p);
/* Requests of the session without an outcome. */
uint32_t pair_in_flight(struct side *side);

#endif
