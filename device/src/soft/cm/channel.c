/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * channel.c - the queue and the token count of event channels.
 *
 * Invariant, whenever the mutex is free:
 *   tokens in the eventfd + tokens in fetchers' hands = events queued + debt.
 * A token is always written after its event is in place. The eventfd's counter cannot overflow, so
 * writing never blocks.
 */
#define _GNU_SOURCE
#include "soft/cm/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/token.h"
#include "soft/soft.h"

struct soft_cm_node *soft_cm_queue_pop(struct cds_list_head *queue) {
    if (cds_list_empty(queue))
        return NULL;
    struct soft_cm_node *node = cds_list_first_entry(queue, struct soft_cm_node, link);
    cds_list_del(&node->link);
    return node;
}

/* ---- nodes of USER events ---------------------------------------------------------------------- */

/*
 * A stack of free nodes whose head carries a tag that changes with every operation, so that a pop
 * interrupted by pops and pushes of the same node fails its exchange. Nodes never used before are
 * handed out by count and so cost no memory until then.
 */
static struct soft_cm_user_node user_nodes[SOFT_CM_USER_EVENTS_MAX];
static _Atomic uint64_t user_free; /* tag << 32 | index + 1 */
static _Atomic uint32_t user_used;

static struct soft_cm_user_node *user_node_get(void) {
    uint64_t head = atomic_load(&user_free);
    while ((uint32_t)head) {
        struct soft_cm_user_node *node = &user_nodes[(uint32_t)head - 1];
        uint64_t next = ((head >> 32) + 1) << 32 | atomic_load(&node->free_next);
        if (atomic_compare_exchange_weak(&user_free, &head, next))
            return node;
    }
    uint32_t used = atomic_load(&user_used);
    while (used < SOFT_CM_USER_EVENTS_MAX)
        if (atomic_compare_exchange_weak(&user_used, &used, used + 1))
            return &user_nodes[used];
    return NULL;
}

void soft_cm_channel_free_user(struct soft_cm_user_node *node) {
    uint64_t head = atomic_load(&user_free), next;
    do {
        atomic_store(&node->free_next, (uint32_t)head);
        next = ((head >> 32) + 1) << 32 | (uint32_t)(node - user_nodes + 1);
    } while (!atomic_compare_exchange_weak(&user_free, &head, next));
}

/* ---- tokens ------------------------------------------------------------------------------------- */

