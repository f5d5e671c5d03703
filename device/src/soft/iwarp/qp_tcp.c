/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_tcp.c - gives a queue pair a socket and takes it away, and makes its turns of progress, for pollers and the
 * engine.
 *
 * Owner: the QP's lock; the control lock where it says so. All calls on the socket return at once.
 */
#include "soft/iwarp/qp_tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/inbox.h"
#include "soft/iwarp/qp_ack.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_fault.h"
#include "soft/iwarp/qp_gather.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/iwarp/qp_receive.h"
#include "soft/iwarp/qp_transmit.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/mr.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/soft.h"

#define SENT_MS 20000u /* TCP tries at least so long to send */

/* ---- turns ----------------------------------------------------------------------------------------------- */

static void be_patient(struct soft_qp *qp) {
    uint64_t ms = (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1u) / 1000000u;
    if (qp->tcp->patient || qp->state != IBV_QPS_RTS)
        return;
    qp->tcp->patient = true;
    if (qp->attr.timeout != 0)
        iwarp_stream_patience(qp->tcp->fd, ms > SENT_MS ? (unsigned)ms : SENT_MS);
}

void soft_tcp_progress(struct soft_qp *qp, struct sink *sink) {
    spin_assert_held(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    if (tcp->down)
        return;
    be_patient(qp);
    st(qp->socket_due, false);
    tcp->turns++;
    tcp->sink = sink;
    tcp->send_held = tcp->take_held = false;
    tcp->ack_held =
        tcp->ack_held && tcp->answer_at != qp->answer_tail; /* a message took them along */
    bool dark = soft_tcp_is_dark(qp, sink), moved = !dark && soft_tcp_receive(qp);
    tcp->mute = tcp->mute && tcp->rx.frames == 0;
    if (tcp->error != 0 && !moved && !tcp->down)
        soft_tcp_lost(qp, sink, IBV_WC_RETRY_EXC_ERR);
    tcp->ack_held = moved && !tcp->down && !soft_tcp_armed(qp) && soft_tcp_holds_acks(qp);
    bool gathers = soft_tcp_gathers_on(qp);
    if (!tcp->down && !dark && !tcp->ack_held)
        moved |= gathers ? soft_tcp_gather(qp) : soft_tcp_transmit(qp);
    tcp->sink = NULL;
    if (!tcp->down)
        soft_tcp_hand_on(qp, moved);
}

void soft_tcp_post(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    if (tcp->down || qp->state != IBV_QPS_RTS)
        return;
    bool gathers = soft_tcp_gathers(qp), moved = false;
    if (!soft_tcp_is_dark(qp, NULL))
        moved = gathers ? soft_tcp_gather(qp) : soft_tcp_transmit(qp);
    soft_tcp_hand_on(qp, moved);
}

void soft_tcp_arm(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    if (qp->tcp && !qp->tcp->down) {
        soft_tcp_cool(qp);
        if (ld(qp->attention)) /* something came between the last turn and the arming */
            soft_tcp_want_tick(qp);
    }
    spin_unlock(&qp->lock);
}

/* The polls until the next look at the set read the socket of a hot QP, so the engine is not needed. */
bool soft_tcp_seen(struct soft_qp *qp, uint32_t events) {
    if (!spin_try(&qp->lock)) { /* another thread makes its turn, and the set reports it again */
        st(soft_cq_of(qp->ibv.recv_cq)->unfinished, true);
        return false;
    }
    bool due = qp->tcp && !qp->tcp->down && !soft_tcp_armed(qp);
    if (due && soft_tcp_is_unread(qp))
        due = soft_tcp_ends_unread(qp, events);
    if (due && !qp->tcp->down) {
        st(qp->socket_due, true);
        qp->tcp->dry = false;
        if (!soft_tcp_in_crowd(qp))
            soft_tcp_heat_up(qp);
        else if (!qp->tcp->hot || !qp->tcp->rests)
            soft_tcp_heat_until_told(qp);
    }
    if (due)
        st(qp->attention, true);
    spin_unlock(&qp->lock);
    return due;
}

/* ---- memory that goes away ------------------------------------------------------------------------------- */

static bool is_answered(const struct soft_qp *qp, uint32_t key) {
    for (uint32_t i = qp->answer_head; i != qp->answer_tail; i++) {
        const struct soft_answer *answer = &qp->answer[i % SOFT_RD_ATOMIC];
        if (answer->from && answer->left && answer->key == key)
            return true;
    }
    return false;
}

bool soft_tcp_take_back(struct soft_qp *qp, const struct soft_mr *mr, uint32_t key) {
    soft_assert_locked();
    spin_assert_held(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    const void *from = (const void *)(uintptr_t)(mr->start + (uint64_t)mr->shift);
    size_t bytes = mr->end - mr->start;
    if (tcp->down || key == 0)
        return false;
    bool written = soft_tcp_is_written(tcp) && qp->rx_key == key;
    if (written || is_answered(qp, key)) {
        struct iwarp_terminate terminate = {.refusal =
                                                written ? IWARP_TAGGED_STAG : IWARP_REMOTE_STAG};
        soft_tcp_terminate(qp, &terminate);
        return true;
    }
    if (mr->window || bytes == 0)
        return false;
    if (iwarp_rx_uses(&tcp->rx, from, bytes)) { /* for a receive, or a READ of this end */
        iwarp_rx_withdraw(&tcp->rx, IWARP_LOCAL_CATASTROPHIC);
        st(qp->attention, true);
        soft_tcp_want_tick(qp);
    }
    if (tcp->gathered)
        (void)soft_tcp_transmit(qp);
    if (iwarp_tx_uses(&tcp->tx, from, bytes)) { /* the frame cannot be completed */
        iwarp_tx_drop(&tcp->tx);
        soft_qp_fail(qp);
    }
    return false;
}

void soft_tcp_cut_off(struct soft_qp *qp, const struct soft_mr *window) {
    spin_assert_held(&qp->lock);
    const void *from = (const void *)(uintptr_t)(window->start + (uint64_t)window->shift);
    if (iwarp_tx_uses(&qp->tcp->tx, from, window->end - window->start))
        iwarp_tx_drop(&qp->tcp->tx);
}

/* ---- life ------------------------------------------------------------------------------------------------ */

void soft_tcp_listen(struct soft_qp *qp, bool reads) {
    spin_assert_held(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    if (tcp->end_only == !reads)
        return;
    tcp->end_only = !reads;
    soft_tcp_set_listen(soft_cq_of(qp->ibv.recv_cq), tcp->fd, qp, reads);
    if (qp->ibv.send_cq != qp->ibv.recv_cq)
        soft_tcp_set_listen(soft_cq_of(qp->ibv.send_cq), tcp->fd, qp, reads);
}

void soft_tcp_leave_sets(struct soft_qp *qp, int fd) {
    spin_assert_held(&qp->lock);
    bool two = qp->ibv.send_cq != qp->ibv.recv_cq;
    soft_tcp_set_remove(soft_cq_of(qp->ibv.recv_cq), fd, two);
    if (two)
        soft_tcp_set_remove(soft_cq_of(qp->ibv.send_cq), fd, two);
}

static int enter_sets(struct soft_qp *qp, int fd) {
    bool two = qp->ibv.send_cq != qp->ibv.recv_cq;
    int error = soft_tcp_set_add(soft_cq_of(qp->ibv.recv_cq), fd, qp, two);
    if (error == 0 && two)
        error = soft_tcp_set_add(soft_cq_of(qp->ibv.send_cq), fd, qp, two);
    if (error != 0) {
        spin_lock(&qp->lock);
        soft_tcp_leave_sets(qp, fd);
        spin_unlock(&qp->lock);
    }
    return error;
}

bool soft_over_tcp(struct ibv_qp *qp) {
    return ld(soft_qp_of(qp)->has_socket);
}

int soft_tcp_attach(struct soft_qp *qp, int fd, const struct iwarp_terms *terms) {
    soft_assert_locked();
    if (qp->unreliable || qp->iwarp || qp->tcp || qp->state != IBV_QPS_INIT)
        return EINVAL;
    int error = iwarp_stream_prepare(fd);
    if (error != 0)
        return error;
    struct soft_tcp *tcp = malloc(sizeof *tcp); /* not cleared, as most of it is buffers */
    struct soft_tcp_socket *socket = calloc(1, sizeof *socket);
    error = tcp && socket ? 0 : ENOMEM;
    if (error == 0) {
        socket->qp = qp;
        socket->watch = (struct soft_watch){.fd = fd, .fn = soft_tcp_on_event};
        error = -soft_watch_add(&socket->watch, 0);
    }
    if (error != 0) {
        free(tcp);
        free(socket);
        return error;
    }
    error = enter_sets(qp, fd);
    if (error != 0) {
        soft_watch_remove(&socket->watch);
        free(tcp);
        free(socket);
        return error;
    }
    memset(tcp, 0, offsetof(struct soft_tcp, rx));
    tcp->socket = socket;
    tcp->fd = fd;
    tcp->ord = (uint8_t)(terms->ord < SOFT_RD_ATOMIC ? terms->ord : SOFT_RD_ATOMIC);
    tcp->ird = (uint8_t)(terms->ird < SOFT_RD_ATOMIC ? terms->ird : SOFT_RD_ATOMIC);
    iwarp_rx_init(&tcp->rx, qp->ordered ? &soft_tcp_rx_ops_in_order : &soft_tcp_rx_ops, qp,
                  terms->crc, terms->extended);
    iwarp_tx_init(&tcp->tx, terms->crc, iwarp_stream_mulpdu(fd));
    spin_lock(&qp->lock);
    tcp->answer_at = qp->answer_tail;
    st(qp->tx_acked, 0);
    qp->tcp = tcp;
    tcp->acks = terms->extended;
    qp->early = !tcp->acks;
    qp->elsewhere = true;
    st(qp->has_socket, true);
    spin_unlock(&qp->lock);
    return 0;
}

void soft_tcp_connects(struct soft_qp *qp, uint64_t cm, bool listener, enum iwarp_rtr rtr) {
    soft_assert_locked();
    spin_lock(&qp->lock);
    qp->cm = cm;
    qp->tcp->listens = qp->tcp->mute = listener;
    qp->tcp->rtr = (uint8_t)rtr;
    spin_unlock(&qp->lock);
}

static void send_now(struct soft_qp *qp) { /* qp->lock */
    spin_assert_held(&qp->lock);
    if (!qp->tcp->down && (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS))
        soft_tcp_hand_on(qp, soft_tcp_transmit(qp));
}

void soft_tcp_begin(struct soft_qp *qp) {
    soft_assert_locked();
    spin_lock(&qp->lock);
    qp->tcp->begun = true;
    send_now(qp);
    spin_unlock(&qp->lock);
}

void soft_tcp_speak(struct soft_qp *qp) {
    soft_assert_locked();
    spin_lock(&qp->lock);
    qp->tcp->mute = false;
    send_now(qp);
    spin_unlock(&qp->lock);
}

void soft_tcp_detach(struct soft_qp *qp) {
    soft_assert_locked();
    spin_lock(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    if (tcp) {
        soft_tcp_down(qp);
        soft_tcp_leave(qp);
        qp->tcp = NULL;
        qp->cm = 0;
        qp->early = false;
        qp->elsewhere = false;
        st(qp->has_socket, false);
        if (ld(qp->cold[0]) || ld(qp->cold[1]))
            soft_cq_pollset_warm(qp); /* it may have been put aside, for a set that it is not in */
    }
    spin_unlock(&qp->lock);
    free(tcp);
}
