/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* discard.h - a message that the data path is done with goes back to its pool. Owner: the thread that owns the loop. */
#ifndef DATAPATH_LOOP_DISCARD_H
#define DATAPATH_LOOP_DISCARD_H

#include "datapath/loop/loop.h"
#include "pool/quick.h"

/* A message that the data path is done with, and that has no outcome. */
static inline void msg_discard(struct sluice_loop *l, struct sluice_msg *msg) {
    msg->state = MSG_FREE;
    pool_put(msg->pool, msg->pool == l->pool ? l->cache : l->rx_cache, buffer_of(msg));
}

/* msg_discard() inline, for the path of every message. */
static inline void msg_discard_quick(struct sluice_loop *l, struct sluice_msg *msg) {
    struct pool_cache *cache = msg->pool == l->pool ? l->cache : l->rx_cache;
    msg->state = MSG_FREE;
    if (likely(pool_put_quick(cache, buffer_of(msg))))
        pool_look(msg->pool, cache);
    else
        pool_put(msg->pool, cache, buffer_of(msg));
}

#endif
