/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * comp_channel.c - completion channels: creation and destruction, and fetching the events.
 *
 * Owner: the channel's lock. A CQ is in the queue at most once for each time it was armed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/token.h"
#include "soft/object/comp_channel.h"
#include "soft/object/cq.h"
#include "soft/object/device.h"
#include "soft/soft.h"
#include "soft/verbs/device.h"

struct ibv_comp_channel *soft_create_comp_channel(struct ibv_context *ctx) {
    UNCANCELLED;
    if (soft_stale(soft_context_of(ctx))) {
        errno = EPERM;
        return NULL;
    }
    int refused = soft_refuse(ctx, FAULT_CALL_create_comp_channel);
    if (refused) {
        errno = refused;
        return NULL;
    }
    struct soft_comp_channel *channel = calloc(1, sizeof *channel);
    if (!channel)
        return NULL;
    channel->capacity = 16;
    channel->queue = calloc(channel->capacity, sizeof *channel->queue);
    channel->ibv.fd = channel->queue ? eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC) : -1;
    if (channel->ibv.fd < 0) {
        int err = errno;
        free(channel->queue);
        free(channel);
        errno = err;
        return NULL;
    }
    channel->ibv.context = ctx;
    channel->generation = soft_generation_now;
    pthread_mutex_init(&channel->lock, NULL);
    atomic_fetch_add(&soft_context_of(ctx)->users, 1);
    return &channel->ibv;
}

int soft_destroy_comp_channel(struct ibv_comp_channel *ibchannel) {
    UNCANCELLED;
    struct soft_comp_channel *channel = soft_comp_channel_of(ibchannel);
    if (soft_stale(channel))
        return EPERM;
    pthread_mutex_lock(&channel->lock);
    int busy = channel->ibv.refcnt;
    pthread_mutex_unlock(&channel->lock);
    if (busy)
        return EBUSY;
    atomic_fetch_sub(&soft_context_of(ibchannel->context)->users, 1);
    close(channel->ibv.fd);
    pthread_mutex_destroy(&channel->lock);
    free(channel->queue);
    free(channel);
    return 0;
}

int soft_get_cq_event(struct ibv_comp_channel *ibchannel, struct ibv_cq **cq, void **cq_context) {
    UNCANCELLED;
    struct soft_comp_channel *channel = soft_comp_channel_of(ibchannel);
    if (soft_stale(channel)) {
        errno = EPERM;
        return -1;
    }
    for (;;) {
        if (!soft_token_take(channel->ibv.fd, uncancelled_before))
            return -1;
        struct soft_cq *got = NULL;
        pthread_mutex_lock(&channel->lock);
        if (channel->count) {
            got = channel->queue[channel->head];
            channel->head = (channel->head + 1) % channel->capacity;
            channel->count--;
            got->fetched++;
        }
        pthread_mutex_unlock(&channel->lock);
        if (got) {
            *cq = &got->ibv;
            *cq_context = got->ibv.cq_context;
            return 0;
        } /* else its CQ was destroyed meanwhile: wait for the next */
    }
}

void soft_ack_cq_events(struct ibv_cq *cq, unsigned int n) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += n;
    pthread_cond_broadcast(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}
