/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_bell.c - see cq_bell.h.
 *
 * Owner: the control lock to make, give and close bells; the queue pair's lock for its pointer to the one it rings; the
 * poll_lock to hear.
 */
#define _GNU_SOURCE
#include "soft/rc/cq_bell.h"

#include <errno.h>
#include <stdlib.h>
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

#define HEARD_AT_ONCE 64

/* A CQ has one for each process that it is connected with, and one to ring: they leave most of what this process may open to
 * others. */
static bool is_room(void) {
    return open_ends < soft_peer_fd_limit() / 8;
}

/* ---- ringing ----------------------------------------------------------------------------------- */

void soft_qp_ring(struct soft_qp *qp, const _Atomic uint32_t *armed) {
    spin_assert_held(&qp->lock);
    uint32_t word = atomic_load_explicit(armed, memory_order_relaxed);
    uint32_t on_bells = word / SOFT_ARMED_BELLS, all = word % SOFT_ARMED_BELLS;
    /* CQs may share a word: those that do not sleep on bells need the engine. A full bell is one that rings already. */
    const struct soft_peer_bell *bell = qp->bell_out;
    if (!bell || on_bells == 0 || on_bells < all ||
        (uncancelled(send(bell->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno != EAGAIN))
        soft_qp_kick(qp);
}

/* ---- hearing ----------------------------------------------------------------------------------- */

static uint64_t who(const struct soft_peer *peer) {
    return soft_untrusted_fd_who(peer->uid, peer->pid);
}

/* Polls look at few of those that were quiet for long. Those that are listened to are found by what they announce. */
static void warm_up(struct soft_cq *cq, const struct soft_bell *bell) {
    spin_assert_held(&cq->poll_lock);
    for (unsigned i = cq->hot_count; i < cq->qp_count - cq->arrival_count; i++) {
        struct soft_qp *qp = cq->polled[i].qp;
        if (ld(qp->bell_in) == bell && (ld(qp->cold[0]) || ld(qp->cold[1])))
            soft_cq_pollset_warm(qp);
    }
}

static void hear(struct soft_cq *cq, struct soft_bell *bell) {
    spin_assert_held(&cq->poll_lock);
    if (!atomic_load_explicit(&bell->misused, memory_order_relaxed) &&
        !soft_untrusted_fd_hear_briefly(bell->fd, who(bell->peer))) {
        atomic_store(&bell->misused, true); /* the engine hangs up on the peer */
        atomic_store(&wanted, true);
        soft_engine_wake();
    }
    warm_up(cq, bell);
}

bool soft_bells_hear(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    UNCANCELLED;
    struct epoll_event events[HEARD_AT_ONCE];
    unsigned left = atomic_load_explicit(&cq->bells, memory_order_acquire);
    if (left == 0)
        return false;
    for (int n = HEARD_AT_ONCE; n == HEARD_AT_ONCE && left > 0;
         left -= left < HEARD_AT_ONCE ? left : HEARD_AT_ONCE) {
        n = epoll_wait(soft_bells_set(cq), events, HEARD_AT_ONCE, 0);
        for (int i = 0; i < n; i++)
            hear(cq, events[i].data.ptr);
    }
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
    return soft_peer_send(qp->peer, SOFT_MSG_CQ_BELL, &msg, sizeof msg, fd) == 0;
}

/* The peer's QP is connected to this one, too. */
static bool may_give(const struct soft_qp *qp) {
    const struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    return ld(cq->wants_bells) && !cq->shares_word && qp->ibv.send_cq == qp->ibv.recv_cq &&
           !ld(qp->bell_in) && ld(qp->tx) && qp->peer && qp->peer->alive && qp->peer->own &&
           qp->peer->takes_bells;
}

static struct soft_bell *find_bell(const struct soft_peer *peer, const struct soft_cq *cq) {
    struct soft_bell *bell = peer->bells_in;
    while (bell && bell->cq != cq)
        bell = bell->next;
    return bell;
}

/* NULL: there is no room, or it cannot be given. */
static struct soft_bell *make_bell(struct soft_qp *qp) {
    struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    int pair[2], set = set_of(cq);
    if (!is_room() || set < 0)
        return NULL;
    struct soft_bell *bell = calloc(1, sizeof *bell);
    if (!bell || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        free(bell);
        return NULL;
    }
    struct epoll_event in = {.events = EPOLLIN, .data.ptr = bell};
    *bell = (struct soft_bell){.fd = pair[0], .cq = cq, .peer = qp->peer};
    bool ok = send_bell(qp, pair[1]) && epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &in) == 0;
    close(pair[1]);
    if (!ok) { /* the peer finds that nothing hears it */
        close(pair[0]);
        free(bell);
        return NULL;
    }
    open_ends++;
    bell->next = qp->peer->bells_in;
    qp->peer->bells_in = bell;
    atomic_store_explicit(&cq->bells, ld(cq->bells) + 1, memory_order_release); /* with the set */
    return bell;
}

void soft_bell_give(struct soft_qp *qp) {
    soft_assert_locked();
    if (!may_give(qp))
        return;
    struct soft_bell *bell = find_bell(qp->peer, soft_cq_of(qp->ibv.recv_cq));
    if (!bell)
        bell = make_bell(qp);
    if (bell)
        bell->users++;
    st(qp->bell_in, bell);
}

void soft_bells_want(struct soft_cq *cq) {
    st(cq->wants_bells, true);
    atomic_store(&wanted, true);
    soft_engine_wake();
}

void soft_bells_again(void) {
    atomic_store(&wanted, true);
}

static void serve(struct soft_qp *qp) {
    const struct soft_bell *bell = ld(qp->bell_in);
    if (bell && atomic_load(&bell->misused) && qp->peer)
        soft_peer_drop(qp->peer);
    else
        soft_bell_give(qp);
}

void soft_bells_if_wanted(void) {
    if (atomic_load_explicit(&wanted, memory_order_relaxed) && atomic_exchange(&wanted, false))
        soft_qp_each(serve);
}

/* Its copies keep neither end open. Other threads' locks are of no thread here. */
static void close_copies(struct soft_qp *qp) {
    struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    struct soft_bell *in = ld(qp->bell_in);
    struct soft_peer_bell *out = qp->bell_out;
    if (in && in->fd >= 0)
        close(in->fd);
    if (out && out->fd >= 0)
        close(out->fd);
    if (in)
        in->fd = -1; /* others have it as well */
    if (out)
        out->fd = -1;
    soft_bells_free(cq);
    st(cq->bell_set, 0);
}

void soft_bells_forked(void) {
    soft_qp_each(close_copies);
    atomic_store(&wanted, false);
    open_ends = 0;
}

/* ---- taking ------------------------------------------------------------------------------------ */

/* All that it completes for is looked at by one word. */
static bool rings_by(const struct soft_qp *qp, const struct soft_peer *peer,
                     const _Atomic uint32_t *armed) {
    return qp->link_peer == peer && qp->peer_recv_armed == armed && qp->peer_send_armed == armed;
}

static void drop_peer_bell(struct soft_peer *peer, struct soft_peer_bell *bell) {
    struct soft_peer_bell **at = &peer->bells_out;
    if (--bell->users > 0)
        return;
    while (*at != bell)
        at = &(*at)->next;
    *at = bell->next;
    open_ends--;
    close(bell->fd);
    free(bell);
}

static void ring_by(struct soft_qp *qp, struct soft_peer_bell *bell) {
    struct soft_peer_bell *before = qp->bell_out;
    spin_lock(&qp->lock);
    qp->bell_out = bell;
    spin_unlock(&qp->lock);
    bell->users++;
    if (before)
        drop_peer_bell(qp->link_peer, before);
}

void soft_bell_connect(struct soft_qp *qp) {
    soft_assert_locked();
    struct soft_peer_bell *bell = qp->link_peer->bells_out;
    while (bell && !rings_by(qp, qp->link_peer, bell->armed))
        bell = bell->next;
    if (bell)
        ring_by(qp, bell);
    soft_bell_give(qp);
}

/* Nothing hears it any more: it was of an earlier CQ with that word. Ringing one that is heard does no harm. */
static bool is_dead(const struct soft_peer_bell *bell) {
    return uncancelled(send(bell->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno != EAGAIN;
}

static bool is_expected(const struct soft_peer *peer, const struct soft_qp *qp, uint32_t from) {
    return qp && qp->dest_qpn == from && rings_by(qp, peer, qp->peer_recv_armed) &&
           qp->peer_recv_armed && (!qp->bell_out || is_dead(qp->bell_out)) && is_room();
}

void soft_bell_on_message(struct soft_peer *peer, const void *data, size_t bytes, int *file) {
    soft_assert_locked();
    struct bell_msg msg;
    if (bytes != sizeof msg || !file || !peer->own || !soft_untrusted_fd_bell(*file))
        return;
    memcpy(&msg, data, sizeof msg);
    struct soft_qp *qp = soft_qp_find(msg.to_qpn);
    int fd = *file;
    *file = -1;
    struct soft_peer_bell *bell = NULL;
    if (is_expected(peer, qp, msg.from_qpn))
        bell = calloc(1, sizeof *bell);
    if (!bell) {
        close(fd); /* here: a bell is harmless, and many at once would count as a burden */
        return;
    }
    open_ends++;
    *bell =
        (struct soft_peer_bell){.fd = fd, .armed = qp->peer_recv_armed, .next = peer->bells_out};
    peer->bells_out = bell;
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK; i++) {
            struct soft_qp *other = ld(soft_qp_blocks[b]->qps[i]);
            if (other && rings_by(other, peer, bell->armed))
                ring_by(other, bell);
        }
}

/* ---- the end ----------------------------------------------------------------------------------- */

static void close_bell(struct soft_bell *bell) {
    struct soft_bell **at = &bell->peer->bells_in;
    while (*at != bell)
        at = &(*at)->next;
    *at = bell->next;
    struct soft_cq *cq = bell->cq;
    (void)epoll_ctl(soft_bells_set(cq), EPOLL_CTL_DEL, bell->fd, NULL);
    st(cq->bells, ld(cq->bells) - 1);
    spin_lock(&cq->poll_lock); /* a thread that has found it there is done with it */
    spin_unlock(&cq->poll_lock);
    open_ends--;
    soft_untrusted_fd_close_heard(bell->fd, who(bell->peer));
    free(bell);
    soft_bells_again(); /* there was no room for others */
}

void soft_bell_disconnect(struct soft_qp *qp) {
    soft_assert_locked();
    struct soft_bell *in = ld(qp->bell_in);
    struct soft_peer_bell *out = qp->bell_out;
    spin_lock(&qp->lock);
    st(qp->bell_in, NULL);
    qp->bell_out = NULL;
    spin_unlock(&qp->lock);
    if (out)
        drop_peer_bell(qp->link_peer, out);
    if (in && --in->users == 0)
        close_bell(in);
}
