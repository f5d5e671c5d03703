/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_ack.h - acknowledgements over a socket: that the peer's device has a request.
 *
 * iWARP says of a SEND or a WRITE only that TCP took it. Programs written for InfiniBand, as all that use this device, rely on
 * more: what completed is at the peer. Between two of this device a READ of nothing is asked behind what somebody waits
 * for; its answer is behind all that came before it. A few may be on their way, so that a stream does not stand still for an
 * answer that was asked for too early. It counts in no depth and needs no right, for it touches no memory. A peer that is not this device is asked for nothing, and there a request is complete when TCP took it: when it
 * is busy, Soft-iWARP of 7.2 answers a READ of nothing with what it sent before, or ends the connection as that memory's key
 * is gone (siw_activate_tx() leaves the old piece, siw_qp_sq_proc_tx() sends one).
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_ACK_H
#define SOFT_IWARP_QP_ACK_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/iwarp/qp_tcp.h"

/*
 * Positions of the stream as work requests and `tx_acked` have them: in words of four bytes, as all frames are, modulo 2^32. So
 * two that are compared may be almost 8 GiB apart, and a message of the longest fits between.
 */
static inline uint32_t soft_tcp_position(uint64_t at) {
    return (uint32_t)(at >> 2);
}
/* All up to that position is complete. */
void soft_tcp_acked(struct soft_qp *qp, uint32_t end);
/*
 * Makes the frame that asks, if one is due and there is room: behind 64 KiB, or, `idle`, when there is nothing else to send.
 * True: it did.
 */
bool soft_tcp_ask(struct soft_qp *qp, bool idle);
/* So much waits to be acknowledged that no message begins before that: positions would be too far apart. */
bool soft_tcp_is_far_ahead(const struct soft_qp *qp);
/* Is the next answer the peer owes that of an acknowledgement? */
static inline bool soft_tcp_ack_is_next(const struct soft_tcp *tcp) {
    return tcp->ack_count > 0 && tcp->ack[tcp->ack_head].behind == 0;
}
/*
 * Has the peer been sent all up to that position? It cannot answer, or acknowledge, what it was not asked: believed, it would
 * free memory that is still being sent, to be read by the peer with whatever is written there next.
 */
static inline bool soft_tcp_was_sent(const struct soft_tcp *tcp, uint32_t end) {
    return (int32_t)(soft_tcp_position(tcp->tx.sent) - end) >= 0;
}
/* It came; or that of a READ or an atomic did. */
void soft_tcp_ack_came(struct soft_qp *qp);
void soft_tcp_answer_came(struct soft_qp *qp, uint32_t end);

/* It ended the stream for a reason that it tells, with what it refuses. */
void soft_tcp_ack_refused(struct soft_qp *qp, const struct iwarp_terminate *terminate);

/*
 * Whether nothing is to be sent but acknowledgements, and somebody who polls is about to say more: they go with that, or at
 * the next turn.
 */
bool soft_tcp_holds_acks(const struct soft_qp *qp);

#endif
