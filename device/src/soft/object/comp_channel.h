/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * comp_channel.h - completion channels: CQs that fired, in a queue.
 *
 * Owner: the channel's lock.
 */
#ifndef SOFT_OBJECT_COMP_CHANNEL_H
#define SOFT_OBJECT_COMP_CHANNEL_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>

struct soft_cq;

struct soft_comp_channel {
    struct ibv_comp_channel ibv;
    uint8_t zero[64];
    uint32_t generation;
    pthread_mutex_t lock;
    struct soft_cq **queue; /* ring of signalled CQs; a CQ has at most one event per arm */
    unsigned head, count, capacity;
};

#define soft_comp_channel_of(p) ((struct soft_comp_channel *)(p))

void soft_comp_channel_push(struct soft_comp_channel *channel, struct soft_cq *cq);
/* Drops the CQ's events that were not fetched; returns how many. */
unsigned soft_comp_channel_forget(struct soft_comp_channel *channel, struct soft_cq *cq);

#endif
