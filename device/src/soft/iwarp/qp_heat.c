/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_heat.c - see qp_heat.h.
 *
 * The engine compares the CQs' counts of polls from one event, or tick, to the next, to see whether a thread polls.
 *
 * Owner: the QP's lock.
 */
#include "soft/iwarp/qp_heat.h"

#include <stdatomic.h>
#include <sys/epoll.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/inbox.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"

#define HOT_NS 1000000u
#define CROWD_NS 100000000u
#define COUNTED_AGAIN 65536u /* a CQ's count of polls starts again at each look at its set */
#define LOOK_AT_CLOCK 16u    /* turns in which nothing moved, between two readings of the clock */

bool soft_tcp_armed(const struct soft_qp *qp) {
    return ld(soft_cq_of(qp->ibv.recv_cq)->armed) != 0 ||
           ld(soft_cq_of(qp->ibv.send_cq)->armed) != 0;
}

bool soft_tcp_polled(struct soft_qp *qp) {
    const struct soft_cq *cq[2] = {soft_cq_of(qp->ibv.recv_cq), soft_cq_of(qp->ibv.send_cq)};
    unsigned now[2];
    for (unsigned i = 0; i < 2; i++)
        now[i] = ld(cq[i]->idle_polls) + ld(cq[i]->tcp_looks) * COUNTED_AGAIN;
    unsigned *seen = qp->tcp->seen_polls;
    bool any = now[0] != seen[0] || now[1] != seen[1];
    seen[0] = now[0];
    seen[1] = now[1];
    return any;
}

static void watch(struct soft_tcp *tcp, uint32_t events) {
    if (tcp->watched == events)
        return;
    if (soft_watch_modify(&tcp->socket->watch, events) == 0)
        tcp->watched = events;
}

/* Counts the QP in both of its CQs. */
static void set_hot(struct soft_qp *qp, bool hot) {
    unsigned one = hot ? 1u : -1u;
    if (qp->tcp->hot == hot)
        return;
    qp->tcp->hot = hot;
    atomic_fetch_add(&soft_cq_of(qp->ibv.recv_cq)->tcp_hot, one);
    if (qp->ibv.send_cq != qp->ibv.recv_cq)
        atomic_fetch_add(&soft_cq_of(qp->ibv.send_cq)->tcp_hot, one);
}

void soft_tcp_heat_end(struct soft_qp *qp) {
    set_hot(qp, false);
}

static bool has_unsent(const struct soft_tcp *tcp) {
    return tcp->tx.sent != tcp->tx.framed || tcp->tx.open || tcp->more;
}

void soft_tcp_cool(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    bool unsent = has_unsent(tcp);
    bool up = qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
    bool reads = !ld(qp->rx_stalled) && !tcp->take_held;
    set_hot(qp, false);
    if (tcp->inbox.at == tcp->inbox.end)
        iwarp_inbox_give(&tcp->inbox);
    up = up && !tcp->dark;
    reads = reads && !soft_tcp_has_sleeper(qp);
    watch(tcp, (up && reads ? EPOLLIN : 0) | (up && unsent && tcp->error == 0 ? EPOLLOUT : 0));
}

void soft_tcp_want_tick(struct soft_qp *qp) {
    if (ld(qp->need_tick))
        return;
    st(qp->need_tick, true);
    soft_qp_timer_want();
}

static void heat(struct soft_qp *qp) {
    set_hot(qp, true);
    qp->tcp->empty = 0;
    qp->tcp->moved_ns = 0;
}

/* For how long nothing moved, as far as the looks at the clock tell. */
static uint64_t still_ns(struct soft_tcp *tcp, uint64_t now) {
    if (tcp->moved_ns == 0)
        tcp->moved_ns = now;
    return now - tcp->moved_ns;
}

/* True: nothing moved in this turn of a hot QP, nor for longer than the limit before it. */
static bool is_quiet(struct soft_tcp *tcp, uint64_t limit) {
    return ++tcp->empty % LOOK_AT_CLOCK == 0 && still_ns(tcp, soft_now_ns()) > limit;
}

bool soft_tcp_stays_hot(struct soft_qp *qp, uint64_t now) {
    return soft_tcp_waits_to_be_told(qp) && still_ns(qp->tcp, now) < CROWD_NS &&
           soft_tcp_polled(qp);
}

/*
 * A poller's turn is due although the CQ's set reports nothing: the last turn did not empty the socket, or something is
 * to be sent.
 */
static bool is_pending(const struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    bool owes = tcp->ack_held && tcp->answer_at != qp->answer_tail;
    return !tcp->dry || owes || has_unsent(tcp);
}

/* The last turn ended by its limit. No edge tells a sleeping thread of what was there before it slept. */
static bool is_unfinished(const struct soft_tcp *tcp) {
    return !tcp->down && (tcp->left || tcp->more);
}

/* The QP needs another turn, whatever the socket reports. */
static bool is_late(const struct soft_tcp *tcp) {
    return tcp->full || tcp->error != 0 || tcp->dark || tcp->send_held || tcp->take_held ||
           tcp->tx.ended; /* no room in the socket is waited for */
}

bool soft_tcp_is_slept_on(const struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    return soft_tcp_has_sleeper(qp) && !ld(qp->attention) && !is_late(tcp) && !tcp->left &&
           !tcp->gathered && !tcp->ack_held && !has_unsent(tcp);
}

void soft_tcp_hand_on(struct soft_qp *qp, bool moved) {
    struct soft_tcp *tcp = qp->tcp;
    bool late = is_late(tcp), told = !is_pending(qp) && soft_tcp_in_crowd(qp);
    if (moved && !soft_tcp_armed(qp) && !tcp->by_engine)
        heat(qp);
    else if (!tcp->hot || soft_tcp_armed(qp) || tcp->by_engine ||
             is_quiet(tcp, told ? CROWD_NS : HOT_NS))
        soft_tcp_cool(qp);
    bool unfinished = is_unfinished(tcp);
    if (unfinished && !tcp->by_engine)
        st(soft_cq_of(qp->ibv.recv_cq)->unfinished, true);
    if ((tcp->hot && !told) || late || unfinished || (qp->srq && ld(qp->rx_stalled)))
        st(qp->attention, true);
    bool news = tcp->listens && !tcp->heard && !tcp->mute;
    if (tcp->hot || late || unfinished || news || ld(qp->rx_stalled) || iwarp_rx_inside(&tcp->rx))
        soft_tcp_want_tick(qp);
}

void soft_tcp_heat_until_told(struct soft_qp *qp) {
    watch(qp->tcp, 0);
    heat(qp);
    if (is_pending(qp))
        st(qp->attention, true);
    soft_tcp_want_tick(qp);
}

void soft_tcp_heat_up(struct soft_qp *qp) {
    watch(qp->tcp, 0);
    heat(qp);
    st(qp->attention, true);
    soft_tcp_want_tick(qp);
}
