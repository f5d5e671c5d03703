/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ud_link.c - how the rings of datagrams that we read come to be, and their end; those we write are ud_way.c's.
 *
 * A sender that wants to reach a number makes a ring, writes to it at once, and offers it to the process
 * that owns the number. That process takes it, and confirms, if it has such a UD QP and the number that the ring names
 * as its sender leads to the offering process or to no process; else it refuses, and for a while the sender
 * drops what is for that number.
 *
 * Owner: control lock; what pollers and posters see changes under the QP's lock too.
 */
#define _GNU_SOURCE
#include "soft/ud/ud_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/qpn_directory.h"
#include "soft/ipc/spinlock.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/rc/pending_ring.h"
#include "soft/rc/progress.h"
#include "soft/ud/mcast.h"
#include "soft/ud/ud.h"
#include "soft/ud/ud_way.h"

#define NAMES_NS 1000000000ull /* how long destroying a QP waits for its last datagrams' way */

#define OFFERS 32 /* that wait to be taken */
#define OFFERS_OF_PEER 8

static struct offer {
    struct soft_peer *peer; /* held */
    struct soft_ud_msg msg;
    int fd;
    bool closed; /* nothing more comes; what is in it counts */
} offers[OFFERS];
static unsigned offer_count;

static CDS_LIST_HEAD(all);
static _Atomic bool wanted;

void soft_ud_want(void) {
    if (!ld(wanted) && !atomic_exchange(&wanted, true))
        soft_engine_wake();
}

/* ---- rings we read -------------------------------------------------------------------------------- */

/* Takes it out of the QP's list. */
static void in_end(struct soft_ud *ud, unsigned at) {
    struct soft_ud_in *in = ud->in[at];
    spin_lock(&ud->qp->lock);
    ud->in[at] = ud->in[--ud->in_count];
    spin_unlock(&ud->qp->lock);
    atomic_store(&in->ring->rx.down, 1);
    munmap(in->ring, SOFT_UD_RING_BYTES);
    soft_peer_release(in->peer);
    free(in);
}

/* Removes it after a last look into it. */
static void in_remove(struct soft_ud *ud, unsigned at) {
    soft_qp_progress(ud->qp);
    in_end(ud, at);
}

/*
 * Another ring from that QP ends the former; beyond the bounds the one longest unused goes. The place of
 * what has to go, or -1.
 */
static int in_to_go(const struct soft_ud *ud, const struct soft_peer *peer, uint32_t from) {
    int oldest = -1, own_oldest = -1;
    unsigned own = 0;
    for (unsigned i = 0; i < ud->in_count; i++) {
        const struct soft_ud_in *in = ud->in[i];
        if (in->from_qpn == from)
            return (int)i;
        if (oldest < 0 || in->turn < ud->in[oldest]->turn)
            oldest = (int)i;
        if (!soft_same_process(in->peer, peer))
            continue;
        own++;
        if (own_oldest < 0 || in->turn < ud->in[own_oldest]->turn)
            own_oldest = (int)i;
    }
    return own >= SOFT_UD_INS_PEER ? own_oldest : ud->in_count == SOFT_UD_INS ? oldest : -1;
}

static void make_room(struct soft_ud *ud, const struct soft_peer *peer, uint32_t from) {
    spin_lock(&ud->qp->lock);
    int at = in_to_go(ud, peer, from);
    spin_unlock(&ud->qp->lock);
    if (at >= 0)
        in_remove(ud, (unsigned)at);
}

/*
 * 0: the peer really is the owner of the number, or that cannot be known. It may have died since it sent this:
 * then the number has no owner. -EINPROGRESS: ask again.
 */
static int check_owner(const struct soft_peer *peer, uint32_t qpn) {
    struct soft_peer *owner;
    int rc = soft_qpn_directory_ask(qpn, &owner);
    if (rc == -EINPROGRESS && peer->own) /* another one of our user does not have its first name */
        return 0;
    if (rc != 0)
        return rc == -ECONNREFUSED ? 0 : rc;
    bool same = soft_same_process(owner, peer) ||
                (owner->pid <= 0 && !owner->greeted && owner->uid == peer->uid);
    soft_peer_release(owner);
    return same ? 0 : -EPERM;
}

static struct soft_ud_in *in_new(struct soft_peer *peer, const struct soft_ud_msg *msg, int fd) {
    if (fd < 0 || !soft_untrusted_fd_memory(fd, SOFT_UD_RING_BYTES))
        return NULL;
    struct soft_ud_in *in = calloc(1, sizeof *in);
    struct soft_ud_ring *ring = MAP_FAILED;
    if (in)
        ring = mmap(NULL, SOFT_UD_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED || ring->fixed.magic != SOFT_UD_MAGIC ||
        ring->fixed.slots != SOFT_UD_SLOTS || ring->fixed.sender_qpn != msg->from_qpn ||
        ring->fixed.receiver_qpn != msg->to_qpn) {
        if (ring != MAP_FAILED)
            munmap(ring, SOFT_UD_RING_BYTES);
        free(in);
        return NULL;
    }
    in->ring = ring;
    in->peer = soft_peer_hold(peer);
    in->from_qpn = msg->from_qpn;
    return in;
}

