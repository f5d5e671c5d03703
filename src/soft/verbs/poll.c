/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll.c - ibv_poll_cq; notify.c has ibv_req_notify_cq.
 *
 * A poller makes the progress of its QPs itself and gets completions straight into its array; the
 * CQ's own ring holds only what somebody else produced (the engine, a poller of another CQ, a
 * flush). Polling drains that ring first and takes a QP's completions directly only when none of
 * them is waiting in the ring, so completions of one QP keep their order. A poll that a QP filled is
 * followed by one that begins behind it, so that a QP which always fills one keeps no other waiting.
 *
 * The short way, for nearly all messages: a SEND of one slot into a receive of one piece, and the
 * acknowledgement that came with it. Whatever is not quite that is left to progress.c.
 *
 * Owner: the CQ's poll lock, and inside it the QP's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>

#include "soft/fault/inject.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/rc/qp_timer.h"
#include "soft/rc/requester.h"
#include "soft/rc/ring.h"
#include "soft/rc/slot.h"
#include "soft/verbs/cq.h"
#include "soft/verbs/internal.h"
#include "soft/verbs/mr.h"
#include "soft/verbs/post_recv.h"
#include "soft/verbs/qp.h"
#include "soft/verbs/srq.h"

#define COLD_PER_POLL 4
#define COOL_AFTER 4096 /* polls between looks for QPs that went cold */

/* ---- the short way ------------------------------------------------------------------------------ */

/* Messages taken in one go: what does not change from one to the next is looked up once. */
struct run {
    struct soft_ring *ring;
    uint32_t pos, index, ack, seen; /* ack: the last one noted; seen: flags of all heads */
    const struct soft_mr *mr;       /* of the last receive, by its key */
    uint32_t lkey;
};

/* What key 0 opens, which is nobody's. */
static const struct soft_mr nothing;

/* The receive, if it is one piece that holds len bytes and may be written; else NULL. */
static inline uint8_t *buffer_of(const struct soft_qp *qp, struct run *run,
                                 const struct soft_rqe *rqe, uint32_t len) {
    const struct ibv_sge *sge = &rqe->sge[0];
    if (rqe->num_sge != 1 || len > sge->length)
        return NULL;
    if (sge->lkey != run->lkey) {
        const struct soft_mr *mr = soft_mr_find(sge->lkey, qp->ibv.pd);
        if (!mr)
            return NULL;
        run->mr = mr;
        run->lkey = sge->lkey;
    }
    return soft_mr_range(run->mr, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE);
}

/* The receive a message goes to. A shared one is taken at once: the long way goes on with it. */
static inline const struct soft_rqe *receive_of(struct soft_qp *qp) {
    if (__builtin_expect(qp->srq != NULL, 0)) {
        if (!qp->srq_taken && !soft_srq_take(qp->srq, qp->srq_rqe))
            return NULL;
        qp->srq_taken = true;
        return qp->srq_rqe;
    }
    return qp->rq.head != qp->rq.tail ? rqe_head(&qp->rq) : NULL;
}

static inline void receive_done(struct soft_qp *qp) {
    if (__builtin_expect(qp->srq != NULL, 0)) {
        qp->srq_taken = false;
        qp->fault.received++;
    } else {
        qp->rq.head++;
    }
}

/* The next message. False: none, or one for the long way, and nothing was changed. */
static inline __attribute__((always_inline)) bool receive_one(struct soft_qp *qp, struct run *run,
                                                              struct ibv_wc *wc) {
    const unsigned whole = SOFT_F_FIRST | SOFT_F_LAST, may = SOFT_F_IMM | SOFT_F_SOLICITED;
    struct soft_slot *slot = &run->ring->slot[run->index];
    uint64_t seq_ack = atomic_load_explicit(&slot->seq_ack, memory_order_acquire);
    if ((uint32_t)seq_ack != run->pos + 1)
        return false;
    soft_tsan_observe(qp->ibv.qp_num);
    /* read once: the copies are checked and used */
    uint64_t word_imm = slot->word_imm;
    uint32_t word = (uint32_t)word_imm, len = word >> 16, ack = (uint32_t)(seq_ack >> 32);
    if ((word & 0xffff & ~(may << 8)) != soft_word(SOFT_OP_SEND, whole, 0) ||
        len > SOFT_SLOT_PAYLOAD)
        return false;
    const struct soft_rqe *rqe = receive_of(qp);
    uint8_t *to = rqe ? buffer_of(qp, run, rqe, len) : NULL;
    if (!to || (ack != run->ack && !note_ack(qp, ack)))
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
    receive_done(qp);
    run->index = soft_slot_next(run->index);
    run->pos++;
    run->ack = ack;
    run->seen |= word;
    return true;
}

