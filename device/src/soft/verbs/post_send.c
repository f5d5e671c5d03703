/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post_send.c - ibv_post_send: checking and recording work requests.
 *
 * The short way, for nearly all of them: a small SEND (or WRITE into mapped memory) on a QP with
 * nothing queued goes straight from the caller's memory to where the peer sees it, and is recorded
 * after that. Any other request is recorded first and then transmitted (requester.c).
 * In a list the slots are all filled first and made visible together.
 *
 * Owner: the QP's lock.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/ah.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/mr.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/described.h"
#include "soft/rc/process_copy.h"
#include "soft/rc/progress.h"
#include "soft/rc/rdma.h"
#include "soft/rc/requester.h"
#include "soft/rc/ring_exchange.h"
#include "soft/rc/slot.h"
#include "soft/ud/ud.h"
#include "soft/verbs/internal.h"
#include "soft/verbs/mw.h"
#include "soft/verbs/post_short.h"

/* ---- the short way ------------------------------------------------------------------------------ */

/* Stores the request: all of it is still to be done. */
static inline void store_wqe(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t total) {
    struct soft_wqe *wqe = wqe_at(qp, qp->sq_tail);
    unsigned flags = wr->send_flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0);
    wqe->wr_id = wr->wr_id;
    wqe->end = 0;
    wqe->imm = wr->imm_data;
    wqe->total = total;
    wqe->sent = 0;
    wqe->bits = (uint64_t)(wr->opcode & 0xff) | (uint64_t)(flags & 0xff) << 8 |
                (uint64_t)(wr->num_sge & 0xff) << 16 |
                (uint64_t)((flags & IBV_SEND_INLINE) != 0) << 24;
}

/* The bytes of a single piece of payload, or NULL: not for the short way. */
static inline const uint8_t *payload(const struct soft_qp *qp, const struct ibv_send_wr *wr) {
    const struct ibv_sge *sge = wr->sg_list;
    if (wr->send_flags & IBV_SEND_INLINE)
        return sge->length <= qp->max_inline ? (const uint8_t *)(uintptr_t)sge->addr : NULL;
    const struct soft_mr *mr = soft_mr_find(sge->lkey, qp->own_pd);
    return mr ? soft_mr_range(mr, sge->addr, sge->length, 0) : NULL;
}

/* Of more than the slots take: where it lies, if the peer has that mapped. False: it is not for the short way. */
static __attribute__((noinline)) bool describe_now(struct soft_qp *qp, struct soft_ring *ring,
                                                   const struct ibv_send_wr *wr) {
    const struct ibv_sge *sge = wr->sg_list;
    const struct soft_mr *mr = soft_mr_find(sge->lkey, qp->own_pd);
    struct soft_desc desc;
    if ((wr->send_flags & IBV_SEND_INLINE) || sge->length > SOFT_MAX_MSG || !mr ||
        !soft_mr_range(mr, sge->addr, sge->length, 0) || !described_put(qp, mr, sge, &desc))
        return false;
    memcpy(ring->slot[qp->tx_index].data, &desc, sizeof desc);
    return true;
}

static inline bool send_now(struct soft_qp *qp, struct soft_ring *ring,
                            const struct ibv_send_wr *wr) {
    uint32_t total = wr->sg_list->length, length = total;
    unsigned span = 1, op = SOFT_OP_SEND;
    const uint8_t *from = total <= SOFT_SEGMENT_MAX ? payload(qp, wr) : NULL;
    struct soft_slot *slot = &ring->slot[qp->tx_index];
    if (__builtin_expect(total > SOFT_SEGMENT_MAX, 0)) {
        if (!room_for(qp, ring, 1) || !describe_now(qp, ring, wr))
            return false;
        op = SOFT_OP_SEND_DESC;
        length = 1;
    } else if (!from) {
        return false;
    } else if (__builtin_expect(total <= SOFT_SLOT_PAYLOAD, 1)) {
        if (!room_for(qp, ring, 1))
            return false;
        copy_short(slot->data, from, total);
    } else {
        span = soft_span(total);
        if (!room_for(qp, ring, span))
            return false;
        struct soft_writer w = {.ring = ring, .index = qp->tx_index};
        slot_write(&w, from, total);
    }
    unsigned flags = SOFT_F_FIRST | SOFT_F_LAST |
                     (wr->opcode == IBV_WR_SEND_WITH_IMM ? SOFT_F_IMM : 0) |
                     (wr->send_flags & IBV_SEND_SOLICITED ? SOFT_F_SOLICITED : 0);
    slot_head(qp, ring, span, op, flags, length, wr->imm_data);
    if (!wr->next)
        slot_publish(qp, ring);
    store_sent(qp, wr, total, qp->tx_pos);
    return true;
}

