/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * region_exchange.h - how processes of one user map each other's regions: the memory that its owner registers from
 * (object/mr.h), of which a peer is told with a descriptor.
 *
 * Control lock for all of it. Owner: the engine.
 */
#ifndef SOFT_RC_REGION_EXCHANGE_H
#define SOFT_RC_REGION_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_peer;

/* A region of ours is there, or not any more; or was announced before and may be written by peers now. */
void soft_region_exchange_added(int index);
void soft_region_exchange_removed(int index);
void soft_region_exchange_writable(int index);
/* The peer has greeted, and learns of our regions. */
void soft_region_exchange_announce(struct soft_peer *peer);
/* SOFT_MSG_REGION, _OK or _DROP. file: what came with it, or NULL; -1 afterwards if it is kept. */
void soft_region_exchange_on_message(struct soft_peer *peer, uint32_t type, const void *data,
                                     size_t bytes, int *file);
/* The peer's region is not mapped any more. in_use: a thread may be inside of it. */
void soft_region_exchange_drop(struct soft_peer *peer, uint32_t index, bool in_use);
void soft_region_exchange_forked(void);

#endif
