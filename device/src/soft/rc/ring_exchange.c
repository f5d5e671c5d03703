/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ring_exchange.c - how two QPs of two processes map each other's rings.
 *
 * At RTR a QP makes the ring it will read and sends it to the process that owns the destination
 * number. The two sides reach RTR in any order: a ring that comes early waits in the QP as an
 * offer. A ring is accepted only if it names this QP, comes from the process that owns the
 * destination number and cannot be shrunk.
 *
 * Owner: control lock; fields that pollers read (qp->tx, qp->rx) change under the QP's lock.
 */
#define _GNU_SOURCE
#include "soft/rc/ring_exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/memory_file.h"
#include "soft/fault/inject.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/process_fence.h"
#include "soft/ipc/qpn_directory.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/ipc/spinlock.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/device.h"
#include "soft/object/keys.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/ring.h"
#include "soft/rc/pending_ring.h"
#include "soft/rc/progress.h"
#include "soft/rc/cq_bell.h"
#include "soft/rc/region_exchange.h"
#include "soft/rc/rkey_cache.h"

struct link_msg {
    uint32_t from_qpn, to_qpn;
    uint32_t recv_cq, send_cq; /* words of the sender's board */
    uint32_t pd;               /* the PD whose keys are good for this QP */
    uint32_t unreliable;       /* both ends are UC, or both are RC */
};

struct keys_msg {
    uint64_t probe; /* where the sender's uuid lies in its memory */
};

/* ---- rings -------------------------------------------------------------------------------------- */