/* Puts an offer off until the owner of the number is known. False: too many are. */
static bool put_off(struct soft_peer *peer, const struct soft_ud_msg *msg, int fd, bool closed) {
    unsigned own = 0;
    for (unsigned i = 0; i < offer_count; i++)
        own += soft_same_process(offers[i].peer, peer);
    if (offer_count == OFFERS || own == OFFERS_OF_PEER)
        return false;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return false;
    offers[offer_count++] =
        (struct offer){.peer = soft_peer_hold(peer), .msg = *msg, .fd = copy, .closed = closed};
    return true;
}

/* `closed`: its sender has ended it or is gone, what is in it counts, and it ends right after. */
static void on_ring(struct soft_peer *peer, const struct soft_ud_msg *msg, int fd, bool closed) {
    struct soft_qp *qp = soft_qp_find(msg->to_qpn);
    int owns = fd >= 0 && qp && qp->ud ? check_owner(peer, msg->from_qpn) : -EPERM;
    if (owns == -EINPROGRESS && put_off(peer, msg, fd, closed))
        return;
    struct soft_ud_in *in = owns == 0 ? in_new(peer, msg, fd) : NULL;
    struct soft_ud_msg answer = *msg;
    if (!in || (!soft_peer_alive(peer) && !closed)) {
        if (in) {
            munmap(in->ring, SOFT_UD_RING_BYTES);
            soft_peer_release(in->peer);
            free(in);
        }
        soft_peer_send(peer, SOFT_MSG_UD_REFUSE, &answer, sizeof answer, -1);
        return;
    }
    make_room(qp->ud, peer, msg->from_qpn);
    spin_lock(&qp->lock);
    in->turn = ++qp->ud->turn;
    qp->ud->in[qp->ud->in_count++] = in;
    st(qp->attention, true);
    spin_unlock(&qp->lock);
    answer.recv_cq = soft_cq_of(qp->ibv.recv_cq)->shm_index;
    soft_peer_send(peer, SOFT_MSG_UD_OK, &answer, sizeof answer, -1);
    soft_qp_progress(qp);
}

static void on_close(struct soft_peer *peer, const struct soft_ud_msg *msg) {
    for (unsigned i = 0; i < offer_count; i++)
        offers[i].closed |= offers[i].peer == peer && offers[i].msg.from_qpn == msg->from_qpn &&
                            offers[i].msg.to_qpn == msg->to_qpn;
    struct soft_qp *qp = soft_qp_find(msg->to_qpn);
    struct soft_ud *ud = qp ? qp->ud : NULL;
    for (unsigned i = 0; ud && i < ud->in_count; i++)
        if (ud->in[i]->from_qpn == msg->from_qpn && ud->in[i]->peer == peer) {
            in_remove(ud, i);
            return;
        }
}

static void offer_end(struct offer *offer) {
    soft_untrusted_fd_close(offer->fd, soft_untrusted_fd_who(offer->peer->uid, offer->peer->pid));
    soft_peer_release(offer->peer);
}

/* Names were read: looks again at offers that waited for that. One that must wait longer is put off anew. */
void soft_ud_on_names(void) {
    struct offer waited[OFFERS];
    struct soft_ud *ud;
    unsigned n = offer_count;
    memcpy(waited, offers, n * sizeof *waited);
    offer_count = 0;
    for (unsigned i = 0; i < n; i++) {
        on_ring(waited[i].peer, &waited[i].msg, waited[i].fd, waited[i].closed);
        if (waited[i].closed)
            on_close(waited[i].peer, &waited[i].msg);
        offer_end(&waited[i]);
    }
    cds_list_for_each_entry(ud, &all, link) {
        for (unsigned i = 0; i < ud->way_count; i++)
            if (ud->way[i]->asking)
                soft_ud_way_open(ud, ud->way[i]->qpn);
        soft_qp_progress(ud->qp);
    }
}

/* ---- entries -------------------------------------------------------------------------------------- */

void soft_ud_on_message(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                        int fd) {
    struct soft_ud_msg msg;
    if (bytes != sizeof msg)
        return;
    memcpy(&msg, data, sizeof msg);
    if (type == SOFT_MSG_UD_RING)
        on_ring(peer, &msg, fd, false);
    else if (type == SOFT_MSG_UD_CLOSE)
        on_close(peer, &msg);
    else
        soft_ud_way_on_answer(peer, type, &msg);
}

