/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * listen.c - listeners: their table, their handles, their rdma_cm_id.
 *
 * One table a node index, allocated once and never freed; `word` holds generation and life, and
 * every step of a listener's life is a change of it, so a stale handle fails in one compare.
 *
 * When the device is gone the CM thread makes LOST of LISTENING, and the loop that tells the application
 * makes TOLD of that. The handle stays valid for queries until sluice_unlisten(). The fields of the event are read
 * under the node's lock, because the listener may be given back and taken again meanwhile.
 *
 * Owner: STARTING and FAILED, the thread in sluice_listen(); LISTENING, LOST and TOLD, no thread (atomic steps);
 * STOPPING, the CM thread. Only the CM thread touches the id.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/listen.h"
#include "cm/internal.h"
#include "core/auth/keyring.h"
#include "core/context.h"
#include "core/failure_text.h"
#include "core/session_table.h"

#define BACKLOG 1024

static struct cm_listener *_Atomic tables[NODES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void listeners_fork(bool begins) {
    if (begins)
        pthread_mutex_lock(&lock);
    else
        pthread_mutex_unlock(&lock);
}

static uint32_t life_of(uint64_t word) {
    return (uint32_t)word;
}

static uint64_t with_life(uint64_t word, enum listener_life life) {
    return (word & ~0xffffffffull) | (uint64_t)life;
}

/* ---- any thread ------------------------------------------------------------------------------ */

static struct cm_listener *table_of(uint32_t node) {
    struct cm_listener *table = atomic_load_explicit(&tables[node], memory_order_acquire);
    if (!table && (table = calloc(LISTENERS_MAX, sizeof *table))) {
        for (uint32_t i = 0; i < LISTENERS_MAX; i++) {
            table[i].slot = i;
            atomic_init(&table[i].word, 1ull << 32 | LISTENER_FREE);
        }
        atomic_store_explicit(&tables[node], table, memory_order_release);
    }
    return table;
}

struct cm_listener *listener_take(sluice_node *node) {
    struct cm_listener *found = NULL;
    pthread_mutex_lock(&lock);
    struct cm_listener *table = table_of(node->index);
    for (uint32_t i = 0; table && i < LISTENERS_MAX && !found; i++) {
        uint64_t word = atomic_load(&table[i].word);
        if (life_of(word) != LISTENER_FREE)
            continue;
        found = &table[i];
        found->owner = (struct cm_owner){.state = CM_IDLE, .listener = true};
        found->node = node;
        found->port = 0;
        found->os_errno = 0;
        found->reason = SLUICE_REASON_NONE;
        found->text[0] = 0;
        atomic_store(&found->word, with_life(word, LISTENER_STARTING));
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void listener_give_back(struct cm_listener *listener) {
    uint32_t next = (uint32_t)(atomic_load(&listener->word) >> 32) + 1;
    sluice_node *node = listener->node; /* another's, as soon as the place is free */
    node->upcalls->listener_put_loops(node, &listener->link);
    keyring_drop(listener->link.keys);
    listener->link.keys = NULL;
    pthread_mutex_lock(&node->lock); /* no thread reads the link any more */
    atomic_store(&listener->word, (uint64_t)(next ? next : 1) << 32 | LISTENER_FREE);
    pthread_mutex_unlock(&node->lock);
}

static bool is_stoppable(uint64_t word) {
    uint32_t life = life_of(word);
    return life == LISTENER_LISTENING || life == LISTENER_LOST || life == LISTENER_TOLD;
}

struct cm_listener *listener_find(uint64_t id, enum listener_life *life) {
    uint32_t node = (uint32_t)(id >> 56), slot = ((uint32_t)(id >> 32) & 0xffffff) ^ LISTENER_SLOT;
    if (node >= NODES_MAX || slot >= LISTENERS_MAX)
        return NULL;
    struct cm_listener *table = atomic_load_explicit(&tables[node], memory_order_acquire);
    if (!table)
        return NULL;
    uint64_t word = atomic_load(&table[slot].word);
    *life = (enum listener_life)life_of(word);
    return (uint32_t)(word >> 32) == (uint32_t)id && is_stoppable(word) ? &table[slot] : NULL;
}

uint64_t listener_handle(struct cm_listener *listener) {
    return session_handle_make(listener->node->index, LISTENER_SLOT | listener->slot,
                               (uint32_t)(atomic_load(&listener->word) >> 32));
}

void listener_stop(struct cm_listener *listener, uint32_t generation) {
    uint64_t word = atomic_load(&listener->word);
    do
        if ((uint32_t)(word >> 32) != generation || !is_stoppable(word))
            return;
    while (
        !atomic_compare_exchange_weak(&listener->word, &word, with_life(word, LISTENER_STOPPING)));
    mailbox_post(&listener->node->cm_mailbox, &listener->item, CM_MSG_UNLISTEN, listener->slot,
                 generation);
}

/* ---- the loop that tells ----------------------------------------------------------------------- */

/* The loop that delivers a listener's event: the first of several, or without one the node's first worker. */
static const struct sluice_loop *told_by(const struct cm_listener *listener) {
    const struct link_config *link = &listener->link;
    if (link->loop)
        return link->loop;
    return link->loop_count > 0 ? link->loops[0] : listener->node->workers[0].loop;
}

/* Under the node's lock. */
static enum listener_news end_of(struct cm_listener *listener, const struct sluice_loop *l,
                                 bool array, bool handlers, struct listener_end *out) {
    uint64_t word = atomic_load(&listener->word);
    if (life_of(word) != LISTENER_LOST || told_by(listener) != l)
        return LISTENERS_TOLD;
    const struct link_config *link = &listener->link;
    if (!(link->handler ? handlers : array))
        return LISTENERS_WAIT;
    *out = (struct listener_end){.id = listener_handle(listener),
                                 .handler = link->handler,
                                 .handler_arg = link->handler_arg,
                                 .arg = link->arg};
    /* Else the application has just stopped it, and gets no event. */
    return atomic_compare_exchange_strong(&listener->word, &word, with_life(word, LISTENER_TOLD))
               ? LISTENERS_NEXT
               : LISTENERS_TOLD;
}

enum listener_news listener_next_end(sluice_node *node, const struct sluice_loop *l, bool array,
                                     bool handlers, struct listener_end *out) {
    struct cm_listener *table = atomic_load(&tables[node->index]);
    enum listener_news news = LISTENERS_TOLD;
    pthread_mutex_lock(&node->lock);
    for (uint32_t i = 0; table && i < LISTENERS_MAX && news != LISTENERS_NEXT; i++) {
        enum listener_news one = end_of(&table[i], l, array, handlers, out);
        news = one > news ? one : news;
    }
    pthread_mutex_unlock(&node->lock);
    return news;
}

/* ---- CM thread ------------------------------------------------------------------------------- */

static void settle(struct cm_listener *listener, enum listener_life life) {
    sluice_node *n = listener->node;
    pthread_mutex_lock(&n->lock);
    atomic_store(&listener->word, with_life(atomic_load(&listener->word), life));
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void refuse(struct cm_listener *listener, sluice_reason reason, int error,
                   const char *text) {
    char address[64];
    if (listener->address.any.sa_family == AF_INET &&
        listener->address.v4.sin_addr.s_addr == htonl(INADDR_ANY)) /* as it is asked for */
        snprintf(address, sizeof address, "*:%u", ntohs(listener->address.v4.sin_port));
    else
        address_format(&listener->address.any, address);
    snprintf(listener->text, sizeof listener->text, "cannot listen at %s: %s", address, text);
    listener->reason = reason;
    listener->os_errno = error;
    if (listener->owner.id)
        listener->node->fabric->destroy_id(listener->owner.id);
    listener->owner.id = NULL;
    listener->owner.state = CM_IDLE;
    settle(listener, LISTENER_FAILED);
}

/* The address is not to be had, or the call says nothing of it. */
static void refuse_address(struct cm_listener *listener, int error) {
    char text[96];
    failure_text_of_bind(text, sizeof text, &listener->address.any, error);
    refuse(listener, failure_text_reason_of_bind(error), error, text);
}

void cm_listen(struct cm *cm, struct cm_listener *listener) {
    cm_assert_thread(cm);
    const struct fabric_ops *fabric = cm->node->fabric;
    struct cm_owner *owner = &listener->owner;
    if (cm->device_lost) {
        refuse(listener, SLUICE_REASON_DEVICE_REMOVED, 0, DEVICE_LOST_TEXT);
        return;
    }
    if (fabric->create_id(cm->channel, &owner->id, owner, RDMA_PS_TCP) != 0) {
        int error = errno;
        owner->id = NULL;
        refuse(listener, failure_text_reason_of_bind(error), error, strerror(error));
        return;
    }
    const char *refused = cm_set_options(cm, owner->id, &listener->link, true);
    if (refused) {
        int error = errno;
        char text[96];
        snprintf(text, sizeof text, "%s cannot be set: %s", refused, strerror(error));
        refuse(listener, SLUICE_REASON_DEVICE_ERROR, error, text);
        return;
    }
    if (fabric->bind_addr(owner->id, &listener->address.any) != 0) {
        refuse_address(listener, errno);
        return;
    }
    if (owner->id->verbs && !cm_same_device(cm, owner->id)) {
        refuse(listener, SLUICE_REASON_WRONG_DEVICE, 0, "it belongs to another device");
        return;
    }
    owner->state = CM_LISTENING; /* requests may come before listen() returns */
    if (fabric->listen(owner->id, BACKLOG) != 0) {
        refuse_address(listener, errno);
        return;
    }
    listener->port = ntohs(fabric->get_src_port(owner->id));
    stats_add(&cm->stats->listeners, 1);
    settle(listener, LISTENER_LISTENING);
}

static void close_listener(struct cm *cm, struct cm_listener *listener) {
    if (!listener->owner.id)
        return;
    /* Requests the event channel still has are refused by this. */
    cm->node->fabric->destroy_id(listener->owner.id);
    listener->owner.id = NULL;
    listener->owner.state = CM_IDLE;
    stats_add(&cm->stats->listeners, (uint64_t)-1);
}

void cm_unlisten(struct cm *cm, struct cm_listener *listener) {
    cm_assert_thread(cm);
    struct cm_conn *conn, *next;
    cds_list_for_each_entry_safe(conn, next, &cm->conns, link) {
        if (conn->listener != listener)
            continue;
        conn->listener = NULL;
        if (conn->owner.state == CM_AWAITING_APP || conn->owner.state == CM_QUEUED)
            cm_fail(cm, conn, SLUICE_REASON_NO_LISTENER, 0, "the listener was closed");
    }
    close_listener(cm, listener);
    listener_give_back(listener);
}

/* The handles stay valid until sluice_unlisten(); no peer is accepted any more. */
void cm_listeners_lost(struct cm *cm) {
    cm_assert_thread(cm);
    struct cm_listener *table = atomic_load(&tables[cm->node->index]);
    for (uint32_t i = 0; table && i < LISTENERS_MAX; i++) {
        if (table[i].owner.state != CM_LISTENING)
            continue;
        close_listener(cm, &table[i]);
        uint64_t word = atomic_load(&table[i].word);
        if (life_of(word) == LISTENER_LISTENING) /* else it is being stopped: UNLISTEN is coming */
            atomic_compare_exchange_strong(&table[i].word, &word, with_life(word, LISTENER_LOST));
    }
}

void cm_unlisten_all(struct cm *cm) {
    struct cm_listener *table = atomic_load(&tables[cm->node->index]);
    for (uint32_t i = 0; table && i < LISTENERS_MAX; i++) {
        uint64_t word = atomic_load(&table[i].word);
        if (is_stoppable(word))
            listener_stop(&table[i], (uint32_t)(word >> 32));
    }
}

struct cm_listener *cm_listener_at(struct cm *cm, uint32_t slot) {
    cm_assert_thread(cm);
    return &atomic_load(&tables[cm->node->index])[slot];
}

void cm_on_listener_removal(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    (void)owner, (void)event; /* listeners of other devices are refused, so it is the node's */
    cm_device_lost(cm);
}
