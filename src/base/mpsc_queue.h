/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpsc_queue.h - many producers, one consumer: how threads hand items to a thread that may sleep.
 *
 * An item is embedded in the object that it stands for, so that posting allocates nothing and cannot
 * fail; an item may be posted again only after the consumer has taken it. Built on liburcu's
 * wfcqueue, non-blocking variants only: a producer that was preempted half way makes the consumer
 * see "nothing yet" and look again in its next turn; the consumer never waits for it.
 *
 * Owner: the consuming thread. Any thread may post.
 */
#ifndef BASE_MPSC_QUEUE_H
#define BASE_MPSC_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <urcu/wfcqueue.h>

struct mpsc_queue_item {
    struct cds_wfcq_node node;
    uint32_t verb; /* meaning belongs to the queue's owner */
    uint32_t slot; /* which object (free use; carried in the wakeup's argument) */
};

struct mpsc_queue {
    struct cds_wfcq_head head;
    struct cds_wfcq_tail tail __attribute__((aligned(64)));
};

void mpsc_queue_init(struct mpsc_queue *box);
/* Returns true when the queue was empty before: then the consumer must be woken. */
bool mpsc_queue_post(struct mpsc_queue *box, struct mpsc_queue_item *item);
/* Next item, or NULL: empty, or a producer is half way (then mpsc_queue_empty() is false). */
struct mpsc_queue_item *mpsc_queue_take(struct mpsc_queue *box);
/*
 * The first thing a producer does is to move the tail, and the last thing the consumer does when
 * it takes the last item is to move the tail back to the head: the tail alone tells, also while
 * a producer is half way.
 */
static inline bool mpsc_queue_empty(struct mpsc_queue *box) {
    return __atomic_load_n(&box->tail.p, __ATOMIC_ACQUIRE) == &box->head.node;
}

#endif
