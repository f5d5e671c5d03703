/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * send_completion.c - what happens when sends complete, or never will.
 *
 * Send completions of an RC queue pair come in order, and an error always completes: so an entry is done,
 * successfully, once a later one completed; on iWARP once a READ behind it did (confirm.c). The entry of the
 * ring says which object it belongs to, and how much the window of the session gets back.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/send_completion.h"
#include "datapath/loop/events.h"
#include "datapath/tx/post.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rma/one_sided.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rpc/client.h"
#include "datapath/session/acknowledged.h"
#include "datapath/session/close.h"
#include "datapath/session/failure.h"
#include "datapath/session/fence.h"
#include "datapath/tx/coalesce.h"
#include "datapath/tx/confirm.h"
#include "datapath/tx/iov.h"
#include "datapath/tx/send.h"

/* Inlined into both of its callers. */
static inline __attribute__((always_inline)) void retire_entry(struct sluice_loop *l,
                                                               struct connection *c,
                                                               const struct sq_entry *entry,
                                                               sluice_status status) {
    struct session *s = c->session;
    uint64_t bytes = entry->bytes;
    struct sluice_msg *msg = entry->msg;
    if (bytes & SQ_FAILED)
        status = SLUICE_ECLOSED;
    enum sq_what what = (enum sq_what)(bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK);
    if (what >= SQ_COALESCED) {
        if (what == SQ_COALESCED)
            coalesce_completed(l, s, msg, bytes, status);
        else
            c->confirm.flying--;
        return;
    }
    if (bytes & SQ_COUNTED)
        window_release(s, 1, bytes & SQ_BYTES, (bytes & SQ_FOREIGN) != 0);
    if (unlikely(bytes & SQ_FAILED) && what == SQ_REQUEST)
        rpc_client_unposted(s, (uint32_t)bytes);
    if (!msg)
        return;
    switch (what) {
    case SQ_MESSAGE:
    case SQ_COALESCED: /* above */
    case SQ_CONFIRM:
        break;
    case SQ_RNDV:
        rndv_completed(l, s, msg, status);
        return;
    case SQ_ONE_SIDED:
        one_sided_completed(l, c, msg, status);
        return;
    case SQ_IOV:
        iov_completed(l, s, msg, status);
        return;
    case SQ_REQUEST:
        rpc_client_completed(l, s, msg, status);
        return;
    }
    if (msg->tx.tag)
        event_outcome(l, s, msg, status);
    else
        msg_discard(l, msg);
}

static void retire(struct sluice_loop *l, struct connection *c, sluice_status status) {
    retire_entry(l, c, &c->sq.entries[c->sq.head++ & c->sq.mask], status);
}

void send_retire(struct sluice_loop *l, struct connection *c, const struct sq_entry *entry,
                 sluice_status status) {
    loop_assert_inside(l);
    retire_entry(l, c, entry, status);
}

/*
 * So many entries that were successful. Nearly all of them are messages of this thread that went
 * inline and have no outcome: their share of the window is given back together.
 */
static void retire_many(struct sluice_loop *l, struct connection *c, uint32_t entries) {
    struct session *s = c->session;
    const uint64_t common = SQ_COUNTED | (uint64_t)SQ_MESSAGE << SQ_WHAT_SHIFT;
    uint32_t count = 0;
    uint64_t bytes = 0;
    for (; entries > 0; entries--) {
        const struct sq_entry *entry = &c->sq.entries[c->sq.head & c->sq.mask];
        if (likely(!entry->msg && (entry->bytes & ~SQ_BYTES) == common)) {
            c->sq.head++;
            count++;
            bytes += entry->bytes & SQ_BYTES;
        } else {
            retire(l, c, SLUICE_OK);
        }
    }
    if (count > 0)
        window_release(s, count, bytes, false);
}

