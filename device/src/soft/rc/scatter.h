/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * scatter.h - bytes of the message at the reader's index into memory, after every check.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_SCATTER_H
#define SOFT_RC_SCATTER_H

#include <stdbool.h>
#include <stdint.h>

struct soft_qp;
struct soft_ring;
struct soft_rqe;

enum scatter_result { SCATTER_DONE, SCATTER_TOO_LONG, SCATTER_BAD_BUFFER };
enum scatter_result soft_scatter(struct soft_qp *qp, const struct soft_rqe *rqe,
                                 const uint8_t *from, uint64_t bytes);
enum scatter_result soft_scatter_slots(struct soft_qp *qp, const struct soft_rqe *rqe,
                                       struct soft_ring *ring, unsigned len);
enum scatter_result soft_scatter_desc(struct soft_qp *qp, const struct soft_rqe *rqe,
                                      struct soft_ring *ring, unsigned count);
void soft_copy_slots(struct soft_qp *qp, struct soft_ring *ring, unsigned offset, void *out,
                     unsigned bytes);
/* soft_copy_slots() into memory of the application's; false: it was unmapped. */
bool soft_place_slots(struct soft_qp *qp, struct soft_ring *ring, unsigned offset, void *out,
                      unsigned bytes);

#endif