static int ring_create(struct soft_qp *qp, struct soft_ring **out) {
    int fd = memory_file_create("sluice-ring", SOFT_RING_BYTES, 0);
    if (fd < 0)
        return -1;
    struct soft_ring *ring = MAP_FAILED;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        ring = mmap(NULL, SOFT_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    ring->fixed.magic = SOFT_RING_MAGIC;
    ring->fixed.slots = SOFT_RING_SLOTS;
    ring->fixed.receiver_qpn = qp->ibv.qp_num;
    ring->fixed.sender_qpn = qp->attr.dest_qp_num;
    ring->fixed.place = soft_qp_place(qp->ibv.qp_num);
    atomic_store(&ring->rx.rnr_timer, qp->attr.min_rnr_timer);
    atomic_store(&ring->rx.dark, atomic_load(&soft_port_down));
    atomic_store(&ring->rx.access,
                 qp->attr.qp_access_flags | (uint32_t)qp->attr.max_dest_rd_atomic << 16);
    *out = ring;
    return fd;
}

static _Atomic unsigned linked_processes; /* changes: control lock */

unsigned soft_linked_processes(void) {
    return ld(linked_processes);
}

void soft_ring_exchange_forked(void) {
    st(linked_processes, 0);
}

/* The peer's ring becomes ours to write. */
static void attach(struct soft_qp *qp, struct soft_ring *ring, struct soft_peer *peer,
                   const uint32_t cqs[2], uint32_t pd) {
    uint32_t place = *(volatile uint32_t *)&ring->fixed.place; /* read once, and checked */
    spin_lock(&qp->lock);
    qp->remote_pd = pd;
    /* Two processes may have two connections. Regions and bells go by the one that carried LINK. */
    qp->link_peer = soft_peer_hold(peer);
    if (peer->linked_qps++ == 0)
        st(linked_processes, ld(linked_processes) + 1);
    qp->peer_recv_armed = &peer->shm_page->cq[cqs[0] % SOFT_SHM_PAGE_CQS].armed;
    qp->peer_send_armed = &peer->shm_page->cq[cqs[1] % SOFT_SHM_PAGE_CQS].armed;
    qp->fence_free = peer->fence_free;
    if (place < SOFT_SHM_PAGE_QPS) {
        qp->heard_changes =
            peer->counts_changes ? &peer->shm_page->cq[soft_changes_at(place)].changes : NULL;
        qp->heard_at = place % SOFT_GROUP_QPS;
        atomic_store_explicit(&qp->heard, &peer->shm_page->told[place], memory_order_release);
    }
    qp->tx_pos = qp->tx_index = 0;
    st(qp->tx_published, 0);
    qp->asks_room = false;
    st(qp->tx_acked, 0);
    atomic_store_explicit(&qp->tx, ring, memory_order_release);
    soft_qp_attend(qp);
    spin_unlock(&qp->lock);
    soft_bell_connect(qp);
    soft_qp_progress(qp); /* what was posted before the ring came */
}

static void take_pending_ring(struct soft_qp *qp) {
    struct soft_pending_ring pending;
    if (!qp->peer || ld(qp->tx) || !soft_pending_ring_take(qp, &pending))
        return;
    attach(qp, pending.ring, pending.peer, pending.cqs, pending.pd);
    soft_peer_release(pending.peer);
}

int soft_ring_exchange_open(struct soft_qp *qp, int found, struct soft_peer *peer) {
    soft_assert_locked();
    struct soft_ring *ring;
    struct soft_told *told = &soft_shm_page->told[soft_qp_place(qp->ibv.qp_num)];
    st(told->pos, 0);
    int fd = ring_create(qp, &ring), rc = found;
    if (fd < 0) {
        rc = errno;
        soft_peer_release(peer);
        return rc;
    }
    if (rc == 0) {
        struct link_msg msg = {.from_qpn = qp->ibv.qp_num,
                               .to_qpn = qp->attr.dest_qp_num,
                               .recv_cq = soft_cq_of(qp->ibv.recv_cq)->shm_index,
                               .send_cq = soft_cq_of(qp->ibv.send_cq)->shm_index,
                               .pd = soft_pd_of(qp->ibv.pd)->number,
                               .unreliable = qp->unreliable};
        rc = soft_peer_send_revocable(peer, SOFT_MSG_LINK, &msg, sizeof msg, fd, &qp->link_waits);
    }
    close(fd);
    if (rc != 0 && rc != -ECONNREFUSED && rc != -ECONNRESET) {
        soft_peer_release(peer);
        munmap(ring, SOFT_RING_BYTES);
        return -rc;
    }
    spin_lock(&qp->lock);
    qp->told = told;
    qp->dest_qpn = qp->attr.dest_qp_num;
    st(qp->rx_index, 0);
    st(qp->rx_pos, 0);
    st(qp->rx_told, 0);
    st(qp->rx_word, 0);
    atomic_store_explicit(&qp->rx, ring, memory_order_release);
    qp->peer_gone = rc != 0; /* no process owns that number: sends will exhaust their retries */
    spin_unlock(&qp->lock);
    if (rc == 0) {
        spin_lock(&qp->lock);
        qp->peer = peer;
        spin_unlock(&qp->lock);
        qp->peer_next = peer->qps;
        qp->peer_link = &peer->qps;
        if (peer->qps)
            peer->qps->peer_link = &qp->peer_next;
        peer->qps = qp;
        take_pending_ring(qp);
    } else {
        soft_peer_release(peer);
    }
    return 0;
}

void soft_ring_exchange_close(struct soft_qp *qp) {
    soft_assert_locked();
    soft_bell_disconnect(qp);
    if (qp->link_waits) /* else a peer that does not read keeps the rings of all that it asked for */
        soft_peer_revoke(qp->peer, qp->link_waits);
    if (qp->peer_link) {
        *qp->peer_link = qp->peer_next;
        if (qp->peer_next)
            qp->peer_next->peer_link = qp->peer_link;
        qp->peer_link = NULL;
        qp->peer_next = NULL;
    }
    spin_lock(&qp->lock);
    struct soft_ring *rx = ld(qp->rx), *tx = ld(qp->tx);
    qp->plain_rx = SOFT_NOT_PLAIN;
    qp->plain_tx = false;
    ASSERT(!qp->staged);
    rkey_cache_clear(qp);
    st(qp->rx, NULL);
    st(qp->tx, NULL);
    qp->peer_recv_armed = qp->peer_send_armed = NULL;
    st(qp->heard, NULL); /* it is in no CQ's list, so no poller looks there for it */
    struct soft_peer *peer = qp->peer, *link_peer = qp->link_peer;
    qp->peer = qp->link_peer = NULL;
    spin_unlock(&qp->lock);
    if (rx)
        munmap(rx, SOFT_RING_BYTES);
    if (tx)
        munmap(tx, SOFT_RING_BYTES);
    if (link_peer && --link_peer->linked_qps == 0)
        st(linked_processes, ld(linked_processes) - 1);
    soft_peer_release(peer);
    soft_peer_release(link_peer);
}

uint64_t soft_peer_number(struct ibv_qp *ibqp) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    spin_lock(&qp->lock);
    const struct soft_peer *peer = qp->link_peer ? qp->link_peer : qp->peer;
    uint64_t number = peer ? soft_untrusted_fd_who(peer->uid, peer->pid) : 0;
    spin_unlock(&qp->lock);
    return number;
}