/* Posts from wr on until one needs the long way; returns that, or NULL. */
static inline struct ibv_send_wr *post_short(struct soft_qp *qp, struct soft_ring *ring,
                                             struct ibv_send_wr *wr) {
    for (; wr; wr = wr->next) {
        if (wr->num_sge != 1 || (wr->send_flags & IBV_SEND_FENCE) ||
            qp->sq_tail - qp->sq_free >= qp->sq_max_wr)
            break;
        if (__builtin_expect(wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM, 1)) {
            if (!send_now(qp, ring, wr))
                break;
        } else if (wr->opcode == IBV_WR_RDMA_WRITE) {
            if (!soft_rdma_write_now(qp, ring, wr))
                break;
            store_sent(qp, wr, wr->sg_list->length, qp->tx_pos);
        } else {
            break;
        }
    }
    st(qp->unretired, qp->sq_tail - qp->sq_head);
    return wr;
}

/* ---- the long way ------------------------------------------------------------------------------- */

/* iWARP has neither immediate data nor atomics, but where both ends agreed on them. */
static bool goes_over_tcp(const struct soft_qp *qp, const struct ibv_send_wr *wr) {
    bool plain = wr->opcode != IBV_WR_SEND_WITH_IMM && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM &&
                 !is_atomic(wr->opcode);
    return plain || qp->tcp->rx.extended;
}

bool soft_peer_is_plain(struct ibv_qp *ibqp) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    spin_lock(&qp->lock);
    bool plain = qp->tcp && !qp->tcp->rx.extended;
    spin_unlock(&qp->lock);
    return plain;
}

static bool knows_elsewhere(const struct soft_qp *qp, const struct ibv_send_wr *wr) {
    if (qp->tcp)
        return goes_over_tcp(qp, wr);
    return (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM) && wr->wr.ud.ah &&
           wr->wr.ud.remote_qpn <= 0xffffff && !soft_stale(soft_ah_of(wr->wr.ud.ah));
}

/* True for an opcode that a QP of this type has. */
static bool knows_opcode(const struct soft_qp *qp, const struct ibv_send_wr *wr) {
    if (!qp->iwarp && (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM))
        return !qp->elsewhere || knows_elsewhere(qp, wr);
    if (qp->elsewhere)
        return knows_elsewhere(qp, wr);
    if (qp->iwarp)
        return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_INV ||
               wr->opcode == IBV_WR_RDMA_WRITE ||
               (wr->opcode == IBV_WR_RDMA_READ &&
                wr->num_sge <= (int)soft_profile()->sge_read_most);
    return !qp->unreliable || (wr->opcode != IBV_WR_RDMA_READ && !is_atomic(wr->opcode));
}

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
        if (wr->wr.atomic.remote_addr % 8 != 0 && !soft_profile()->posts_misaligned)
            return EINVAL;
        return inlined || sum != 8 ? EINVAL : 0;
    }
    case IBV_WR_LOCAL_INV:
        return wr->num_sge ? EINVAL : 0;
    case IBV_WR_BIND_MW:
        return wr->num_sge ? EINVAL : soft_mw_check(qp, wr);
    case IBV_WR_TSO:
    case IBV_WR_DRIVER1:
#ifdef HAVE_IBV_WR_FLUSH
    case IBV_WR_FLUSH:
#endif
    case IBV_WR_ATOMIC_WRITE:
        break;
    }
    return EINVAL;
}