/* The outcome of a message whose completion failed: whether it arrived is mostly not known. */
static sluice_status wc_outcome(const struct session *s, enum ibv_wc_status status, unsigned what) {
    switch (status) {
    case IBV_WC_SUCCESS:
        return SLUICE_OK;
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_BAD_RESP_ERR:
        return SLUICE_EUNKNOWN;
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_GENERAL_ERR: /* on iWARP: the connection under the device broke while it sent */
        return s->node->traits.sent_is_local ? SLUICE_EUNKNOWN : SLUICE_EDEVICE;
    case IBV_WC_REM_ACCESS_ERR: /* of a large message: see session_withdrawn() */
        return what == SQ_RNDV ? SLUICE_EUNKNOWN : SLUICE_EACCESS;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE:
        return SLUICE_EDEVICE;
    }
    return SLUICE_EDEVICE;
}

/* Retires entries that need no more than to be sent, as far as that is known; in order with the others. */
static void retire_sent(struct sluice_loop *l, struct connection *c) {
    while ((int32_t)(c->confirm.sent_tail - c->sq.head) > 0 && sq_used(c) > 0 &&
           !(c->sq.entries[c->sq.head & c->sq.mask].bytes & SQ_BEHIND))
        retire(l, c, SLUICE_OK);
    if (likely(session_connection(c->session) == c))
        confirm_again(l, c->session);
}

/* There is room again: sessions and calls that waited for it go on. */
static void send_moved(struct sluice_loop *l, struct connection *c) {
    struct session *s = c->session;
    if (s->window.waits_writable)
        send_check_writable(l, s);
    if (s->tx.queue.head || s->tx.replies.head || s->rpc.answers || s->rpc.cancels || c->sq.blocked)
        loop_dirty(l, s);
    if (s->state >= SESSION_FLUSHING || unlikely(session_connection(s) != c))
        connection_progress(l, c);
}

/* What a completion that failed says. what: the kind of its entry, which has its outcome. */
static void failed(struct sluice_loop *l, struct connection *c, const struct ibv_wc *wc,
                   unsigned what) {
    bool access = wc->status == IBV_WC_REM_ACCESS_ERR && session_connection(c->session) == c;
    if (access && what == SQ_ONE_SIDED)
        session_access_error(l, c->session, wc);
    else if (access && what == SQ_RNDV)
        session_withdrawn(l, c->session, wc);
    else
        connection_wc_error(l, c, wc);
}

static enum sq_what what_is(const struct connection *c, uint32_t at) {
    return (enum sq_what)(c->sq.entries[at & c->sq.mask].bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK);
}

/* Of a connection whose frames are kept until they are acknowledged. */
static __attribute__((noinline)) void kept_completed(struct sluice_loop *l, struct connection *c,
                                                     const struct ibv_wc *wc, uint32_t at) {
    unsigned what = what_is(c, at);
    acknowledged_completed(l, c, wc, at, wc_outcome(c->session, wc->status, what));
    if (wc->status != IBV_WC_SUCCESS)
        failed(l, c, wc, what);
    send_moved(l, c);
}

void send_completed(struct sluice_loop *l, const struct ibv_wc *wc) {
    loop_assert_inside(l);
    struct connection *c = wr_send_connection(l->node->connections, wc->wr_id);
    if (unlikely(!c))
        return; /* of a queue pair that was given up */
    struct session *s = c->session;
    uint16_t ahead = (uint16_t)(wr_send_index(wc->wr_id) - (uint16_t)c->sq.head);
    if (unlikely(ahead >= sq_used(c)))
        return; /* of a try that was given up */
    if (unlikely(c->sq.follow)) {
        uint32_t end = c->sq.head + ahead + 1;
        if (connection_keeps(c)) {
            kept_completed(l, c, wc, end - 1);
            return;
        }
        if ((int32_t)(end - c->confirm.sent_tail) > 0)
            c->confirm.sent_tail = end;
        if (wc->status == IBV_WC_SUCCESS && wc->opcode != IBV_WC_RDMA_READ) {
            retire_sent(l, c);
            send_moved(l, c);
            return;
        }
        if (wc->status != IBV_WC_SUCCESS)
            for (; ahead > 0; ahead--)
                retire(l, c, SLUICE_EUNKNOWN);
    }
    retire_many(l, c, ahead);
    if (unlikely(wc->status != IBV_WC_SUCCESS)) {
        enum sq_what what = what_is(c, c->sq.head);
        retire(l, c, wc_outcome(s, wc->status, what));
        failed(l, c, wc, what);
    } else {
        retire(l, c, SLUICE_OK);
        if (unlikely(c->sq.follow))
            retire_sent(l, c);
    }
    send_moved(l, c);
}