static void on_link(struct soft_peer *peer, const struct link_msg *msg, int fd) {
    struct soft_qp *qp = soft_qp_find(msg->to_qpn);
    if (!qp || fd < 0 || qp->ud || qp->unreliable != (msg->unreliable != 0) ||
        !soft_untrusted_fd_memory(fd, SOFT_RING_BYTES))
        return;
    struct soft_ring *ring = mmap(NULL, SOFT_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED)
        return;
    if (ring->fixed.magic != SOFT_RING_MAGIC || ring->fixed.slots != SOFT_RING_SLOTS ||
        ring->fixed.receiver_qpn != msg->from_qpn || ring->fixed.sender_qpn != msg->to_qpn) {
        munmap(ring, SOFT_RING_BYTES);
        return;
    }
    const struct soft_pending_ring pending = {.ring = ring,
                                              .peer = soft_peer_hold(peer),
                                              .qpn = msg->from_qpn,
                                              .cqs = {msg->recv_cq, msg->send_cq},
                                              .pd = msg->pd};
    if (!soft_pending_ring_keep(qp, &pending)) {
        munmap(ring, SOFT_RING_BYTES);
        soft_peer_release(peer);
        return;
    }
    take_pending_ring(qp);
}

/* ---- keys --------------------------------------------------------------------------------------- */

static void announce_keys(struct soft_peer *peer) {
    int fd = soft_keys_fd();
    if (fd < 0 || peer->keys_sent || !peer->greeted || !peer->own || soft_keys_uid != peer->uid)
        return;
    st(peer->has_memory, true);
    struct keys_msg msg = {.probe = (uintptr_t)soft_own_uuid};
    peer->keys_sent = soft_peer_send(peer, SOFT_MSG_KEYS, &msg, sizeof msg, fd) == 0;
}

static void on_keys(struct soft_peer *peer, const struct keys_msg *msg, int fd) {
    if (fd < 0 || !peer->own || atomic_load(&peer->keys) ||
        !soft_untrusted_fd_memory(fd, SOFT_KEYS_BYTES))
        return;
    void *addr = mmap(NULL, SOFT_KEYS_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (addr == MAP_FAILED)
        return;
    peer->probe_at = msg->probe; /* a thread that may wait reads it: process_copy.h */
    atomic_store_explicit(&peer->keys, addr, memory_order_release);
}

/* ---- entries ------------------------------------------------------------------------------------ */

void soft_ring_exchange_on_message(struct soft_peer *peer, uint32_t type, const void *data,
                                   size_t bytes, int fd) {
    soft_assert_locked();
    struct link_msg link;
    struct keys_msg keys;
    if (type == SOFT_MSG_LINK && bytes == sizeof link) {
        memcpy(&link, data, sizeof link);
        on_link(peer, &link, fd);
    } else if (type == SOFT_MSG_KEYS && bytes == sizeof keys) {
        memcpy(&keys, data, sizeof keys);
        on_keys(peer, &keys, fd);
    }
}

/* A thread that is using a QP holds the QP's lock: it is done when this has taken that lock. */
void soft_ring_exchange_put_fences(struct soft_peer *peer) {
    soft_assert_locked();
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK; i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (!qp)
                continue;
            spin_lock(&qp->lock);
            if (qp->link_peer == peer)
                qp->fence_free = false;
            spin_unlock(&qp->lock);
        }
}

void soft_ring_exchange_on_greeting(struct soft_peer *peer) {
    soft_assert_locked();
    announce_keys(peer);
    soft_region_exchange_announce(peer);
    for (struct soft_qp *qp = peer->qps, *next; qp; qp = next) {
        next = qp->peer_next;
        take_pending_ring(qp);
    }
    soft_bells_again();
}

void soft_ring_exchange_on_peer_gone(struct soft_peer *peer) {
    soft_assert_locked();
    struct soft_qp *next;
    soft_pending_ring_peer_gone(peer);
    for (struct soft_qp *qp = peer->qps; qp; qp = next) {
        next = qp->peer_next;
        spin_lock(&qp->lock);
        qp->peer_gone = true;
        qp->plain_tx = false;
        soft_qp_attend(qp);
        spin_unlock(&qp->lock);
        soft_qp_progress(qp);
    }
}

/* A peer gave us something while a CQ of ours was armed, or waits for our acknowledgement. */
void soft_ring_exchange_on_bell(struct soft_peer *peer) {
    soft_assert_locked();
    /* One bell for all of a peer's QPs: those with nothing to do cost a look, not a lock. */
    for (struct soft_qp *qp = peer->qps; qp; qp = qp->peer_next)
        if (soft_qp_has_work(qp) || ld(qp->unretired) || ld(qp->rx_word) != ld(qp->rx_pos) ||
            soft_fault_active())
            soft_qp_progress(qp);
}
