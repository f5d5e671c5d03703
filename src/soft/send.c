/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * send.c - the requester: work requests into the peer's ring.
 *
 * post_send checks and records a work request and moves it into the ring at once when nothing is
 * queued before it and there is room; what does not fit is moved by whoever makes progress later.
 * Payload up to SOFT_SEGMENT_MAX travels in the slots. Larger payload travels as descriptors when
 * all of it lies in regions that the peer has mapped (the receiver then copies once, straight from
 * the sender's memory), else as a stream of segments through the ring.
 * In a list the slots are all written first and their sequence words stored afterwards, in order.
 *
 * Owner: the QP's lock.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/object.h"
#include "soft/peer_internal.h"
#include "soft/soft.h"

static inline struct soft_wqe *wqe_at(struct soft_qp *qp, uint32_t index) {
    return &qp->sq[index & qp->sq_mask];
}

static inline struct ibv_sge *wqe_sges(struct soft_qp *qp, uint32_t index) {
    return &qp->sq_sge[(size_t)(index & qp->sq_mask) * qp->sq_max_sge];
}

static inline uint8_t *wqe_inline(struct soft_qp *qp, uint32_t index) {
    return &qp->sq_inline[(size_t)(index & qp->sq_mask) * qp->max_inline];
}

/* ---- writing slots ------------------------------------------------------------------------------ */

static inline void write_bytes(struct soft_writer *w, const uint8_t *from, size_t bytes) {
    while (bytes) {
        if (w->used == SOFT_SLOT_PAYLOAD) {
            w->index = soft_slot_next(w->index);
            w->used = 0;
        }
        size_t n = SOFT_SLOT_PAYLOAD - w->used;
        n = n < bytes ? n : bytes;
        memcpy(w->ring->slot[w->index].data + w->used, from, n);
        w->used += (unsigned)n;
        from += n;
        bytes -= n;
    }
}

/* Heads the span of slots that was just filled; publish() makes it visible. */
static inline void head_write(struct soft_qp *qp, struct soft_ring *ring, unsigned span, unsigned op,
                              unsigned flags, unsigned len, uint32_t imm) {
    struct soft_slot *slot = &ring->slot[qp->tx_index];
    slot->word = soft_word(op, flags, len);
    slot->imm = imm;
    qp->tx_pos += span;
    for (unsigned i = 0; i < span; i++)
        qp->tx_index = soft_slot_next(qp->tx_index);
}

/* Stores the sequence words of everything written and not yet visible, oldest first. */
static inline void publish(struct soft_qp *qp, struct soft_ring *ring) {
    uint32_t pos = qp->tx_published;
    if (pos == qp->tx_pos)
        return;
    unsigned behind = qp->tx_pos - pos;
    unsigned index = qp->tx_index >= behind ? qp->tx_index - behind
                                            : qp->tx_index + SOFT_RING_SLOTS - behind;
    uint32_t ack = ld(qp->rx_pos);
    soft_tsan_publish(qp->attr.dest_qp_num);
    for (; pos != qp->tx_pos; pos++, index = soft_slot_next(index)) {
        ring->slot[index].ack = ack;
        atomic_store_explicit(&ring->slot[index].seq, pos + 1, memory_order_release);
    }
    st(qp->rx_told, ack);
    qp->tx_published = pos;
}

/* ---- gathering ---------------------------------------------------------------------------------- */

static bool gather(struct soft_qp *qp, const struct ibv_sge *sge, unsigned count, uint32_t skip,
                   uint32_t bytes, struct soft_writer *w) {
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
        write_bytes(w, from + skip, n);
        bytes -= n;
        skip = 0;
    }
    return true;
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
        if (mr->region < 0 || !qp->peer ||
            atomic_load_explicit(&qp->peer->region_sent[mr->region], memory_order_acquire) !=
                REGION_READY)
            return 0;
        desc[n++] = (struct soft_desc){.region = (uint32_t)mr->region,
                                       .length = sge[i].length,
                                       .offset = mr->region_offset + (sge[i].addr - mr->start)};
    }
    return n;
}

void soft_write_bytes(struct soft_writer *w, const void *from, size_t bytes) {
    write_bytes(w, from, bytes);
}

