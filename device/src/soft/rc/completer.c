/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * completer.c - completion of sends, the end of a QP, and its flush.
 *
 * Owner: the QP's lock.
 */
#include "soft/rc/completer.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/async_event.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/recv_queue.h"
#include "soft/object/ring.h"
#include "soft/object/srq.h"
#include "soft/object/upcalls.h"
#include "soft/rc/process_copy.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/rc/responder.h"
#include "soft/rc/rkey_fence.h"
#include "soft/rc/stage.h"

/* ---- error state -------------------------------------------------------------------------------- */

static bool head_acked(struct soft_qp *qp) {
    const struct soft_wqe *wqe = &qp->sq[qp->sq_head & qp->sq_mask];
    return qp->sq_head != qp->sq_next && (int32_t)(ld(qp->tx_acked) - wqe->end) >= 0 &&
           !wqe->waiting && wqe->status == IBV_WC_SUCCESS;
}

/* Enters ERR: no more traffic either way, the peer is shown, everything posted will be flushed. */
void soft_qp_fail(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    if (qp->state == IBV_QPS_ERR)
        return;
    struct soft_ring *rx = ld(qp->rx), *tx = ld(qp->tx);
    if (rx) {
        atomic_store_explicit(&rx->rx.acked, ld(qp->rx_pos), memory_order_release);
        atomic_store_explicit(&rx->rx.down, 1, memory_order_release);
        soft_qp_news(qp);
    }
    if (tx)
        atomic_store_explicit(&tx->tx.down, 1, memory_order_release);
    /* Before anything of what is flushed is written. Partner: the fence in described.h. */
    atomic_thread_fence(memory_order_seq_cst);
    soft_stage_release(qp);
    if (qp->iwarp) { /* its connection ends with it; the engine tells */
        st(qp->fell, true);
        qp->flush_late = true;
        st(qp->need_tick, true);
        soft_qp_timer_want();
    }
    if (qp->tcp)
        soft_object_upcalls.tcp_down(qp);
    if (rx && qp->opened)
        soft_rkey_fence_begin(qp);
    qp->state = qp->ibv.state = IBV_QPS_ERR;
    qp->rq_flush_end = qp->rq.tail;
    qp->plain_rx = SOFT_NOT_PLAIN;
    qp->plain_tx = false;
    qp->sq_broken = false;
    qp->answer_head = qp->answer_tail;
    qp->waiting = 0;
    qp->rx_left = 0;
    qp->sq_inside = qp->rx_inside = (struct soft_rkey_wait){0};
    st(qp->unretired, 0);
    st(qp->awaited, false);
    st(qp->backlog, false);
    st(qp->rx_stalled, false);
    soft_qp_attend(qp);
}

/* No thread touches memory of what is posted any more. Else the tick looks again. */
static bool copies_no_more(struct soft_qp *qp) {
    if (__builtin_expect(!qp->copy, 1) || soft_process_copy_leave(qp))
        return true;
    st(qp->need_tick, true);
    soft_qp_timer_want();
    return false;
}

