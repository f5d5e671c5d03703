/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpsc_queue.c - a queue with one consumer, on liburcu's wfcqueue.
 *
 * Memory order. wfcqueue's enqueue is one exchange of the tail: a full barrier, so everything
 * written before mpsc_queue_post() is seen by the thread that takes the item, and a producer that reads the
 * wakeup's state after posting reads it after its item became visible.
 *
 * Owner: the consuming thread takes; any thread posts.
 */
#include "base/mpsc_queue.h"

#include <stddef.h>

#include "common/sanitize.h"

void mpsc_queue_init(struct mpsc_queue *box) {
    cds_wfcq_init(&box->head, &box->tail);
}

bool mpsc_queue_post(struct mpsc_queue *box, struct mpsc_queue_item *item) {
    cds_wfcq_node_init(&item->node);
    SANITIZE_RELEASE(item); /* liburcu's barriers are not visible to the thread sanitizer */
    return !cds_wfcq_enqueue(&box->head, &box->tail, &item->node);
}

struct mpsc_queue_item *mpsc_queue_take(struct mpsc_queue *box) {
    if (mpsc_queue_empty(box))
        return NULL;
    struct cds_wfcq_node *node = __cds_wfcq_dequeue_nonblocking(&box->head, &box->tail);
    if (!node || node == CDS_WFCQ_WOULDBLOCK)
        return NULL;
    struct mpsc_queue_item *item = caa_container_of(node, struct mpsc_queue_item, node);
    SANITIZE_ACQUIRE(item);
    return item;
}
