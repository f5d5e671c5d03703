/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * attention.h - how pollers and the engine are asked to look at a queue pair.
 */
#ifndef SOFT_OBJECT_ATTENTION_H
#define SOFT_OBJECT_ATTENTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"

/* Something needs the lock that the peer says nothing of: pollers look, also where they listen (cq_arrivals.h). */
static inline void soft_qp_attend(struct soft_qp *qp) {
    st(qp->attention, true);
    struct soft_cq *cqs[] = {soft_cq_of(qp->own_recv_cq), soft_cq_of(qp->own_send_cq)};
    for (unsigned i = 0; i < 2; i++) {
        st(cqs[i]->called, true);
        atomic_store_explicit(&cqs[i]->attended, true,
                              memory_order_release); /* partner: notify.c */
    }
}

/* Any thread. A queue pair's need_tick is set: the engine comes to it in a millisecond (rc/qp_timer.c). */
void soft_qp_timer_want(void);
extern _Atomic bool soft_qp_timer_wanted;    /* of qp_timer.c, which takes it back */
extern _Atomic uint32_t soft_qp_timer_round; /* of the last tick; written by qp_timer.c */
uint64_t soft_rnr_ns(unsigned code);         /* min_rnr_timer in nanoseconds */

#endif
