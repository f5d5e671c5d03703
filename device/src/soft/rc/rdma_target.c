/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_target.c - the target of one-sided requests that come through the ring: checking and executing
 * them, sending the answers, and placing the answers to our own.
 *
 * Owner: the QP's lock.
 */
#include "soft/rc/rdma_target.h"

#include <stdatomic.h>
#include <string.h>

#include "common/guarded_copy.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/mr.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/rdma.h"
#include "soft/rc/requester.h"
#include "soft/rc/slot.h"

bool soft_scatter_local(struct soft_qp *qp, const struct soft_wqe *wqe, const struct ibv_sge *sge,
                        uint64_t at, const void *data, uint64_t bytes) {
    const uint8_t *from = data;
    for (unsigned i = 0; bytes && i < wqe->num_sge; i++) {
        if (at >= sge[i].length) {
            at -= sge[i].length;
            continue;
        }
        struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        uint8_t *to =
            mr ? soft_mr_range(mr, sge[i].addr, sge[i].length, IBV_ACCESS_LOCAL_WRITE) : NULL;
        if (!to)
            return false;
        uint64_t n = sge[i].length - at < bytes ? sge[i].length - at : bytes;
        if (!soft_mr_store(mr, to + at, from, n))
            return false;
        from += n;
        bytes -= n;
        at = 0;
    }
    return bytes == 0;
}

/* ---- answers ------------------------------------------------------------------------------------ */

struct slot_copy {
    struct soft_writer *w;
    const uint8_t *from;
    uint32_t bytes;
};

static void write_slots(void *arg) {
    const struct slot_copy *c = arg;
    slot_write(c->w, c->from, c->bytes);
}

/* The target unmapped what it is to send: the peer is told, whose request it was, and the QP goes down. */
static void answer_is_gone(struct soft_qp *qp) {
    struct soft_ring *rx = ld(qp->rx);
    uint32_t pos = ld(qp->rx_pos);
    soft_tsan_publish(qp->attr.dest_qp_num);
    atomic_store_explicit(&rx->rx.acked, pos, memory_order_release);
    atomic_store_explicit(&rx->rx.nak, (uint64_t)pos << 8 | SOFT_NAK_REMOTE_OPERATION,
                          memory_order_release);
    soft_qp_fail(qp);
    soft_qp_kick(qp);
}

bool soft_rdma_target_transmit(struct soft_qp *qp) {
    struct soft_ring *ring = ld(qp->tx);
    bool wrote = false;
    while (ring && qp->answer_head != qp->answer_tail) {
        struct soft_answer *a = &qp->answer[qp->answer_head % SOFT_RD_ATOMIC];
        uint32_t n = a->left < SOFT_SEGMENT_MAX ? a->left : SOFT_SEGMENT_MAX;
        unsigned span = soft_span(n);
        if (slot_room(qp) < span)
            break;
        struct soft_writer w = {.ring = ring, .index = qp->tx_index};
        const uint8_t *from = a->from ? a->from : (const uint8_t *)&a->value;
        if (!guarded_run(write_slots, &(struct slot_copy){&w, from, n}, from, n)) {
            answer_is_gone(qp);
            return wrote;
        }
        a->left -= n;
        slot_head(qp, ring, span, a->from ? SOFT_OP_READ_RESPONSE : SOFT_OP_ATOMIC_RESPONSE,
                  a->left == 0 ? SOFT_F_LAST : 0, n, 0);
        if (a->from)
            a->from += n;
        if (a->left == 0)
            qp->answer_head++;
        wrote = true;
    }
    if (wrote)
        slot_publish(qp, ring);
    return wrote;
}

