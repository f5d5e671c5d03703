/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_receive.c - puts the peer's messages into posted receives, its WRITEs and answers into memory, its READs and
 * atomics into the queue of answers.
 *
 * Every key, range and right is looked up again for each segment, so memory that goes away between two segments is not
 * written; qp_tcp.c withdraws memory that goes away within a segment.
 *
 * Owner: the QP's lock. All arguments of the operations come from the peer.
 */
#include "soft/iwarp/qp_receive.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "soft/ipc/spinlock.h"
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/inbox.h"
#include "soft/iwarp/qp_ack.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_fault.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/iwarp/qp_transmit.h"
#include "soft/object/cq.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/object/srq.h"
#include "soft/rc/order.h"
#include "soft/rc/progress.h"
#include "soft/rc/rdma.h"
#include "soft/rc/rdma_target.h"
#include "soft/rc/requester.h"
#include "soft/rc/responder.h"
#include "soft/rc/window.h"
#include "soft/soft.h"

/* ---- messages into receives ------------------------------------------------------------------------------ */

static bool take(void *owner) {
    struct soft_qp *qp = owner;
    struct soft_tcp *tcp = qp->tcp;
    tcp->full = !room(tcp->sink, qp->ibv.recv_cq);
    return !tcp->full && soft_tcp_may_take(qp) && soft_receive_get(qp) != NULL;
}

/* The receive that was taken. */
static inline const struct soft_rqe *taken(struct soft_qp *qp) {
    return qp->srq_taken ? qp->srq_rqe : soft_receive_get(qp);
}

/* Adds `bytes` bytes of a list of pieces, from `at` on, to the place; this end's keys must allow writing there. */
static enum iwarp_refusal place_list(const struct soft_qp *qp, const struct ibv_sge *sge,
                                     unsigned count, uint64_t at, uint64_t bytes,
                                     struct iwarp_place *place) {
    for (unsigned i = 0; bytes > 0 && i < count; i++) {
        if (at >= sge[i].length) {
            at -= sge[i].length;
            continue;
        }
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        uint8_t *to =
            mr ? soft_mr_range(mr, sge[i].addr, sge[i].length, IBV_ACCESS_LOCAL_WRITE) : NULL;
        uint64_t n = sge[i].length - at < bytes ? sge[i].length - at : bytes;
        if (!to || !iwarp_place_add(place, to + at, n))
            return IWARP_LOCAL_CATASTROPHIC;
        place->guarded |= mr->region < 0;
        bytes -= n;
        at = 0;
    }
    return bytes > 0 ? IWARP_UNTAGGED_TOO_LONG : IWARP_FINE;
}

static enum iwarp_refusal receive(void *owner, uint32_t at, uint32_t bytes,
                                  struct iwarp_place *place) {
    struct soft_qp *qp = owner;
    const struct soft_rqe *rqe = taken(qp);
    return rqe ? place_list(qp, rqe->sge, rqe->num_sge, at, bytes, place)
               : IWARP_LOCAL_CATASTROPHIC;
}

static enum iwarp_refusal invalidate(void *owner, uint32_t stag) {
    struct soft_qp *qp = owner;
    enum ibv_wc_status status;
    /* Over TCP only this process accesses the memory, so there is no access of a peer to wait for. */
    bool done = soft_mw_invalidate(qp, stag, &status) && status == IBV_WC_SUCCESS;
    qp->tcp->guessed = !done;
    return done ? IWARP_FINE : IWARP_REMOTE_INVALIDATE;
}

void soft_tcp_complete_receive(struct soft_qp *qp, const struct ibv_wc *wc, bool solicited) {
    struct sink *sink = qp->tcp->sink;
    struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    soft_receive_done(qp);
    /*
     * The array had room when the receive was taken, but another call may have filled it since. Then the completion
     * goes to the CQ's ring, where no later one overtakes it.
     */
    if (sink->cq != cq || sink->n < sink->ne)
        emit(sink, qp->ibv.recv_cq, wc, solicited);
    else if (!soft_cq_push(cq, wc, solicited))
        soft_cq_overrun(cq);
}

static void deliver(void *owner, const struct iwarp_message *message) {
    struct soft_qp *qp = owner;
    struct ibv_wc wc = {.wr_id = taken(qp)->wr_id,
                        .status = IBV_WC_SUCCESS,
                        .opcode = IBV_WC_RECV,
                        .byte_len = message->bytes,
                        .qp_num = qp->ibv.qp_num,
                        .src_qp = qp->attr.dest_qp_num};
    if (iwarp_opcode_invalidates(message->opcode)) {
        wc.wc_flags = IBV_WC_WITH_INV;
        wc.invalidated_rkey = message->stag;
    } else if (iwarp_opcode_extended(message->opcode)) {
        wc.wc_flags = IBV_WC_WITH_IMM;
        memcpy(&wc.imm_data, message->immediate, sizeof wc.imm_data);
    }
    if (iwarp_opcode_immediate(message->opcode)) {
        wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        wc.byte_len = message->written_bytes;
    }
    soft_tcp_complete_receive(qp, &wc, iwarp_opcode_solicited(message->opcode));
}