static void token_add(struct soft_cm_channel *channel) {
    uint64_t one = 1;
    int saved = errno;
    while (write(channel->channel.fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    errno = saved;
}

/* Pays debt with tokens that no fetcher has taken yet. Mutex held. */
static void tokens_settle(struct soft_cm_channel *channel) {
    while (channel->debt) {
        uint64_t token;
        struct iovec iov = {.iov_base = &token, .iov_len = sizeof token};
        ssize_t got = preadv2(channel->channel.fd, &iov, 1, -1, RWF_NOWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof token)
            return; /* in a fetcher's hands */
        channel->debt--;
    }
}

/* ---- channels ----------------------------------------------------------------------------------- */

struct soft_cm_channel *soft_cm_channel_open(void) {
    struct soft_cm_channel *channel = calloc(1, sizeof *channel);
    if (!channel) {
        errno = ENOMEM;
        return NULL;
    }
    int error;
    if (soft_engine_get()) {
        error = errno;
        goto free_channel;
    }
    channel->channel.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (channel->channel.fd < 0) {
        error = errno;
        goto put_engine;
    }
    channel->generation = soft_generation_now;
    pthread_mutex_init(&channel->mutex, NULL);
    CDS_INIT_LIST_HEAD(&channel->queue);
    return channel;
put_engine:
    soft_engine_put();
free_channel:
    free(channel);
    errno = error;
    return NULL;
}

static void channel_free(struct soft_cm_channel *channel) {
    close(channel->channel.fd);
    pthread_mutex_destroy(&channel->mutex);
    free(channel);
}

void soft_cm_channel_close(struct soft_cm_channel *channel) {
    struct ibv_context *context = channel->context;
    pthread_mutex_lock(&channel->mutex);
    channel->closed = true;
    bool unused = channel->inside == 0;
    pthread_mutex_unlock(&channel->mutex);
    if (unused)
        channel_free(channel);
    if (context)
        soft_cm_context_put(context);
    soft_engine_put();
}

/* Moves pushed USER events behind what is queued. Mutex held. */
static void splice(struct soft_cm_channel *channel) {
    struct cds_list_head *last = channel->queue.prev; /* each goes there, before the newer ones */
    struct soft_cm_user_node *user = atomic_exchange(&channel->incoming, NULL);
    for (; user; user = user->older)
        cds_list_add(&user->node.link, last);
}

void soft_cm_channel_append(struct soft_cm_channel *channel, struct soft_cm_node *node) {
    pthread_mutex_lock(&channel->mutex);
    splice(channel);
    cds_list_add_tail(&node->link, &channel->queue);
    token_add(channel);
    pthread_mutex_unlock(&channel->mutex);
}

void soft_cm_channel_append_all(struct soft_cm_channel *channel, struct cds_list_head *queue) {
    for (struct soft_cm_node *node; (node = soft_cm_queue_pop(queue));)
        soft_cm_channel_append(channel, node);
}

int soft_cm_channel_push_user(struct soft_cm_channel *channel, struct soft_cm_id *id, int status,
                              uint64_t arg) {
    struct soft_cm_user_node *user = user_node_get();
    if (!user)
        return ENOMEM;
    user->node.id = id;
    user->node.user = true;
    user->status = status;
    user->arg = arg;
    struct soft_cm_user_node *head = atomic_load(&channel->incoming);
    do
        user->older = head;
    while (!atomic_compare_exchange_weak(&channel->incoming, &head, user));
    token_add(channel);
    return 0;
}

void soft_cm_channel_enter(struct soft_cm_channel *channel) {
    pthread_mutex_lock(&channel->mutex);
    channel->inside++;
    pthread_mutex_unlock(&channel->mutex);
}

void soft_cm_channel_leave(void *arg) {
    struct soft_cm_channel *channel = arg;
    pthread_mutex_lock(&channel->mutex);
    bool last = --channel->inside == 0 && channel->closed;
    pthread_mutex_unlock(&channel->mutex);
    if (last)
        channel_free(channel);
}

struct soft_cm_node *soft_cm_channel_fetch(struct soft_cm_channel *channel, int cancel_state) {
    for (;;) {
        if (!soft_token_take(channel->channel.fd, cancel_state))
            return NULL;
        pthread_mutex_lock(&channel->mutex);
        splice(channel);
        struct soft_cm_node *node = soft_cm_queue_pop(&channel->queue);
        if (node)
            soft_cm_event_count(node);
        else if (channel->debt)
            channel->debt--;
        tokens_settle(channel); /* our token was a lost one, the event's own is left over */
        pthread_mutex_unlock(&channel->mutex);
        if (node)
            return node;
    }
}

void soft_cm_channel_unfetch(struct soft_cm_channel *channel, struct soft_cm_node *node) {
    struct soft_cm_id *id = node->id;
    pthread_mutex_lock(&channel->mutex);
    cds_list_add(&node->link, &channel->queue);
    token_add(channel);
    pthread_mutex_unlock(&channel->mutex);
    soft_cm_id_uncount(id); /* last: until here destroying the id waits for us */
}

void soft_cm_channel_extract(struct soft_cm_channel *channel,
                             bool (*match)(const struct soft_cm_node *node, const void *arg),
                             const void *arg, struct cds_list_head *out) {
    struct soft_cm_node *node, *next;
    pthread_mutex_lock(&channel->mutex);
    splice(channel);
    cds_list_for_each_entry_safe(node, next, &channel->queue, link) {
        if (!match(node, arg))
            continue;
        cds_list_del(&node->link);
        cds_list_add_tail(&node->link, out);
        channel->debt++;
    }
    tokens_settle(channel);
    pthread_mutex_unlock(&channel->mutex);
}
