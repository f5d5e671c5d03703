/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* pending_ring.c - see pending_ring.h. Owner: the control lock. */
#include "soft/rc/pending_ring.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/ring.h"
#include "soft/object/upcalls.h"

#define PENDING_RINGS_MAX 8u

bool soft_same_process(const struct soft_peer *a, const struct soft_peer *b) {
    if (a == b)
        return true;
    if (a->pid > 0 && a->pid == b->pid && (a->told_uid == b->uid || a->uid == b->told_uid))
        return true; /* one is from before it became that user */
    if (a->uid != b->uid || a->pid > 0 || b->pid > 0)
        return a->uid == b->uid && a->pid == b->pid;
    return a->greeted && b->greeted && memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

static void drop(struct soft_pending_ring *pending) {
    cds_list_del(&pending->link);
    pending->peer->pending_rings--;
    munmap(pending->ring, SOFT_RING_BYTES);
    soft_peer_release(pending->peer);
    free(pending);
}

/* The oldest of another user, else the oldest; but for that of the process that the connection was agreed with. */
static void make_room(struct soft_qp *qp) {
    struct soft_pending_ring *pending, *oldest = NULL, *foreign = NULL;
    unsigned count = 0;
    cds_list_for_each_entry(pending, &qp->pending_rings, link) {
        count++;
        if (soft_object_upcalls.agreed_with(qp, pending->peer))
            continue;
        oldest = pending;
        if (!pending->peer->own)
            foreign = pending;
    }
    if (count >= PENDING_RINGS_MAX && oldest)
        drop(foreign ? foreign : oldest);
}

bool soft_pending_ring_keep(struct soft_qp *qp, const struct soft_pending_ring *pending) {
    soft_assert_locked();
    struct soft_pending_ring *older, *next, *kept = malloc(sizeof *kept);
    if (!kept)
        return false;
    cds_list_for_each_entry_safe(older, next, &qp->pending_rings, link) {
        if (soft_same_process(older->peer, pending->peer))
            drop(older);
    }
    make_room(qp);
    *kept = *pending;
    kept->peer->pending_rings++;
    cds_list_add(&kept->link, &qp->pending_rings);
    return true;
}

/* A ring that is down belongs to the other side's time before a RESET: its next one is to come. */
static bool fits(const struct soft_qp *qp, const struct soft_pending_ring *pending) {
    return pending->qpn == qp->attr.dest_qp_num && soft_same_process(pending->peer, qp->peer) &&
           soft_peer_alive(pending->peer) && !atomic_load(&pending->ring->rx.down);
}

bool soft_pending_ring_take(struct soft_qp *qp, struct soft_pending_ring *out) {
    soft_assert_locked();
    struct soft_pending_ring *pending;
    bool found = false, unknown = false;
    if (qp->peer->pid <= 0 && !qp->peer->greeted)
        return false; /* its greeting will say which process it is: until then they wait */
    cds_list_for_each_entry(pending, &qp->pending_rings, link) {
        unknown |= pending->peer->pid == qp->peer->pid && !qp->peer->greeted;
        if (!fits(qp, pending))
            continue;
        found = true;
        *out = *pending;
        out->peer->pending_rings--;
        cds_list_del(&pending->link);
        free(pending);
        break;
    }
    if (found || !unknown) /* else its greeting may still say which process it is */
        soft_pending_ring_drop_all(qp);
    return found;
}

void soft_pending_ring_drop_all(struct soft_qp *qp) {
    soft_assert_locked();
    struct soft_pending_ring *pending, *next;
    cds_list_for_each_entry_safe(pending, next, &qp->pending_rings, link)
        drop(pending);
}

void soft_pending_ring_peer_gone(const struct soft_peer *peer) {
    soft_assert_locked();
    struct soft_pending_ring *pending, *next;
    for (unsigned b = 0; b < soft_qp_block_count && peer->pending_rings > 0; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK && peer->pending_rings > 0; i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (!qp)
                continue;
            cds_list_for_each_entry_safe(pending, next, &qp->pending_rings, link) {
                if (pending->peer == peer)
                    drop(pending);
            }
        }
}
