/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device.h - the device and its contexts, and the order of all locks of the device.
 *
 * Behind each public verbs struct lies an object of the device, which begins with it (soft_qp in qp.h, soft_cq in
 * cq.h and so on). Zero bytes follow the public struct, as vendor libraries look behind the public part.
 *
 * Locks, outermost first: control lock (control_lock.h) > cq->poll_lock > qp->lock > cq->ring_lock,
 * channel->lock. The data path (post, poll, notify) takes only the spin locks. They are held across no system
 * call that may wait: a doorbell is written, a socket that never waits is read and written, a thread that copies is
 * woken (rc/process_copy.h, whose lock is a leaf), and a QP that ends asks for a barrier.
 */
#ifndef SOFT_OBJECT_DEVICE_H
#define SOFT_OBJECT_DEVICE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "soft/ipc/spinlock.h"

struct soft_event_queue { /* events behind a semaphore eventfd; lock is a leaf */
    pthread_mutex_t lock;
    struct cds_list_head waiting, fetched; /* fetched: and not acked */
    pthread_cond_t acked;
};

struct soft_context {
    struct ibv_context ibv;
    uint8_t zero[64];
    uint32_t generation;
    _Atomic int users; /* PDs, CQs and channels */
    struct soft_event_queue async;
    struct cds_list_head link; /* control lock; in soft_contexts */
    _Atomic uint32_t removed;  /* the device went away under it, for the n-th time */
};

#define soft_context_of(p) ((struct soft_context *)(p))

static inline bool soft_removed(const struct ibv_context *ctx) {
    return __builtin_expect(ld(((const struct soft_context *)ctx)->removed) != 0, 0);
}

extern _Atomic bool soft_device_gone; /* no new opens; what was open stays dead when it returns */
extern _Atomic bool soft_port_down;
extern struct cds_list_head soft_contexts;

/* Control lock for all. */
void soft_context_register(struct soft_context *ctx);
void soft_context_unregister(struct soft_context *ctx);
unsigned soft_context_count(void);
/* The engine stops, or this is a fork's child: the device is as new. */
void soft_device_forget(void);

#endif
