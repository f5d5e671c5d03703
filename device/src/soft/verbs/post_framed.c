/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post_framed.c - a call of this device alone: one inline SEND of a header in registers and of the bytes behind it
 * (soft.h), without a work request that the caller builds and this code reads again. And one of words.
 *
 * Owner: the QP's lock.
 */
#include <errno.h>
#include <string.h>

#include "soft/ipc/engine.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/soft.h"
#include "soft/verbs/internal.h"
#include "soft/verbs/post_short.h"

#define HEADER 24u

/* Payload in the slot's first line, with the header. */
#define BESIDE (64 - offsetof(struct soft_slot, data) - HEADER)

#define ONE_SLOT (SOFT_SLOT_PAYLOAD - HEADER) /* behind the header, in all */

_Static_assert(HEADER + SOFT_FRAMED == SOFT_SEGMENT_MAX, "it fits one segment");
_Static_assert(SOFT_WORDS == SOFT_SLOT_PAYLOAD / sizeof(uint64_t), "they fill one slot");

/*
 * Fills, heads and publishes it. The receiver polls the slot's first line: that is written last and in one go, header,
 * payload and the word that is polled, else the line would go back and forth in between.
 */
static inline void fill(struct soft_qp *qp, struct soft_ring *ring, uint64_t word0, uint64_t word1,
                        const uint8_t *from, uint32_t bytes) {
    uint8_t *data = ring->slot[qp->tx_index].data;
    const uint64_t header[] = {word0, word1, 0};
    if (__builtin_expect(bytes > BESIDE, 1)) {
        copy_short(data + HEADER + BESIDE, from + BESIDE, bytes - BESIDE);
        memcpy(data, header, HEADER);
        memcpy(data + HEADER, from, BESIDE);
    } else {
        memcpy(data, header, HEADER);
        copy_short(data + HEADER, from, bytes);
    }
    slot_send(qp, ring, HEADER + bytes, SOFT_F_FIRST | SOFT_F_LAST, 0);
}

/* Fills several slots, which become visible one by one. */
static __attribute__((noinline)) void fill_wide(struct soft_qp *qp, struct soft_ring *ring,
                                                uint64_t word0, uint64_t word1, const uint8_t *from,
                                                uint32_t bytes) {
    const uint64_t header[] = {word0, word1, 0};
    struct soft_writer w = {.ring = ring, .index = qp->tx_index};
    slot_write(&w, header, HEADER);
    slot_write(&w, from, bytes);
    slot_head(qp, ring, soft_span(HEADER + bytes), SOFT_OP_SEND, SOFT_F_FIRST | SOFT_F_LAST,
              HEADER + bytes, 0);
    slot_publish(qp, ring);
}

static inline void record(struct soft_qp *qp, uint32_t total, bool signalled, uint64_t wr_id) {
    struct soft_wqe *wqe = wqe_at(qp, qp->sq_tail);
    wqe->wr_id = wr_id;
    wqe->end = qp->tx_pos;
    wqe->total = total;
    wqe->bits = (uint64_t)IBV_WR_SEND |
                (uint64_t)(IBV_SEND_INLINE | (signalled ? IBV_SEND_SIGNALED : 0)) << 8;
    qp->sq_next = ++qp->sq_tail;
    if (__builtin_expect(signalled, 0) && !ld(qp->awaited))
        soft_find_due(qp);
    st(qp->unretired, qp->sq_tail - qp->sq_head);
}

/* Only what short_way() needs, and no thread sleeps. */
static inline bool is_plain(const struct soft_qp *qp) {
    return short_way(qp) && !qp->sq_sig_all && qp->sq_tail - qp->sq_free < qp->sq_max_wr &&
           !ld(qp->cold[0]) && !ld(qp->cold[1]) && !ld(soft_cq_of(qp->own_send_cq)->armed);
}

static inline int done(struct soft_qp *qp) {
    bell_after(qp, qp->peer_recv_armed);
    spin_unlock(&qp->lock);
    return 0;
}

