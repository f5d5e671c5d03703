/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * deliver.c - delivers large messages that have arrived, in order; and asks the application where they go.
 *
 * The frame that announced a message waits in line with all others and goes back when the message does, so
 * the application never has more of a peer than its credits allow.
 *
 * Owner: the loop's thread; sluice_receive_into() is for that thread only.
 */
#include <sluice/memory.h>

#include "datapath/rndv/deliver.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/rx/loans.h"
#include "datapath/rpc/client.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/internal.h"
#include "datapath/rx/landing.h"
#include "datapath/rpc/server.h"
#include "datapath/rx/recv_queue.h"
#include "core/forked.h"
#include "core/region.h"

/* ---- delivering ------------------------------------------------------------------------------ */

static enum recv_result deliver_into_region(struct sluice_loop *l, struct session *s,
                                            struct rndv_rx *a) {
    sluice_event event = {
        .type = SLUICE_MESSAGE,
        .token = a->token,
        .value = a->bytes,
        .bytes = a->bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)a->bytes,
    };
    l->totals.messages_received++;
    l->totals.bytes_received += a->bytes;
    rndv_rx_detach(l, s, a);
    rndv_rx_done(l, s, a);
    event_plain(l, s, &event);
    return RECV_DONE;
}

/* The frame that announced it goes back when the message does: until then its credit is used. */
static enum recv_result deliver(struct sluice_loop *l, struct session *s, struct rndv_rx *a,
                                struct sluice_msg *frame) {
    struct sluice_msg *landing = a->landing;
    if (a->region) {
        recv_queue_give_back(l, frame);
        return deliver_into_region(l, s, a);
    }
    landing->owner = frame->owner;
    landing->rx.arrived_ns = a->arrived_ns;
    enum recv_result taken = RECV_DONE;
    if (a->type == FRAME_REPLY) { /* that of a reply is no credit */
        taken = rpc_client_reply_deliver(l, s, landing, a->total);
        if (taken == RECV_DONE)
            recv_queue_give_back(l, frame);
    } else {
        event_escort(landing, frame);
        if (a->type == FRAME_REQUEST)
            taken = rpc_server_deliver(l, s, landing, a->total);
    }
    if (taken != RECV_DONE) {
        landing->flags = 0;
        return taken;
    }
    rndv_rx_let_go(l, s, a);
    rndv_rx_done(l, s, a);
    if (a->type == FRAME_DATA)
        event_message(l, s, landing);
    return RECV_DONE;
}

/* The application does not get it. A request has no reply then: its sender knows from ATS. */
static enum recv_result deliver_nothing(struct sluice_loop *l, struct session *s,
                                        struct rndv_rx *a) {
    if (a->type == FRAME_REPLY) {
        struct sluice_msg *msg = landing_get(l, 0);
        if (!msg)
            return RECV_NO_MEMORY;
        msg->owner = session_connection(s);
        rpc_client_reply_deliver(l, s, msg, (uint32_t)a->total | (uint64_t)CODE_FAILED << 32);
    }
    rndv_rx_done(l, s, a);
    return RECV_DONE;
}

static enum recv_result ask(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    if (loop_discards(l)) {
        a->state = RNDV_RX_WAITS;
    } else {
        sluice_event event = {.type = SLUICE_LARGE, .value = a->bytes};
        a->state = RNDV_RX_ASKED;
        event.token = a->token = ++s->rndv->tokens;
        event_plain(l, s, &event);
    }
    rndv_dirty(l, s);
    return RECV_PENDING;
}

enum recv_result rndv_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    loop_assert_inside(l);
    struct rndv_rx *a = &s->rndv->rx[msg->rx.rndv_entry];
    enum recv_result taken = RECV_PENDING;
    switch ((enum rndv_rx_state)a->state) {
    case RNDV_RX_ASK:
        return ask(l, s, a);
    case RNDV_RX_ASKED:
        return RECV_PENDING;
    case RNDV_RX_WAITS:
    case RNDV_RX_BEGINS:
    case RNDV_RX_MOVES:
    case RNDV_RX_CLOSES:
    case RNDV_RX_CLOSING:
        rndv_dirty(l, s); /* perhaps it arrived before UP */
        return RECV_PENDING;
    case RNDV_RX_HERE:
        return deliver(l, s, a, msg);
    case RNDV_RX_REFUSED:
        taken = deliver_nothing(l, s, a);
        break;
    case RNDV_RX_FAILED: /* and what came behind it is not delivered either; but an answer is in no order */
        s->rx.stopped |= a->type != FRAME_REPLY;
        if (s->state == SESSION_GONE)
            event_notice(l, s, NOTICE_CLOSED);
        taken = RECV_DONE;
        break;
    case RNDV_RX_FREE: /* cannot be: their frames are gone */
    case RNDV_RX_DONE:
        break;
    }
    if (taken == RECV_DONE)
        recv_queue_give_back(l, msg);
    return taken;
}

/* ---- the application says where --------------------------------------------------------------- */

static int place(struct sluice_loop *l, struct session *s, uint64_t token, sluice_region *region,
                 uint64_t offset) {
    struct rndv_rx *a = s->rndv ? s->rndv->first : NULL;
    while (a && (a->state != RNDV_RX_ASKED || a->token != token))
        a = a->next;
    if (!a || token == 0)
        return SLUICE_EINVAL;
    if (region) {
        if (region->node != l->node || !region_has(region, offset, a->bytes))
            return SLUICE_EINVAL;
        int status = region_hold(region);
        if (status != SLUICE_OK)
            return status;
        a->region = region;
        a->region_offset = offset;
    }
    a->state = RNDV_RX_WAITS;
    rndv_dirty(l, s);
    return SLUICE_OK;
}

int sluice_receive_into(sluice_session handle, uint64_t token, sluice_region *r, uint64_t offset) {
    if (forked_id(handle.id) || forked_region(r))
        return SLUICE_EFORKED;
    struct session *s = session_table_find(handle.id);
    struct sluice_loop *l;
    bool nested;
    int status = loop_enter_session(s, handle.id, &l, &nested);
    if (status != SLUICE_OK)
        return status;
    status = SLUICE_ECLOSED;
    if (atomic_load_explicit(&s->id, memory_order_relaxed) == handle.id &&
        s->state <= SESSION_FLUSHING)
        status = place(l, s, token, r, offset);
    loop_leave(l, nested);
    return status;
}
