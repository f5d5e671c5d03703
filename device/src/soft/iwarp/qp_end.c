/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_end.c - see qp_end.h.
 *
 * A Terminate is sent only if the socket takes it at once: the frames in front of it that wait for room are memory of
 * requests that are about to be flushed, which may not be read any more.
 */
#include "soft/iwarp/qp_end.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/inbox.h"
#include "soft/iwarp/qp_ack.h"
#include "soft/iwarp/qp_engine.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/iwarp/qp_receive.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/iwarp/qp_transmit.h"
#include "soft/object/async_event.h"
#include "soft/object/attention.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/upcalls.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/rc/responder.h"

#define READ_AWAY_NS 1000000000u

#define STRANGERS_MOST 64u

/*
 * Sockets that queue pairs had, and sockets that no queue pair had, which any host can make as fast as TCP connects.
 * Control lock.
 */
static CDS_LIST_HEAD(ending);
static CDS_LIST_HEAD(strangers);
static unsigned stranger_count;

/* ---- by this end ----------------------------------------------------------------------------------------- */

static void tell(struct soft_tcp *tcp, const struct iwarp_terminate *terminate) {
    iwarp_tx_terminate(&tcp->tx, terminate);
    (void)iwarp_stream_send(tcp->fd, &tcp->tx, SOFT_TCP_TURN);
}

void soft_tcp_terminate(struct soft_qp *qp, const struct iwarp_terminate *terminate) {
    spin_assert_held(&qp->lock);
    tell(qp->tcp, terminate);
    qp->tcp->gathered = false; /* it was sent now, or is not sent any more: its memory may go */
    soft_qp_fail(qp);
}

/* Raises the event of a one-sided request of the peer that was refused. */
static void tell_application(struct soft_qp *qp, const struct iwarp_rx *rx) {
    unsigned layer = iwarp_refusal_layer(rx->refusal), type = iwarp_refusal_type(rx->refusal);
    unsigned opcode = rx->ddp.opcode;
    bool request = rx->headed && (opcode == IWARP_WRITE || opcode == IWARP_READ_REQUEST ||
                                  opcode == IWARP_ATOMIC_REQUEST);
    bool access = layer <= 1 && type == 1;
    if (!request || layer > 1)
        return;
    if (access ? soft_profile()->tells_target_access : soft_profile()->tells_target_request)
        soft_async_event(qp->ibv.context, access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
                         &qp->ibv);
}

