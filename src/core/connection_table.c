/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connection_table.c - making connections and freeing them.
 *
 * One lock for all tables: it is held for a few instructions, once when a connection is made and once when it has ended.
 */
#include "core/connection_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/session_table.h"

static struct connection_table *tables[NODES_MAX]; /* under the lock; never freed */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void connection_table_fork(bool begins) {
    if (begins)
        pthread_mutex_lock(&lock);
    else
        pthread_mutex_unlock(&lock);
}

struct connection_table *connection_table_of(uint32_t node) {
    pthread_mutex_lock(&lock);
    struct connection_table *t = tables[node];
    if (!t)
        t = tables[node] = calloc(1, sizeof *t);
    pthread_mutex_unlock(&lock);
    return t;
}

struct connection *connection_make(struct connection_table *t, struct session *s) {
    uint32_t slot;
    pthread_mutex_lock(&lock);
    struct connection *c = slot_table_take(&t->slots, sizeof *c, NULL, &slot);
    pthread_mutex_unlock(&lock);
    if (!c)
        return NULL;
    uint64_t name = atomic_load_explicit(&c->name, memory_order_relaxed);
    if (name == 0) /* the first one in this slot */
        name = (uint64_t)slot << WR_SLOT_SHIFT | WR_SEND;
    memset(c, 0, offsetof(struct connection, name));
    memset((char *)c + offsetof(struct connection, sq), 0,
           sizeof *c - offsetof(struct connection, sq));
    atomic_store_explicit(&c->name, name, memory_order_relaxed);
    c->slot = slot;
    c->session = s;
    c->rx.queue = &c->recv.own;
    return c;
}

void connection_renew(struct connection *c) {
    uint64_t name = atomic_load_explicit(&c->name, memory_order_relaxed);
    atomic_store_explicit(&c->name, name + (1ull << WR_GENERATION_SHIFT), memory_order_relaxed);
}

void connection_free(struct connection_table *t, struct connection *c) {
    connection_renew(c);
    free(c->cm.places);
    c->cm.places = NULL;
    c->session = NULL;
    pthread_mutex_lock(&lock);
    slot_table_give(&t->slots, sizeof *c, c->slot);
    pthread_mutex_unlock(&lock);
}