void send_abandon(struct sluice_loop *l, struct connection *c, sluice_status status) {
    loop_assert_inside(l);
    acknowledged_last(l, c);
    while (c->sq.head != c->sq.tail)
        retire(l, c, status);
}

/*
 * The first of the queue, if some of its fragments were posted. The device may still read these: it goes with the last
 * entry that is one of them, or is behind them and has room for it. The outcome of a request is the entry's that it has.
 */
static void drop_begun(struct sluice_loop *l, struct session *s, struct msg_queue *queue) {
    struct connection *c = session_connection(s);
    struct sluice_msg *msg = queue->head;
    if (!msg || msg->tx.sent == 0)
        return;
    bool request = msg->kind == MSG_REQUEST;
    for (uint32_t i = c->sq.tail; i != c->sq.head; i--) {
        struct sq_entry *entry = &c->sq.entries[(i - 1) & c->sq.mask];
        if (entry->msg || (entry->bytes & SQ_COUNTED) ||
            (connection_keeps(c) && !(entry->bytes & SQ_NUMBERED))) /* it has ended */
            continue;
        msg_queue_pop(queue);
        entry->msg = msg;
        entry->bytes =
            (entry->bytes & SQ_NUMBERED) | SQ_FAILED |
            (request ? msg->tx.id | (uint64_t)SQ_REQUEST << SQ_WHAT_SHIFT : wr_batch_counted(msg));
        return;
    }
    if (!request)
        return; /* as one that was not begun */
    msg_queue_pop(queue);
    rpc_client_completed(l, s, msg, SLUICE_ECLOSED);
}

void send_drop_queue(struct sluice_loop *l, struct session *s, sluice_status status) {
    loop_assert_inside(l);
    struct sluice_msg *msg = s->tx.queue.head;
    fence_forget(s);
    if (msg && (msg->kind == MSG_ONE_SIDED || msg->kind == MSG_IOV)) {
        sluice_status own = status;
        msg_queue_pop(&s->tx.queue);
        if (!transfer_cut(msg, &own))
            finish_unsent(l, s, msg, own);
    } else {
        drop_begun(l, s, &s->tx.queue);
    }
    drop_begun(l, s, &s->tx.replies);
    while ((msg = msg_queue_pop(&s->tx.queue)))
        finish_unsent(l, s, msg, status);
    while ((msg = msg_queue_pop(&s->tx.replies)))
        finish_unsent(l, s, msg, status);
}

void send_expire(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct msg_queue left;
    struct sluice_msg *msg;
    msg_queue_init(&left);
    while ((msg = msg_queue_pop(&s->tx.queue))) {
        if (msg->tx.deadline_ns && msg->tx.sent == 0 && l->now_ns >= msg->tx.deadline_ns) {
            finish_unsent(l, s, msg, SLUICE_ETIMEDOUT);
            continue;
        }
        if (msg->tx.deadline_ns && msg->tx.sent == 0)
            loop_deadline(l, msg->tx.deadline_ns);
        msg_queue_push(&left, msg);
    }
    if (left.head)
        s->tx.queue = left;
    if (s->window.waits_writable)
        send_check_writable(l, s);
}
