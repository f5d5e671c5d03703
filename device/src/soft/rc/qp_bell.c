/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_bell.c - see qp_bell.h.
 *
 * Owner: the control lock to make, give and close bells; the queue pair's lock for the descriptors, as posting threads ring
 * and sleeping ones hear them.
 */
#define _GNU_SOURCE
#include "soft/rc/qp_bell.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/uncancelled.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_limit.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/spinlock.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/rc/requester.h"

struct bell_msg {
    uint32_t from_qpn, to_qpn;
};

static _Atomic bool wanted; /* of some CQ, or some was misused */
static unsigned open_ends;  /* descriptors of bells, ours and peers'; control lock */

/* Each session has up to two: they leave most of what this process may open to others. */
static bool is_room(void) {
    return open_ends < soft_peer_fd_limit() / 8;
}

/* ---- ringing ----------------------------------------------------------------------------------- */

void soft_qp_ring(struct soft_qp *qp, const _Atomic uint32_t *armed) {
    spin_assert_held(&qp->lock);
    uint32_t word = atomic_load_explicit(armed, memory_order_relaxed);
    uint32_t on_bells = word / SOFT_ARMED_BELLS, all = word % SOFT_ARMED_BELLS;
    /* CQs may share a word: those that do not sleep on bells need the engine. A full bell is one that rings already. */
    if (qp->bell_out == 0 || on_bells == 0 || on_bells < all ||
        (uncancelled(send(qp->bell_out - 1, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 &&
         errno != EAGAIN))
        soft_qp_kick(qp);
}

/* ---- hearing ----------------------------------------------------------------------------------- */

static uint64_t who(const struct soft_peer *peer) {
    return soft_untrusted_fd_who(peer->uid, peer->pid);
}

static void hear(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    if (qp->bell_in > 0 && !qp->bell_misused &&
        !soft_untrusted_fd_hear_briefly(qp->bell_in - 1, who(qp->peer))) {
        qp->bell_misused = true; /* the engine hangs up on the peer */
        atomic_store(&wanted, true);
        soft_engine_wake();
    }
    if (ld(qp->cold[0]) || ld(qp->cold[1])) /* every poll looks at it now */
        soft_cq_pollset_warm(qp);
    spin_unlock(&qp->lock);
}

bool soft_bells_hear(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    UNCANCELLED;
    struct epoll_event events[SOFT_BELLS];
    if (atomic_load_explicit(&cq->bells, memory_order_acquire) == 0)
        return false;
    int n = epoll_wait(soft_bells_set(cq), events, SOFT_BELLS, 0);
    for (int i = 0; i < n; i++)
        hear(events[i].data.ptr);
    return true;
}

/* ---- giving ------------------------------------------------------------------------------------ */

static int set_of(struct soft_cq *cq) {
    int set = ld(cq->bell_set) - 1;
    if (set < 0 && (set = epoll_create1(EPOLL_CLOEXEC)) >= 0)
        st(cq->bell_set, set + 1);
    return set;
}

int soft_bells_set(const struct soft_cq *cq) {
    return ld(cq->bell_set) - 1;
}

void soft_bells_free(struct soft_cq *cq) {
    if (ld(cq->bell_set) > 0)
        close(ld(cq->bell_set) - 1);
}

/* By the connection that carried our ring, as the peer goes by that. */
static bool send_bell(struct soft_qp *qp, int fd) {
    const struct bell_msg msg = {.from_qpn = qp->ibv.qp_num, .to_qpn = qp->dest_qpn};
    return soft_peer_send(qp->peer, SOFT_MSG_BELL, &msg, sizeof msg, fd) == 0;
}

/* The peer's QP is connected to this one, too. */
static bool may_give(const struct soft_qp *qp) {
    const struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    return ld(cq->wants_bells) && ld(cq->bells) < SOFT_BELLS && is_room() &&
           qp->ibv.send_cq == qp->ibv.recv_cq && qp->bell_in == 0 && ld(qp->tx) && qp->peer &&
           qp->peer->alive && qp->peer->own && qp->peer->takes_bells;
}

void soft_qp_bell_give(struct soft_qp *qp) {
    soft_assert_locked();
    if (!may_give(qp))
        return;
    struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    struct epoll_event in = {.events = EPOLLIN, .data.ptr = qp};
    int pair[2], set = set_of(cq);
    if (set < 0 || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return;
    bool ok = epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &in) == 0 && send_bell(qp, pair[1]);
    close(pair[1]);
    if (!ok) {
        (void)epoll_ctl(set, EPOLL_CTL_DEL, pair[0], NULL);
        close(pair[0]);
        return;
    }
    open_ends++;
    spin_lock(&qp->lock);
    qp->bell_in = pair[0] + 1;
    spin_unlock(&qp->lock);
    atomic_store_explicit(&cq->bells, ld(cq->bells) + 1, memory_order_release); /* with the set */
}

void soft_bells_want(struct soft_cq *cq) {
    st(cq->wants_bells, true);
    atomic_store(&wanted, true);
    soft_engine_wake();
}

void soft_bells_again(void) {
    atomic_store(&wanted, true);
}

static bool is_misused(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    bool misused = qp->bell_misused;
    spin_unlock(&qp->lock);
    return misused;
}

static void serve(struct soft_qp *qp) {
    if (is_misused(qp) && qp->peer)
        soft_peer_drop(qp->peer);
    else
        soft_qp_bell_give(qp);
}

void soft_bells_if_wanted(void) {
    if (atomic_load_explicit(&wanted, memory_order_relaxed) && atomic_exchange(&wanted, false))
        soft_qp_each(serve);
}

/* Its copies keep neither end open. Other threads' locks are of no thread here. */
static void close_copies(struct soft_qp *qp) {
    struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    if (qp->bell_in > 0)
        close(qp->bell_in - 1);
    if (qp->bell_out > 0)
        close(qp->bell_out - 1);
    qp->bell_in = qp->bell_out = 0;
    soft_bells_free(cq);
    st(cq->bell_set, 0);
}

void soft_bells_forked(void) {
    soft_qp_each(close_copies);
    atomic_store(&wanted, false);
    open_ends = 0;
}

/* ---- taking ------------------------------------------------------------------------------------ */

static bool is_expected(const struct soft_peer *peer, const struct soft_qp *qp, uint32_t from) {
    return qp && qp->link_peer == peer && qp->dest_qpn == from && qp->bell_out == 0 && is_room();
}

void soft_qp_bell_on_message(struct soft_peer *peer, const void *data, size_t bytes, int *file) {
    soft_assert_locked();
    struct bell_msg msg;
    if (bytes != sizeof msg || !file || !peer->own || !soft_untrusted_fd_bell(*file))
        return;
    memcpy(&msg, data, sizeof msg);
    struct soft_qp *qp = soft_qp_find(msg.to_qpn);
    int fd = *file;
    *file = -1;
    if (!is_expected(peer, qp, msg.from_qpn)) {
        close(fd); /* here: a bell is harmless, and many at once would count as a burden */
        return;
    }
    open_ends++;
    spin_lock(&qp->lock);
    qp->bell_out = fd + 1;
    spin_unlock(&qp->lock);
}

void soft_qp_bell_close(struct soft_qp *qp) {
    soft_assert_locked();
    struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    spin_lock(&qp->lock);
    int in = qp->bell_in - 1, out = qp->bell_out - 1;
    uint64_t peer = qp->peer ? who(qp->peer) : 0;
    qp->bell_in = qp->bell_out = 0;
    qp->bell_misused = false;
    spin_unlock(&qp->lock);
    open_ends -= (unsigned)(in >= 0) + (unsigned)(out >= 0);
    if (out >= 0)
        close(out);
    if (in < 0)
        return;
    (void)epoll_ctl(soft_bells_set(cq), EPOLL_CTL_DEL, in, NULL);
    st(cq->bells, ld(cq->bells) - 1);
    soft_untrusted_fd_close_heard(in, peer);
    soft_bells_again(); /* there was no room for others */
}
