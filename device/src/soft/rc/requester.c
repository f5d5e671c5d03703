/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * requester.c - the requester: recorded work requests into the peer's ring, and the peer's bell.
 *
 * Payload up to SOFT_SEGMENT_MAX travels in the slots. Larger payload travels as descriptors when
 * all of it lies in regions that the peer has mapped (the receiver then copies once, straight from
 * the sender's memory), else as a stream of segments, through blocks that the peer has mapped (stage.h) or through the
 * ring. A request that finds no room stays queued; the thread that makes progress later moves it.
 *
 * Owner: the QP's lock.
 */
#include "common/uncancelled.h"
#include "soft/ipc/control_lock.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/fault/inject.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/mr.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/described.h"
#include "soft/rc/rdma.h"
#include "soft/rc/slot.h"
#include "soft/rc/stage.h"
#include "soft/rc/window.h"
#include "soft/ud/ud.h"

/* ---- gathering ---------------------------------------------------------------------------------- */

/* Calls put for each piece of a gather list from skip on, bytes in all. False: a key does not cover them. */
static inline __attribute__((always_inline)) bool
gather(struct soft_qp *qp, const struct ibv_sge *sge, unsigned count, uint32_t skip, uint32_t bytes,
       void (*put)(void *to, const void *from, size_t bytes), void *to) {
    for (unsigned i = 0; i < count && bytes; i++) {
        uint32_t length = sge[i].length;
        if (skip >= length) {
            skip -= length;
            continue;
        }
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        const uint8_t *from = mr ? soft_mr_range(mr, sge[i].addr, length, 0) : NULL;
        if (!from)
            return false;
        uint32_t n = length - skip < bytes ? length - skip : bytes;
        put(to, from + skip, n);
        bytes -= n;
        skip = 0;
    }
    return true;
}

static inline void into_slots(void *to, const void *from, size_t bytes) {
    slot_write(to, from, bytes);
}

bool soft_gather(struct soft_qp *qp, const struct ibv_sge *sge, unsigned count, uint32_t skip,
                 uint32_t bytes, struct soft_writer *w) {
    return gather(qp, sge, count, skip, bytes, into_slots, w);
}

static inline void into_block(void *to, const void *from, size_t bytes) {
    uint8_t **at = to;
    memcpy(*at, from, bytes);
    *at += bytes;
}

/* Descriptors for all pieces, or 0 when one does not lie in a region the peer has; -1 bad key. */
static int describe(struct soft_qp *qp, const struct ibv_sge *sge, unsigned count,
                    struct soft_desc *desc) {
    int n = 0;
    for (unsigned i = 0; i < count; i++) {
        if (sge[i].length == 0)
            continue;
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        if (!mr || !soft_mr_range(mr, sge[i].addr, sge[i].length, 0))
            return -1;
        if (!described_put(qp, mr, &sge[i], &desc[n]))
            return 0;
        n++;
    }
    return n;
}

/* ---- transmitting ------------------------------------------------------------------------------- */

static inline unsigned wire_flags(const struct soft_wqe *wqe) {
    return (wqe->opcode == IBV_WR_SEND_WITH_IMM   ? SOFT_F_IMM
            : wqe->opcode == IBV_WR_SEND_WITH_INV ? SOFT_F_INVALIDATE
                                                  : 0) |
           (wqe->flags & IBV_SEND_SOLICITED ? SOFT_F_SOLICITED : 0);
}

static enum soft_outcome transmit_desc(struct soft_qp *qp, struct soft_ring *ring,
                                       struct soft_wqe *wqe, const struct soft_desc *desc,
                                       unsigned n) {
    unsigned span = soft_span(n * (unsigned)sizeof *desc);
    if (slot_room(qp) < span)
        return SOFT_NO_ROOM;
    struct soft_writer w = {.ring = ring, .index = qp->tx_index};
    slot_write(&w, desc, n * sizeof *desc);
    slot_head(qp, ring, span, SOFT_OP_SEND_DESC, SOFT_F_FIRST | SOFT_F_LAST | wire_flags(wqe), n,
              wqe->imm);
    wqe->sent = wqe->total;
    return SOFT_SENT;
}

static unsigned segment_flags(const struct soft_wqe *wqe, uint32_t bytes) {
    return (wqe->sent == 0 ? SOFT_F_FIRST : 0) |
           (wqe->sent + bytes == wqe->total ? SOFT_F_LAST : 0) | wire_flags(wqe);
}

/* The next segment of one that goes in several, through slots. */
static enum soft_outcome transmit_slots(struct soft_qp *qp, struct soft_ring *ring,
                                        struct soft_wqe *wqe, const struct ibv_sge *sge,
                                        const uint8_t *inlined) {
    uint32_t left = wqe->total - wqe->sent;
    uint32_t n = left < SOFT_SEGMENT_MAX ? left : SOFT_SEGMENT_MAX;
    unsigned span = soft_span(n);
    if (slot_room(qp) < span)
        return SOFT_NO_ROOM;
    struct soft_writer w = {.ring = ring, .index = qp->tx_index};
    if (inlined && span == 1)
        copy_short(ring->slot[w.index].data, inlined + wqe->sent, n);
    else if (inlined)
        slot_write(&w, inlined + wqe->sent, n);
    else if (!soft_gather(qp, sge, wqe->num_sge, wqe->sent, n, &w))
        return SOFT_BROKEN;
    slot_head(qp, ring, span, SOFT_OP_SEND, segment_flags(wqe, n), n, wqe->imm);
    wqe->sent += n;
    if (wqe->sent < wqe->total && slot_room(qp) < SOFT_SPAN_MAX)
        slot_publish(qp, ring);
    return SOFT_SENT;
}

/* The next segment, through a block, which the receiver may copy while the next one is filled. */
static enum soft_outcome transmit_block(struct soft_qp *qp, struct soft_ring *ring,
                                        struct soft_wqe *wqe, const struct ibv_sge *sge,
                                        int block) {
    uint32_t left = wqe->total - wqe->sent;
    uint32_t n = left < SOFT_STAGE_BYTES ? left : SOFT_STAGE_BYTES;
    uint8_t *at = soft_stage_memory(block);
    if (!gather(qp, sge, wqe->num_sge, wqe->sent, n, into_block, &at)) {
        soft_stage_give_back(qp, block);
        return SOFT_BROKEN;
    }
    struct soft_desc desc = soft_stage_describe(qp, block, n, qp->tx_pos + 1);
    memcpy(ring->slot[qp->tx_index].data, &desc, sizeof desc);
    slot_head(qp, ring, 1, SOFT_OP_SEND_DESC, segment_flags(wqe, n), 1, wqe->imm);
    wqe->sent += n;
    slot_publish(qp, ring);
    return SOFT_SENT;
}

/* As many segments as there is room for. */
static enum soft_outcome transmit_stream(struct soft_qp *qp, struct soft_ring *ring,
                                         struct soft_wqe *wqe, const struct ibv_sge *sge,
                                         const uint8_t *inlined, bool copied) {
    bool by_blocks = !inlined && !copied && wqe->total >= SOFT_STAGE_MIN;
    enum soft_outcome outcome;
    do {
        int block = SOFT_STAGE_NONE;
        if (__builtin_expect(by_blocks, 0) && slot_room(qp) > 0)
            block = soft_stage_take(qp);
        if (block == SOFT_STAGE_WAIT)
            return SOFT_NO_ROOM;
        outcome = block >= 0 ? transmit_block(qp, ring, wqe, sge, block)
                             : transmit_slots(qp, ring, wqe, sge, inlined);
    } while (outcome == SOFT_SENT && wqe->sent < wqe->total);
    return outcome;
}

enum soft_outcome soft_run_local(struct soft_qp *qp, struct soft_wqe *wqe) {
    if ((wqe->flags & IBV_SEND_FENCE) && qp->waiting)
        return SOFT_NO_ROOM;
    if (wqe->opcode == IBV_WR_BIND_MW)
        wqe->status = (uint8_t)soft_mw_bind(qp, wqe);
    else if (!soft_mw_invalidate_local(qp, wqe))
        return SOFT_NO_ROOM;
    return wqe->status == IBV_WC_SUCCESS ? SOFT_SENT : SOFT_BROKEN;
}

static enum soft_outcome transmit_other(struct soft_qp *qp, struct soft_ring *ring,
                                        struct soft_wqe *wqe, const struct ibv_sge *sge,
                                        const uint8_t *inlined) {
    if (wqe->opcode == IBV_WR_BIND_MW || wqe->opcode == IBV_WR_LOCAL_INV)
        return soft_run_local(qp, wqe);
    return soft_rdma(qp, ring, wqe, sge, inlined);
}

static inline bool is_send(const struct soft_wqe *wqe) {
    return wqe->opcode == IBV_WR_SEND || wqe->opcode == IBV_WR_SEND_WITH_IMM ||
           wqe->opcode == IBV_WR_SEND_WITH_INV;
}

#define IN_PLACE 4096u /* bytes from which an iWARP device may send out of the caller's memory */

static enum soft_outcome transmit_one(struct soft_qp *qp, struct soft_ring *ring,
                                      struct soft_wqe *wqe, const struct ibv_sge *sge,
                                      const uint8_t *inlined) {
    if (__builtin_expect(!is_send(wqe), 0))
        return transmit_other(qp, ring, wqe, sge, inlined);
    if (__builtin_expect((wqe->flags & IBV_SEND_FENCE) && qp->waiting, 0))
        return SOFT_NO_ROOM;
    /* A send that completes when it is handed over may be overwritten before it is read. */
    bool copied = qp->unreliable || (qp->iwarp && wqe->total < IN_PLACE);
    if (!inlined && wqe->total > SOFT_SEGMENT_MAX && wqe->sent == 0 && !copied) {
        struct soft_desc desc[SOFT_MAX_SGE];
        int n = describe(qp, sge, wqe->num_sge, desc);
        if (n < 0)
            return SOFT_BROKEN;
        if (n > 0 && (size_t)n <= SOFT_MAX_DESC)
            return transmit_desc(qp, ring, wqe, desc, (unsigned)n);
    }
    return transmit_stream(qp, ring, wqe, sge, inlined, copied);
}

/* Memory of our own that cannot be used. Some devices tell a key that they do not know from a wrong range. */
static enum ibv_wc_status wrong_buffer(struct soft_qp *qp, const struct soft_wqe *wqe) {
    const struct ibv_sge *sge = wqe_sges(qp, qp->sq_next);
    bool out = !wqe->inlined && (is_send(wqe) || wqe->opcode == IBV_WR_RDMA_WRITE ||
                                 wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
    for (unsigned i = 0; out && i < wqe->num_sge; i++)
        if (sge[i].length && !soft_mr_find(sge[i].lkey, qp->ibv.pd))
            return (enum ibv_wc_status)soft_profile()->wrong_send_key;
    return out ? (enum ibv_wc_status)soft_profile()->wrong_send_range : IBV_WC_LOC_PROT_ERR;
}

static void mark_broken(struct soft_qp *qp) {
    qp->plain_tx = false;
    qp->sq_broken = true; /* takes effect when everything before it completed */
    soft_qp_attend(qp);
}

/*
 * Handed to TCP, which has a copy: the peer need not have it. A large unsignalled send counts as handed over as well,
 * but is not copied: its memory is read when the peer takes it, whatever completes behind it.
 */
static bool handed_over(const struct soft_qp *qp, const struct soft_wqe *wqe) {
    bool told = (wqe->flags & IBV_SEND_SIGNALED) && wqe->total >= IN_PLACE;
    return qp->iwarp && !wqe->waiting && !told;
}

static void transmitted(struct soft_qp *qp, struct soft_wqe *wqe) {
    wqe->end = qp->unreliable || handed_over(qp, wqe) ? ld(qp->tx_acked) : qp->tx_pos;
    qp->sq_next++;
    st(qp->unretired, qp->sq_tail - qp->sq_head);
    if ((wqe->flags & IBV_SEND_SIGNALED) && !ld(qp->awaited))
        soft_find_due(qp);
}

void soft_requester_broken(struct soft_qp *qp, struct soft_wqe *wqe) {
    if (wqe->status == IBV_WC_SUCCESS || wqe->status == IBV_WC_LOC_PROT_ERR)
        wqe->status = (uint8_t)wrong_buffer(qp, wqe);
    mark_broken(qp);
}

void soft_requester_break(struct soft_qp *qp, struct soft_wqe *wqe, enum ibv_wc_status status) {
    wqe->status = (uint8_t)status;
    mark_broken(qp);
}

/* The decision of a fault plan about the next work request. */
static bool may_go(struct soft_qp *qp, struct soft_wqe *wqe, bool *lost) {
    int status = 0;
    switch (soft_fault_send(qp, &status)) {
    case SOFT_FAULT_PASS:
        return true;
    case SOFT_FAULT_HOLD:
        return false;
    case SOFT_FAULT_LOSE:
        *lost = true;
        return true;
    case SOFT_FAULT_BREAK:
        soft_requester_break(qp, wqe, (enum ibv_wc_status)status);
        return false;
    }
    return true;
}

/* It has nothing to do with the peer, and is never lost. */
static bool is_local(const struct soft_wqe *wqe) {
    return wqe->opcode == IBV_WR_BIND_MW || wqe->opcode == IBV_WR_LOCAL_INV;
}

/*
 * UC: to a peer that is not there, or takes nothing for too long, whole messages are dropped. One that was
 * begun is ended, for the peer has a receive half filled.
 */
static enum soft_outcome transmit_uc(struct soft_qp *qp, struct soft_ring *ring,
                                     struct soft_wqe *wqe, const struct ibv_sge *sge,
                                     const uint8_t *inlined) {
    bool local = is_local(wqe);
    if (!local && (qp->peer_gone || (ring && (ld(ring->rx.down) || ld(ring->rx.dark))))) {
        soft_drop(qp, SOFT_DROP_NOBODY);
        return SOFT_SENT;
    }
    enum soft_outcome outcome =
        ring || local ? transmit_one(qp, ring, wqe, sge, inlined) : SOFT_NO_ROOM;
    if (outcome == SOFT_NO_ROOM && !local && qp->impatient && wqe->sent == 0 && !wqe->started &&
        !qp->copy) {
        soft_drop(qp, SOFT_DROP_NO_ROOM);
        return SOFT_SENT;
    }
    if (outcome == SOFT_SENT && ring)
        qp->impatient = false;
    return outcome;
}

static enum soft_outcome transmit_next(struct soft_qp *qp, struct soft_ring *ring,
                                       struct soft_wqe *wqe, bool lost) {
    const struct ibv_sge *sge = wqe_sges(qp, qp->sq_next);
    const uint8_t *inlined = wqe->inlined ? wqe_inline(qp, qp->sq_next) : NULL;
    if (__builtin_expect(!qp->unreliable, 1))
        return transmit_one(qp, ring, wqe, sge, inlined);
    if (lost && !is_local(wqe)) {
        soft_drop(qp, SOFT_DROP_ON_DEMAND);
        return SOFT_SENT;
    }
    return qp->ud ? soft_ud_send(qp, wqe, sge, inlined) : transmit_uc(qp, ring, wqe, sge, inlined);
}

/* qp->lock. MPA's listener sends no frame before it has one: on a real one the dialer may take it for a part of the answer. */
static __attribute__((noinline)) bool may_speak(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    const struct soft_ring *rx = ld(qp->rx);
    if (!qp->second)
        return true;
    qp->second = ld(qp->rx_pos) == 0 && (!rx || ld(rx->tx.touching) == 0);
    if (qp->second)
        soft_qp_fail(qp);
    return !qp->second;
}

void soft_requester(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    struct soft_ring *ring = ld(qp->tx);
    if (!ring && !qp->unreliable) {
        if (qp->tcp)
            soft_tcp_post(qp);
        return;
    }
    if (qp->state != IBV_QPS_RTS || qp->sq_broken)
        return;
    if (qp->iwarp && (qp->stuck || (qp->sq_next != qp->sq_tail && !may_speak(qp))))
        return;
    while (qp->sq_next != qp->sq_tail) {
        struct soft_wqe *wqe = wqe_at(qp, qp->sq_next);
        bool lost = false;
        if (soft_fault_active() && !may_go(qp, wqe, &lost))
            break;
        enum soft_outcome outcome = transmit_next(qp, ring, wqe, lost);
        if (outcome == SOFT_BROKEN)
            soft_requester_broken(qp, wqe);
        if (outcome != SOFT_SENT)
            break;
        transmitted(qp, wqe);
    }
    if (ring)
        slot_publish(qp, ring);
}

/* Whether a thread has polled since the engine looked last. */
static bool is_polled(struct soft_qp *qp) {
    unsigned polls =
        ld(soft_cq_of(qp->own_send_cq)->idle_polls) + ld(soft_cq_of(qp->own_recv_cq)->idle_polls);
    bool changed = polls != qp->polls_seen;
    qp->polls_seen = polls;
    return changed;
}

/*
 * What waits for free slots waits for the receiver, and a thread that polls sees them. The engine does not poll: it has
 * the receiver ring when it has taken slots, for as long as anything waits and no thread polls. Else the engine would take
 * the sender's work, and the CPU, from the poller. What was freed before the receiver could see the wish is used at once;
 * a ring that is missed costs a tick.
 */
void soft_requester_ask_room(struct soft_qp *qp, bool engine) {
    spin_assert_held(&qp->lock);
    struct soft_ring *tx = ld(qp->tx);
    bool want = tx && engine && !is_polled(qp) && qp->state == IBV_QPS_RTS &&
                (qp->sq_next != qp->sq_tail || qp->answer_head != qp->answer_tail);
    if (want == qp->asks_room || !tx)
        return;
    qp->asks_room = want;
    atomic_store(&tx->tx.room, want);
    if (want && note_ack(qp, atomic_load(&tx->rx.acked)) && qp->sq_next != qp->sq_tail)
        soft_requester(qp);
}

/* ---- the peer's bell ---------------------------------------------------------------------------- */

void soft_qp_kick(struct soft_qp *qp) {
    /* A full bell is a bell that rings already. */
    if (qp->link_peer && qp->link_peer->bell_out >= 0)
        (void)!uncancelled(send(qp->link_peer->bell_out, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void soft_qp_flush_ack(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    struct soft_ring *rx = ld(qp->rx);
    uint32_t pos = ld(qp->rx_pos);
    if (!rx || pos == ld(qp->rx_word))
        return;
    soft_tsan_publish(qp->attr.dest_qp_num);
    atomic_store_explicit(&rx->rx.acked, pos, memory_order_release);
    soft_qp_news(qp);
    st(qp->rx_told, pos);
    st(qp->rx_word, pos);
    if (__builtin_expect(atomic_load_explicit(&rx->tx.room, memory_order_relaxed) != 0, 0))
        soft_qp_kick(qp);
    else
        bell_after(qp, qp->peer_send_armed);
}

/* Of any number: an application may have given one that is not its own. */
void soft_qp_acknowledge(uint32_t qpn) {
    soft_assert_locked();
    struct soft_qp *qp = soft_qp_find(qpn);
    if (!qp)
        return;
    spin_lock(&qp->lock);
    soft_qp_flush_ack(qp);
    spin_unlock(&qp->lock);
}

void soft_qp_bell_receiver(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    bell_after(qp, qp->peer_recv_armed);
}
