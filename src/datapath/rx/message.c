/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * message.c - the application's view of a message.
 *
 * The public message is the pool's control block. A thread that owns a loop of the message's node
 * takes buffers from and returns them to that loop's cache; any other goes to the shared lists.
 */
#include <errno.h>

#include "datapath/rx/message.h"
#include "datapath/rx/alloc_wait.h"
#include "datapath/loop/discard.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/retain.h"
#include "core/forked.h"
#include "pool/quick.h"

/* The loop this thread polled last, if it has a cache of this pool and is still its own. */
static inline struct sluice_loop *cache_enter(const struct pool *pool, bool *nested) {
    struct sluice_loop *l = loop_thread.current;
    if (!l || !loop_enter(l, nested))
        return NULL;
    if (l->pool == pool || l->rx_pool == pool)
        return l;
    loop_leave(l, *nested);
    return NULL;
}

static inline struct sluice_msg *get(struct pool *pool, size_t bytes) {
    bool nested;
    struct sluice_loop *l = cache_enter(pool, &nested);
    struct sluice_msg *msg = message_of(pool_get(pool, l ? l->cache : NULL, bytes));
    if (likely(l != NULL))
        loop_leave(l, nested); /* leaves errno alone */
    if (likely(msg != NULL))
        msg->state = MSG_APP;
    return msg;
}

struct sluice_msg *message_get(struct pool *pool, size_t bytes) {
    return get(pool, bytes);
}

/* On a thread that has polled a loop of the node last, and where a magazine of its cache has one. */
static inline struct sluice_msg *alloc_here(const sluice_node *n, size_t bytes) {
    struct sluice_loop *l = loop_thread.current;
    bool nested;
    if (unlikely(!l || l->node != n || bytes - 1 >= l->alloc_quick || !loop_enter(l, &nested)))
        return NULL;
    struct sluice_msg *msg = message_of(pool_get_quick(l->cache, bytes, MSG_APP));
    loop_leave(l, nested);
    return msg;
}

static __attribute__((noinline)) int alloc_other(sluice_node *n, size_t bytes, sluice_msg **out) {
    if (forked_node(n))
        return SLUICE_EFORKED;
    if (!n || !out)
        return SLUICE_EINVAL;
    if (atomic_load_explicit(&n->state, memory_order_relaxed) < NODE_OPEN)
        return SLUICE_ECLOSED;
    if (bytes > n->options.message_bytes_max)
        return SLUICE_EMSGSIZE;
    struct sluice_msg *msg = get(n->pool, bytes);
    if (unlikely(!msg))
        return errno == EMSGSIZE ? SLUICE_EMSGSIZE : alloc_wait_get(n, bytes, out);
    *out = msg;
    return SLUICE_OK;
}

/* Nearly always without a call, so that no register is saved for one. */
int sluice_alloc(sluice_node *n, size_t bytes, sluice_msg **out) {
    struct sluice_msg *msg = NULL;
    if (likely(out && forked_bits() == 0))
        msg = alloc_here(n, bytes);
    if (unlikely(!msg))
        return alloc_other(n, bytes, out);
    *out = msg;
    return SLUICE_OK;
}

void sluice_free(sluice_msg *msg) {
    if (!msg || forked_msg(msg))
        return;
    /* A loaned message comes back by itself; one that was sent or freed is not the caller's. */
    if (unlikely(msg->state != MSG_APP)) {
        pool_put_again(buffer_of(msg));
        return;
    }
    if (msg->flags & MSG_RETAINED) {
        retain_free(msg);
        return;
    }
    bool nested;
    struct sluice_loop *l = cache_enter(msg->pool, &nested);
    msg->state = MSG_FREE;
    if (!l) {
        pool_put(msg->pool, NULL, buffer_of(msg));
        return;
    }
    msg_discard(l, msg);
    loop_leave(l, nested);
}

void *sluice_data(const sluice_msg *msg) {
    return msg ? msg->data : NULL;
}

size_t sluice_size(const sluice_msg *msg) {
    return msg ? msg->size : 0;
}

void sluice_trim(sluice_msg *msg, size_t bytes) {
    if (msg && !forked_msg(msg) && bytes < msg->size)
        msg->size = bytes;
}

void sluice_keep(sluice_msg *msg) {
    if (msg && !forked_msg(msg) && msg->state == MSG_LOANED)
        event_retain(msg);
}
