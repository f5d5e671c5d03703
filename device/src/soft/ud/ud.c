/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ud.c - UD queue pairs: life, and sending.
 *
 * A datagram counts as sent when it lies in the ring to its receiver, or was dropped. It waits for a
 * ring that the engine is making, and for room in one whose receiver is slow, but not for long: then it is
 * dropped, and so are the next ones to that receiver until the receiver takes some. A datagram for a
 * group goes to its members one by one.
 *
 * Owner: the QP's lock.
 */
#include "soft/ud/ud.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/ah.h"
#include "soft/object/device.h"
#include "soft/object/mr.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/rc/requester.h"
#include "soft/rc/slot.h"
#include "soft/soft.h"
#include "soft/ud/mcast.h"
#include "soft/ud/mcast_table.h"
#include "soft/ud/ud_link.h"

/* ---- life --------------------------------------------------------------------------------------- */

int soft_ud_create(struct soft_qp *qp) {
    struct soft_ud *ud = calloc(1, sizeof *ud);
    if (!ud)
        return ENOMEM;
    ud->qp = qp;
    CDS_INIT_LIST_HEAD(&ud->link);
    ud->sends = malloc(((size_t)qp->sq_mask + 1) * sizeof *ud->sends);
    if (!ud->sends) {
        free(ud);
        return ENOMEM;
    }
    qp->ud = ud;
    return 0;
}

void soft_ud_free(struct soft_qp *qp) {
    if (!qp->ud)
        return;
    free(qp->ud->sends);
    free(qp->ud);
    qp->ud = NULL;
}

void soft_block_self_mcast(struct ibv_qp *ibqp) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    spin_lock(&qp->lock);
    if (qp->ud)
        qp->ud->block_self = true;
    spin_unlock(&qp->lock);
}

/* ---- posting ------------------------------------------------------------------------------------ */

void soft_ud_store_wqe(struct soft_qp *qp, uint32_t index, const struct ibv_send_wr *wr) {
    const struct soft_ah *ah = soft_ah_of(wr->wr.ud.ah);
    struct soft_ud_send *send = &qp->ud->sends[index & qp->sq_mask];
    memcpy(send->sgid, ah->sgid.raw, 16);
    memcpy(send->dgid, ah->dgid.raw, 16);
    send->qpn = wr->wr.ud.remote_qpn;
    /* The top bit asks for the QP's own key, which an application need not be allowed to name. */
    send->qkey = wr->wr.ud.remote_qkey >> 31 ? qp->attr.qkey : wr->wr.ud.remote_qkey;
    send->tclass_flow = ah->tclass_flow;
    send->hop_limit = ah->hop_limit;
    send->sl = ah->sl;
}

/* The payload in one piece, or NULL: a key does not cover it. */
static const uint8_t *payload_of(struct soft_qp *qp, const struct soft_wqe *wqe,
                                 const struct ibv_sge *sge, const uint8_t *inlined) {
    if (inlined)
        return inlined;
    uint8_t *to = qp->ud->staging;
    for (unsigned i = 0; i < wqe->num_sge; i++) {
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        const uint8_t *from = sge[i].length == 0 ? to
                              : mr               ? soft_mr_range(mr, sge[i].addr, sge[i].length, 0)
                                                 : NULL;
        if (!from)
            return NULL;
        if (sge[i].length == wqe->total && wqe->total)
            return from;
        memcpy(to, from, sge[i].length);
        to += sge[i].length;
    }
    return qp->ud->staging;
}

/* ---- into a ring -------------------------------------------------------------------------------- */

static struct soft_ud_way *way_of(struct soft_ud *ud, uint32_t qpn) {
    unsigned at = ud->hint[qpn & 255];
    if (__builtin_expect(at < ud->way_count && ud->way[at]->qpn == qpn, 1))
        return ud->way[at];
    for (at = 0; at < ud->way_count; at++)
        if (ud->way[at]->qpn == qpn) {
            ud->hint[qpn & 255] = (uint8_t)at;
            return ud->way[at];
        }
    return NULL;
}

/* The engine shall make the way. */
static enum soft_outcome want(struct soft_ud *ud, uint32_t qpn) {
    unsigned i = 0;
    while (i < ud->wanted_count && ud->wanted[i] != qpn)
        i++;
    if (i == ud->wanted_count && i < SOFT_UD_WANTED)
        ud->wanted[ud->wanted_count++] = qpn;
    soft_ud_want();
    return SOFT_NO_ROOM;
}

static bool way_has_room(struct soft_ud_way *way, unsigned span) {
    if (__builtin_expect(SOFT_UD_SLOTS - (way->pos - way->acked) >= span, 1))
        return true;
    uint32_t acked = atomic_load_explicit(&way->ring->rx.acked, memory_order_acquire);
    if (acked - way->acked > way->pos - way->acked)
        return false; /* it cannot have consumed that much: it never gets room again */
    if (acked != way->acked)
        way->stuck = false;
    way->acked = acked;
    return SOFT_UD_SLOTS - (way->pos - way->acked) >= span;
}

static void way_put(struct soft_ud_way *way, const struct soft_ud_head *head, const uint8_t *data) {
    struct soft_ud_ring *ring = way->ring;
    unsigned len = head->len, index = way->index, span = 1;
    for (unsigned at = SOFT_UD_FIRST; at < len; at += SOFT_UD_MORE, span++) {
        index = soft_ud_next(index);
        memcpy(ring->slot[index].more, data + at,
               len - at < SOFT_UD_MORE ? len - at : SOFT_UD_MORE);
        st(ring->slot[index].seq, way->pos + span + 1);
    }
    struct soft_ud_slot *slot = &ring->slot[way->index];
    copy_short(slot->first, data, len < SOFT_UD_FIRST ? len : SOFT_UD_FIRST);
    slot->head = *head;
    soft_tsan_publish(way->qpn);
    atomic_store_explicit(&slot->seq, way->pos + 1, memory_order_release);
    way->pos += span;
    way->index = soft_ud_next(index);
}