/* ---- the peer's one-sided operations --------------------------------------------------------------------- */

struct target {
    uint8_t *at;   /* NULL: of no bytes */
    bool unpinned; /* the application's own memory, which may be unmapped */
};

/*
 * Checks the QP's right first. A key of memory that does not allow this, or not there, is refused as one of no memory is,
 * and counts like it: otherwise a peer would look for keys without their addresses, and then for these.
 */
static enum iwarp_refusal reach(struct soft_qp *qp, uint32_t stag, uint64_t offset, uint32_t bytes,
                                int access, bool tagged, struct target *target) {
    *target = (struct target){0};
    if (!((int)qp->attr.qp_access_flags & access))
        return IWARP_REMOTE_RIGHTS;
    if (bytes == 0)
        return IWARP_FINE;
    const struct soft_mr *mr = soft_mr_find_remote(stag, qp);
    if (mr && (mr->access & access) == access)
        target->at = soft_mr_range(mr, offset, bytes, access);
    qp->tcp->guessed = !target->at;
    if (!target->at)
        return tagged ? IWARP_TAGGED_STAG : IWARP_REMOTE_STAG;
    target->unpinned = mr->region < 0;
    return IWARP_FINE;
}

static enum iwarp_refusal write_to(void *owner, uint32_t stag, uint64_t offset, uint32_t bytes,
                                   struct iwarp_place *place) {
    struct soft_qp *qp = owner;
    struct target target;
    enum iwarp_refusal refusal =
        reach(qp, stag, offset, bytes, IBV_ACCESS_REMOTE_WRITE, true, &target);
    if (refusal != IWARP_FINE)
        return refusal;
    qp->rx_key = stag; /* rx_left becomes 0 when the key is taken back */
    qp->rx_left = bytes;
    place->guarded = target.unpinned;
    return iwarp_place_add(place, target.at, bytes) ? IWARP_FINE : IWARP_LOCAL_CATASTROPHIC;
}

static bool asks_nothing(const struct soft_tcp *tcp, uint32_t at) {
    return tcp->acks && !tcp->asked_atomic[at % SOFT_RD_ATOMIC] &&
           tcp->asked[at % SOFT_RD_ATOMIC].bytes == 0;
}

/* More requests of the peer wait for answers than agreed. Empty READs do not count, but need an entry of answer[]. */
static bool too_many(const struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    uint32_t waiting = qp->answer_tail - qp->answer_head;
    if (waiting >= SOFT_RD_ATOMIC)
        return true;
    for (uint32_t at = qp->answer_head; at != qp->answer_tail; at++)
        waiting -= asks_nothing(tcp, at);
    return waiting >= tcp->ird || waiting >= qp->attr.max_dest_rd_atomic;
}

/* The answer to an empty READ acknowledges what came before it (qp_ack.h). */
static bool is_ack(const struct soft_qp *qp, const struct iwarp_read *read) {
    return qp->tcp->acks && read->bytes == 0 && qp->answer_tail - qp->answer_head < SOFT_RD_ATOMIC;
}

static enum iwarp_refusal read_from(void *owner, const struct iwarp_read *read) {
    struct soft_qp *qp = owner;
    struct target source = {0};
    if (!is_ack(qp, read)) {
        if (too_many(qp))
            return IWARP_OPERATION_STREAM;
        enum iwarp_refusal refusal = reach(qp, read->source_stag, read->source_offset, read->bytes,
                                           IBV_ACCESS_REMOTE_READ, false, &source);
        if (refusal != IWARP_FINE)
            return refusal;
    }
    struct soft_answer *answer = &qp->answer[qp->answer_tail % SOFT_RD_ATOMIC];
    *answer = (struct soft_answer){.from = source.at ? source.at : (const uint8_t *)&answer->value,
                                   .left = read->bytes,
                                   .key = read->source_stag};
    qp->tcp->asked[qp->answer_tail % SOFT_RD_ATOMIC] = *read;
    qp->tcp->asked_atomic[qp->answer_tail % SOFT_RD_ATOMIC] = false;
    qp->answer_tail++;
    return IWARP_FINE;
}