void soft_head_write(struct soft_qp *qp, struct soft_ring *ring, unsigned span, unsigned op,
                     unsigned flags, unsigned len, uint32_t imm) {
    head_write(qp, ring, span, op, flags, len, imm);
}

void soft_publish(struct soft_qp *qp, struct soft_ring *ring) {
    publish(qp, ring);
}

bool soft_gather(struct soft_qp *qp, const struct ibv_sge *sge, unsigned count, uint32_t skip,
                 uint32_t bytes, struct soft_writer *w) {
    return gather(qp, sge, count, skip, bytes, w);
}

/* ---- transmitting ------------------------------------------------------------------------------- */

static inline unsigned wire_flags(const struct soft_wqe *wqe) {
    return (wqe->opcode == IBV_WR_SEND_WITH_IMM   ? SOFT_F_IMM
            : wqe->opcode == IBV_WR_SEND_WITH_INV ? SOFT_F_INVALIDATE
                                                  : 0) |
           (wqe->flags & IBV_SEND_SOLICITED ? SOFT_F_SOLICITED : 0);
}

static enum soft_outcome transmit_desc(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                                  const struct soft_desc *desc, unsigned n) {
    unsigned span = soft_span(n * (unsigned)sizeof *desc);
    if (soft_ring_room(qp) < span)
        return SOFT_NO_ROOM;
    struct soft_writer w = {.ring = ring, .index = qp->tx_index};
    write_bytes(&w, (const uint8_t *)desc, n * sizeof *desc);
    head_write(qp, ring, span, SOFT_OP_SEND_DESC, SOFT_F_FIRST | SOFT_F_LAST | wire_flags(wqe), n,
               wqe->imm);
    wqe->sent = wqe->total;
    return SOFT_SENT;
}

/* As many segments as there is room for. */
static enum soft_outcome transmit_stream(struct soft_qp *qp, struct soft_ring *ring,
                                    struct soft_wqe *wqe, const struct ibv_sge *sge,
                                    const uint8_t *inlined) {
    do {
        uint32_t left = wqe->total - wqe->sent;
        uint32_t n = left < SOFT_SEGMENT_MAX ? left : SOFT_SEGMENT_MAX;
        unsigned span = soft_span(n);
        if (soft_ring_room(qp) < span)
            return SOFT_NO_ROOM;
        struct soft_writer w = {.ring = ring, .index = qp->tx_index};
        if (inlined)
            write_bytes(&w, inlined + wqe->sent, n);
        else if (!gather(qp, sge, wqe->num_sge, wqe->sent, n, &w))
            return SOFT_BROKEN;
        unsigned flags = (wqe->sent == 0 ? SOFT_F_FIRST : 0) | (n == left ? SOFT_F_LAST : 0);
        head_write(qp, ring, span, SOFT_OP_SEND, flags | wire_flags(wqe), n, wqe->imm);
        wqe->sent += n;
        if (wqe->sent < wqe->total && soft_ring_room(qp) < SOFT_SPAN_MAX)
            publish(qp, ring);
    } while (wqe->sent < wqe->total);
    return SOFT_SENT;
}

/* Bind and invalidate happen here, not at the peer; an error ends the QP like any other. */
static enum soft_outcome run_local(struct soft_qp *qp, struct soft_wqe *wqe) {
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    if ((wqe->flags & IBV_SEND_FENCE) && qp->waiting)
        return SOFT_NO_ROOM;
    if (wqe->opcode == IBV_WR_BIND_MW)
        status = soft_mw_bind(qp, wqe);
    else if (!soft_mw_invalidate(qp, wqe->rkey))
        status = IBV_WC_MW_BIND_ERR;
    st(qp->attention, ATT_WORK);
    wqe->status = (uint8_t)status;
    return status == IBV_WC_SUCCESS ? SOFT_SENT : SOFT_BROKEN;
}

static enum soft_outcome transmit_other(struct soft_qp *qp, struct soft_ring *ring,
                                        struct soft_wqe *wqe, const struct ibv_sge *sge,
                                        const uint8_t *inlined) {
    if (wqe->opcode == IBV_WR_BIND_MW || wqe->opcode == IBV_WR_LOCAL_INV)
        return run_local(qp, wqe);
    return soft_one_sided(qp, ring, wqe, sge, inlined);
}

