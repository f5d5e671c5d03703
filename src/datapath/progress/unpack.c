/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * unpack.c - frames that carry several messages, requests and replies: taking them apart.
 *
 * A coalesced frame is checked from end to end before the first message of it is delivered. Then each
 * message is delivered where it lies (rx/coalesced.c).
 *
 * Owner: the loop's thread. Everything read from a frame is hostile, and the peer's process may be able to write to
 * it at any time: each item's header is read once, checked against the length that was found on arrival, and only the
 * copy is used. Where there are more items than copies, or no room for all of their events, the rest is read and
 * checked again.
 */
#include "datapath/progress/unpack.h"

#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/discard.h"
#include "datapath/loop/upward.h"
#include "datapath/rpc/client.h"
#include "datapath/rpc/server.h"
#include "datapath/rx/coalesced.h"
#include "datapath/rx/loans.h"
#include "datapath/tx/coalesce.h"

#define ITEMS 128u /* copies of headers, of one frame at a time */

/* Of a frame that is being taken apart. */
struct unpacking {
    struct coalesce_item items[ITEMS];
    uint32_t count;           /* of these */
    struct sluice_msg *views; /* for the items to come, all of one length */
    unsigned view_count;
};

/* Reads what lies behind `from`, all of it; keeps the first ITEMS. NULL, or what is wrong. */
static const char *read_items(struct unpacking *u, const struct sluice_msg *frame, uint32_t from) {
    uint32_t length = (uint32_t)frame->size;
    bool reserved = (frame->rx.frame_flags & FRAME_RESERVED) != 0;
    struct coalesce_item rest;
    u->count = 0;
    while (from < length) {
        struct coalesce_item *item = likely(u->count < ITEMS) ? &u->items[u->count++] : &rest;
        const char *wrong = coalesce_item_get(item, frame->data, length, from, reserved);
        if (unlikely(wrong != NULL))
            return wrong;
        from = item->next;
    }
    return NULL;
}

/*
 * For the item with that index, and for those behind it that are as long and have room for their events, if no handler
 * comes in between.
 */
static enum recv_result more_views(struct sluice_loop *l, const struct session *s,
                                   struct unpacking *u, uint32_t index) {
    uint32_t length = u->items[index].length;
    unsigned run = 1, max = 1;
    if (unlikely(!loop_room(l, s)))
        return RECV_NO_ROOM;
    if (!s->handler && !loop_discards(l)) {
        uint32_t loans = LOOP_LOANS_MAX - l->loan_count, events = l->out_max - l->out_count;
        max = loans < events ? loans : events;
    }
    while (run < max && index + run < u->count && u->items[index + run].length == length)
        run++;
    u->views = message_of(pool_get_run(l->rx_pool, l->rx_cache, length, run, &u->view_count));
    if (likely(u->views != NULL))
        return RECV_DONE;
    u->view_count = 0;
    return RECV_NO_MEMORY;
}

/* ---- taking apart ------------------------------------------------------------------------------ */

/*
 * Messages that follow each other, from this one on: for each there is a view, and room for its event (more_views()).
 * Returns how many.
 */
static uint32_t take_messages(struct sluice_loop *l, struct session *s, struct unpacking *u,
                              struct sluice_msg *frame, uint32_t index) {
    const struct coalesce_item *item = &u->items[index], *begin = item;
    const struct coalesce_item *end = item + u->view_count;
    uint64_t bytes = 0;
    uint32_t n;
    for (; item < end && item->type == FRAME_DATA; item++) {
        struct sluice_msg *view = u->views;
        u->views = view->next;
        coalesced_view(view, frame, item->at);
        loop_loan_begin(l, view);
        l->loan_count++;
        event_fill(s, view, SLUICE_MESSAGE, item->length, &l->out[l->out_count++]);
        bytes += item->length;
    }
    n = (uint32_t)(item - begin);
    u->view_count -= n;
    frame->rx.users += n;
    frame->rx.unpacked = item[-1].next;
    l->totals.messages_received += n;
    l->totals.bytes_received += bytes;
    return n;
}

/* There is a view for it. */
static inline enum recv_result take_item(struct sluice_loop *l, struct session *s,
                                         struct unpacking *u, struct sluice_msg *frame,
                                         uint32_t index) {
    const struct coalesce_item *item = &u->items[index];
    struct sluice_msg *view = u->views;
    enum recv_result taken = RECV_DONE;
    u->views = view->next;
    u->view_count--;
    coalesced_view(view, frame, item->at);
    frame->rx.users++;
    l->unpacking = item->next < frame->size;
    if (item->type == FRAME_DATA)
        event_message(l, s, view);
    else if (item->type == FRAME_REQUEST)
        taken = rpc_server_deliver(l, s, view, item->total);
    else
        taken = rpc_client_reply_deliver(l, s, view, item->total);
    if (likely(taken == RECV_DONE))
        frame->rx.unpacked = item->next;
    else
        coalesced_return(l, view);
    return taken;
}

static void end(struct sluice_loop *l, struct unpacking *u) {
    l->unpacking = false;
    for (struct sluice_msg *view; u->view_count > 0; u->view_count--) {
        view = u->views;
        u->views = view->next;
        msg_discard(l, view);
    }
}

enum recv_result coalesced_take(struct sluice_loop *l, struct session *s,
                                struct sluice_msg *frame) {
    loop_assert_inside(l);
    struct unpacking u;
    enum recv_result taken = RECV_DONE;
    u.view_count = 0;
    const char *wrong = NULL;
    u.count = 0;
    if (!(frame->flags & MSG_OPENED)) {
        if (unlikely((wrong = read_items(&u, frame, 0)) != NULL)) {
            receive_broken(l, s, frame, wrong);
            return RECV_DONE;
        }
        frame->flags |= MSG_OPENED;
        frame->rx.unpacked = 0;
        frame->rx.users = 1; /* this function's own, until the last item is delivered */
    }
    for (uint32_t i = 0; frame->rx.unpacked < frame->size && !s->rx.stopped;) {
        if (unlikely(i == u.count)) {
            if (unlikely((wrong = read_items(&u, frame, (uint32_t)frame->rx.unpacked)) != NULL))
                break;
            i = 0;
        }
        if (u.view_count == 0 && (taken = more_views(l, s, &u, i)) != RECV_DONE)
            break;
        if (likely(u.items[i].type == FRAME_DATA && !s->handler && !loop_discards(l)))
            i += take_messages(l, s, &u, frame, i);
        else if ((taken = take_item(l, s, &u, frame, i++)) != RECV_DONE)
            break;
    }
    end(l, &u);
    if (unlikely(wrong != NULL)) { /* it was right before: the peer writes to it */
        session_stop(s);
        session_close(l, s, SLUICE_REASON_PROTOCOL, 0, wrong);
    }
    if (taken == RECV_DONE)
        coalesced_release(l, frame);
    return taken;
}
