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
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/inbox.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/qp.h"

#define HOT_NS 1000000u
#define LOOK_AT_CLOCK 16u /* turns in which nothing moved, between two readings of the clock */
#define TICK_TURNS 1024u  /* turns of one of a crowd between ticks, which look at the path */

bool soft_tcp_armed(const struct soft_qp *qp) {
    return ld(soft_cq_of(qp->ibv.recv_cq)->armed) != 0 ||
           ld(soft_cq_of(qp->ibv.send_cq)->armed) != 0;
}

bool soft_tcp_polled(struct soft_qp *qp) {
    unsigned now[2] = {soft_tcp_polls(soft_cq_of(qp->ibv.recv_cq)),
                       soft_tcp_polls(soft_cq_of(qp->ibv.send_cq))};
    unsigned *seen = qp->tcp->seen_polls;
    bool any = now[0] != seen[0] || now[1] != seen[1];
    seen[0] = now[0];
    seen[1] = now[1];
    return any;
}

/* The CQs' sets are read for it. The listener's end before its first frame: the CM has to hear of that from the engine. */
static bool is_read_by_set(const struct soft_qp *qp) {
    return soft_tcp_in_crowd(qp) && (!qp->tcp->listens || qp->tcp->heard);
}

/* The end of one whose CQ's set is read is reported by the set. */
static void watch(struct soft_qp *qp, uint32_t events) {
    struct soft_tcp *tcp = qp->tcp;
    bool rests = events == 0 && is_read_by_set(qp);
    if (tcp->watched == events && tcp->rests == rests)
        return;
    if (rests)
        soft_watch_rest(&tcp->socket->watch);
    else if (soft_watch_modify(&tcp->socket->watch, events) != 0)
        return;
    tcp->watched = events;
    tcp->rests = rests;
}

/* Polls look at it. */
static void attend(struct soft_qp *qp) {
    st(qp->attention, true);
    if (ld(qp->cold[0]) || ld(qp->cold[1]))
        soft_cq_pollset_warm(qp);
}

static bool has_unsent(const struct soft_tcp *tcp) {
    return tcp->tx.sent != tcp->tx.framed || tcp->tx.open || tcp->more;
}

void soft_tcp_cool(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    bool unsent = has_unsent(tcp);
    bool up = qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
    bool reads = !ld(qp->rx_stalled) && !tcp->take_held;
    tcp->hot = false;
    if (tcp->inbox.at == tcp->inbox.end)
        iwarp_inbox_give(&tcp->inbox);
    up = up && !tcp->dark;
    reads = reads && !soft_tcp_has_sleeper(qp) && !is_read_by_set(qp);
    watch(qp, (up && reads ? EPOLLIN : 0) | (up && unsent && tcp->error == 0 ? EPOLLOUT : 0));
}

void soft_tcp_want_tick(struct soft_qp *qp) {
    if (ld(qp->need_tick))
        return;
    st(qp->need_tick, true);
    soft_qp_timer_want();
}

static void heat(struct soft_qp *qp) {
    qp->tcp->hot = true;
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

bool soft_tcp_waits_to_be_told(const struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    return (soft_tcp_has_sleeper(qp) || is_read_by_set(qp)) && !ld(qp->attention) &&
           !is_late(tcp) && !tcp->left && !tcp->gathered && !tcp->ack_held && !has_unsent(tcp);
}

void soft_tcp_hand_on(struct soft_qp *qp, bool moved) {
    struct soft_tcp *tcp = qp->tcp;
    bool late = is_late(tcp), crowd = soft_tcp_in_crowd(qp), told = crowd && !is_pending(qp);
    if (moved && !soft_tcp_armed(qp) && !tcp->by_engine)
        heat(qp);
    else if (!tcp->hot || soft_tcp_armed(qp) || tcp->by_engine || (!told && is_quiet(tcp, HOT_NS)))
        soft_tcp_cool(qp);
    bool unfinished = is_unfinished(tcp);
    if (unfinished && !tcp->by_engine)
        st(soft_cq_of(qp->ibv.recv_cq)->unfinished, true);
    if ((tcp->hot && !told) || late || unfinished || (qp->srq && ld(qp->rx_stalled)))
        attend(qp);
    bool news = tcp->listens && !tcp->heard && !tcp->mute;
    bool ticks = crowd ? tcp->turns % TICK_TURNS == 0 || (!told && soft_tcp_set_is_watched(qp))
                       : tcp->hot; /* polls make the next turn, if there are any */
    if (ticks || late || unfinished || news || ld(qp->rx_stalled) || iwarp_rx_inside(&tcp->rx))
        soft_tcp_want_tick(qp);
}

void soft_tcp_heat_until_told(struct soft_qp *qp) {
    watch(qp, 0);
    heat(qp);
    if (is_pending(qp))
        attend(qp);
}

void soft_tcp_heat_up(struct soft_qp *qp) {
    watch(qp, 0);
    heat(qp);
    attend(qp);
    soft_tcp_want_tick(qp);
}
