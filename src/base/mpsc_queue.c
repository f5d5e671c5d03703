/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpsc_queue.c - the inbox on liburcu's wfcqueue.
 *
 * Memory order. wfcqueue's enqueue is one exchange of the tail: a full barrier, so everything
 * written before inbox_post() is seen by whoever takes the record, and a producer that reads the
 * doorbell's state after posting reads it after its record became visible.
 *
 * Owner: the consuming thread takes; any thread posts.
 */
#include "base/mpsc_queue.h"

#include <stddef.h>

#include "base/sanitize.h"

void inbox_init(struct inbox *box) {
    cds_wfcq_init(&box->head, &box->tail);
}

bool inbox_post(struct inbox *box, struct inbox_item *item) {
    cds_wfcq_node_init(&item->node);
    SANITIZE_RELEASE(item); /* liburcu's barriers are not visible to the thread sanitizer */
    return !cds_wfcq_enqueue(&box->head, &box->tail, &item->node);
}

struct inbox_item *inbox_take(struct inbox *box) {
    if (inbox_empty(box))
        return NULL;
    struct cds_wfcq_node *node = __cds_wfcq_dequeue_nonblocking(&box->head, &box->tail);
    if (!node || node == CDS_WFCQ_WOULDBLOCK)
        return NULL;
    struct inbox_item *item = caa_container_of(node, struct inbox_item, node);
    SANITIZE_ACQUIRE(item);
    return item;
}

/*
 * The first thing a producer does is to move the tail, and the last thing the consumer does when
 * it takes the last record is to move the tail back to the head: the tail alone tells, also while
 * a producer is half way.
 */
bool inbox_empty(struct inbox *box) {
    return __atomic_load_n(&box->tail.p, __ATOMIC_ACQUIRE) == &box->head.node;
}
