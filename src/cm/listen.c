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

void cm_listener_address(const struct cm_listener *listener, char out[64]) {
    if (listener->everywhere)
        snprintf(out, 64, "*:%u", ntohs(listener->address.v4.sin_port));
    else
        address_format(&listener->address.any, out);
}

struct refusal {
    sluice_reason reason;
    int error;
    char text[96];
};

static struct refusal refusal(sluice_reason reason, int error, const char *text) {
    struct refusal why = {.reason = reason, .error = error};
    snprintf(why.text, sizeof why.text, "%s", text);
    return why;
}

/* The address is not to be had, or the call says nothing of it. */
static struct refusal refusal_of_address(const struct cm_listener *listener, int error) {
    struct refusal why = {.reason = failure_text_reason_of_bind(error), .error = error};
    failure_text_of_bind(why.text, sizeof why.text, &listener->address.any, error);
    return why;
}

static void drop_id(struct cm *cm, struct cm_listener *listener) {
    if (listener->owner.id)
        cm->node->fabric->destroy_id(listener->owner.id);
    listener->owner.id = NULL;
    listener->owner.state = CM_IDLE;
}

/*
 * [::] takes IPv4 as well, whatever the system's choice is (net.ipv6.bindv6only). Where that cannot be said it is as
 * the stack has it; "*" is of IPv4 then, for which it was asked, too.
 */
static bool takes_both(struct cm *cm, const struct cm_listener *listener) {
    int only = 0;
    bool any = listener->address.any.sa_family == AF_INET6 &&
               IN6_IS_ADDR_UNSPECIFIED(&listener->address.v6.sin6_addr);
    return !any || cm->node->fabric->set_option(listener->owner.id, RDMA_OPTION_ID,
                                                RDMA_OPTION_ID_AFONLY, &only, sizeof only) == 0;
}

/* Reason NONE: it listens. */
static struct refusal listen_here(struct cm *cm, struct cm_listener *listener) {
    const struct fabric_ops *fabric = cm->node->fabric;
    struct cm_owner *owner = &listener->owner;
    if (fabric->create_id(cm->channel, &owner->id, owner, RDMA_PS_TCP) != 0) {
        int error = errno;
        owner->id = NULL;
        return refusal(failure_text_reason_of_bind(error), error, strerror(error));
    }
    const char *refused = cm_set_options(cm, owner->id, &listener->link, true);
    if (refused) {
        struct refusal why = {.reason = SLUICE_REASON_DEVICE_ERROR, .error = errno};
        snprintf(why.text, sizeof why.text, "%s cannot be set: %s", refused, strerror(why.error));
        return why;
    }
    if (!takes_both(cm, listener) && listener->everywhere)
        return refusal_of_address(listener, EAFNOSUPPORT);
    if (fabric->bind_addr(owner->id, &listener->address.any) != 0)
        return refusal_of_address(listener, errno);
    if (owner->id->verbs && !cm_same_device(cm, owner->id))
        return refusal(SLUICE_REASON_WRONG_DEVICE, 0, "it belongs to another device");
    owner->state = CM_LISTENING; /* requests may come before listen() returns */
    if (fabric->listen(owner->id, BACKLOG) != 0)
        return refusal_of_address(listener, errno);
    return (struct refusal){.reason = SLUICE_REASON_NONE};
}

/* All addresses of a family; the port stays. */
static void take_all_of(struct cm_listener *listener, sa_family_t family) {
    in_port_t port = listener->address.v4.sin_port; /* the same place in both families */
    memset(&listener->address, 0, sizeof listener->address);
    listener->address.any.sa_family = family;
    listener->address.v4.sin_port = port;
}

/*
 * "*" is one id of IPv6 that takes IPv4 as well, or one of IPv4 where the system has no IPv6. A NIC of iWARP may
 * give an id of IPv6 nothing of IPv4, and does not say so: there it is IPv4 alone.
 */
static struct refusal listen_everywhere(struct cm *cm, struct cm_listener *listener) {
    struct refusal why = {.reason = SLUICE_REASON_ADDRESS, .error = EAFNOSUPPORT};
    if (cm->node->traits.takes_mapped || !cm->node->traits.answer_is_up) {
        take_all_of(listener, AF_INET6);
        why = listen_here(cm, listener);
    }
    if (why.reason != SLUICE_REASON_ADDRESS || why.error != EAFNOSUPPORT)
        return why; /* it listens, or a port that is taken in one family is no reason to be content with the other */
    drop_id(cm, listener);
    take_all_of(listener, AF_INET);
    return listen_here(cm, listener);
}

void cm_listen(struct cm *cm, struct cm_listener *listener) {
    cm_assert_thread(cm);
    struct refusal why;
    if (cm->device_lost)
        why = refusal(SLUICE_REASON_DEVICE_REMOVED, 0, DEVICE_LOST_TEXT);
    else
        why = listener->everywhere ? listen_everywhere(cm, listener) : listen_here(cm, listener);
    if (why.reason == SLUICE_REASON_NONE) {
        listener->port = ntohs(cm->node->fabric->get_src_port(listener->owner.id));
        stats_add(&cm->stats->listeners, 1);
        settle(listener, LISTENER_LISTENING);
        return;
    }
    char address[64];
    cm_listener_address(listener, address);
    snprintf(listener->text, sizeof listener->text, "cannot listen at %s: %s", address, why.text);
    listener->reason = why.reason;
    listener->os_errno = why.error;
    drop_id(cm, listener);
    settle(listener, LISTENER_FAILED);
}

static void close_listener(struct cm *cm, struct cm_listener *listener) {
    if (!listener->owner.id)
        return;
    drop_id(cm, listener); /* requests the event channel still has are refused by this */
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
