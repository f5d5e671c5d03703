/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll.c - ibv_poll_cq and ibv_req_notify_cq.
 *
 * A poller makes the progress of its QPs itself and gets completions straight into its array; the
 * CQ's own ring holds only what somebody else produced (the engine, a poller of another CQ, a
 * flush). Polling drains that ring first and takes a QP's completions directly only when none of
 * them is waiting in the ring, so completions of one QP keep their order.
 *
 * The short way, for nearly all messages: a SEND of one slot into a receive of one piece, and the
 * acknowledgement that came with it. Whatever is not quite that is left to progress.c.
 *
 * Owner: the CQ's poll lock, and inside it the QP's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "soft/progress.h"
#include "soft/slot.h"
#include "soft/soft.h"

#define COLD_PER_POLL 4
#define COOL_AFTER 4096 /* polls between looks for QPs that went cold */

/* ---- the short way ------------------------------------------------------------------------------ */

/* The receive, if it is one piece that holds len bytes and may be written; else NULL. */
static inline uint8_t *buffer_of(const struct soft_qp *qp, const struct soft_rqe *rqe,
                                 uint32_t len) {
    if (rqe->num_sge != 1 || len > rqe->sge[0].length)
        return NULL;
    const struct soft_mr *mr = soft_mr_find(rqe->sge[0].lkey, qp->ibv.pd);
    return mr ? soft_mr_range(mr, rqe->sge[0].addr, rqe->sge[0].length, IBV_ACCESS_LOCAL_WRITE)
              : NULL;
}

/* The next message. False: none, or one for the long way, and nothing was changed. */
static inline bool receive_one(struct soft_qp *qp, struct soft_ring *ring, struct ibv_wc *wc,
                               uint32_t *seen) {
    const unsigned whole = SOFT_F_FIRST | SOFT_F_LAST, may = SOFT_F_IMM | SOFT_F_SOLICITED;
    uint32_t pos = ld(qp->rx_pos), index = ld(qp->rx_index);
    struct soft_slot *slot = &ring->slot[index];
    uint64_t seq_ack = atomic_load_explicit(&slot->seq_ack, memory_order_acquire);
    if ((uint32_t)seq_ack != pos + 1 || qp->rq.head == qp->rq.tail)
        return false;
    /* read once: the copies are checked and used */
    uint64_t word_imm = slot->word_imm;
    uint32_t word = (uint32_t)word_imm, len = word >> 16;
    if ((word & 0xffff & ~(may << 8)) != soft_word(SOFT_OP_SEND, whole, 0) ||
        len > SOFT_SLOT_PAYLOAD)
        return false;
    const struct soft_rqe *rqe = rqe_head(&qp->rq);
    uint8_t *to = buffer_of(qp, rqe, len);
    if (!to || !note_ack(qp, (uint32_t)(seq_ack >> 32)))
        return false;
    slot_copy(to, slot->data, len);
    *wc = (struct ibv_wc){.wr_id = rqe->wr_id,
                          .status = IBV_WC_SUCCESS,
                          .opcode = IBV_WC_RECV,
                          .byte_len = len,
                          .imm_data = (uint32_t)(word_imm >> 32),
                          .qp_num = qp->ibv.qp_num,
                          .src_qp = qp->attr.dest_qp_num,
                          .wc_flags = word >> 8 & SOFT_F_IMM ? IBV_WC_WITH_IMM : 0};
    qp->rq.head++;
    st(qp->rx_index, soft_slot_next(index));
    st(qp->rx_pos, pos + 1);
    *seen |= word;
    return true;
}

static __attribute__((noinline)) int receive_more(struct soft_qp *qp, struct soft_ring *ring,
                                                  struct ibv_wc *wc, int ne, uint32_t *seen) {
    int n = 0;
    while (n < ne && receive_one(qp, ring, &wc[n], seen)) {
        n++;
        if (ld(qp->rx_pos) - ld(qp->rx_told) >= SOFT_RING_SLOTS / 4)
            soft_qp_flush_ack(qp);
    }
    return n;
}