static inline struct run run_begins(struct soft_qp *qp) {
    return (struct run){.ring = ld(qp->rx),
                        .pos = ld(qp->rx_pos),
                        .index = ld(qp->rx_index),
                        .ack = ld(qp->tx_acked),
                        .mr = &nothing};
}

static inline void run_ends(struct soft_qp *qp, const struct run *run) {
    st(qp->rx_index, run->index);
    st(qp->rx_pos, run->pos);
}

/* Out of line: most polls take one message. */
static __attribute__((noinline)) int receive_more(struct soft_qp *qp, uint32_t *seen,
                                                  struct ibv_wc *wc, int ne) {
    struct run run = run_begins(qp);
    uint32_t told = ld(qp->rx_told);
    int n = 0;
    while (n < ne && receive_one(qp, &run, &wc[n])) {
        n++;
        if (__builtin_expect(run.pos - told >= SOFT_RING_SLOTS / 4, 0)) {
            run_ends(qp, &run);
            soft_qp_flush_ack(qp);
            told = run.pos;
        }
    }
    run_ends(qp, &run);
    *seen |= run.seen;
    return n;
}

/* Messages in order, until none, or one for the long way. */
static inline int receive_short(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    struct run run = run_begins(qp);
    if (!receive_one(qp, &run, wc))
        return 0;
    int n = 1;
    uint32_t seen = run.seen;
    run_ends(qp, &run);
    st(qp->empty_polls, 0);
    if (ne > 1 && ld(run.ring->slot[run.index].seq) == run.pos + 1)
        n += receive_more(qp, &seen, wc + 1, ne - 1);
    if (__builtin_expect(ld(cq->armed) != 0, 0))
        soft_cq_signal(cq, (seen >> 8 & SOFT_F_SOLICITED) != 0);
    return n;
}

/*
 * Signalled sends that the acknowledgements seen so far complete, and with each those before it. Only
 * where that completes on the CQ being polled.
 */
static __attribute__((noinline)) int retire_short(struct soft_qp *qp, struct soft_cq *cq,
                                                  struct ibv_wc *wc, int ne) {
    struct soft_ring *tx = ld(qp->tx);
    int n = 0;
    /* The peer had nothing to send: then it said so in the ring's header. */
    if (!tx || ((int32_t)(ld(qp->tx_acked) - ld(qp->due)) < 0 &&
                !note_ack(qp, atomic_load_explicit(&tx->rx.acked, memory_order_acquire))))
        return 0;
    while (n < ne && ld(qp->awaited) && (int32_t)(ld(qp->tx_acked) - ld(qp->due)) >= 0) {
        const struct soft_wqe *wqe = &qp->sq[qp->sq_looked & qp->sq_mask];
        wc[n++] = (struct ibv_wc){.wr_id = wqe->wr_id,
                                  .status = IBV_WC_SUCCESS,
                                  .opcode = soft_wc_opcode(wqe->opcode),
                                  .byte_len = wqe->total,
                                  .qp_num = qp->ibv.qp_num};
        qp->sq_free = qp->sq_head = ++qp->sq_looked;
        soft_find_due(qp);
    }
    st(qp->unretired, qp->sq_tail - qp->sq_head);
    if (__builtin_expect(n && ld(cq->armed) != 0, 0))
        soft_cq_signal(cq, false);
    return n;
}

/* ---- polling ------------------------------------------------------------------------------------ */

static __attribute__((noinline)) int serve_long(struct soft_qp *qp, struct soft_cq *cq,
                                                struct ibv_wc *wc, int n, int ne) {
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
        /* First what was answered: else a small array would never hold anything but receives. */
        if (__builtin_expect(ld(qp->awaited), 0) && soft_cq_of(qp->ibv.send_cq) == cq &&
            answered(qp))
            n = retire_short(qp, cq, wc, ne);
        if (n < ne)
            n += receive_short(qp, cq, wc + n, ne - n);
    }
    /* The rest, unless there can be none: nothing queued, and no word from anybody. */
    if (__builtin_expect(n == 0 || ld(qp->attention) || ld(qp->backlog), 0))
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
    if (__builtin_expect(ld(qp->rx_pos) == pos && ld(qp->rx_told) != pos, 0))
        soft_qp_flush_ack(qp);
    spin_unlock(&qp->lock);
    return n;
}

