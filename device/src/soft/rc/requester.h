/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * requester.h - what posting and progress share of the requester. Owner: the QP's lock.
 */
#ifndef SOFT_RC_REQUESTER_H
#define SOFT_RC_REQUESTER_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/rc/cq_bell.h"
#include "soft/rc/slot.h"

/* The result of transmitting a work request. */
enum soft_outcome { SOFT_SENT, SOFT_NO_ROOM, SOFT_BROKEN };

static inline struct soft_wqe *wqe_at(struct soft_qp *qp, uint32_t index) {
    return &qp->sq[index & qp->sq_mask];
}

static inline struct ibv_sge *wqe_sges(struct soft_qp *qp, uint32_t index) {
    return &qp->sq_sge[(size_t)(index & qp->sq_mask) * qp->sq_max_sge];
}

static inline uint8_t *wqe_inline(struct soft_qp *qp, uint32_t index) {
    return &qp->sq_inline[(size_t)(index & qp->sq_mask) * qp->max_inline];
}

/* bytes of a gather list from skip on, into slots. False: a key does not cover them. */
bool soft_gather(struct soft_qp *qp, const struct ibv_sge *sge, unsigned count, uint32_t skip,
                 uint32_t bytes, struct soft_writer *w);

/* Bind and invalidate happen here, not at the peer; an error ends the QP like any other. */
enum soft_outcome soft_run_local(struct soft_qp *qp, struct soft_wqe *wqe);
/* The work request next in line cannot be transmitted: the QP ends when everything before it completed. */
void soft_requester_broken(struct soft_qp *qp, struct soft_wqe *wqe);

/* A fault plan breaks the work request next in line, with this status. */
void soft_requester_break(struct soft_qp *qp, struct soft_wqe *wqe, enum ibv_wc_status status);

/* Moves recorded work into the ring, as far as there is room, and publishes it. */
void soft_requester(struct soft_qp *qp);

/*
 * After something was published: whether the other side sleeps and must be woken. The sleeper (notify.c:
 * soft_req_notify_cq()) orders its armed word before its last look with membarrier, which also orders us; where one of
 * the two cannot do that, a fence here does.
 */
static inline bool bell_wanted(const struct soft_qp *qp, const _Atomic uint32_t *armed) {
    if (!armed)
        return false;
    if (!qp->fence_free)
        soft_fence();
    else
        atomic_signal_fence(memory_order_seq_cst);
    return atomic_load_explicit(armed, memory_order_relaxed) != 0;
}

/* qp->lock. Whether the receiver rings when slots are free: if the engine waits for them, not if a thread polls. */
void soft_requester_ask_room(struct soft_qp *qp, bool engine);

void soft_qp_kick(struct soft_qp *qp); /* ring the peer's process */

static inline void bell_after(struct soft_qp *qp, const _Atomic uint32_t *armed) {
    if (__builtin_expect(bell_wanted(qp, armed), 0))
        soft_qp_ring(qp, armed);
}

/* Something other than slots was said in the ring that the peer writes. qp->lock; a poller that sees this finds it. */
static inline void soft_qp_news(struct soft_qp *qp) {
    atomic_store_explicit(&qp->told->news, (uint8_t)(ld(qp->told->news) + 1), memory_order_release);
    soft_told_changed(qp->told);
}

void soft_qp_flush_ack(struct soft_qp *qp);     /* qp->lock */
void soft_qp_acknowledge(uint32_t qpn);         /* control lock: what was taken, now */
void soft_qp_bell_receiver(struct soft_qp *qp); /* qp->lock */

#endif
