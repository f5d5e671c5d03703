/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * comp_channel.c - completion channels: CQs that fired, in a queue behind a counting eventfd.
 *
 * Owner: the channel's lock. A CQ is in the queue at most once for each time it was armed.
 */
#define _GNU_SOURCE
#include "soft/object/comp_channel.h"

#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/uncancelled.h"
#include "soft/object/cq.h"

void soft_comp_channel_push(struct soft_comp_channel *channel, struct soft_cq *cq) {
    UNCANCELLED;
    pthread_mutex_lock(&channel->lock);
    if (channel->count == channel->capacity) {
        struct soft_cq **queue = calloc(2 * channel->capacity, sizeof *queue);
        if (!queue) { /* the event is lost only if memory is: poll still finds the completion */
            pthread_mutex_unlock(&channel->lock);
            return;
        }
        for (unsigned i = 0; i < channel->count; i++)
            queue[i] = channel->queue[(channel->head + i) % channel->capacity];
        free(channel->queue);
        channel->queue = queue;
        channel->head = 0;
        channel->capacity *= 2;
    }
    channel->queue[(channel->head + channel->count++) % channel->capacity] = cq;
    uint64_t one = 1;
    (void)!write(channel->ibv.fd, &one, sizeof one);
    pthread_mutex_unlock(&channel->lock);
}

/* Drops the CQ's events that were not fetched, with their tokens. */
unsigned soft_comp_channel_forget(struct soft_comp_channel *channel, struct soft_cq *cq) {
    pthread_mutex_lock(&channel->lock);
    unsigned kept = 0, count = channel->count;
    for (unsigned i = 0; i < count; i++) {
        struct soft_cq *at = channel->queue[(channel->head + i) % channel->capacity];
        if (at != cq)
            channel->queue[(channel->head + kept++) % channel->capacity] = at;
    }
    channel->count = kept;
    for (unsigned i = kept; i < count; i++) {
        uint64_t token;
        struct iovec iov = {.iov_base = &token, .iov_len = sizeof token};
        (void)!preadv2(channel->ibv.fd, &iov, 1, -1, RWF_NOWAIT);
    }
    channel->ibv.refcnt--;
    unsigned fetched = cq->fetched;
    pthread_mutex_unlock(&channel->lock);
    return fetched;
}
