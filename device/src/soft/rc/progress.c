/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * progress.c - progress of one QP, by any thread that calls: a poller, a poster, the engine.
 *
 * It places arrived messages into posted receives, retires acknowledged sends, moves queued sends
 * into the ring, and in the ERR state flushes.
 */
#include "soft/rc/progress.h"

#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/srq.h"
#include "soft/rc/completer.h"
#include "soft/rc/rdma_target.h"
#include "soft/rc/requester.h"
#include "soft/rc/responder.h"
#include "soft/ud/ud_recv.h"

static void answers(struct soft_qp *qp) {
    soft_rdma_target_transmit(qp);
    if (qp->answer_head != qp->answer_tail) { /* the ring is full: go on when it is not */
        soft_qp_attend(qp);
        st(qp->need_tick, true);
        soft_qp_timer_want();
    }
}

/* Freed, retired, to transmit and posted follow each other, and no more is posted than there is room for. */
static void assert_kept(struct soft_qp *qp) {
    uint32_t retired = qp->sq_head - qp->sq_free, next = qp->sq_next - qp->sq_free,
             posted = qp->sq_tail - qp->sq_free;
    spin_assert_held(&qp->lock);
    ASSERT(retired <= posted && posted <= qp->sq_mask + 1);
    ASSERT(qp->state != IBV_QPS_RTS || (retired <= next && next <= posted));
}

/* Not through the ring of its own. */
static __attribute__((noinline)) void receive_elsewhere(struct soft_qp *qp, struct sink *sink) {
    if (qp->ud)
        soft_ud_receive(qp, sink);
    else
        soft_tcp_progress(qp, sink);
}

void soft_progress_locked(struct soft_qp *qp, struct sink *sink) {
    spin_assert_held(&qp->lock);
    assert_kept(qp);
    st(qp->attention, false);
    soft_tsan_observe(qp->ibv.qp_num);
    if (__builtin_expect(
            ld(soft_cq_of(qp->ibv.send_cq)->dead) || ld(soft_cq_of(qp->ibv.recv_cq)->dead), 0) &&
        qp->state != IBV_QPS_RESET)
        soft_qp_fail(qp);
    /* The peer that has left may ask by the old key next, and that ends the QP: first what it waited for. */
    if (__builtin_expect(qp->sq_inside.seen != 0, 0) && ld(qp->tx))
        soft_requester(qp);
    soft_retire(qp, sink); /* before receives: a small array has room for few completions */
    if (__builtin_expect(qp->elsewhere, 0))
        receive_elsewhere(qp, sink);
    else
        soft_responder(qp, sink);
    soft_completer(qp, sink);
    if (qp->state == IBV_QPS_ERR) {
        if (!soft_flush(qp, sink))
            soft_qp_attend(qp);
    } else if (ld(qp->tx) || qp->unreliable) {
        uint32_t before = ld(qp->tx_published);
        if (qp->answer_head != qp->answer_tail)
            answers(qp);
        if (qp->sq_next != qp->sq_tail)
            soft_requester(qp);
        soft_requester_ask_room(qp, sink->cq == NULL);
        if (ld(qp->tx_published) != before)
            soft_qp_bell_receiver(qp);
        if (qp->kick_wanted) {
            qp->kick_wanted = false;
            soft_qp_kick(qp);
        }
        if (qp->sq_head != qp->sq_next)
            soft_completer(qp, sink); /* what needed no answer is complete already */
    }
    bool up = qp->state == IBV_QPS_RTS;
    bool backlog = up && qp->sq_next != qp->sq_tail;
    st(qp->backlog, backlog);
    if (backlog)
        st(soft_cq_of(qp->own_send_cq)->attended, true);
    bool plain = up && ld(qp->rx) && !qp->rx_partial && !ld(qp->rx_stalled) && !qp->srq_taken &&
                 qp->rx_inside.seen == 0;
    qp->plain_rx = !plain ? SOFT_NOT_PLAIN : qp->ordered ? SOFT_PLAIN_IN_ORDER : SOFT_PLAIN;
    assert_kept(qp);
    qp->plain_tx =
        up && ld(qp->tx) && !qp->sq_broken && !qp->peer_gone && !qp->unreliable && !qp->iwarp;
}

void soft_qp_progress(struct soft_qp *qp) {
    struct sink sink = {.cq = NULL};
    spin_lock(&qp->lock);
    soft_progress_locked(qp, &sink);
    soft_qp_flush_ack(qp);
    spin_unlock(&qp->lock);
}
