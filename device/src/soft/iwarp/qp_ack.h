/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_ack.h - acknowledgements over a socket, by which this end knows that the peer's device has a request.
 *
 * In iWARP a SEND or a WRITE is complete when TCP took it. Programs written for InfiniBand, as all that use this
 * device, rely on more: the bytes of a completed request are at the peer. Between two of this device an empty READ is
 * sent behind a request that the application waits for; its answer comes after all that the peer received before it. A
 * few such READs may be on their way, so that a stream does not wait for the answer to one that was sent too early. An
 * empty READ counts in no depth and needs no right, for it touches no memory.
 *
 * A peer that is not this device gets no such READ, and a request to it is complete when TCP took it: a busy Soft-iWARP
 * of Linux 7.2 answers an empty READ with the memory that it sent before, or ends the connection as the key of that
 * memory is gone (siw_activate_tx() leaves the old piece, siw_qp_sq_proc_tx() sends one).
 *
 * Where the order of rc/order.h is kept, that answer may come too late: the program may have taken the request and
 * answered it before its device has read what asks. So before a request the peer is told, in the key and the offset of an
 * empty WRITE, which an ordinary receiver does not look at, how many of its messages were taken.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_ACK_H
#define SOFT_IWARP_QP_ACK_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"

/*
 * A position of the stream in the form that work requests and `tx_acked` have: in words of four bytes, since the length
 * of a frame is a multiple of that, modulo 2^32. So two positions that are compared may be almost 8 GiB apart, and the
 * longest message fits between.
 */
static inline uint32_t soft_tcp_position(uint64_t at) {
    return (uint32_t)(at >> 2);
}
/* Distances between the last frame and the last acknowledged position, in words of four bytes. */
#define SOFT_TCP_ASK_AFTER (1u << 28)

static inline uint32_t soft_tcp_unacked(const struct soft_qp *qp) {
    return soft_tcp_position(qp->tcp->tx.framed) - ld(qp->tx_acked);
}

/* False, as for most messages: soft_tcp_ask() has nothing to do, and soft_tcp_is_far_ahead() is false. */
static inline bool soft_tcp_asks(const struct soft_qp *qp) {
    return qp->tcp->acks &&
           ((int32_t)(qp->tcp->signalled - ld(qp->tx_acked)) > 0 || qp->sq_broken ||
            qp->state == IBV_QPS_SQD || soft_tcp_unacked(qp) >= SOFT_TCP_ASK_AFTER);
}
/* The peer has all bytes up to that position. */
void soft_tcp_acked(struct soft_qp *qp, uint32_t end);
/*
 * Makes the frame that asks for an acknowledgement, if one is due and there is room: after 64 KiB, or, with `idle`,
 * when there is no other message to send. True: the frame is made.
 */
bool soft_tcp_ask(struct soft_qp *qp, bool idle);
/* So much is unacknowledged that no further message may begin: positions would be too far apart to compare. */
bool soft_tcp_is_far_ahead(const struct soft_qp *qp);
/* The next answer from the peer is an acknowledgement. */
static inline bool soft_tcp_ack_is_next(const struct soft_tcp *tcp) {
    return tcp->ack_count > 0 && tcp->ack[tcp->ack_head].behind == 0;
}
/*
 * The socket took all bytes up to that position. A peer cannot have answered, or acknowledge, bytes behind it: if this
 * end believed that, it would complete a request whose memory is still to be sent, and the peer would get the bytes
 * that the application writes there next.
 */
static inline bool soft_tcp_was_sent(const struct soft_tcp *tcp, uint32_t end) {
    return (int32_t)(soft_tcp_position(tcp->tx.sent) - end) >= 0;
}
/* The answer that acknowledges came; the answer to the READ or atomic that ends at that position came. */
void soft_tcp_ack_came(struct soft_qp *qp);
void soft_tcp_answer_came(struct soft_qp *qp, uint32_t end);

/* An empty WRITE of this key tells in its offset the number of the first message that was not taken. */
#define SOFT_TCP_TOLD 0x746f6c64u
/* The peer has told that; it is believed only of what was sent. */
void soft_tcp_told(struct soft_qp *qp, uint32_t msn);

/* The peer ended the stream with this Terminate, which names the segment that it refuses. */
void soft_tcp_ack_refused(struct soft_qp *qp, const struct iwarp_terminate *terminate);

/*
 * Only acknowledgements are to be sent, and a poller makes this turn, whose application may post more at once: so they
 * wait for that, or for the next turn.
 */
bool soft_tcp_holds_acks(const struct soft_qp *qp);

#endif