/* Messages in order, until none, or one for the long way. */
static inline int receive_short(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    struct soft_ring *ring = ld(qp->rx);
    uint32_t seen = 0;
    if (!receive_one(qp, ring, wc, &seen))
        return 0;
    int n = 1;
    if (ne > 1 && arrived(qp, ring))
        n += receive_more(qp, ring, wc + 1, ne - 1, &seen);
    /* Completing what it acknowledged can wait for the next poll, the message cannot. */
    if (qp->sq_head != qp->sq_next)
        st(qp->attention, ld(qp->attention) | ATT_RETIRE);
    st(qp->idle_told, 0);
    if (__builtin_expect(ld(cq->armed) != 0, 0))
        soft_cq_signal(cq, (seen >> 8 & SOFT_F_SOLICITED) != 0);
    return n;
}

/* Sends that the acknowledgements seen so far complete. */
static __attribute__((noinline)) int retire_short(struct soft_qp *qp, struct soft_cq *cq,
                                                  struct ibv_wc *wc, int ne) {
    uint32_t acked = ld(qp->tx_acked), head = qp->sq_head;
    int n = 0;
    if ((int32_t)(acked - qp->sq[head & qp->sq_mask].end) < 0)
        return 0;
    for (; head != qp->sq_next; head++) {
        const struct soft_wqe *wqe = &qp->sq[head & qp->sq_mask];
        if ((int32_t)(acked - wqe->end) < 0 || wqe->bits & SOFT_WQE_HELD)
            break;
        if (!(wqe->flags & IBV_SEND_SIGNALED))
            continue;
        if (soft_cq_of(qp->ibv.send_cq) != cq || n == ne) {
            st(qp->attention, soft_cq_of(qp->ibv.send_cq) != cq ? ATT_WORK : ATT_RETIRE);
            break;
        }
        wc[n++] = (struct ibv_wc){.wr_id = wqe->wr_id,
                                  .status = IBV_WC_SUCCESS,
                                  .opcode = soft_wc_opcode(wqe->opcode),
                                  .byte_len = wqe->total,
                                  .qp_num = qp->ibv.qp_num};
        qp->sq_free = head + 1;
    }
    qp->sq_head = head;
    st(qp->unretired, qp->sq_tail - head);
    if (__builtin_expect(n && ld(cq->armed) != 0, 0))
        soft_cq_signal(cq, false);
    return n;
}

/* ---- polling ------------------------------------------------------------------------------------ */

static int serve_long(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int n, int ne) {
    struct sink sink = {.cq = cq, .wc = wc, .n = n, .ne = ne};
    soft_progress_locked(qp, &sink);
    return sink.n;
}

static inline bool short_way(const struct soft_qp *qp, const struct soft_cq *cq) {
    return qp->plain_rx && soft_cq_of(qp->ibv.recv_cq) == cq && !ld(cq->dead) &&
           !soft_fault_active();
}

/* qp->lock held. */
static inline int serve_locked(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = 0;
    if (__builtin_expect(short_way(qp, cq), 1)) {
        /* First what was acknowledged: else a small array would never hold anything but receives. */
        if (ld(qp->attention) == ATT_RETIRE) {
            st(qp->attention, 0);
            n = retire_short(qp, cq, wc, ne);
            if (ld(qp->attention) == 0 && !arrived(qp, ld(qp->rx)))
                return n;
        }
        if (n < ne)
            n += receive_short(qp, cq, wc + n, ne - n);
    }
    /* The rest, unless there can be none: nothing queued, and no word from anybody. */
    if (__builtin_expect(n == 0 || ld(qp->attention) & ATT_WORK || qp->sq_next != qp->sq_tail, 0))
        n = serve_long(qp, cq, wc, n, ne);
    return n;
}

static inline int serve(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    st(qp->used_lately, true);
    /* A poller that finds the lock taken comes again; the engine has to get its turn. */
    if (__builtin_expect(!spin_try(&qp->lock), 0))
        return 0;
    /* Older completions of this QP may wait in the CQ's ring: they come first. */
    if (__builtin_expect(atomic_load_explicit(&cq->ring_count, memory_order_acquire) != 0, 0)) {
        spin_unlock(&qp->lock);
        return 0;
    }
    soft_tsan_observe(qp->ibv.qp_num);
    uint32_t pos = ld(qp->rx_pos);
    int n = serve_locked(qp, cq, wc, ne);
    /* No message this time: then the peer learns what was taken before, as in an empty poll. */
    if (ld(qp->rx_pos) == pos && ld(qp->rx_told) != pos)
        soft_qp_flush_ack(qp);
    spin_unlock(&qp->lock);
    return n;
}

