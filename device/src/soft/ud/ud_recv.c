/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ud_recv.c - takes datagrams out of the rings into receives, or drops them.
 *
 * A datagram that has no receive, is too long for it, has the wrong key, or comes for a group the QP is not in
 * is dropped and counted; the receive stays for the next one.
 *
 * Owner: the QP's lock.
 */
#include "soft/ud/ud_recv.h"

#include <stdatomic.h>
#include <string.h>

#include "soft/fault/inject.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/device.h"
#include "soft/object/qp.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/rc/responder.h"
#include "soft/rc/scatter.h"
#include "soft/ud/ud.h"

#define BUDGET 64 /* datagrams of one ring in a row: the others have their turn */
#define NEXT_HEADER 0x1b

static void advance(struct soft_ud_in *in, unsigned span) {
    in->pos += span;
    in->index += span;
    if (in->index >= SOFT_UD_SLOTS)
        in->index -= SOFT_UD_SLOTS;
}

static bool in_group(const struct soft_ud *ud, const uint8_t *gid) {
    for (unsigned i = 0; i < ud->group_count; i++)
        if (memcmp(ud->group[i].raw, gid, 16) == 0)
            return true;
    return false;
}

static bool holds(const struct soft_rqe *rqe, uint64_t bytes) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < rqe->num_sge; i++)
        sum += rqe->sge[i].length;
    return sum >= bytes;
}

/* GRH and payload into the receive. */
static enum scatter_result place(struct soft_qp *qp, const struct soft_rqe *rqe,
                                 const struct soft_ud_in *in, const struct soft_ud_head *head) {
    struct ibv_grh grh = {.version_tclass_flow = htobe32(6u << 28) | head->tclass_flow,
                          .paylen = htobe16((uint16_t)(head->len + 24)), /* with BTH, DETH, ICRC */
                          .next_hdr = NEXT_HEADER,
                          .hop_limit = head->hop_limit};
    memcpy(grh.sgid.raw, head->sgid, 16);
    memcpy(grh.dgid.raw, head->dgid, 16);
    qp->rx_offset = 0;
    enum scatter_result placed = soft_scatter(qp, rqe, (const uint8_t *)&grh, sizeof grh);
    unsigned index = in->index, first = head->len < SOFT_UD_FIRST ? head->len : SOFT_UD_FIRST;
    if (placed == SCATTER_DONE && first)
        placed = soft_scatter(qp, rqe, in->ring->slot[index].first, first);
    for (unsigned at = first; placed == SCATTER_DONE && at < head->len; at += SOFT_UD_MORE) {
        index = soft_ud_next(index);
        unsigned n = head->len - at < SOFT_UD_MORE ? head->len - at : SOFT_UD_MORE;
        placed = soft_scatter(qp, rqe, in->ring->slot[index].more, n);
    }
    qp->rx_offset = 0;
    return placed;
}

static void complete(struct soft_qp *qp, struct sink *sink, const struct soft_rqe *rqe,
                     const struct soft_ud_in *in, const struct soft_ud_head *head) {
    struct ibv_wc wc = {.wr_id = rqe->wr_id,
                        .status = IBV_WC_SUCCESS,
                        .opcode = IBV_WC_RECV,
                        .byte_len = SOFT_UD_GRH + head->len,
                        .imm_data = head->imm,
                        .qp_num = qp->ibv.qp_num,
                        .src_qp = in->from_qpn,
                        .wc_flags =
                            IBV_WC_GRH | (head->flags & SOFT_UD_F_IMM ? IBV_WC_WITH_IMM : 0),
                        .sl = head->sl & 15};
    soft_receive_done(qp);
    emit(sink, qp->ibv.recv_cq, &wc, (head->flags & SOFT_UD_F_SOLICITED) != 0);
}

static bool listens(const struct soft_qp *qp) {
    return (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) &&
           !atomic_load_explicit(&soft_port_down, memory_order_relaxed);
}

/* PASS: it may be taken. HOLD: not now. BREAK: it ended the QP, or will when there is a receive. */
static enum soft_fault_verdict fault_says(struct soft_qp *qp, struct sink *sink) {
    int status = 0;
    enum soft_fault_verdict verdict = soft_fault_receive(qp, NULL, &status);
    struct soft_rqe *rqe = verdict == SOFT_FAULT_BREAK ? soft_receive_get(qp) : NULL;
    if (rqe) {
        struct ibv_wc wc = error_wc(qp, rqe->wr_id, (enum ibv_wc_status)status, IBV_WC_RECV);
        soft_receive_done(qp);
        emit(sink, qp->ibv.recv_cq, &wc, true);
        soft_qp_fail(qp);
    }
    return verdict;
}

