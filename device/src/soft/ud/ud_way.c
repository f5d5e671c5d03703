/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ud_way.c - the rings of datagrams that we write: made, offered, and given up when no process takes them.
 *
 * Owner: control lock; what posters see changes under the QP's lock too.
 */
#define _GNU_SOURCE
#include "soft/ud/ud_way.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/memory_file.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/qpn_directory.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/rc/progress.h"
#include "soft/ud/ud.h"

#define NOBODY_NS 10000000u /* a number without an owner is not looked up again before */

static int ring_create(uint32_t from, uint32_t to, struct soft_ud_ring **out) {
    int fd = memory_file_create("sluice-datagrams", SOFT_UD_RING_BYTES, 0);
    if (fd < 0)
        return -errno;
    struct soft_ud_ring *ring = MAP_FAILED;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        ring = mmap(NULL, SOFT_UD_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) {
        int err = errno;
        close(fd);
        return -err;
    }
    ring->fixed.magic = SOFT_UD_MAGIC;
    ring->fixed.slots = SOFT_UD_SLOTS;
    ring->fixed.sender_qpn = from;
    ring->fixed.receiver_qpn = to;
    *out = ring;
    return fd;
}

void soft_ud_way_free(struct soft_ud *ud, struct soft_ud_way *way, bool tell) {
    soft_assert_locked();
    if (way->ring && tell && soft_peer_alive(way->peer)) {
        struct soft_ud_msg msg = {.from_qpn = ud->qp->ibv.qp_num, .to_qpn = way->qpn};
        soft_peer_send(way->peer, SOFT_MSG_UD_CLOSE, &msg, sizeof msg, -1);
    }
    if (way->ring)
        munmap(way->ring, SOFT_UD_RING_BYTES);
    soft_peer_release(way->peer);
    free(way);
}

/* The way to a number, or NULL. */
static struct soft_ud_way *way_find(const struct soft_ud *ud, uint32_t qpn, unsigned *at) {
    for (*at = 0; *at < ud->way_count; ++*at)
        if (ud->way[*at]->qpn == qpn)
            return ud->way[*at];
    return NULL;
}

/* Puts a way in the place of that of the same number, a free one, or the one longest unused. */
static void way_add(struct soft_ud *ud, struct soft_ud_way *way) {
    unsigned at;
    spin_lock(&ud->qp->lock);
    struct soft_ud_way *old = way_find(ud, way->qpn, &at);
    if (!old && ud->way_count == SOFT_UD_WAYS) {
        for (unsigned i = at = 0; i < ud->way_count; i++)
            at = ud->way[i]->turn < ud->way[at]->turn ? i : at;
        old = ud->way[at];
    }
    if (!old)
        ud->way_count++;
    way->turn = ++ud->turn;
    ud->way[at] = way;
    spin_unlock(&ud->qp->lock);
    if (old)
        soft_ud_way_free(ud, old, true);
}

void soft_ud_way_open(struct soft_ud *ud, uint32_t qpn) {
    soft_assert_locked();
    unsigned at;
    struct soft_ud_way *way = way_find(ud, qpn, &at);
    if (way && way->ring && !atomic_load(&way->ring->rx.down))
        return; /* wanted twice */
    way = calloc(1, sizeof *way);
    if (!way)
        return; /* the sender loses its patience */
    way->qpn = qpn;
    struct soft_ud_ring *ring = NULL;
    int fd = -1, rc = soft_qpn_directory_ask(qpn, &way->peer);
    way->asking = rc == -EINPROGRESS;
    if (rc == 0)
        rc = fd = ring_create(ud->qp->ibv.qp_num, qpn, &ring);
    if (rc >= 0) {
        struct soft_ud_msg msg = {.from_qpn = ud->qp->ibv.qp_num, .to_qpn = qpn};
        rc = soft_peer_send(way->peer, SOFT_MSG_UD_RING, &msg, sizeof msg, fd);
    }
    if (fd >= 0)
        close(fd);
    if (rc == 0) {
        way->ring = ring;
    } else {
        if (ring)
            munmap(ring, SOFT_UD_RING_BYTES);
        way->until_ns = soft_now_ns() + NOBODY_NS;
    }
    way_add(ud, way);
}

void soft_ud_way_lost(struct soft_ud *ud, struct soft_ud_way *way) {
    soft_assert_locked();
    spin_lock(&ud->qp->lock);
    struct soft_ud_ring *ring = way->ring;
    way->ring = NULL;
    way->taken = false;
    way->armed = NULL;
    way->waiting = false;
    way->until_ns = soft_now_ns() + NOBODY_NS;
    if (!ld(ring->rx.down) && way->pos != ld(ring->rx.acked))
        soft_drop(ud->qp, SOFT_DROP_NOBODY);
    st(ud->qp->attention, true);
    spin_unlock(&ud->qp->lock);
    munmap(ring, SOFT_UD_RING_BYTES);
    soft_qp_progress(ud->qp); /* what waited for room */
}

void soft_ud_way_on_answer(struct soft_peer *peer, uint32_t type, const struct soft_ud_msg *msg) {
    soft_assert_locked();
    struct soft_qp *qp = soft_qp_find(msg->from_qpn);
    unsigned at;
    struct soft_ud_way *way = qp && qp->ud ? way_find(qp->ud, msg->to_qpn, &at) : NULL;
    if (!way || way->peer != peer || !way->ring)
        return;
    if (type == SOFT_MSG_UD_REFUSE) {
        soft_ud_way_lost(qp->ud, way);
        return;
    }
    spin_lock(&qp->lock);
    way->armed = &peer->shm_page->cq[msg->recv_cq % SOFT_SHM_PAGE_CQS].armed;
    way->fence_free = peer->fence_free;
    way->taken = true;
    soft_ud_ring_bell(way); /* for what was written before its bell could be rung */
    spin_unlock(&qp->lock);
}