void soft_ud_on_peer_gone(struct soft_peer *peer) {
    struct soft_ud *ud;
    for (unsigned i = 0; i < offer_count; i++)
        offers[i].closed |= offers[i].peer == peer;
    cds_list_for_each_entry(ud, &all, link) {
        for (unsigned i = ud->in_count; i-- > 0;)
            if (ud->in[i]->peer == peer)
                in_remove(ud, i);
        for (unsigned i = 0; i < ud->way_count; i++)
            if (ud->way[i]->peer == peer && ud->way[i]->ring)
                soft_ud_way_lost(ud, ud->way[i]);
    }
}

/* A thread that is using a QP holds the QP's lock: it is done when this has taken that lock. */
void soft_ud_put_fences(struct soft_peer *peer) {
    struct soft_ud *ud;
    cds_list_for_each_entry(ud, &all, link) {
        spin_lock(&ud->qp->lock);
        for (unsigned i = 0; i < ud->way_count; i++)
            if (ud->way[i]->peer == peer)
                ud->way[i]->fence_free = false;
        spin_unlock(&ud->qp->lock);
    }
}

void soft_ud_on_bell(struct soft_peer *peer) {
    struct soft_ud *ud;
    cds_list_for_each_entry(ud, &all, link)
        for (unsigned i = 0; i < ud->in_count; i++)
            if (ud->in[i]->peer == peer) {
                soft_qp_progress(ud->qp);
                break;
            }
}

void soft_ud_progress_all(void) {
    struct soft_ud *ud;
    cds_list_for_each_entry(ud, &all, link)
        soft_qp_progress(ud->qp);
}

void soft_ud_if_wanted(void) {
    if (!ld(wanted) || !atomic_exchange(&wanted, false))
        return;
    struct soft_ud *ud;
    cds_list_for_each_entry(ud, &all, link) {
        uint32_t list[SOFT_UD_WANTED];
        spin_lock(&ud->qp->lock);
        unsigned n = ud->wanted_count;
        memcpy(list, ud->wanted, n * sizeof *list);
        ud->wanted_count = 0;
        spin_unlock(&ud->qp->lock);
        for (unsigned i = 0; i < n; i++)
            soft_ud_way_open(ud, list[i]);
        if (n)
            soft_qp_progress(ud->qp);
    }
}

void soft_ud_register(struct soft_qp *qp) {
    struct soft_ud *ud = qp->ud;
    if (!ud)
        return;
    cds_list_add(&ud->link, &all);
}

/* Gives the lock up until the owner of a number that a datagram is for is known, or for a while. */
static void wait_for_names(const struct soft_ud *ud, uint64_t deadline) {
    bool asking = true;
    while (asking) {
        asking = false;
        for (unsigned i = 0; i < ud->way_count; i++)
            asking |= ud->way[i]->asking;
        if (asking && !soft_lock_wait(deadline))
            return;
    }
}

/*
 * A NIC sends a datagram as soon as it is posted, so that programs post the last ones and destroy the QP.
 * Once for the rings of the datagram at the head, once for those of the ones behind it.
 */
void soft_ud_hand_over(struct soft_qp *qp) {
    uint64_t deadline = soft_now_ns() + NAMES_NS;
    for (int turn = 0; turn < 2 && qp->ud; turn++) {
        spin_lock(&qp->lock);
        bool waits = qp->state == IBV_QPS_RTS && qp->sq_next != qp->sq_tail;
        spin_unlock(&qp->lock);
        if (!waits)
            return;
        soft_qp_progress(qp); /* says what it wants */
        soft_mcast_if_wanted();
        soft_ud_if_wanted();
        wait_for_names(qp->ud, deadline);
    }
}

/* The QP is in no CQ's list any more. */
void soft_ud_close(struct soft_qp *qp) {
    struct soft_ud *ud = qp->ud;
    if (!ud || cds_list_empty(&ud->link))
        return;
    cds_list_del_init(&ud->link);
    for (unsigned i = 0; i < ud->way_count; i++)
        soft_ud_way_free(ud, ud->way[i], true);
    ud->way_count = 0;
    while (ud->in_count)
        in_end(ud, ud->in_count - 1); /* no look: nothing may complete any more */
}

bool soft_ud_in_group(struct soft_qp *qp) {
    return qp->ud && qp->ud->group_count != 0;
}

/* No QP is left, nor a peer to answer. */
void soft_ud_stop(void) {
    while (offer_count)
        offer_end(&offers[--offer_count]);
}

void soft_ud_forked(void) {
    CDS_INIT_LIST_HEAD(&all);
    while (offer_count)
        close(offers[--offer_count].fd);
    atomic_store(&wanted, false);
}