static inline bool is_send(const struct soft_wqe *wqe) {
    return wqe->opcode == IBV_WR_SEND || wqe->opcode == IBV_WR_SEND_WITH_IMM ||
           wqe->opcode == IBV_WR_SEND_WITH_INV;
}

static enum soft_outcome transmit_one(struct soft_qp *qp, struct soft_ring *ring,
                                      struct soft_wqe *wqe, const struct ibv_sge *sge,
                                      const uint8_t *inlined) {
    if (__builtin_expect(!is_send(wqe), 0))
        return transmit_other(qp, ring, wqe, sge, inlined);
    if (__builtin_expect((wqe->flags & IBV_SEND_FENCE) && qp->waiting, 0))
        return SOFT_NO_ROOM;
    if (!inlined && wqe->total > SOFT_SEGMENT_MAX && wqe->sent == 0) {
        struct soft_desc desc[SOFT_MAX_SGE];
        int n = describe(qp, sge, wqe->num_sge, desc);
        if (n < 0)
            return SOFT_BROKEN;
        if (n > 0)
            return transmit_desc(qp, ring, wqe, desc, (unsigned)n);
    }
    return transmit_stream(qp, ring, wqe, sge, inlined);
}

static void mark_broken(struct soft_qp *qp, struct soft_wqe *wqe) {
    if (wqe->status == IBV_WC_SUCCESS)
        wqe->status = IBV_WC_LOC_PROT_ERR;
    qp->sq_broken = true; /* takes effect when everything before it completed */
    st(qp->attention, ATT_WORK);
}

static void transmitted(struct soft_qp *qp, struct soft_wqe *wqe) {
    wqe->end = qp->tx_pos;
    qp->sq_next++;
    st(qp->unretired, qp->sq_tail - qp->sq_head);
}

/* What a fault plan says about the work request next in line. */
static bool may_go(struct soft_qp *qp, struct soft_wqe *wqe) {
    int status = 0;
    switch (soft_fault_send(qp, &status)) {
    case SOFT_FAULT_PASS:
        return true;
    case SOFT_FAULT_HOLD:
        return false;
    case SOFT_FAULT_BREAK:
        wqe->status = (uint8_t)status;
        mark_broken(qp, wqe);
        return false;
    }
    return true;
}

void soft_qp_transmit(struct soft_qp *qp) {
    struct soft_ring *ring = ld(qp->tx);
    if (!ring || qp->state != IBV_QPS_RTS || qp->sq_broken)
        return;
    while (qp->sq_next != qp->sq_tail) {
        struct soft_wqe *wqe = wqe_at(qp, qp->sq_next);
        if (soft_fault_active() && !may_go(qp, wqe))
            break;
        enum soft_outcome outcome =
            transmit_one(qp, ring, wqe, wqe_sges(qp, qp->sq_next),
                         wqe->inlined ? wqe_inline(qp, qp->sq_next) : NULL);
        if (outcome == SOFT_BROKEN)
            mark_broken(qp, wqe);
        if (outcome != SOFT_SENT)
            break;
        transmitted(qp, wqe);
    }
    publish(qp, ring);
}

/* ---- the peer's bell ---------------------------------------------------------------------------- */

void soft_qp_kick(struct soft_qp *qp) {
    /* A full bell is a bell that rings already. */
    if (qp->link_peer && qp->link_peer->bell_out >= 0)
        (void)!send(qp->link_peer->bell_out, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/*
 * After something was published: if the other side sleeps, wake it. The sleeper orders its armed
 * word before its last look with membarrier, which also orders us; where one of the two cannot
 * do that, a fence here does.
 */
static inline void bell_after(struct soft_qp *qp, const _Atomic uint32_t *armed) {
    if (!armed)
        return;
    if (!qp->fence_free)
        soft_fence();
    else
        atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(armed, memory_order_relaxed) != 0, 0))
        soft_qp_kick(qp);
}