static int check_wr(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t *total) {
    int rc = knows_opcode(qp, wr) ? check_opcode(qp, wr) : qp->tcp ? EOPNOTSUPP : EINVAL;
    if (rc != 0)
        return rc;
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

/* Stores the fields that a plain SEND does not need. */
static void store_other(struct soft_qp *qp, struct soft_wqe *wqe, const struct ibv_send_wr *wr) {
    struct soft_wqe_remote *remote = soft_wqe_remote(qp, wqe);
    switch (wr->opcode) {
    case IBV_WR_SEND_WITH_INV:
        wqe->imm = wr->invalidate_rkey;
        break;
    case IBV_WR_LOCAL_INV:
        remote->rkey = wr->invalidate_rkey;
        break;
    case IBV_WR_BIND_MW:
        remote->rkey = wr->bind_mw.rkey;
        remote->bind_mw = (uintptr_t)wr->bind_mw.mw;
        remote->bind_mr = (uintptr_t)wr->bind_mw.bind_info.mr;
        remote->addr = wr->bind_mw.bind_info.addr;
        remote->bind_length = wr->bind_mw.bind_info.length;
        remote->bind_access = wr->bind_mw.bind_info.mw_access_flags;
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        remote->addr = wr->wr.atomic.remote_addr;
        remote->rkey = wr->wr.atomic.rkey;
        remote->compare_add = wr->wr.atomic.compare_add;
        remote->swap = wr->wr.atomic.swap;
        break;
    default:
        remote->addr = wr->wr.rdma.remote_addr;
        remote->rkey = wr->wr.rdma.rkey;
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

static void post_long(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t total) {
    uint32_t index = qp->sq_tail;
    struct soft_wqe *wqe = wqe_at(qp, index);
    store_wqe(qp, wr, total);
    if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM)
        store_other(qp, wqe, wr);
    if (qp->ud)
        soft_ud_store_wqe(qp, index, wr);
    save_payload(qp, index, wr);
    qp->sq_tail++;
}

/*
 * iWARP. In ERR a request is taken and nothing ever comes of it. Before the connection is there one is refused
 * and blocks the queue: what is posted behind it is taken, and waits until ERR.
 */
static int iwarp_state(struct soft_qp *qp, struct ibv_send_wr **wr) {
    if (qp->state == IBV_QPS_ERR)
        *wr = NULL;
    if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RTS || qp->stuck)
        return 0;
    qp->stuck = true;
    return ENOTCONN;
}

/* After posting: marks the QP for pollers and the engine, and rings the peer. True: the tick has to look after it. */
static bool posted(struct soft_qp *qp) {
    bool tick = qp->sq_next != qp->sq_tail && !qp->copy; /* the thread that copies looks after it */
    if (__builtin_expect(tick, 0)) {
        soft_qp_attend(qp);
        st(qp->need_tick, true);
        st(qp->backlog, true);
    }
    if (__builtin_expect(qp->state == IBV_QPS_ERR || qp->peer_gone, 0))
        soft_qp_attend(qp);
    if (__builtin_expect(qp->kick_wanted, 0)) {
        qp->kick_wanted = false;
        soft_qp_kick(qp);
    }
    /* While a thread sleeps on this CQ perhaps no thread polls here or at the peer: the engine looks after it. */
    if (__builtin_expect(ld(soft_cq_of(qp->own_send_cq)->armed) != 0, 0) &&
        qp->sq_head != qp->sq_tail) {
        st(qp->need_tick, true);
        tick = true;
    }
    return tick;
}

/* What was recorded goes as far as it can. */
static void send_recorded(struct soft_qp *qp) {
    st(qp->unretired, qp->sq_tail - qp->sq_head);
    qp->copies_here = soft_dropin && soft_linked_processes() <= 1;
    soft_requester(qp);
    qp->copies_here = false;
    if (__builtin_expect(qp->copy != NULL, 0))
        soft_process_copy_here(qp);
    if (qp->early) /* what was handed over is complete */
        soft_retire(qp, &(struct sink){.cq = NULL});
}

/* Gives the lock back, at the end of a call that posted. */
static void leave(struct soft_qp *qp) {
    bool tick = posted(qp), copied = qp->copy && qp->sq_tail - qp->sq_head == 1;
    spin_unlock(&qp->lock);
    if (__builtin_expect(copied, 0))
        sched_yield(); /* to the thread that copies, which may share this CPU */
    if (__builtin_expect(ld(qp->cold[0]) || ld(qp->cold[1]), 0) && !ld(qp->has_socket))
        soft_cq_pollset_warm(qp);
    if (__builtin_expect(tick, 0))
        soft_qp_timer_want();
}

void soft_post_recorded(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    send_recorded(qp);
    leave(qp);
}

static int post_list(struct soft_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    int rc = 0;
    if (__builtin_expect(soft_stale(qp), 0)) {
        *bad = wr;
        return EPERM;
    }
    spin_lock(&qp->lock);
    struct soft_ring *ring = ld(qp->tx);
    uint32_t published = ld(qp->tx_published);
    if (__builtin_expect(short_way(qp), 1))
        wr = post_short(qp, ring, wr);
    else if (qp->iwarp)
        rc = iwarp_state(qp, &wr);
    else if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_SQD)
        rc = EINVAL;
    if (__builtin_expect(wr != NULL, 0)) {
        for (; rc == 0 && wr; wr = wr->next) {
            uint32_t total;
            rc = check_wr(qp, wr, &total);
            if (rc != 0)
                break;
            post_long(qp, wr, total);
        }
        send_recorded(qp);
        ring = ld(qp->tx); /* the lock may have been given up */
    }
    if (ring && published != qp->tx_pos) {
        slot_publish(qp, ring);
        bell_after(qp, qp->peer_recv_armed);
    }
    leave(qp);
    if (rc != 0)
        *bad = wr;
    return rc;
}