static inline void nothing_there(struct soft_qp *qp) {
    uint32_t polls = ld(qp->empty_polls) + 1;
    st(qp->empty_polls, polls);
    if (__builtin_expect(ld(qp->rx_told) != ld(qp->rx_pos) || polls % SOFT_LOOK_EVERY == 0, 0))
        soft_qp_idle(qp);
}

/* A few of those that had nothing for long. */
static __attribute__((noinline)) int progress_cold(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = 0;
    unsigned cold = cq->qp_count - cq->hot_count;
    for (unsigned k = 0; k < COLD_PER_POLL && k < cold && n < ne; k++) {
        if (cq->cold_next < cq->hot_count || cq->cold_next >= cq->qp_count)
            cq->cold_next = cq->hot_count;
        unsigned i = cq->cold_next++;
        struct soft_qp *qp = cq->qps[i];
        if (soft_qp_has_work(qp) || ld(qp->unretired)) {
            soft_cq_pollset_warm_up(cq, i);
            n += serve(qp, cq, wc + n, ne - n);
        }
    }
    return n;
}

#define AHEAD 4u

/* With many QPs each lies in a part of memory that the cache has lost since it was looked at last. */
static inline void look_ahead(const struct soft_cq *cq, unsigned i, unsigned end) {
    if (__builtin_expect(end - i <= 2 * AHEAD, 1))
        return;
    __builtin_prefetch(&cq->qps[i + 2 * AHEAD]->rx);
    struct soft_qp *next = cq->qps[i + AHEAD];
    struct soft_ring *ring = ld(next->rx);
    if (ring)
        __builtin_prefetch(&ring->slot[ld(next->rx_index)]);
}

/* Hot ones from i up to end. poll_lock held. */
static inline __attribute__((always_inline)) int
progress_hot(struct soft_cq *cq, unsigned i, unsigned end, struct ibv_wc *wc, int ne) {
    int n = 0;
    for (; i < end; i++) {
        struct soft_qp *qp = cq->qps[i];
        look_ahead(cq, i, end);
        if (!soft_qp_has_work(qp)) {
            nothing_there(qp);
            continue;
        }
        int got = serve(qp, cq, wc + n, ne - n);
        n += got;
        if (n == ne) {
            cq->first = i + 1 < cq->qp_count ? i + 1 : 0;
            return n;
        }
        if (__builtin_expect(got == 0, 0)) /* there was work, and nothing came of it */
            nothing_there(qp);
    }
    return n;
}

/* Behind the one that filled the poll before; the cold ones have their turn behind the last. */
static __attribute__((noinline)) int progress_from(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    unsigned first = cq->first, hot = cq->hot_count;
    cq->first = 0;
    int n = progress_hot(cq, first, hot, wc, ne);
    if (n < ne && cq->qp_count != cq->hot_count)
        n += progress_cold(cq, wc + n, ne - n);
    if (n < ne)
        n += progress_hot(cq, 0, first < hot ? first : hot, wc + n, ne - n);
    return n;
}

/* poll_lock held. */
static inline int progress_all(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    if (__builtin_expect(ld(cq->warm) != NULL, 0))
        soft_cq_pollset_take_warm(cq);
    if (__builtin_expect(cq->first != 0, 0))
        return progress_from(cq, wc, ne);
    int n = progress_hot(cq, 0, cq->hot_count, wc, ne);
    if (__builtin_expect(cq->qp_count != cq->hot_count, 0) && n < ne)
        n += progress_cold(cq, wc + n, ne - n);
    return n;
}

/*
 * Releases the poll lock. Programs written for NICs poll and do nothing else: where two share a CPU the one
 * that waits shall not wait for the end of its own time slice.
 */
static __attribute__((noinline)) void cool_down(struct soft_cq *cq, int n) {
    soft_cq_pollset_cool(cq);
    spin_unlock(&cq->poll_lock);
    if (soft_dropin && n == 0)
        sched_yield();
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
    if (__builtin_expect(++cq->idle_polls >= COOL_AFTER, 0)) {
        cool_down(cq, n);
        return n;
    }
    spin_unlock(&cq->poll_lock);
    return n;
}
