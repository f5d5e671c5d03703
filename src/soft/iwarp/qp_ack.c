/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_ack.c - see qp_ack.h.
 *
 * Owner: the QP's lock.
 */
#include "soft/iwarp/qp_ack.h"

#include "soft/ipc/spinlock.h"
#include "soft/verbs/qp.h"

void soft_tcp_acked(struct soft_qp *qp, uint32_t end) {
    if ((int32_t)(end - ld(qp->tx_acked)) > 0)
        st(qp->tx_acked, end);
}

/* Words of four bytes, of what was sent and is not known to be there. */
#define ASK_AFTER (1u << 28)
#define FAR_AHEAD (1u << 30)

static uint32_t unacked(const struct soft_qp *qp) {
    return soft_tcp_position(qp->tcp->tx.framed) - ld(qp->tx_acked);
}

bool soft_tcp_is_far_ahead(const struct soft_qp *qp) {
    return qp->tcp->acks && unacked(qp) >= FAR_AHEAD;
}

/* Is the last request that is in frames there? Answers to the peer's are nobody's to wait for. */
static bool is_all_there(const struct soft_qp *qp) {
    return qp->sq_head == qp->sq_next ||
           (int32_t)(qp->sq[(qp->sq_next - 1) & qp->sq_mask].end - ld(qp->tx_acked)) <= 0;
}

/* ---- asking -------------------------------------------------------------------------------------------------- */

/*
 * Somebody waits for a request that is in frames: its position is `due`. What completes unseen waits for one that is seen, if
 * that does not take too long.
 */
static bool is_due(const struct soft_qp *qp) {
    bool drains = qp->sq_broken || qp->state == IBV_QPS_SQD;
    if (ld(qp->awaited) && (int32_t)(ld(qp->due) - ld(qp->tx_acked)) > 0)
        return true;
    return (drains || unacked(qp) >= ASK_AFTER) && !is_all_there(qp);
}

bool soft_tcp_ask(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    uint8_t request[IWARP_READ_BYTES];
    struct iovec piece = {request, sizeof request};
    struct iwarp_tx_message message = {.opcode = IWARP_READ_REQUEST, .piece = &piece, .pieces = 1};
    uint64_t end;
    if (!tcp->acks)
        return false;
    if (__builtin_expect(unacked(qp) >= ASK_AFTER, 0) && is_all_there(qp))
        st(qp->tx_acked, soft_tcp_position(tcp->tx.framed));
    if (tcp->ack_asked || qp->waiting >= SOFT_RD_ATOMIC || !is_due(qp))
        return false;
    uint32_t framed = soft_tcp_position(tcp->tx.framed);
    iwarp_read_put(request, &(struct iwarp_read){.bytes = 0});
    if (iwarp_tx_begin(&tcp->tx, &message, &end) != 0)
        return false;
    tcp->ack_asked = true;
    tcp->ack_behind = qp->waiting;
    tcp->ack_end = framed;
    tcp->ack_at = soft_tcp_position(end);
    return true;
}

void soft_tcp_ack_came(struct soft_qp *qp) {
    qp->tcp->ack_asked = false;
    soft_tcp_acked(qp, qp->tcp->ack_end);
}

/* Of a request of its own: all before it is there as well. */
void soft_tcp_answer_came(struct soft_qp *qp, uint32_t end) {
    struct soft_tcp *tcp = qp->tcp;
    if (tcp->ack_asked && tcp->ack_behind > 0)
        tcp->ack_behind--;
    if (tcp->acks)
        soft_tcp_acked(qp, end);
}

/* ---- answering ----------------------------------------------------------------------------------------------- */

bool soft_tcp_holds_acks(const struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    if (!tcp->acks || tcp->ack_held || tcp->by_engine || tcp->answer_at == qp->answer_tail ||
        qp->sq_next != qp->sq_tail || tcp->tx.open || tcp->tx.sent != tcp->tx.framed ||
        tcp->rtr != IWARP_RTR_NONE || (!tcp->ack_asked && is_due(qp)))
        return false;
    for (uint32_t at = tcp->answer_at; at != qp->answer_tail; at++)
        if (qp->answer[at % SOFT_RD_ATOMIC].left > 0 || tcp->asked_atomic[at % SOFT_RD_ATOMIC])
            return false;
    return true;
}
