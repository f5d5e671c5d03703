/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mailbox.h - a queue and the wakeup of the thread that reads it.
 *
 * Owner: the reading thread. Any thread may post; the message is published before the wakeup is signalled,
 * and it is signalled every time, because a producer that found the queue empty may be preempted
 * before it signals: if the reader is not asleep a signal is one fence and one load.
 */
#ifndef CORE_MAILBOX_H
#define CORE_MAILBOX_H

#include "fabric/wakeup.h"
#include "base/mpsc_queue.h"

struct mailbox {
    struct mpsc_queue queue;
    struct wakeup wakeup __attribute__((aligned(64)));
};

/*
 * slot and generation: of what the message is part of. The generation travels with the event only and is
 * the poster's: once the message is published, its reader may have been there and the slot be free.
 */
static inline void mailbox_post(struct mailbox *box, struct mpsc_queue_item *item, uint32_t verb,
                                uint32_t slot, uint32_t generation) {
    item->verb = verb;
    item->slot = slot;
    mpsc_queue_post(&box->queue, item);
    wakeup_signal(&box->wakeup, verb, wakeup_arg(slot, generation));
}

#endif