/* Executes the atomic at once; its answer goes behind those of earlier requests. */
static enum iwarp_refusal atomic(void *owner, const struct iwarp_atomic *request) {
    struct soft_qp *qp = owner;
    struct target target;
    if (too_many(qp))
        return IWARP_OPERATION_STREAM;
    if (request->offset % sizeof(uint64_t) != 0)
        return IWARP_OPERATION_OTHER;
    enum iwarp_refusal refusal = reach(qp, request->stag, request->offset, sizeof(uint64_t),
                                       IBV_ACCESS_REMOTE_ATOMIC, false, &target);
    if (refusal != IWARP_FINE)
        return refusal;
    if ((uintptr_t)target.at % sizeof(uint64_t) != 0) /* the registration's memory is not aligned */
        return IWARP_REMOTE_BOUNDS;
    bool swap = request->kind == IWARP_COMPARE_AND_SWAP;
    struct soft_answer *answer = &qp->answer[qp->answer_tail % SOFT_RD_ATOMIC];
    *answer = (struct soft_answer){.from = (const uint8_t *)&answer->value, .key = request->stag};
    if (!soft_atomic_guarded((uint64_t *)(void *)target.at, swap,
                             swap ? request->compare : request->value, request->value,
                             &answer->value))
        return IWARP_LOCAL_CATASTROPHIC;
    qp->tcp->asked[qp->answer_tail % SOFT_RD_ATOMIC] =
        (struct iwarp_read){.sink_stag = request->id};
    qp->tcp->asked_atomic[qp->answer_tail % SOFT_RD_ATOMIC] = true;
    qp->answer_tail++;
    return IWARP_FINE;
}

/* ---- answers to READs and atomics of this end ------------------------------------------------------------ */

static struct soft_wqe *oldest_waiting(struct soft_qp *qp) {
    if (qp->waiting == 0)
        return NULL;
    while (qp->wait_index != qp->sq_next && !wqe_at(qp, qp->wait_index)->waiting)
        qp->wait_index++;
    return qp->wait_index != qp->sq_next ? wqe_at(qp, qp->wait_index) : NULL;
}

static bool reading(void *owner, struct iwarp_read *read) {
    struct soft_qp *qp = owner;
    if (__builtin_expect(qp->tcp->rtr_answered, 0)) {
        *read = (struct iwarp_read){.bytes = 0};
        return true;
    }
    if (soft_tcp_ack_is_next(qp->tcp)) {
        *read = (struct iwarp_read){.bytes = 0};
        return soft_tcp_was_sent(qp->tcp, qp->tcp->ack[qp->tcp->ack_head].at);
    }
    const struct soft_wqe *wqe = oldest_waiting(qp);
    if (!wqe || is_atomic(wqe->opcode) || !soft_tcp_was_sent(qp->tcp, wqe->end))
        return false;
    *read = soft_tcp_read(qp, wqe, qp->wait_index);
    return true;
}

static enum iwarp_refusal response(void *owner, uint32_t at, uint32_t bytes,
                                   struct iwarp_place *place) {
    struct soft_qp *qp = owner;
    const struct soft_wqe *wqe = oldest_waiting(qp);
    if (!wqe ||
        place_list(qp, wqe_sges(qp, qp->wait_index), wqe->num_sge, at, bytes, place) != IWARP_FINE)
        return IWARP_LOCAL_CATASTROPHIC;
    return IWARP_FINE;
}

static void read_done(void *owner) {
    struct soft_qp *qp = owner;
    if (__builtin_expect(qp->tcp->rtr_answered, 0)) {
        qp->tcp->rtr_answered = false;
        return;
    }
    if (soft_tcp_ack_is_next(qp->tcp)) {
        soft_tcp_ack_came(qp);
        return;
    }
    struct soft_wqe *wqe = oldest_waiting(qp);
    if (!wqe)
        return;
    wqe->waiting = false;
    qp->waiting--;
    qp->wait_index++;
    soft_tcp_answer_came(qp, wqe->end);
}

static enum iwarp_refusal atomic_done(void *owner, const struct iwarp_atomic_response *answer) {
    struct soft_qp *qp = owner;
    const struct soft_wqe *wqe = oldest_waiting(qp);
    if (soft_tcp_ack_is_next(qp->tcp) || !wqe || !is_atomic(wqe->opcode) ||
        answer->id != qp->wait_index || !soft_tcp_was_sent(qp->tcp, wqe->end))
        return IWARP_DDP_CATASTROPHIC;
    if (!soft_scatter_local(qp, wqe, wqe_sges(qp, qp->wait_index), 0, &answer->before,
                            sizeof answer->before))
        return IWARP_LOCAL_CATASTROPHIC;
    read_done(qp);
    return IWARP_FINE;
}