/* poll_lock held. */
static inline int progress_all(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = 0;
    if (__builtin_expect(ld(cq->warm) != NULL, 0))
        soft_cq_take_warm(cq);
    for (unsigned i = 0; i < cq->hot_count; i++) {
        struct soft_qp *qp = cq->qps[i];
        if (!soft_qp_has_work(qp)) {
            soft_qp_idle(qp);
            continue;
        }
        int got = serve(qp, cq, wc + n, ne - n);
        n += got;
        if (n == ne)
            break;
        if (got == 0) /* there was work, and nothing came of it */
            soft_qp_idle(qp);
    }
    unsigned cold = cq->qp_count - cq->hot_count;
    for (unsigned k = 0; k < COLD_PER_POLL && k < cold && n < ne; k++) {
        if (cq->cold_next < cq->hot_count || cq->cold_next >= cq->qp_count)
            cq->cold_next = cq->hot_count;
        unsigned i = cq->cold_next++;
        struct soft_qp *qp = cq->qps[i];
        if (soft_qp_has_work(qp) || ld(qp->unretired)) {
            soft_cq_warm_up(cq, i);
            n += serve(qp, cq, wc + n, ne - n);
        }
    }
    return n;
}

int soft_poll_cq(struct ibv_cq *ibcq, int ne, struct ibv_wc *wc) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (__builtin_expect(soft_stale(cq), 0))
        return -EPERM;
    if (ne <= 0)
        return 0;
    spin_lock(&cq->poll_lock);
    int n = 0;
    if (__builtin_expect(atomic_load_explicit(&cq->ring_count, memory_order_acquire) != 0, 0))
        n = soft_cq_pop(cq, wc, ne);
    /* what an engine pushes while we look belongs before nothing of ours: next poll */
    if (n < ne)
        n += progress_all(cq, wc + n, ne - n);
    if (__builtin_expect(++cq->idle_polls >= COOL_AFTER, 0))
        soft_cq_cool_down(cq);
    spin_unlock(&cq->poll_lock);
    return n;
}

/* ---- sleeping ----------------------------------------------------------------------------------- */

/*
 * After the arming: what another thread posted before it could see the armed word is found here,
 * what it posts later it gives to the engine itself.
 */
static void look_after(struct soft_cq *cq) {
    bool outstanding = false;
    spin_lock(&cq->poll_lock);
    for (unsigned i = 0; i < cq->qp_count; i++) {
        struct soft_qp *qp = cq->qps[i];
        if (ld(qp->unretired) || soft_qp_has_work(qp)) {
            st(qp->need_tick, true);
            outstanding = true;
        }
    }
    spin_unlock(&cq->poll_lock);
    if (outstanding)
        soft_tick_want();
}

/*
 * What has arrived by now is moved into the ring first, as on a device, where it would lie in the
 * CQ already and not fire; then the CQ is armed and the peers' view of it is ordered before
 * whatever the caller polls next.
 */
int soft_req_notify_cq(struct ibv_cq *ibcq, int solicited_only) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (soft_stale(cq))
        return EPERM;
    spin_lock(&cq->poll_lock);
    for (unsigned i = 0; i < cq->qp_count; i++) {
        if (soft_qp_has_work(cq->qps[i]))
            soft_qp_progress(cq->qps[i]);
        soft_qp_idle(cq->qps[i]);
    }
    uint32_t want = solicited_only ? 2 : 1, old = atomic_load(&cq->armed);
    if (old == 0) {
        atomic_store(&cq->armed, want);
        atomic_fetch_add(&soft_board->cq[cq->board_index].armed, 1);
    } else if (old == 2 && want == 1) {
        atomic_store(&cq->armed, 1);
    }
    spin_unlock(&cq->poll_lock);
    if (!soft_own_fence_free() ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
        soft_fence();
    look_after(cq);
    return 0;
}
