/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll.c - ibv_poll_cq; notify.c has ibv_req_notify_cq.
 *
 * A poller makes the progress of its QPs itself and gets completions straight into its array; the CQ's own ring holds
 * only completions that another thread or a flush produced (the engine, a poller of another CQ). Polling drains that
 * ring first and takes a QP's completions directly only when the ring is empty, so completions of one QP keep their
 * order. If a QP filled a poll, the next poll begins with the QP behind it, so that a QP which always fills a poll
 * keeps no other waiting.
 *
 * The short way serves nearly all messages: a SEND of up to four slots into a receive of one piece, and the
 * acknowledgement that came with it (receive_short.h). It leaves all other messages to progress.c.
 *
 * Owner: the CQ's poll lock, and inside it the QP's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>

#include "soft/fault/inject.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/cq_set.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/order.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/rc/slot.h"
#include "soft/verbs/internal.h"
#include "soft/verbs/poll_in_order.h"
#include "soft/verbs/poll_many.h"
#include "soft/verbs/poll_sockets.h"
#include "soft/verbs/receive_short.h"

#define COLD_PER_POLL 4u
#define COLD_LISTENING 2u /* the same, if the CQ listens to peers' boards */
#define BUSY_EVERY 8u     /* while messages come only one poll of so many looks at cold ones */
#define QUIET 512u /* polls in a row without a message: from then on each poll looks at them */
#define SWEEP 64u
#define COOL_AFTER 4096 /* polls between searches for QPs that went cold */
#define TCP_EVERY 32u   /* polls between searches for sockets with something to read, if any */

/* ---- the short way ------------------------------------------------------------------------------ */

/* Out of line: most polls take one message. */
static __attribute__((noinline)) int receive_more(struct soft_qp *qp, struct soft_cq *cq,
                                                  struct ibv_wc *wc, int ne) {
    struct soft_ring *ring = ld(qp->rx);
    uint32_t seen = 0, index = ld(qp->rx_index), pos = ld(qp->rx_pos), told = ld(qp->rx_told), word;
    int n = 0;
    while (n < ne && (word = receive_one(qp, cq, ring, index, pos, &wc[n])) != 0) {
        n++;
        seen |= word;
        index = slot_behind(index, word);
        pos += slots_of(word);
        st(qp->rx_index, index);
        st(qp->rx_pos, pos);
        if (__builtin_expect(pos - told >= SOFT_RING_SLOTS / 4, 0)) {
            soft_qp_flush_ack(qp);
            told = pos;
        }
    }
    if (__builtin_expect(n && ld(cq->armed) != 0, 0))
        soft_cq_signal(cq, (seen >> 8 & SOFT_F_SOLICITED) != 0);
    return n;
}

/* Takes messages in order, until there is none, or one for the long way. */
static inline __attribute__((always_inline)) int
receive_short(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    struct soft_ring *ring = ld(qp->rx);
    uint32_t index = ld(qp->rx_index), pos = ld(qp->rx_pos);
    uint32_t seen = receive_one(qp, cq, ring, index, pos, wc);
    if (seen == 0)
        return 0;
    index = slot_behind(index, seen);
    pos += slots_of(seen);
    st(qp->rx_index, index);
    st(qp->rx_pos, pos);
    st(qp->empty_polls, 0);
    if (__builtin_expect(ld(cq->armed) != 0, 0))
        soft_cq_signal(cq, (seen >> 8 & SOFT_F_SOLICITED) != 0);
    if (ne > 1 && ld(ring->slot[index].seq) == pos + 1)
        return 1 + receive_more(qp, cq, wc + 1, ne - 1);
    return 1;
}

/*
 * Completes the signalled sends that are acknowledged by now, and with each the sends before it. Only for a QP whose
 * send CQ is the CQ being polled.
 */