void soft_qp_flush_ack(struct soft_qp *qp) {
    struct soft_ring *rx = ld(qp->rx);
    uint32_t pos = ld(qp->rx_pos);
    if (!rx || pos == ld(qp->rx_word))
        return;
    soft_tsan_publish(qp->attr.dest_qp_num);
    atomic_store_explicit(&rx->rx.acked, pos, memory_order_release);
    st(qp->rx_told, pos);
    st(qp->rx_word, pos);
    bell_after(qp, qp->peer_send_armed);
}

/* ---- posting ------------------------------------------------------------------------------------ */

static int check_opcode(struct soft_qp *qp, const struct ibv_send_wr *wr) {
    bool inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
    switch (wr->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return 0;
    case IBV_WR_RDMA_READ:
        return inlined ? EINVAL : 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: {
        uint64_t sum = 0;
        for (int i = 0; i < wr->num_sge && i < SOFT_MAX_SGE; i++)
            sum += wr->sg_list[i].length;
        return inlined || sum != 8 ? EINVAL : 0;
    }
    case IBV_WR_LOCAL_INV:
        return wr->num_sge ? EINVAL : 0;
    case IBV_WR_BIND_MW:
        return wr->num_sge ? EINVAL : soft_mw_check(qp, wr);
    case IBV_WR_TSO:
    case IBV_WR_DRIVER1:
    case IBV_WR_ATOMIC_WRITE:
        break;
    }
    return EINVAL;
}

static int check_wr(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t *total) {
    if (wr->opcode != IBV_WR_SEND) {
        int rc = check_opcode(qp, wr);
        if (rc != 0)
            return rc;
    }
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq_max_sge)
        return EINVAL;
    if (qp->sq_tail - qp->sq_free >= qp->sq_max_wr)
        return ENOMEM;
    uint64_t sum = 0;
    for (int i = 0; i < wr->num_sge; i++)
        sum += wr->sg_list[i].length;
    if (sum > SOFT_MAX_MSG || ((wr->send_flags & IBV_SEND_INLINE) && sum > qp->max_inline))
        return EINVAL;
    *total = (uint32_t)sum;
    return 0;
}