bool soft_flush(struct soft_qp *qp, struct sink *sink) {
    spin_assert_held(&qp->lock);
    /* Sends acknowledged before complete as such; from the first flush on no send does any more. */
    if (!qp->flushing && head_acked(qp))
        return false;
    if (__builtin_expect(qp->leaving.seen != 0, 0) &&
        soft_rkey_fence_poll(qp, &qp->leaving) == SOFT_RKEY_FENCE_INSIDE) {
        st(qp->need_tick, true);
        soft_qp_timer_want();
        return false;
    }
    if (!copies_no_more(qp))
        return false;
    qp->flushing = true;
    bool solicited = soft_profile()->flush_is_solicited;
    st(qp->awaited, false);
    while (qp->sq_head != qp->sq_tail) {
        if (!room_to_flush(sink, qp->ibv.send_cq))
            return false;
        struct soft_wqe *wqe = &qp->sq[qp->sq_head++ & qp->sq_mask];
        struct ibv_wc wc = error_wc(qp, wqe->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND);
        qp->sq_free = qp->sq_next = qp->sq_head; /* from here on no acknowledgement counts */
        emit(sink, qp->ibv.send_cq, &wc, solicited);
    }
    if (qp->srq) {
        /* shared receives stay for the others; one half filled is ours to end */
        if (qp->srq_taken) {
            if (!room_to_flush(sink, qp->ibv.recv_cq))
                return false;
            struct ibv_wc wc = error_wc(qp, qp->srq_rqe->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
            qp->srq_taken = false;
            emit(sink, qp->ibv.recv_cq, &wc, solicited);
        }
        if (!qp->last_wqe_told) {
            qp->last_wqe_told = true;
            if (soft_profile()->last_wqe_event)
                soft_async_event(qp->ibv.context, IBV_EVENT_QP_LAST_WQE_REACHED, &qp->ibv);
        }
        return true;
    }
    uint32_t end = soft_profile()->flushes_later ? qp->rq.tail : qp->rq_flush_end;
    while (qp->rq.head != end && !qp->flush_late) {
        if (!room_to_flush(sink, qp->ibv.recv_cq))
            return false;
        struct ibv_wc wc = error_wc(qp, rqe_head(&qp->rq)->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
        qp->rq.head++;
        emit(sink, qp->ibv.recv_cq, &wc, solicited);
    }
    return true;
}

/* TCP's end is all that an iWARP device learns of the peer's trouble. */
static enum ibv_wc_status told(const struct soft_qp *qp, enum ibv_wc_status status) {
    bool remote = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
                  status == IBV_WC_REM_OP_ERR || status == IBV_WC_RETRY_EXC_ERR ||
                  status == IBV_WC_RNR_RETRY_EXC_ERR;
    return qp->iwarp && remote ? IBV_WC_WR_FLUSH_ERR : status;
}

/* The send at the head ends with this status and takes the QP down. False: no room yet. */
static bool fail_head(struct soft_qp *qp, struct sink *sink, enum ibv_wc_status status) {
    if (!copies_no_more(qp))
        return false;
    if (!room(sink, qp->ibv.send_cq)) {
        soft_qp_attend(qp);
        return false;
    }
    struct soft_wqe *wqe = &qp->sq[qp->sq_head++ & qp->sq_mask];
    struct ibv_wc wc = error_wc(qp, wqe->wr_id, told(qp, status), IBV_WC_SEND);
    qp->sq_free = qp->sq_next = qp->sq_head; /* no success may follow */
    soft_qp_fail(qp);
    emit(sink, qp->ibv.send_cq, &wc, true);
    return true;
}

/* ---- completion of sends ------------------------------------------------------------------------ */

static enum ibv_wc_status nak_status(uint64_t nak) {
    switch ((enum soft_nak)(nak & 0xff)) {
    case SOFT_NAK_REMOTE_ACCESS:
        return IBV_WC_REM_ACCESS_ERR;
    case SOFT_NAK_REMOTE_OPERATION:
        return IBV_WC_REM_OP_ERR;
    case SOFT_NAK_NONE:
    case SOFT_NAK_INVALID_REQUEST:
        break;
    }
    return IBV_WC_REM_INV_REQ_ERR;
}

enum ibv_wc_opcode soft_wc_opcode(unsigned opcode) {
    switch ((enum ibv_wr_opcode)opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    case IBV_WR_LOCAL_INV:
        return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW:
        return IBV_WC_BIND_MW;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_TSO:
    case IBV_WR_DRIVER1:
#ifdef HAVE_IBV_WR_FLUSH
    case IBV_WR_FLUSH:
#endif
    case IBV_WR_ATOMIC_WRITE:
        break;
    }
    return IBV_WC_SEND;
}

/*
 * Unsignalled sends are not looked at one by one: a poller waits until the oldest signalled
 * one is answered, which retires those before it. Each is looked at once; a send that still waits for an
 * answer of its own stops the search until the long way has retired it.
 */
void soft_find_due(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    uint32_t at = qp->sq_looked;
    if ((int32_t)(at - qp->sq_head) < 0)
        at = qp->sq_head;
    bool found = false;
    /* An error takes sq_next back to sq_head: what was looked at may lie behind the end. */
    if ((int32_t)(at - qp->sq_next) > 0)
        at = qp->sq_next;
    for (; at != qp->sq_next; at++) {
        const struct soft_wqe *wqe = &qp->sq[at & qp->sq_mask];
        found = (wqe->flags & IBV_SEND_SIGNALED) && !(wqe->bits & SOFT_WQE_HELD);
        if (found)
            st(qp->due, wqe->end);
        if (found || wqe->bits & SOFT_WQE_HELD)
            break;
    }
    qp->sq_looked = at;
    st(qp->awaited, found);
}

void soft_retire(struct soft_qp *qp, struct sink *sink) {
    spin_assert_held(&qp->lock);
    if (qp->flushing)
        return;
    uint32_t acked = ld(qp->tx_acked);
    while (qp->sq_head != qp->sq_next) {
        struct soft_wqe *wqe = &qp->sq[qp->sq_head & qp->sq_mask];
        if ((int32_t)(acked - wqe->end) < 0 || wqe->waiting || wqe->status != IBV_WC_SUCCESS)
            break;
        if (wqe->flags & IBV_SEND_SIGNALED) {
            if (!room(sink, qp->ibv.send_cq)) {
                soft_qp_attend(qp);
                break;
            }
            struct ibv_wc wc = {.wr_id = wqe->wr_id,
                                .status = IBV_WC_SUCCESS,
                                .opcode = soft_wc_opcode(wqe->opcode),
                                .byte_len = wqe->total,
                                .qp_num = qp->ibv.qp_num};
            qp->sq_free = ++qp->sq_head;
            emit(sink, qp->ibv.send_cq, &wc, false);
        } else {
            qp->sq_head++; /* its place is free again when a later one completes */
        }
    }
    st(qp->unretired, qp->sq_tail - qp->sq_head);
    if (__builtin_expect(qp->staged != 0, 0))
        soft_stage_reclaim(qp);
    if (!ld(qp->awaited) || (int32_t)(qp->sq_looked - qp->sq_head) < 0)
        soft_find_due(qp);
}

bool soft_dropin;

/* The peer is not there any more: would a NIC have given up by now? The tick comes to look again. */
static bool retries_over(struct soft_qp *qp) {
    uint64_t now = soft_now_ns();
    if (qp->down_since_ns == 0)
        qp->down_since_ns = now;
    if (qp->attr.timeout != 0 &&
        now - qp->down_since_ns > (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1u))
        return true;
    st(qp->need_tick, true);
    soft_qp_timer_want();
    return false;
}

/*
 * The peer is down, as was seen just now. What it sent before that came meanwhile, or did not fit in the poller's array:
 * it is taken before the oldest send fails and ends the queue pair, if need be by the next poll.
 */
static void peer_is_down(struct soft_qp *qp, struct sink *sink) {
    struct soft_ring *rx = ld(qp->rx);
    if (rx && !qp->unreliable) {
        soft_responder(qp, sink);
        soft_retire(qp, sink);
        bool full = sink->cq == soft_cq_of(qp->ibv.recv_cq) && sink->n == sink->ne;
        if (full && !ld(qp->rx_stalled) && arrived(qp, rx)) {
            soft_qp_attend(qp);
            return;
        }
    }
    if (qp->state == IBV_QPS_RTS && qp->sq_head != qp->sq_tail && !head_acked(qp))
        fail_head(qp, sink, IBV_WC_RETRY_EXC_ERR);
}

/* Acknowledgements, refusals and the end of the peer. */
void soft_completer(struct soft_qp *qp, struct sink *sink) {
    spin_assert_held(&qp->lock);
    if (qp->flushing)
        return;
    struct soft_ring *tx = ld(qp->tx), *rx = ld(qp->rx);
    uint64_t nak = 0;
    bool down = qp->peer_gone;
    if (qp->unreliable) { /* UC: there is no answer; only an error on this side ends it */
        down = false;
        if (tx)
            (void)note_ack(qp, atomic_load_explicit(&tx->rx.acked, memory_order_acquire));
        tx = NULL;
    }
    /* read the verdicts before the acknowledgement that was stored before them, all of them */
    if (!qp->unreliable && rx && atomic_load_explicit(&rx->tx.down, memory_order_acquire))
        down |= atomic_load_explicit(&rx->slot[ld(qp->rx_index)].seq, memory_order_acquire) !=
                ld(qp->rx_pos) + 1; /* what it sent before still counts */
    if (tx) {
        down |= atomic_load_explicit(&tx->rx.down, memory_order_acquire) != 0;
        nak = atomic_load_explicit(&tx->rx.nak, memory_order_acquire);
        if (!note_ack(qp, atomic_load_explicit(&tx->rx.acked, memory_order_acquire)))
            down = true;
    }
    soft_retire(qp, sink);
    if (qp->sq_head == qp->sq_tail || qp->state != IBV_QPS_RTS)
        return;
    struct soft_wqe *wqe = &qp->sq[qp->sq_head & qp->sq_mask];
    if (head_acked(qp))
        return; /* waits for room in the CQ */
    if (nak)
        fail_head(qp, sink, nak_status(nak));
    else if (down && (!soft_dropin || retries_over(qp)))
        peer_is_down(qp, sink);
    else if (wqe->status != IBV_WC_SUCCESS && !wqe->waiting &&
             (qp->sq_head == qp->sq_next || (int32_t)(ld(qp->tx_acked) - wqe->end) >= 0))
        fail_head(qp, sink, (enum ibv_wc_status)wqe->status);
    else if (qp->give_up)
        fail_head(qp, sink, (enum ibv_wc_status)qp->give_up);
}
