/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * scatter.h - bytes of the message at the reader's index into memory, after every check.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_SCATTER_H
#define SOFT_RC_SCATTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/rc/ring.h"

struct soft_qp;
struct soft_rqe;

/*
 * What a message describes lies in the sender's memory, which is the sender's again once its queue pair is down: what was
 * not acknowledged is flushed then. Asked before the copy, it spares that; asked behind it, no means that every
 * byte was read in time. Partner: the fence in completer.c, soft_qp_fail().
 */
static inline bool soft_sender_down(const struct soft_ring *ring) {
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&ring->tx.down, memory_order_relaxed) != 0;
}

enum scatter_result { SCATTER_DONE, SCATTER_TOO_LONG, SCATTER_BAD_BUFFER };
enum scatter_result soft_scatter(struct soft_qp *qp, const struct soft_rqe *rqe,
                                 const uint8_t *from, uint64_t bytes);
enum scatter_result soft_scatter_slots(struct soft_qp *qp, const struct soft_rqe *rqe,
                                       struct soft_ring *ring, unsigned len);
enum scatter_result soft_scatter_desc(struct soft_qp *qp, const struct soft_rqe *rqe,
                                      struct soft_ring *ring, unsigned count);
void soft_copy_slots(struct soft_qp *qp, struct soft_ring *ring, unsigned offset, void *out,
                     unsigned bytes);
/* The same into memory of the application's; false: it was unmapped. */
bool soft_place_slots(struct soft_qp *qp, struct soft_ring *ring, unsigned offset, void *out,
                      unsigned bytes);

#endif