/* Would all of them be taken? */
static int check_all(struct soft_qp *qp, const struct ibv_send_wr *wr) {
    uint32_t count = 0, total;
    if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_SQD)
        return EINVAL;
    for (; wr; wr = wr->next) {
        int rc = check_wr(qp, wr, &total);
        if (rc != 0)
            return rc;
        count++;
    }
    return count > qp->sq_max_wr - (qp->sq_tail - qp->sq_free) ? ENOMEM : 0;
}

int soft_post_all(struct soft_qp *qp, struct ibv_send_wr *wr) {
    struct ibv_send_wr *bad;
    if (soft_stale(qp))
        return EPERM;
    spin_lock(&qp->lock);
    int rc = check_all(qp, wr);
    spin_unlock(&qp->lock);
    return rc ? rc : post_list(qp, wr, &bad);
}

/* What nearly every call posts: one small piece, and no thread sleeps. */
static inline bool single(const struct soft_qp *qp, const struct ibv_send_wr *wr) {
    const unsigned flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    return wr->num_sge == 1 && !(wr->send_flags & ~flags) &&
           wr->sg_list->length <= SOFT_SLOT_PAYLOAD && qp->sq_tail - qp->sq_free < qp->sq_max_wr &&
           !ld(qp->cold[0]) && !ld(qp->cold[1]) && !ld(soft_cq_of(qp->own_send_cq)->armed);
}

/* Puts it where the peer sees it. False: it needs the long way, and nothing happened yet. */
static inline bool single_now(struct soft_qp *qp, struct soft_ring *ring,
                              const struct ibv_send_wr *wr) {
    if (__builtin_expect(wr->opcode == IBV_WR_SEND, 1)) {
        const uint8_t *from = payload(qp, wr);
        if (!from || !room_for(qp, ring, 1))
            return false;
        slot_fill_and_send(qp, ring, from, wr->sg_list->length, SOFT_F_FIRST | SOFT_F_LAST, 0);
        return true;
    }
    return wr->opcode == IBV_WR_RDMA_WRITE && soft_rdma_write_now(qp, ring, wr);
}

int soft_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    if (__builtin_expect(soft_stale(qp) || !wr || wr->next || !spin_try(&qp->lock), 0))
        return post_list(qp, wr, bad);
    struct soft_ring *ring = ld(qp->tx);
    if (__builtin_expect(!short_way(qp) || !single(qp, wr) || !single_now(qp, ring, wr), 0)) {
        spin_unlock(&qp->lock);
        return post_list(qp, wr, bad);
    }
    store_sent(qp, wr, wr->sg_list->length, qp->tx_pos);
    st(qp->unretired, qp->sq_tail - qp->sq_head);
    bell_after(qp, qp->peer_recv_armed);
    spin_unlock(&qp->lock);
    return 0;
}