/* Part of an answer of the peer's arrived: bytes of slots starting at index. False: protocol broken. */
bool soft_rdma_target_take(struct soft_qp *qp, struct soft_ring *ring, unsigned index, unsigned op,
                           unsigned flags, unsigned len) {
    if (qp->waiting == 0)
        return false;
    uint32_t at = qp->wait_index;
    while (at != qp->sq_next && !qp->sq[at & qp->sq_mask].waiting)
        at++;
    if (at == qp->sq_next)
        return false;
    struct soft_wqe *wqe = &qp->sq[at & qp->sq_mask];
    const struct ibv_sge *sge = &qp->sq_sge[(size_t)(at & qp->sq_mask) * qp->sq_max_sge];
    if ((op == SOFT_OP_ATOMIC_RESPONSE) != is_atomic(wqe->opcode) ||
        len > wqe->total - qp->wait_offset)
        return false;
    for (unsigned left = len; left;) {
        unsigned n = left < SOFT_SLOT_PAYLOAD ? left : SOFT_SLOT_PAYLOAD;
        if (!soft_scatter_local(qp, wqe, sge, qp->wait_offset, ring->slot[index].data, n))
            wqe->status = IBV_WC_LOC_PROT_ERR;
        qp->wait_offset += n;
        left -= n;
        index = soft_slot_next(index);
    }
    bool last = (flags & SOFT_F_LAST) != 0;
    if (last != (qp->wait_offset == wqe->total))
        return false;
    if (last) {
        wqe->waiting = false;
        qp->waiting--;
        qp->wait_index = at + 1;
        qp->wait_offset = 0;
    }
    return true;
}

/* ---- execution at the target -------------------------------------------------------------------- */

struct atomic_access {
    uint64_t *at;
    bool swap;
    uint64_t compare_add, swap_to, before;
};

static void access_word(void *arg) {
    struct atomic_access *a = arg;
    a->before = atomic_run(a->at, a->swap, a->compare_add, a->swap_to);
}

bool soft_atomic_guarded(uint64_t *at, bool swap, uint64_t compare_add, uint64_t swap_to,
                         uint64_t *before) {
    struct atomic_access a = {at, swap, compare_add, swap_to, 0};
    bool done = guarded_run(access_word, &a, at, sizeof *at);
    *before = a.before;
    return done;
}

/*
 * A request of the ring path. reth and op are private copies. SOFT_NAK_NONE: done (a WRITE's target
 * is noted for the bytes that follow), else why not.
 */
enum soft_nak soft_rdma_target_execute(struct soft_qp *qp, unsigned op,
                                       const struct soft_reth *reth,
                                       const struct soft_atomic *atomic) {
    int access = op == SOFT_OP_WRITE  ? IBV_ACCESS_REMOTE_WRITE
                 : op == SOFT_OP_READ ? IBV_ACCESS_REMOTE_READ
                                      : IBV_ACCESS_REMOTE_ATOMIC;
    if (!((int)qp->attr.qp_access_flags & access))
        return (enum soft_nak)soft_profile()->no_right_nak;
    if (op == SOFT_OP_ATOMIC && (reth->addr % 8 != 0 || reth->length != 8))
        return SOFT_NAK_INVALID_REQUEST;
    if (op != SOFT_OP_WRITE &&
        qp->answer_tail - qp->answer_head >= (qp->attr.max_dest_rd_atomic < SOFT_RD_ATOMIC
                                                  ? qp->attr.max_dest_rd_atomic
                                                  : SOFT_RD_ATOMIC))
        return SOFT_NAK_INVALID_REQUEST;
    uint8_t *addr = NULL;
    if (reth->length) {
        struct soft_mr *mr = soft_mr_find_remote(reth->key, qp);
        addr = mr ? soft_mr_range(mr, reth->addr, reth->length, access) : NULL;
        if (!addr || (op == SOFT_OP_ATOMIC && (uintptr_t)addr % 8 != 0))
            return SOFT_NAK_REMOTE_ACCESS;
    }
    if (op == SOFT_OP_WRITE) {
        qp->rx_target = addr;
        qp->rx_left = reth->length;
        qp->rx_key = reth->key;
        return SOFT_NAK_NONE;
    }
    struct soft_answer *a = &qp->answer[qp->answer_tail % SOFT_RD_ATOMIC];
    *a = (struct soft_answer){.from = addr, .left = reth->length, .key = reth->key};
    if (op == SOFT_OP_ATOMIC) {
        if (!soft_atomic_guarded((uint64_t *)(void *)addr, atomic->is_swap != 0,
                                 atomic->compare_add, atomic->swap, &a->value))
            return SOFT_NAK_REMOTE_OPERATION;
        a->from = NULL;
        a->left = sizeof a->value;
    } else if (reth->length == 0) {
        a->from = (const uint8_t *)&a->value; /* an answer of no bytes */
    }
    qp->answer_tail++;
    return SOFT_NAK_NONE;
}