/* Why it goes nowhere, or -1: it is for us. */
static int unwanted(const struct soft_qp *qp, const struct soft_ud_head *head) {
    if (!listens(qp))
        return SOFT_DROP_STATE;
    if ((head->flags & SOFT_UD_F_GROUP) && !in_group(qp->ud, head->dgid))
        return SOFT_DROP_STATE;
    return head->qkey != qp->attr.qkey ? SOFT_DROP_QKEY : -1;
}

/* The datagram at the reader's place. False: it stays there. */
static bool take(struct soft_qp *qp, struct sink *sink, struct soft_ud_in *in) {
    struct soft_ud_head head = in->ring->slot[in->index].head;
    atomic_signal_fence(memory_order_seq_cst); /* read once */
    if (head.len > SOFT_UD_MTU)
        head.len = SOFT_UD_MTU; /* nonsense, but no more than that */
    unsigned span = soft_ud_span(head.len);
    int why = unwanted(qp, &head);
    if (why < 0) {
        if (!room(sink, qp->ibv.recv_cq))
            return false;
        if (soft_fault_active() && soft_receive_get(qp)) {
            enum soft_fault_verdict verdict = fault_says(qp, sink);
            if (verdict == SOFT_FAULT_HOLD)
                return false;
            if (verdict == SOFT_FAULT_BREAK) {
                advance(in, span);
                return true;
            }
        }
        const struct soft_rqe *rqe = soft_receive_get(qp);
        why = !rqe                                           ? SOFT_DROP_NO_RECEIVE
              : holds(rqe, (uint64_t)SOFT_UD_GRH + head.len) ? -1
                                                             : SOFT_DROP_TOO_LONG;
        if (why < 0 && place(qp, rqe, in, &head) != SCATTER_DONE) {
            struct ibv_wc wc = error_wc(qp, rqe->wr_id, IBV_WC_LOC_PROT_ERR, IBV_WC_RECV);
            soft_receive_done(qp);
            emit(sink, qp->ibv.recv_cq, &wc, true);
            soft_qp_fail(qp);
        } else if (why < 0) {
            complete(qp, sink, rqe, in, &head);
        }
    }
    if (why >= 0)
        soft_drop(qp, (enum soft_drop)why);
    advance(in, span);
    return true;
}

/* False: no more completions fit. */
static bool take_ring(struct soft_qp *qp, struct sink *sink, struct soft_ud_in *in) {
    uint32_t before = in->pos;
    bool more = true;
    for (unsigned n = 0; n < BUDGET && more; n++) {
        if (atomic_load_explicit(&in->ring->slot[in->index].seq, memory_order_acquire) !=
            in->pos + 1)
            break;
        more = take(qp, sink, in);
    }
    if (in->pos != before) {
        in->turn = ++qp->ud->turn;
        atomic_store_explicit(&in->ring->rx.acked, in->pos, memory_order_release);
    }
    return more;
}

bool soft_ud_arrived(struct soft_qp *qp) {
    bool any = false;
    spin_lock(&qp->lock);
    for (unsigned i = 0; i < qp->ud->in_count && !any; i++) {
        const struct soft_ud_in *in = qp->ud->in[i];
        any = ld(in->ring->slot[in->index].seq) == in->pos + 1;
    }
    spin_unlock(&qp->lock);
    return any;
}

void soft_ud_receive(struct soft_qp *qp, struct sink *sink) {
    struct soft_ud *ud = qp->ud;
    if (ud->in_count == 0)
        return;
    st(qp->attention, true); /* what pollers look at: there are rings to look into */
    unsigned at = ud->in_next < ud->in_count ? ud->in_next : 0;
    for (unsigned n = 0; n < ud->in_count; n++) {
        if (!take_ring(qp, sink, ud->in[at])) {
            ud->in_next = at; /* here it goes on */
            return;
        }
        at = at + 1 < ud->in_count ? at + 1 : 0;
    }
    ud->in_next = at + 1;
}

void soft_ud_starts(struct soft_qp *qp, enum ibv_qp_state to) {
    if (!qp->ud || to != IBV_QPS_RTR || qp->state != IBV_QPS_INIT)
        return;
    for (unsigned i = 0; i < qp->ud->in_count; i++)
        for (unsigned n = 0; n <= SOFT_UD_SLOTS / BUDGET; n++)
            take_ring(qp, &(struct sink){.cq = NULL}, qp->ud->in[i]);
}
