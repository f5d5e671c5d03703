/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pending_ring.h - rings that were offered to a QP which does not know its destination yet.
 *
 * Any process that guesses the QP's number may offer one. So each process has one offer at most, and a few wait;
 * when there are more, one of another user goes first: that user cannot put aside what a process of
 * ours has offered. Which of them is the destination's is known when the QP is connected.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_RC_PENDING_RING_H
#define SOFT_RC_PENDING_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

struct soft_peer;
struct soft_qp;
struct soft_ring;

struct soft_pending_ring {
    struct cds_list_head link; /* the QP's list, newest first */
    struct soft_ring *ring;
    struct soft_peer *peer; /* held */
    uint32_t qpn, cqs[2], pd;
};

/*
 * By its pid where this PID namespace has one for it. Else by the id in its greeting: only a process of its own user
 * can send the same id, and that could attack it anyway.
 */
bool soft_same_process(const struct soft_peer *a, const struct soft_peer *b);
/* Keeps a copy, with the ring and the hold on the peer. False: neither is taken. */
bool soft_pending_ring_keep(struct soft_qp *qp, const struct soft_pending_ring *pending);
/*
 * The destination's, now the caller's, or false; the others are gone. A destination that cannot be told from others
 * before its greeting: false, and all stay.
 */
bool soft_pending_ring_take(struct soft_qp *qp, struct soft_pending_ring *out);
void soft_pending_ring_drop_all(struct soft_qp *qp);
/* No QP keeps what it offered, and with it its descriptors. The caller holds it. */
void soft_pending_ring_peer_gone(const struct soft_peer *peer);

#endif