static inline int not_now(struct soft_qp *qp) {
    spin_unlock(&qp->lock);
    return EAGAIN;
}

/* What goes over a socket is recorded first: inline, header and payload together. */
static __attribute__((noinline)) int post_recorded(struct soft_qp *qp, uint64_t word0,
                                                   uint64_t word1, const uint8_t *from,
                                                   uint32_t bytes, uint64_t wr_id) {
    const uint64_t header[] = {word0, word1, 0};
    uint32_t size = bytes & ~SOFT_FRAMED_SIGNALED;
    struct soft_wqe *wqe = wqe_at(qp, qp->sq_tail);
    if (!qp->tcp || qp->state != IBV_QPS_RTS || HEADER + size > qp->max_inline ||
        qp->sq_tail - qp->sq_free >= qp->sq_max_wr)
        return not_now(qp);
    unsigned flags = IBV_SEND_INLINE | (bytes != size || qp->sq_sig_all ? IBV_SEND_SIGNALED : 0u);
    uint8_t *to = memcpy(wqe_inline(qp, qp->sq_tail), header, HEADER);
    memcpy(to + HEADER, from, size);
    *wqe = (struct soft_wqe){.wr_id = wr_id,
                             .total = HEADER + size,
                             .opcode = IBV_WR_SEND,
                             .flags = (uint8_t)flags,
                             .num_sge = 1,
                             .inlined = 1};
    qp->sq_tail++;
    soft_post_recorded(qp);
    return 0;
}

static __attribute__((noinline)) int post_wide(struct soft_qp *qp, uint64_t word0, uint64_t word1,
                                               const uint8_t *from, uint32_t bytes,
                                               uint64_t wr_id) {
    uint32_t size = bytes & ~SOFT_FRAMED_SIGNALED;
    if (soft_stale(qp) || size > SOFT_FRAMED || !spin_try(&qp->lock))
        return EAGAIN;
    struct soft_ring *ring = ld(qp->tx);
    if (!is_plain(qp) || !room_for(qp, ring, soft_span(HEADER + size)))
        return post_recorded(qp, word0, word1, from, bytes, wr_id);
    fill_wide(qp, ring, word0, word1, from, size);
    record(qp, HEADER + size, bytes != size, wr_id);
    return done(qp);
}

int soft_post_framed(struct ibv_qp *ibqp, uint64_t word0, uint64_t word1, const uint8_t *from,
                     uint32_t bytes, uint64_t wr_id) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    uint32_t size = bytes & ~SOFT_FRAMED_SIGNALED;
    if (__builtin_expect(size > ONE_SLOT, 0))
        return post_wide(qp, word0, word1, from, bytes, wr_id);
    if (__builtin_expect(soft_stale(qp) || !spin_try(&qp->lock), 0))
        return EAGAIN;
    struct soft_ring *ring = ld(qp->tx);
    if (__builtin_expect(!is_plain(qp) || !room_for(qp, ring, 1), 0))
        return post_recorded(qp, word0, word1, from, bytes, wr_id);
    fill(qp, ring, word0, word1, from, size);
    record(qp, HEADER + size, bytes != size, wr_id);
    return done(qp);
}

int soft_post_words(struct ibv_qp *ibqp, const uint64_t *words, unsigned count, bool signalled,
                    uint64_t wr_id) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    const uint32_t bytes = count * (uint32_t)sizeof *words;
    if (count > SOFT_WORDS || soft_stale(qp) || !spin_try(&qp->lock))
        return EAGAIN;
    struct soft_ring *ring = ld(qp->tx);
    if (!is_plain(qp) || !room_for(qp, ring, 1))
        return not_now(qp);
    slot_fill_and_send(qp, ring, (const uint8_t *)words, bytes, SOFT_F_FIRST | SOFT_F_LAST, 0);
    record(qp, bytes, signalled, wr_id);
    return done(qp);
}
