/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_timer.h - progress for queue pairs whose application does not poll, or whose peer does not.
 *
 * Owner: engine thread, control lock, except for calls that are marked as the pollers'.
 */
#ifndef SOFT_RC_QP_TIMER_H
#define SOFT_RC_QP_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct soft_qp;

/* One of many empty polls in a row, or what was taken is not told: lazy ack, kick; no lock. */
void soft_qp_idle(struct soft_qp *qp);
/* Nothing was there in a QP that is looked at once in so many polls. */
void soft_qp_idle_lately(struct soft_qp *qp, uint32_t polls);
void soft_qp_timer_if_wanted(void);
void soft_qp_timer_stop(void);
void soft_iwarp_flush(struct soft_qp *qp); /* the receives of one that is like iWARP and fell */
/* This process is a fork's child: the timer is in no list of its own, and nothing wants it. */
void soft_qp_timer_forked(void);

#endif