static void terminated(void *owner, const struct iwarp_terminate *terminate) {
    struct soft_qp *qp = owner;
    qp->tcp->peer_says = terminate->refusal;
    soft_tcp_ack_refused(qp, terminate);
}

/* ---- in order (rc/order.h) --------------------------------------------------------------------------------- */

static bool take_in_order(void *owner) {
    struct soft_qp *qp = owner;
    if (qp->sq_head != qp->sq_next && !soft_order_own_first(qp, qp->tcp->sink)) {
        qp->tcp->full = true;
        return false;
    }
    return take(owner);
}

static void deliver_in_order(void *owner, const struct iwarp_message *message) {
    struct soft_qp *qp = owner;
    deliver(owner, message);
    if (qp->tcp->acks && qp->tcp->rtr == IWARP_RTR_NONE)
        qp->tcp->rtr = SOFT_TCP_TELL;
}

static bool empty(void *owner, uint32_t stag, uint64_t offset) {
    struct soft_qp *qp = owner;
    bool told = stag == SOFT_TCP_TOLD && qp->tcp->acks;
    if (told)
        soft_tcp_told(qp, (uint32_t)offset);
    return told;
}

#define RX_OPS(take_with, deliver_with)                                                            \
    {                                                                                              \
        .take = (take_with), .receive = receive, .invalidate = invalidate,                         \
        .deliver = (deliver_with), .write = write_to, .reading = reading, .response = response,    \
        .read_done = read_done, .read = read_from, .atomic = atomic, .atomic_done = atomic_done,   \
        .terminated = terminated, .empty = empty                                                   \
    }

const struct iwarp_rx_ops soft_tcp_rx_ops = RX_OPS(take, deliver);
const struct iwarp_rx_ops soft_tcp_rx_ops_in_order = RX_OPS(take_in_order, deliver_in_order);

/* ---- a turn ---------------------------------------------------------------------------------------------- */

/* False: a message waits for a receive, or the poller's array is full, or the QP's state does not receive. */
static bool may_read(struct soft_qp *qp) {
    const struct sink *sink = qp->tcp->sink;
    if (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
        return false;
    if (sink->cq == soft_cq_of(qp->ibv.recv_cq) && sink->n == sink->ne) {
        qp->tcp->full = true;
        return false;
    }
    if (ld(qp->rx_stalled) && qp->srq)
        st(qp->rx_stalled,
           atomic_load_explicit(&qp->srq->posts, memory_order_acquire) == ld(qp->srq_seen));
    return !ld(qp->rx_stalled);
}

static void stall(struct soft_qp *qp) {
    if (qp->tcp->full || qp->tcp->take_held)
        return;
    atomic_fetch_add_explicit(&soft_rnr, 1, memory_order_relaxed);
    qp->tcp->starved_ns = 0;
    st(qp->rx_stalled, true); /* until a receive is posted */
}

bool soft_tcp_receive(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    size_t moved = 0;
    tcp->full = tcp->left = false;
    /* After an error in sending, all that the peer sent is still read. */
    if (tcp->dry && !tcp->by_engine && tcp->error == 0 && soft_tcp_in_crowd(qp))
        return false;
    if (!may_read(qp) || !iwarp_inbox_take(&tcp->inbox))
        return false;
    soft_tcp_listen(qp, true);
    /* A work request invalidated the window that the current segment is written through. */
    if (soft_tcp_is_written(tcp) && qp->rx_left == 0)
        iwarp_rx_withdraw(&tcp->rx, IWARP_TAGGED_STAG);
    int error = iwarp_stream_receive(tcp->fd, &tcp->rx, &tcp->inbox, SOFT_TCP_TURN, &moved);
    tcp->dry = error == EAGAIN;
    tcp->left = error == 0 && tcp->rx.status == IWARP_RX_OPEN;
    /* One of a few that are read in every poll keeps it until it cools. */
    if (tcp->inbox.at == tcp->inbox.end && (!tcp->hot || tcp->by_engine || soft_tcp_in_crowd(qp)))
        iwarp_inbox_give(&tcp->inbox);
    if (tcp->rx.status == IWARP_RX_WAITING && tcp->take_status != 0)
        soft_tcp_refuse_take(qp);
    else if (tcp->rx.status == IWARP_RX_WAITING)
        stall(qp);
    else if (tcp->rx.status == IWARP_RX_REFUSED)
        soft_tcp_refuse(qp, tcp->sink);
    else if (tcp->rx.status == IWARP_RX_TERMINATED)
        soft_tcp_lost(qp, tcp->sink, iwarp_refusal_of_request(tcp->peer_says));
    else if (error != 0 && error != EAGAIN)
        soft_tcp_lost(qp, tcp->sink, IBV_WC_RETRY_EXC_ERR);
    return moved > 0;
}
