/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rkey_fence.h - lets the target know when requesters have left its memory.
 *
 * Owner: the QP's lock; the control lock where all QPs of a PD are looked at.
 */
#ifndef SOFT_RC_RKEY_FENCE_H
#define SOFT_RC_RKEY_FENCE_H

#include <stdint.h>

struct soft_pd;
struct soft_qp;
struct soft_rkey_wait;

/*
 * No peer is inside memory that it reached through this QP, or through any of pd's QPs. Both wait, a bounded
 * time. The first needs no lock; the second gives up the control lock meanwhile, which its caller has.
 */
void soft_rkey_fence_wait_qp(struct soft_qp *qp);
void soft_rkey_fence_wait(struct soft_pd *pd);
/* qp->lock: the same without waiting. Look, and ask again until the answer is another than INSIDE. */
enum soft_rkey_fence { SOFT_RKEY_FENCE_LEFT, SOFT_RKEY_FENCE_INSIDE, SOFT_RKEY_FENCE_STUCK };
void soft_rkey_fence_begin(struct soft_qp *qp); /* into qp->leaving */
struct soft_rkey_wait
soft_rkey_fence_begin_window(const struct soft_qp *qp); /* a window's entry was taken back */
enum soft_rkey_fence soft_rkey_fence_poll(const struct soft_qp *qp, struct soft_rkey_wait *inside);

#endif
