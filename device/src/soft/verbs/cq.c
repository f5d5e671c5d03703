/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq.c - completion queues: creation and destruction. What is done with them meanwhile is object/cq.c and poll.c.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/cq_set.h"
#include "soft/object/async_event.h"
#include "soft/object/comp_channel.h"
#include "soft/object/cq.h"
#include "soft/object/device.h"
#include "soft/object/profile.h"
#include "soft/rc/cq_bell.h"
#include "soft/soft.h"
#include "soft/verbs/device.h"
#include "soft/verbs/internal.h"

struct ibv_cq *soft_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                              struct ibv_comp_channel *channel, int comp_vector) {
    UNCANCELLED;
    const struct soft_profile *like = soft_profile();
    if (soft_stale(soft_context_of(ctx)) || cqe < 1 || (uint32_t)cqe > like->cqe_most ||
        comp_vector != 0) {
        errno = soft_stale(soft_context_of(ctx)) ? EPERM : EINVAL;
        return NULL;
    }
    int refused = soft_refuse(ctx, FAULT_CALL_create_cq);
    if (refused) {
        errno = refused;
        return NULL;
    }
    struct soft_cq *cq = aligned_alloc(64, (sizeof *cq + 63) & ~(size_t)63);
    if (!cq)
        return NULL;
    memset(cq, 0, sizeof *cq);
    cqe = (int)soft_rounded(like->cq_rounding, (uint32_t)cqe);
    cq->ring_capacity = (uint32_t)cqe;
    st(cq->limit, (uint32_t)cqe);
    cq->ring = calloc((size_t)cqe, sizeof *cq->ring);
    if (!cq->ring) {
        free(cq);
        return NULL;
    }
    cq->ibv.context = ctx;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.cqe = cqe;
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    cq->generation = soft_generation_now;
    soft_cq_take_word(cq);
    if (channel) {
        pthread_mutex_lock(&soft_comp_channel_of(channel)->lock);
        channel->refcnt++;
        pthread_mutex_unlock(&soft_comp_channel_of(channel)->lock);
    }
    atomic_fetch_add(&soft_context_of(ctx)->users, 1);
    return &cq->ibv;
}

void soft_cq_any_order(struct ibv_cq *cq) {
    soft_cq_of(cq)->any_order = true;
}

int soft_destroy_cq(struct ibv_cq *ibcq) {
    UNCANCELLED;
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (soft_stale(cq))
        return EPERM;
    spin_lock(&cq->poll_lock);
    unsigned users = cq->qp_count;
    spin_unlock(&cq->poll_lock);
    if (users)
        return EBUSY;
    (void)soft_cq_disarm(cq);
    soft_cq_give_word(cq);
    soft_async_drain(ibcq->context, ibcq);
    if (ibcq->channel) {
        unsigned fetched = soft_comp_channel_forget(soft_comp_channel_of(ibcq->channel), cq);
        pthread_mutex_lock(&ibcq->mutex);
        while (ibcq->comp_events_completed < fetched)
            pthread_cond_wait(&ibcq->cond, &ibcq->mutex);
        pthread_mutex_unlock(&ibcq->mutex);
    }
    atomic_fetch_sub(&soft_context_of(ibcq->context)->users, 1);
    pthread_mutex_destroy(&ibcq->mutex);
    pthread_cond_destroy(&ibcq->cond);
    soft_tcp_set_free(cq);
    soft_bells_free(cq);
    free(cq->polled);
    free(cq->arrivals);
    free((void *)cq->boards);
    free(cq->line_groups);
    free(cq->lines_due);
    soft_reader_free(cq);
    free(cq->ring);
    free(cq);
    return 0;
}