/* Inline payload straight from the caller's memory into the ring. */
static bool inline_now(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                       const struct ibv_send_wr *wr) {
    unsigned span = soft_span(wqe->total);
    if (soft_ring_room(qp) < span)
        return false;
    struct soft_writer w = {.ring = ring, .index = qp->tx_index};
    for (int i = 0; i < wr->num_sge; i++)
        write_bytes(&w, (const uint8_t *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
    head_write(qp, ring, span, SOFT_OP_SEND, SOFT_F_FIRST | SOFT_F_LAST | wire_flags(wqe),
               wqe->total, wqe->imm);
    wqe->sent = wqe->total;
    return true;
}

/* What a plain SEND does not need. */
static void fill_other(struct soft_wqe *wqe, const struct ibv_send_wr *wr) {
    switch (wr->opcode) {
    case IBV_WR_SEND_WITH_INV:
        wqe->imm = wr->invalidate_rkey;
        break;
    case IBV_WR_LOCAL_INV:
        wqe->rkey = wr->invalidate_rkey;
        break;
    case IBV_WR_BIND_MW:
        wqe->rkey = wr->bind_mw.rkey;
        wqe->bind_mw = (uintptr_t)wr->bind_mw.mw;
        wqe->bind_mr = (uintptr_t)wr->bind_mw.bind_info.mr;
        wqe->remote_addr = wr->bind_mw.bind_info.addr;
        wqe->bind_length = wr->bind_mw.bind_info.length;
        wqe->bind_access = wr->bind_mw.bind_info.mw_access_flags;
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        wqe->remote_addr = wr->wr.atomic.remote_addr;
        wqe->rkey = wr->wr.atomic.rkey;
        wqe->compare_add = wr->wr.atomic.compare_add;
        wqe->swap = wr->wr.atomic.swap;
        break;
    default:
        wqe->remote_addr = wr->wr.rdma.remote_addr;
        wqe->rkey = wr->wr.rdma.rkey;
        break;
    }
}

static void save_payload(struct soft_qp *qp, uint32_t index, const struct ibv_send_wr *wr) {
    if (wr->send_flags & IBV_SEND_INLINE) {
        uint8_t *to = wqe_inline(qp, index);
        for (int i = 0; i < wr->num_sge; i++) {
            memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
            to += wr->sg_list[i].length;
        }
    } else if (wr->num_sge) {
        memcpy(wqe_sges(qp, index), wr->sg_list, (size_t)wr->num_sge * sizeof(struct ibv_sge));
    }
}

static void post_one(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t total, bool queue) {
    struct soft_ring *ring = ld(qp->tx);
    struct soft_wqe *wqe = wqe_at(qp, qp->sq_tail);
    bool inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
    wqe->wr_id = wr->wr_id;
    wqe->imm = wr->imm_data;
    wqe->total = total;
    wqe->sent = 0;
    wqe->opcode = (uint8_t)wr->opcode;
    wqe->flags = (uint8_t)(wr->send_flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0));
    wqe->num_sge = (uint8_t)wr->num_sge;
    wqe->inlined = inlined;
    wqe->status = IBV_WC_SUCCESS;
    wqe->waiting = wqe->started = false;
    bool direct = ring && qp->sq_next == qp->sq_tail && qp->state == IBV_QPS_RTS && !qp->sq_broken &&
                  !queue;
    bool plain = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
    uint32_t index = qp->sq_tail++;
    if (!plain) {
        fill_other(wqe, wr);
        save_payload(qp, index, wr); /* an answer may need it after the post */
    }
    if (direct) {
        enum soft_outcome outcome;
        if (inlined && plain)
            outcome = inline_now(qp, ring, wqe, wr) ? SOFT_SENT : SOFT_NO_ROOM;
        else
            outcome = transmit_one(qp, ring, wqe, wr->sg_list,
                                   inlined ? wqe_inline(qp, index) : NULL);
        if (outcome == SOFT_SENT) {
            transmitted(qp, wqe);
            return;
        }
        if (outcome == SOFT_BROKEN) {
            mark_broken(qp, wqe);
            return;
        }
    }
    if (plain)
        save_payload(qp, index, wr);
    st(qp->unretired, qp->sq_tail - qp->sq_head);
    st(qp->attention, ATT_WORK);
    st(qp->need_tick, true);
}

int soft_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    int rc = 0;
    if (__builtin_expect(soft_stale(qp), 0)) {
        *bad = wr;
        return EPERM;
    }
    bool faults = soft_fault_active(); /* then all goes through the queue, where it is asked */
    spin_lock(&qp->lock);
    if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_SQD)
        rc = EINVAL;
    for (; rc == 0 && wr; wr = wr->next) {
        uint32_t total;
        rc = check_wr(qp, wr, &total);
        if (rc != 0)
            break;
        post_one(qp, wr, total, faults);
    }
    struct soft_ring *ring = ld(qp->tx);
    uint32_t published = qp->tx_published;
    if (__builtin_expect(faults, 0))
        soft_qp_transmit(qp);
    if (ring && published != qp->tx_pos) {
        publish(qp, ring);
        bell_after(qp, qp->peer_recv_armed);
    }
    if (__builtin_expect(qp->kick_wanted, 0)) {
        qp->kick_wanted = false;
        soft_qp_kick(qp);
    }
    if (qp->state == IBV_QPS_ERR || qp->peer_gone)
        st(qp->attention, ATT_WORK);
    /* Nobody may be polling here or there while somebody sleeps on this: the engine looks after it. */
    bool tick = qp->sq_next != qp->sq_tail;
    if (__builtin_expect(ld(soft_cq_of(qp->ibv.send_cq)->armed) != 0, 0) &&
        qp->sq_head != qp->sq_tail) {
        st(qp->need_tick, true);
        tick = true;
    }
    spin_unlock(&qp->lock);
    if (__builtin_expect(ld(qp->cold[0]) || ld(qp->cold[1]), 0))
        soft_cq_warm(qp);
    if (rc != 0)
        *bad = wr;
    if (__builtin_expect(tick, 0))
        soft_tick_want();
    return rc;
}

void soft_qp_bell_receiver(struct soft_qp *qp) {
    bell_after(qp, qp->peer_recv_armed);
}
