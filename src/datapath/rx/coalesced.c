/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * coalesced.c - messages that lie in a coalesced frame (progress/unpack.c): they are lent where they lie.
 *
 * For each, a block of the pool lends its control block, whose `data` points into the frame. The frame is posted again when
 * it was taken apart and all such views came back. If the application keeps a view or sends it on, its bytes move into the
 * block's own buffer, which is there for that; so a kept message never pins a frame, and keeping cannot fail.
 *
 * Owner: the loop's thread.
 */
#include "datapath/rx/coalesced.h"

#include <string.h>

#include "datapath/loop/discard.h"
#include "datapath/rx/recv_queue.h"

static inline uint8_t *own_of(const struct sluice_msg *view) {
    return (uint8_t *)view->item.node.next;
}

void coalesced_release(struct sluice_loop *l, struct sluice_msg *frame) {
    loop_assert_inside(l);
    if (--frame->rx.users > 0)
        return;
    frame->flags &= (uint16_t)~MSG_OPENED;
    recv_queue_give_back(l, frame);
}

/* It is a buffer like any other again. */
static inline void close_view(struct sluice_msg *view) {
    view->data = own_of(view);
    view->flags = 0;
    view->owner = NULL;
}

void coalesced_return(struct sluice_loop *l, struct sluice_msg *view) {
    loop_assert_inside(l);
    struct sluice_msg *frame = view->next;
    close_view(view);
    msg_discard(l, view);
    coalesced_release(l, frame);
}

uint32_t coalesced_take_back(struct sluice_loop *l, const struct loop_loan *loans, uint32_t count) {
    loop_assert_inside(l);
    struct sluice_msg *first = loans[0].msg, *frame = first->next, *last = first;
    uint32_t n = 1;
    close_view(first);
    first->state = MSG_FREE;
    for (; n < count && loans[n].what == LOAN_OUT; n++) {
        struct sluice_msg *view = loans[n].msg;
        if (!(view->flags & MSG_VIEW) || view->next != frame || view->cache != first->cache ||
            view->size_class != first->size_class)
            break;
        close_view(view);
        view->state = MSG_FREE;
        last->next = view;
        last = view;
    }
    pool_put_run(l->rx_pool, l->rx_cache, buffer_of(first), buffer_of(last), n);
    frame->rx.users -= n - 1;
    coalesced_release(l, frame);
    return n;
}

void coalesced_retain(struct sluice_msg *view) {
    const uint8_t *from = view->data;
    view->data = own_of(view);
    memcpy(view->data, from, view->size);
}