void soft_ud_ring_bell(struct soft_ud_way *way) {
    if (way->taken && way->peer->bell_out >= 0)
        (void)!uncancelled(send(way->peer->bell_out, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

/* Until the peer has said that it reads the ring no thread sleeps on it: the peer looks when it begins. */
static inline void bell_if_armed(struct soft_ud_way *way) {
    if (!way->taken)
        return;
    /* Between what was published and the armed word; partner: notify.c, soft_req_notify_cq(). */
    if (!way->fence_free)
        soft_fence();
    else
        atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(ld(*way->armed) != 0, 0))
        soft_ud_ring_bell(way);
}

/* To one QP. SENT: handed over or dropped. */
static enum soft_outcome send_to(struct soft_qp *qp, uint32_t qpn, const struct soft_ud_head *head,
                                 const uint8_t *data) {
    struct soft_ud *ud = qp->ud;
    struct soft_ud_way *way = way_of(ud, qpn);
    bool impatient = qp->impatient;
    qp->impatient = false;
    if (!way || (way->ring && ld(way->ring->rx.down))) {
        if (!impatient)
            return want(ud, qpn);
        soft_drop(qp, SOFT_DROP_NOBODY);
        return SOFT_SENT;
    }
    way->turn = ++ud->turn;
    if (!way->ring) {
        if (way->asking && !impatient)
            return SOFT_NO_ROOM;
        if (soft_now_ns() >= way->until_ns && !impatient)
            return want(ud, qpn);
        soft_drop(qp, SOFT_DROP_NOBODY);
        return SOFT_SENT;
    }
    if (!way_has_room(way, soft_ud_span(head->len))) {
        if (impatient)
            way->stuck = true;
        way->waiting = !way->stuck;
        if (!way->stuck)
            return SOFT_NO_ROOM;
        soft_drop(qp, SOFT_DROP_NO_ROOM);
        return SOFT_SENT;
    }
    way->waiting = false;
    way_put(way, head, data);
    bell_if_armed(way);
    return SOFT_SENT;
}

/* To the members of a group, from the one on where the last attempt had to stop. */
static enum soft_outcome send_to_group(struct soft_qp *qp, struct soft_wqe *wqe,
                                       const struct soft_ud_head *head, const uint8_t *data) {
    uint32_t members[SOFT_UD_MEMBERS];
    if (!soft_mcast_known()) {
        if (!qp->impatient)
            return SOFT_NO_ROOM; /* asking is under way */
        qp->impatient = false;
    }
    unsigned n = soft_mcast_members((const union ibv_gid *)(const void *)head->dgid, members);
    if (n == 0)
        soft_drop(qp, SOFT_DROP_NOBODY);
    for (; wqe->sent < n; wqe->sent++) {
        uint32_t qpn = members[wqe->sent];
        if (qpn == 0 || (qpn == qp->ibv.qp_num && qp->ud->block_self))
            continue;
        enum soft_outcome outcome = send_to(qp, qpn, head, data);
        if (outcome == SOFT_SENT)
            continue;
        for (unsigned i = wqe->sent + 1; i < n; i++) /* the other ways can be made meanwhile */
            if (members[i] && !way_of(qp->ud, members[i]))
                (void)want(qp->ud, members[i]);
        return outcome;
    }
    return SOFT_SENT;
}

enum soft_outcome soft_ud_send(struct soft_qp *qp, struct soft_wqe *wqe, const struct ibv_sge *sge,
                               const uint8_t *inlined) {
    const struct soft_ud_send *send = &qp->ud->sends[qp->sq_next & qp->sq_mask];
    if (wqe->total > SOFT_UD_MTU) { /* as the specification has it: not sent, and no error */
        soft_drop(qp, SOFT_DROP_TOO_LONG);
        return SOFT_SENT;
    }
    const uint8_t *data = payload_of(qp, wqe, sge, inlined);
    if (!data)
        return SOFT_BROKEN;
    if (atomic_load_explicit(&soft_port_down, memory_order_relaxed)) {
        soft_drop(qp, SOFT_DROP_STATE);
        return SOFT_SENT;
    }
    bool group = send->qpn == SOFT_UD_MULTICAST_QPN;
    struct soft_ud_head head = {
        .imm = wqe->imm,
        .len = (uint16_t)wqe->total,
        .flags = (uint8_t)((wqe->opcode == IBV_WR_SEND_WITH_IMM ? SOFT_UD_F_IMM : 0) |
                           (wqe->flags & IBV_SEND_SOLICITED ? SOFT_UD_F_SOLICITED : 0) |
                           (group ? SOFT_UD_F_GROUP : 0)),
        .sl = send->sl,
        .qkey = send->qkey,
        .tclass_flow = send->tclass_flow,
        .hop_limit = send->hop_limit,
    };
    memcpy(head.sgid, send->sgid, 16);
    memcpy(head.dgid, send->dgid, 16);
    return group ? send_to_group(qp, wqe, &head, data) : send_to(qp, send->qpn, &head, data);
}

void soft_ud_kick(struct soft_qp *qp) {
    struct soft_ud *ud = qp->ud;
    spin_lock(&qp->lock);
    for (unsigned i = 0; i < ud->way_count; i++)
        if (ud->way[i]->waiting)
            soft_ud_ring_bell(ud->way[i]);
    spin_unlock(&qp->lock);
}
