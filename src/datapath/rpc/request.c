/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * request.c - sluice_request(): into a frame that lies open where nothing is in the way, else through the queue.
 *
 * Any thread.
 */
#include "core/context.h"
#include "core/forked.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/rpc/internal.h"
#include "datapath/rx/credits.h"
#include "datapath/tx/framed.h"
#include "datapath/tx/post.h"
#include "datapath/tx/send.h"

/* Into a frame that lies open; false: nothing happened, and send_submit() has to look. */
static inline bool request_framed(struct sluice_loop *l, struct session *s, uint64_t id,
                                  struct sluice_msg *msg, uint64_t tag, bool more) {
    struct connection *c = session_connection(s);
    struct rpc_client *r = rpc_client_of(s);
    uint64_t bytes = msg->size;
    uint32_t at;
    if (unlikely(!r || r->free_count == 0 || rpc_client_accepted(r) >= r->limit ||
                 !framed_fits(s, id, msg->size) || msg->state != MSG_APP ||
                 !framed_may_take(l, msg) || !framed_has_room(s, bytes) ||
                 c->tx.credits <= c->tx.reserve)) /* one that is not to go yet can be given up */
        return false;
    struct sluice_msg *frame = framed_place(l, s, &s->tx.queue, (uint32_t)bytes, more, &at);
    if (unlikely(!frame || !credits_reserve(l, s)))
        return false;
    msg->state = MSG_SENDING;
    msg->kind = MSG_REQUEST;
    msg->foreign = false;
    msg->tx.tag = tag;
    msg->tx.deadline_ns = msg->tx.sent = 0;
    msg->tx.session_id = id;
    framed_put(frame, at, msg->data, (uint32_t)msg->size, FRAME_REQUEST,
               rpc_pending_take(r, msg)->id);
    atomic_store_explicit(&r->own, atomic_load_explicit(&r->own, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    l->totals.messages_sent++;
    l->totals.bytes_sent += bytes;
    framed_count(l, s, bytes);
    if (!more)
        send_flush(l, s);
    return true;
}

static __attribute__((noinline)) int request_other(sluice_session handle, sluice_msg *msg,
                                                   const sluice_send_options *o) {
    struct send_args args = {0};
    if (forked_id(handle.id) || forked_msg(msg))
        return SLUICE_EFORKED;
    if (!msg || (o && send_options(&args, o) != 0))
        return SLUICE_EINVAL;
    args.kind = MSG_REQUEST;
    return send_submit(handle, msg, &args);
}

int sluice_request(sluice_session handle, sluice_msg *msg, const sluice_send_options *o) {
    struct sluice_loop *l;
    struct session *s;
    bool nested;
    struct framed_options is = framed_options(o);
    if (likely(msg && is.plain && forked_bits() == 0) &&
        likely((s = framed_enter(handle.id, &l, &nested)) != NULL)) {
        bool more = is.more || framed_may_share(l, nested);
        bool sent = request_framed(l, s, handle.id, msg, is.tag, more);
        loop_leave(l, nested);
        if (likely(sent))
            return SLUICE_OK;
    }
    return request_other(handle, msg, o);
}
