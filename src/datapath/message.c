/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * message.c - the application's view of a message.
 *
 * The public message is the pool's control block. A thread that owns a loop of the message's node
 * takes buffers from and returns them to that loop's cache; any other goes to the shared lists.
 */
#include <errno.h>

#include "datapath/post.h"
#include "node/node.h"

/* The cache of the loop this thread polled last, if it is one of this pool's and still its own. */
static struct sluice_loop *cache_enter(const struct pool *pool, bool *nested) {
    struct sluice_loop *l = loop_self.current;
    if (!l || !loop_enter(l, nested))
        return NULL;
    if (l->pool == pool)
        return l;
    loop_leave(l, *nested);
    return NULL;
}

int sluice_alloc(sluice_node *n, size_t bytes, sluice_msg **out) {
    if (forked())
        return SLUICE_EFORKED;
    if (!n || !out)
        return SLUICE_EINVAL;
    if (atomic_load_explicit(&n->state, memory_order_relaxed) < NODE_OPEN)
        return SLUICE_ECLOSED;
    if (bytes > n->options.message_bytes_max)
        return SLUICE_EMSGSIZE;
    bool nested;
    struct sluice_loop *l = cache_enter(n->pool, &nested);
    struct sluice_msg *msg = pool_get(n->pool, l ? l->cache : NULL, bytes);
    int error = msg ? 0 : errno;
    if (l)
        loop_leave(l, nested);
    if (!msg)
        return error == EMSGSIZE ? SLUICE_EMSGSIZE : SLUICE_ENOMEM;
    msg->state = MSG_APP;
    *out = msg;
    return SLUICE_OK;
}

void sluice_free(sluice_msg *msg) {
    /* A borrowed message comes back by itself; one that was sent is not the caller's. */
    if (!msg || forked() || msg->state != MSG_APP)
        return;
    bool nested;
    struct sluice_loop *l = cache_enter(msg->pool, &nested);
    msg->state = MSG_FREE;
    pool_put(msg->pool, l ? l->cache : NULL, msg);
    if (l)
        loop_leave(l, nested);
}

void *sluice_data(const sluice_msg *msg) {
    return msg ? msg->data : NULL;
}

size_t sluice_size(const sluice_msg *msg) {
    return msg ? msg->size : 0;
}

void sluice_trim(sluice_msg *msg, size_t bytes) {
    if (msg && !forked() && bytes < msg->size)
        msg->size = bytes;
}

void sluice_keep(sluice_msg *msg) {
    if (msg && !forked() && msg->state == MSG_BORROWED)
        event_unlend(msg);
}