static __attribute__((noinline)) int retire_short(struct soft_qp *qp, struct soft_cq *cq,
                                                  struct ibv_wc *wc, int ne) {
    struct soft_ring *tx = ld(qp->tx);
    int n = 0;
    /* A peer without a message to send acknowledges in the header of its ring. */
    if (!tx || ((int32_t)(ld(qp->tx_acked) - ld(qp->due)) < 0 &&
                !note_ack(qp, atomic_load_explicit(&tx->rx.acked, memory_order_acquire))))
        return 0;
    while (n < ne && ld(qp->awaited) && (int32_t)(ld(qp->tx_acked) - ld(qp->due)) >= 0) {
        const struct soft_wqe *wqe = &qp->sq[qp->sq_looked & qp->sq_mask];
        wc[n++] = (struct ibv_wc){.wr_id = wqe->wr_id,
                                  .status = IBV_WC_SUCCESS,
                                  .opcode = soft_wc_opcode(wqe->opcode),
                                  .byte_len = wqe->total,
                                  .qp_num = qp->own_qpn};
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
    if (qp->plain_rx == SOFT_PLAIN_IN_ORDER && soft_cq_of(qp->own_recv_cq) == cq) {
        n += soft_serve_in_order(qp, cq, wc + n, ne - n);
        if (n > 0 && !ld(qp->attention) && !ld(qp->backlog))
            return n;
    }
    if (__builtin_expect(qp->srq_busy, 0)) { /* the long way would wait for it */
        qp->srq_busy = false;
        return n;
    }
    struct sink sink = {.cq = cq, .wc = wc, .n = n, .ne = ne};
    soft_progress_locked(qp, &sink);
    return sink.n;
}

static inline bool short_way(const struct soft_qp *qp, const struct soft_cq *cq) {
    return qp->plain_rx == SOFT_PLAIN && soft_cq_of(qp->own_recv_cq) == cq && !ld(cq->dead) &&
           !soft_fault_active();
}

/* qp->lock held. */
static inline __attribute__((always_inline)) int
serve_inline(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    spin_assert_held(&qp->lock);
    int n = 0;
    if (__builtin_expect(short_way(qp, cq), 1)) {
        /* Completed sends go first: otherwise a small array would only ever hold receives. */
        if (__builtin_expect(ld(qp->awaited), 0) && soft_cq_of(qp->own_send_cq) == cq &&
            answered(qp))
            n = retire_short(qp, cq, wc, ne);
        if (n < ne)
            n += receive_short(qp, cq, wc + n, ne - n);
    }
    /* The long way, if the short way served nothing, or the QP needs attention, or has queued requests. */
    if (__builtin_expect(n == 0 || ld(qp->attention) || ld(qp->backlog), 0))
        n = serve_long(qp, cq, wc, n, ne);
    return n;
}

static __attribute__((noinline)) int serve_locked(struct soft_qp *qp, struct soft_cq *cq,
                                                  struct ibv_wc *wc, int ne) {
    return serve_inline(qp, cq, wc, ne);
}

/*
 * An application that received often sends on the same QP next: fetches the lines that the send will write. qp->lock
 * held, which orders the reads here.
 */
static inline __attribute__((always_inline)) void fetch_answer(const struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    struct soft_ring *ring = ld(qp->tx);
    if (!ring)
        return;
    slot_fetch_to_write(ring->slot[qp->tx_index].data);
    slot_fetch_to_write(ring->slot[qp->tx_index].data + 64);
    slot_fetch_to_write((const uint8_t *)&qp->sq[qp->sq_tail & qp->sq_mask]);
}

/* qp->lock held, and given back. */
static inline __attribute__((always_inline)) int serve_held(struct soft_qp *qp, struct soft_cq *cq,
                                                            struct ibv_wc *wc, int ne,
                                                            const bool many, const bool only) {
    spin_assert_held(&qp->lock);
    /* Older completions of this QP may wait in the CQ's ring, and have to be taken first. */
    if (__builtin_expect(atomic_load_explicit(&cq->ring_count, memory_order_acquire) != 0, 0)) {
        spin_unlock(&qp->lock);
        return soft_take_from_ring(qp, cq, wc, ne);
    }
    soft_tsan_observe(qp->ibv.qp_num);
    uint32_t pos = ld(qp->rx_pos);
    int n = only ? serve_inline(qp, cq, wc, ne) : serve_locked(qp, cq, wc, ne);
    /* No message came: the peer learns now which messages were taken before, as in an empty poll. */
    if (__builtin_expect(ld(qp->rx_pos) == pos && ld(qp->rx_told) != pos, 0))
        soft_qp_flush_ack(qp);
    if (many && n > 0)
        fetch_answer(qp);
    spin_unlock(&qp->lock);
    return n;
}

/*
 * Another thread has the lock. A poller does not wait for it, as it polls again; so the engine can get the lock. But one
 * that is promised an order finds in one poll what its program knows to be complete.
 */
static __attribute__((noinline)) int serve_taken(struct soft_qp *qp, struct soft_cq *cq,
                                                 struct ibv_wc *wc, int ne) {
    return soft_order_waits(qp) ? serve_held(qp, cq, wc, ne, false, false) : 0;
}

static inline __attribute__((always_inline)) int serve_one_of(struct soft_qp *qp,
                                                              struct soft_cq *cq, struct ibv_wc *wc,
                                                              int ne, const bool many,
                                                              const bool only) {
    st(qp->used_lately, true);
    if (__builtin_expect(!spin_try(&qp->lock), 0))
        return serve_taken(qp, cq, wc, ne);
    return serve_held(qp, cq, wc, ne, many, only);
}

static inline int serve(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    return serve_one_of(qp, cq, wc, ne, false, false);
}

int soft_serve(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    spin_assert_held(&cq->poll_lock);
    return serve_one_of(qp, cq, wc, ne, true, false);
}

/*
 * If the CQ listens to most QPs: looks at all within a few polls when some QP needs attention; else at only a few, and at fewer
 * while messages come: each look takes lines from the cache which the next message needs.
 */
static inline unsigned looks_listening(struct soft_cq *cq, unsigned cold) {
    if (__builtin_expect(ld(cq->called), 0)) {
        st(cq->called, false);
        cq->sweep = cold;
    }
    unsigned looks = cq->sweep < SWEEP ? cq->sweep : SWEEP;
    bool now = cq->lulls >= QUIET || cq->owing_lost || ++cq->unlooked >= BUSY_EVERY;
    unsigned few = now ? COLD_LISTENING : 0;
    if (now)
        cq->unlooked = 0;
    return looks > few ? looks : few;
}

/* Once around: how many polls that took, and whether the peers of all know by now what was taken. */
static void went_around(struct soft_cq *cq) {
    cq->cold_next = cq->hot_count;
    cq->round_polls = cq->cold_polls;
    cq->cold_polls = 0;
    cq->owing_lost &= !cq->owing_known;
    cq->owing_known = cq->owing_lost; /* unless more are forgotten in the next round */
}

/* A QP that is listened to had something: its peer may wait to be told what was taken. */
static int serve_unannounced(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = serve(qp, cq, wc, ne);
    if (ld(qp->rx_told) != ld(qp->rx_pos))
        cq->owing[cq->owing_count++ % SOFT_OWING] = ld(qp->arrival) - 1;
    return n;
}

/* Serves a few of the QPs that had nothing for long, or that the CQ listens to. */
static __attribute__((noinline)) int progress_cold(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = 0;
    unsigned cold = cq->qp_count - cq->hot_count, looks = COLD_PER_POLL, looked = 0;
    cq->cold_polls++;
    if (cq->arrival_count > 0)
        looks = looks_listening(cq, cold);
    for (unsigned k = 0; k < looks && k < cold && n < ne; k++) {
        if (cq->cold_next < cq->hot_count || cq->cold_next >= cq->qp_count)
            went_around(cq);
        unsigned i = cq->cold_next++;
        struct soft_qp *qp = cq->polled[i].qp;
        if (i + AHEAD < cq->qp_count)
            __builtin_prefetch(&cq->polled[i + AHEAD].qp->rx);
        if (ld(qp->arrival) != 0) {
            if (soft_qp_has_work(qp))
                n += serve_unannounced(qp, cq, wc + n, ne - n);
            else
                soft_qp_idle_lately(qp, cq->round_polls);
        } else if (soft_cq_pollset_is_aside(cq, i)) {
            if (soft_qp_has_work(qp))
                soft_cq_pollset_warm(qp); /* for the next poll */
        } else if (soft_cq_pollset_listen_to(cq, i)) {
            cq->cold_next = i; /* another one is there now */
            continue;
        } else if (ld(qp->has_socket) && soft_tcp_in_crowd(qp)) {
            soft_cq_pollset_warm(qp); /* to be put aside by the next poll */
        } else if (soft_qp_has_work(qp) || ld(qp->unretired)) {
            soft_cq_pollset_warm_up(cq, i);
            n += serve(qp, cq, wc + n, ne - n);
        }
        looked++;
    }
    cq->sweep -= cq->sweep < looked ? cq->sweep : looked;
    return n;
}

/* Serves the hot QPs from i up to end. poll_lock held. */
static inline __attribute__((always_inline)) int
progress_hot(struct soft_cq *cq, unsigned i, unsigned end, struct ibv_wc *wc, int ne) {
    spin_assert_held(&cq->poll_lock);
    int n = 0;
    for (; i < end; i++) {
        struct soft_qp *qp = cq->polled[i].qp;
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
        if (__builtin_expect(got == 0, 0)) /* there was work, but no completion */
            nothing_there(qp);
    }
    return n;
}

/* Begins behind the QP that filled the poll before; the cold QPs follow the last hot one. */
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

/* ---- which QPs a poll looks at ------------------------------------------------------------------- */

static __attribute__((noinline)) int progress_scanned(struct soft_cq *cq, struct ibv_wc *wc,
                                                      int ne) {
    int n = soft_progress_many(cq, wc, ne);
    if (cq->qp_count != cq->hot_count && n < ne)
        n += progress_cold(cq, wc + n, ne - n);
    return n;
}

static __attribute__((noinline)) int progress_behind(struct soft_cq *cq, struct ibv_wc *wc,
                                                     int ne) {
    return cq->hot_count > SOFT_MANY ? progress_scanned(cq, wc, ne) : progress_from(cq, wc, ne);
}

/*
 * The QPs that the CQ listens to and the others are first in every other poll, so that a kind which fills a poll does
 * not keep the other waiting. poll_lock held.
 */
static __attribute__((noinline)) int progress_listening(struct soft_cq *cq, struct ibv_wc *wc,
                                                        int ne) {
    spin_assert_held(&cq->poll_lock);
    bool first = ld(cq->idle_polls) % 2 == 0;
    int n = first ? soft_progress_told(cq, wc, ne) : 0;
    if (n < ne)
        n += progress_behind(cq, wc + n, ne - n);
    if (n < ne && !first)
        n += soft_progress_told(cq, wc + n, ne - n);
    return n;
}

/* The only QP that the CQ has: no call and no list, for the queue pair that many programs have and each waits for. */
static inline __attribute__((always_inline)) int progress_only(struct soft_cq *cq,
                                                               struct ibv_wc *wc, int ne) {
    struct soft_qp *qp = cq->polled[0].qp;
    if (!soft_qp_has_work(qp)) {
        nothing_there(qp);
        return 0;
    }
    int n = serve_one_of(qp, cq, wc, ne, false, true);
    if (__builtin_expect(n == 0, 0))
        nothing_there(qp);
    return n;
}

/* poll_lock held. */
static inline int progress_polled(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    spin_assert_held(&cq->poll_lock);
    if (__builtin_expect((cq->arrival_lines | cq->first) != 0, 0))
        return cq->arrival_lines ? progress_listening(cq, wc, ne) : progress_behind(cq, wc, ne);
    if (__builtin_expect(cq->hot_count > SOFT_MANY, 0))
        return progress_scanned(cq, wc, ne);
    int n = progress_hot(cq, 0, cq->hot_count, wc, ne);
    if (__builtin_expect(cq->qp_count != cq->hot_count, 0) && n < ne)
        n += progress_cold(cq, wc + n, ne - n);
    return n;
}

/*
 * With more than a few sockets: serves the QPs whose socket has something to read, and those that have to send or to
 * retry. If the former filled a poll, the latter are first in the next one.
 */
static __attribute__((noinline)) int progress_crowd(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    bool others_first = cq->filled;
    int n = others_first ? progress_polled(cq, wc, ne) : soft_progress_sockets(cq, wc, ne);
    if (n < ne)
        n += others_first ? soft_progress_sockets(cq, wc + n, ne - n)
                          : progress_polled(cq, wc + n, ne - n);
    cq->filled = n == ne && !others_first;
    if (ld(cq->sockets_hot))
        soft_put_sockets_aside(cq);
    return n;
}

/* poll_lock held. */
static inline int progress_all(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    spin_assert_held(&cq->poll_lock);
    if (__builtin_expect(ld(cq->warm) != NULL, 0))
        soft_cq_pollset_take_warm(cq);
    if (__builtin_expect(ld(cq->tcp_crowd), 0))
        return progress_crowd(cq, wc, ne);
    if (cq->qp_count == 1 && cq->hot_count == 1)
        return progress_only(cq, wc, ne);
    return progress_polled(cq, wc, ne);
}

/*
 * Releases the poll lock. Programs written for NICs poll and do nothing else: if two of them share a CPU, one that
 * finds nothing yields, and does not poll until the end of its time slice.
 */
static __attribute__((noinline)) void cool_down(struct soft_cq *cq, int n) {
    bool tcp = ld(cq->tcp_set) != NULL;
    if (tcp) {
        struct soft_qp *due[SOFT_TCP_LOOK]; /* served by the next poll */
        if (!ld(cq->tcp_crowd))
            (void)soft_look_at_sockets(cq, due);
        st(cq->tcp_looks, ld(cq->tcp_looks) + 1);
    }
    if (!tcp || ld(cq->tcp_looks) % (COOL_AFTER / TCP_EVERY) == 0)
        soft_cq_pollset_cool(cq);
    if (tcp)
        st(cq->idle_polls, COOL_AFTER - TCP_EVERY);
    spin_unlock(&cq->poll_lock);
    if (soft_dropin && n == 0 && !tcp)
        sched_yield();
}

int soft_poll_cq(struct ibv_cq *ibcq, int ne, struct ibv_wc *wc) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (__builtin_expect(soft_stale(cq), 0))
        return -EPERM;
    if (ne <= 0)
        return 0;
    if (!soft_cq_lock(cq, &cq->poll_lock))
        return 0;
    int n = 0;
    if (__builtin_expect(atomic_load_explicit(&cq->ring_count, memory_order_acquire) != 0, 0)) {
        n = soft_cq_pop(cq, wc, ne);
        if (n < 0) {
            spin_unlock(&cq->poll_lock);
            return 0;
        }
    }
    /* a completion that the engine pushes meanwhile precedes none of these: the next poll takes it */
    if (n < ne)
        n += progress_all(cq, wc + n, ne - n);
    unsigned polls = ld(cq->idle_polls) + 1;
    st(cq->idle_polls, polls);
    if (__builtin_expect(polls >= COOL_AFTER, 0)) {
        cool_down(cq, n);
        return n;
    }
    spin_unlock(&cq->poll_lock);
    return n;
}
