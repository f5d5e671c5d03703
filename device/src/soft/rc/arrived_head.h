/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * arrived_head.h - the head of a slot that the peer has written: the private copy, whether a peer may say that now, and
 * what follows from it.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_ARRIVED_HEAD_H
#define SOFT_RC_ARRIVED_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/object/qp.h"
#include "soft/object/ring.h"

struct arrived_head { /* private copy of a slot's head */
    uint32_t ack, imm;
    unsigned op, flags, len;
};

static inline bool arrived_answerable(unsigned op) {
    return op == SOFT_OP_READ || op == SOFT_OP_ATOMIC || op == SOFT_OP_READ_RESPONSE ||
           op == SOFT_OP_ATOMIC_RESPONSE || op == SOFT_OP_VIOLATION;
}

/* It begins a message where none was begun, or goes on with the one that was. A SEND's parts may go both ways. */
static inline bool arrived_in_turn(const struct soft_qp *qp, const struct arrived_head *h) {
    if (((h->flags & SOFT_F_FIRST) != 0) == qp->rx_partial)
        return false;
    return !qp->rx_partial || (qp->rx_op == SOFT_OP_WRITE) == (h->op == SOFT_OP_WRITE);
}

static inline bool arrived_valid(const struct soft_qp *qp, const struct arrived_head *h) {
    unsigned known = SOFT_F_FIRST | SOFT_F_LAST | SOFT_F_IMM | SOFT_F_SOLICITED | SOFT_F_INVALIDATE;
    unsigned whole = SOFT_F_FIRST | SOFT_F_LAST;
    if (h->flags & ~known || (qp->unreliable && arrived_answerable(h->op)))
        return false;
    switch ((enum soft_op)h->op) {
    case SOFT_OP_SEND:
    case SOFT_OP_WRITE:
        if (!arrived_in_turn(qp, h))
            return false;
        if (h->op == SOFT_OP_WRITE && !qp->rx_partial && h->len < sizeof(struct soft_reth))
            return false;
        return h->len <= SOFT_SEGMENT_MAX;
    case SOFT_OP_SEND_DESC:
        return arrived_in_turn(qp, h) && h->len >= 1 && h->len <= SOFT_MAX_DESC;
    case SOFT_OP_WRITE_DONE:
        return !qp->rx_partial && (h->flags & whole) == whole && (h->flags & SOFT_F_IMM) &&
               h->len == sizeof(struct soft_reth);
    case SOFT_OP_READ:
        return !qp->rx_partial && h->len == sizeof(struct soft_reth);
    case SOFT_OP_ATOMIC:
        return !qp->rx_partial && h->len == sizeof(struct soft_reth) + sizeof(struct soft_atomic);
    case SOFT_OP_READ_RESPONSE:
    case SOFT_OP_ATOMIC_RESPONSE:
        return h->len <= SOFT_SEGMENT_MAX;
    case SOFT_OP_VIOLATION:
        return h->len == SOFT_NAK_REMOTE_ACCESS || h->len == SOFT_NAK_INVALID_REQUEST;
    }
    return false;
}

static inline unsigned arrived_span(const struct arrived_head *h) {
    switch ((enum soft_op)h->op) {
    case SOFT_OP_SEND_DESC:
        return soft_span(h->len * (unsigned)sizeof(struct soft_desc));
    case SOFT_OP_VIOLATION:
        return 1;
    case SOFT_OP_SEND:
    case SOFT_OP_WRITE:
    case SOFT_OP_WRITE_DONE:
    case SOFT_OP_READ:
    case SOFT_OP_ATOMIC:
    case SOFT_OP_READ_RESPONSE:
    case SOFT_OP_ATOMIC_RESPONSE:
        break;
    }
    return soft_span(h->len);
}

static inline bool arrived_takes_receive(const struct arrived_head *h) {
    switch ((enum soft_op)h->op) {
    case SOFT_OP_SEND:
    case SOFT_OP_SEND_DESC:
        return (h->flags & SOFT_F_FIRST) != 0;
    case SOFT_OP_WRITE:
    case SOFT_OP_WRITE_DONE:
        return (h->flags & (SOFT_F_LAST | SOFT_F_IMM)) == (SOFT_F_LAST | SOFT_F_IMM);
    case SOFT_OP_READ:
    case SOFT_OP_ATOMIC:
    case SOFT_OP_READ_RESPONSE:
    case SOFT_OP_ATOMIC_RESPONSE:
    case SOFT_OP_VIOLATION:
        break;
    }
    return false;
}

#endif