void soft_tcp_refuse(struct soft_qp *qp, struct sink *sink) {
    spin_assert_held(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    const struct iwarp_rx *rx = &tcp->rx;
    struct iwarp_terminate terminate;
    iwarp_rx_terminate(rx, &terminate);
    tell(tcp, &terminate);
    bool answer = rx->ddp.opcode == IWARP_READ_RESPONSE || rx->ddp.opcode == IWARP_ATOMIC_RESPONSE;
    if (answer && rx->refusal == IWARP_LOCAL_CATASTROPHIC) {
        soft_tcp_lost(qp, sink, IBV_WC_LOC_PROT_ERR); /* the memory for the answer is gone */
        return;
    }
    if (rx->untagged.taken && iwarp_opcode_send(rx->ddp.opcode)) {
        struct ibv_wc wc = error_wc(qp, soft_receive_get(qp)->wr_id,
                                    iwarp_refusal_of_receive(rx->refusal), IBV_WC_RECV);
        soft_tcp_complete_receive(qp, &wc, true);
    }
    tell_application(qp, rx);
    soft_qp_fail(qp);
}

/* ---- by the peer, or by TCP ------------------------------------------------------------------------------ */

void soft_tcp_lost(struct soft_qp *qp, struct sink *sink, enum ibv_wc_status status) {
    spin_assert_held(&qp->lock);
    soft_retire(qp, sink);
    if (qp->state != IBV_QPS_RTS || qp->sq_head == qp->sq_tail) {
        soft_qp_fail(qp);
        return;
    }
    qp->give_up = (uint8_t)status; /* soft_completer() reports it when there is room */
    st(qp->attention, true);
}

bool soft_tcp_is_unread(const struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    return ld(qp->rx_stalled) || qp->tcp->dark || qp->tcp->take_held;
}

bool soft_tcp_ends_unread(struct soft_qp *qp, uint32_t events) {
    spin_assert_held(&qp->lock);
    bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
    qp->tcp->dry = false; /* the next turn that may reads it, as the sets tell no more of it */
    soft_tcp_listen(qp, false);
    if (broken)
        soft_tcp_lost(qp, &(struct sink){.cq = NULL}, IBV_WC_RETRY_EXC_ERR);
    return broken;
}

/* ---- the socket's end ------------------------------------------------------------------------------------ */

void soft_tcp_down(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    if (tcp->down)
        return;
    tcp->down = true;
    tcp->hot = false;
    soft_tcp_leave_sets(qp, tcp->fd);
    if (tcp->gathered && tcp->error == 0)
        (void)iwarp_stream_send(tcp->fd, &tcp->tx, SOFT_TCP_TURN);
    soft_tcp_answer_last(qp);
    if (!tcp->acks)
        st(qp->tx_acked, soft_tcp_position(tcp->tx.sent));
    iwarp_stream_finish(tcp->fd);
    iwarp_inbox_give(&tcp->inbox);
    soft_tcp_take_back_lent(tcp);
    st(qp->need_tick, true); /* the engine takes the socket over */
    soft_qp_timer_want();
}

static void close_socket(struct soft_tcp_socket *socket, bool answered) {
    soft_watch_remove(&socket->watch);
    soft_timer_cancel(&socket->timer);
    cds_list_del(&socket->link);
    stranger_count -= socket->stranger;
    close(socket->watch.fd);
    if (socket->cm)
        soft_object_upcalls.tcp_closed(socket->cm, answered);
    free(socket);
}

static void on_timer(struct soft_timer *timer) {
    close_socket(caa_container_of(timer, struct soft_tcp_socket, timer), false);
}

static void read_away(struct soft_tcp_socket *socket) {
    if (iwarp_stream_finished(socket->watch.fd))
        close_socket(socket, true);
}

static void begin_reading_away(struct soft_tcp_socket *socket) {
    cds_list_add_tail(&socket->link, socket->stranger ? &strangers : &ending);
    stranger_count += socket->stranger;
    (void)soft_watch_modify(&socket->watch, EPOLLIN);
    soft_timer_arm(&socket->timer, soft_now_ns() + READ_AWAY_NS, on_timer);
    read_away(socket);
}

void soft_tcp_leave(struct soft_qp *qp) {
    soft_assert_locked();
    spin_assert_held(&qp->lock);
    struct soft_tcp_socket *socket = qp->tcp->socket;
    if (!socket)
        return;
    /* Also of a segment that was not whole, or damaged: with a right key it would have been written as it came. */
    if (qp->tcp->guessed)
        soft_cm_tcp_guessed(qp->tcp->origin, soft_now_ns());
    qp->tcp->socket = NULL;
    socket->qp = NULL;
    socket->cm = qp->cm;
    begin_reading_away(socket);
}

void soft_tcp_read_away(int fd) {
    soft_assert_locked();
    struct soft_tcp_socket *socket = calloc(1, sizeof *socket);
    if (socket)
        socket->watch = (struct soft_watch){.fd = fd, .fn = soft_tcp_on_event};
    iwarp_stream_finish(fd);
    if (!socket || soft_watch_add(&socket->watch, EPOLLIN) != 0) {
        free(socket);
        close(fd);
        return;
    }
    if (stranger_count >= STRANGERS_MOST)
        close_socket(cds_list_first_entry(&strangers, struct soft_tcp_socket, link), false);
    socket->stranger = true;
    begin_reading_away(socket);
}

void soft_tcp_on_event(struct soft_watch *watch, uint32_t events) {
    struct soft_tcp_socket *socket = caa_container_of(watch, struct soft_tcp_socket, watch);
    if (socket->qp)
        (void)soft_tcp_event(socket->qp, events, false);
    else
        read_away(socket);
}

void soft_tcp_stop(void) {
    soft_assert_locked();
    struct soft_tcp_socket *socket, *next;
    cds_list_for_each_entry_safe(socket, next, &ending, link)
        close_socket(socket, false);
    cds_list_for_each_entry_safe(socket, next, &strangers, link)
        close_socket(socket, false);
    soft_tcp_sets_stop();
}

void soft_tcp_forked(void) {
    CDS_INIT_LIST_HEAD(&ending);
    CDS_INIT_LIST_HEAD(&strangers);
    stranger_count = 0;
    iwarp_inbox_forked();
    soft_tcp_sets_forked();
    soft_tcp_transmit_forked();
}
