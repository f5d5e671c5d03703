/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_ack.c - see qp_ack.h.
 *
 * Owner: the QP's lock.
 */
#include "soft/iwarp/qp_ack.h"

#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/rc/requester.h"

void soft_tcp_acked(struct soft_qp *qp, uint32_t end) {
    if ((int32_t)(end - ld(qp->tx_acked)) > 0)
        st(qp->tx_acked, end);
    if ((int32_t)(end - qp->tcp->signalled) > 0)
        qp->tcp->signalled = end; /* if it fell far behind, it would compare as ahead */
}

/* As SOFT_TCP_ASK_AFTER. */
#define ASK_EVERY (1u << 14)
#define FAR_AHEAD (1u << 30)

_Static_assert(FAR_AHEAD > SOFT_TCP_ASK_AFTER, "what is far ahead has to be asked for");

bool soft_tcp_is_far_ahead(const struct soft_qp *qp) {
    return qp->tcp->acks && soft_tcp_unacked(qp) >= FAR_AHEAD;
}

/*
 * True: all requests that are in frames end at or before that position. Answers to the peer's requests do not count,
 * as no work request waits for them.
 */
static bool ends_before(const struct soft_qp *qp, uint32_t position) {
    return qp->sq_head == qp->sq_next ||
           (int32_t)(qp->sq[(qp->sq_next - 1) & qp->sq_mask].end - position) <= 0;
}

/* The i-th acknowledgement that was asked for and has not come. */
static const struct soft_tcp_ack *ack_at(const struct soft_tcp *tcp, unsigned i) {
    return &tcp->ack[(tcp->ack_head + i) % SOFT_TCP_ACKS];
}

/* ---- asking -------------------------------------------------------------------------------------------------- */

/* The position up to which the peer has acknowledged, or was asked to. */
static uint32_t asked_to(const struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    uint32_t acked = ld(qp->tx_acked); /* an answer to a READ may have acknowledged more since */
    if (tcp->ack_count == 0)
        return acked;
    uint32_t asked = ack_at(tcp, tcp->ack_count - 1u)->end;
    return (int32_t)(asked - acked) > 0 ? asked : acked;
}

/*
 * A request in frames waits for an acknowledgement. An unsignalled one is acknowledged with a later signalled one,
 * unless the queue drains or too much is unacknowledged.
 */
static bool is_due(const struct soft_qp *qp, uint32_t asked) {
    bool drains = qp->sq_broken || qp->state == IBV_QPS_SQD;
    return (int32_t)(qp->tcp->signalled - asked) > 0 ||
           ((drains || soft_tcp_unacked(qp) >= SOFT_TCP_ASK_AFTER) && !ends_before(qp, asked));
}

static bool may_ask(const struct soft_qp *qp) {
    return qp->tcp->ack_count < SOFT_TCP_ACKS && qp->waiting + qp->tcp->ack_count < SOFT_RD_ATOMIC;
}

bool soft_tcp_ask(struct soft_qp *qp, bool idle) {
    struct soft_tcp *tcp = qp->tcp;
    uint8_t request[IWARP_READ_BYTES];
    struct iovec piece = {request, sizeof request};
    struct iwarp_tx_message message = {.opcode = IWARP_READ_REQUEST, .piece = &piece, .pieces = 1};
    uint64_t end;
    if (!tcp->acks)
        return false;
    uint32_t framed = soft_tcp_position(tcp->tx.framed);
    if (__builtin_expect(soft_tcp_unacked(qp) >= SOFT_TCP_ASK_AFTER, 0) &&
        ends_before(qp, ld(qp->tx_acked))) {
        st(qp->tx_acked, framed);
        tcp->signalled = framed;
    }
    uint32_t asked = asked_to(qp);
    if (!may_ask(qp) || (!idle && framed - asked < ASK_EVERY) || !is_due(qp, asked))
        return false;
    struct soft_tcp_ack ack = {.end = framed, .behind = qp->waiting};
    for (unsigned i = 0; i < tcp->ack_count; i++)
        ack.behind -= ack_at(tcp, i)->behind;
    iwarp_read_put(request, &(struct iwarp_read){.bytes = 0});
    if (iwarp_tx_begin(&tcp->tx, &message, &end) != 0)
        return false;
    ack.at = soft_tcp_position(end);
    tcp->ack[(tcp->ack_head + tcp->ack_count++) % SOFT_TCP_ACKS] = ack;
    return true;
}

void soft_tcp_ack_came(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    soft_tcp_acked(qp, tcp->ack[tcp->ack_head].end);
    tcp->ack_head = (uint8_t)((tcp->ack_head + 1) % SOFT_TCP_ACKS);
    tcp->ack_count--;
}

/* The answer to a READ or an atomic of this end: all requests before it have arrived as well. */
void soft_tcp_answer_came(struct soft_qp *qp, uint32_t end) {
    struct soft_tcp *tcp = qp->tcp;
    if (tcp->ack_count > 0)
        tcp->ack[tcp->ack_head].behind--; /* not 0, else this were the acknowledgement */
    if (tcp->acks)
        soft_tcp_acked(qp, end);
}

/* ---- what the peer has taken ----------------------------------------------------------------------------------- */

static bool is_numbered(const struct soft_wqe *wqe);

/* The number of the first message that is not wholly in frames. */
static uint32_t unframed(struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    bool begun = tcp->sending == SOFT_TCP_REQUEST && qp->sq_next != qp->sq_tail;
    return tcp->tx.msn[IWARP_QUEUE_SEND] - (begun && is_numbered(wqe_at(qp, qp->sq_next)));
}

void soft_tcp_told(struct soft_qp *qp, uint32_t msn) {
    uint32_t number = unframed(qp);
    for (uint32_t at = qp->sq_next; at != qp->sq_head; at--) {
        const struct soft_wqe *wqe = wqe_at(qp, at - 1);
        if (!is_numbered(wqe) || (int32_t)(msn - --number) <= 0)
            continue;
        if (soft_tcp_was_sent(qp->tcp, wqe->end))
            soft_tcp_acked(qp, wqe->end);
        return;
    }
}

/* ---- a refusal ----------------------------------------------------------------------------------------------- */

static bool is_write(const struct soft_wqe *wqe) {
    return wqe->opcode == IBV_WR_RDMA_WRITE || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The request takes a receive of the peer, and so a message number. */
static bool is_numbered(const struct soft_wqe *wqe) {
    return wqe->opcode == IBV_WR_SEND || wqe->opcode == IBV_WR_SEND_WITH_IMM ||
           wqe->opcode == IBV_WR_SEND_WITH_INV || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

struct refused {
    struct iwarp_ddp ddp;
    uint32_t msn; /* of the work request that is compared, if it is numbered */
};

static bool is_of(struct soft_qp *qp, const struct soft_wqe *wqe, const struct refused *refused) {
    const struct soft_wqe_remote *to = soft_wqe_remote(qp, wqe);
    const struct iwarp_ddp *ddp = &refused->ddp;
    if (ddp->opcode == IWARP_WRITE)
        return is_write(wqe) && to->rkey == ddp->stag && ddp->offset >= to->addr &&
               ddp->offset - to->addr <= wqe->total;
    return !iwarp_opcode_tagged(ddp->opcode) && ddp->queue == IWARP_QUEUE_SEND &&
           is_numbered(wqe) && ddp->msn == refused->msn;
}

static void acked_before(struct soft_qp *qp, uint32_t index) {
    if (index == qp->sq_head)
        return;
    uint32_t end = wqe_at(qp, index - 1)->end;
    if (soft_tcp_was_sent(qp->tcp, end))
        soft_tcp_acked(qp, end);
}

/*
 * Finds the refused READ or atomic by its message number, and acknowledges the requests before it. All READs and
 * atomics in frames wait for answers; the empty READs that ask for acknowledgements are numbered among them.
 */
static void question_refused(struct soft_qp *qp, uint32_t msn) {
    const struct soft_tcp *tcp = qp->tcp;
    uint32_t own = tcp->tx.msn[IWARP_QUEUE_REQUEST] - qp->waiting - tcp->ack_count;
    unsigned acks = 0, behind = 0;
    for (uint32_t at = qp->sq_head; at != qp->sq_next; at++) {
        if (!wqe_at(qp, at)->waiting)
            continue;
        for (; acks < tcp->ack_count && behind == ack_at(tcp, acks)->behind; behind = 0, acks++)
            own++;
        behind++;
        if (own++ != msn)
            continue;
        acked_before(qp, at);
        return;
    }
}

/*
 * The peer names the segment that it refuses, so the requests that were sent before it have arrived. Unless they are
 * acknowledged here, the refusal would become the status of an earlier SEND that was delivered, but not acknowledged.
 */
void soft_tcp_ack_refused(struct soft_qp *qp, const struct iwarp_terminate *terminate) {
    const struct soft_tcp *tcp = qp->tcp;
    struct refused refused = {.msn = tcp->tx.msn[IWARP_QUEUE_SEND]};
    if (!tcp->acks || terminate->header_bytes == 0 ||
        iwarp_ddp_get(&refused.ddp, terminate->header, true) != IWARP_FINE)
        return;
    if (!iwarp_opcode_tagged(refused.ddp.opcode) && refused.ddp.queue == IWARP_QUEUE_REQUEST) {
        question_refused(qp, refused.ddp.msn);
        return;
    }
    uint32_t at = qp->sq_next; /* of this request only a part is in frames, or none */
    bool begun = tcp->sending == SOFT_TCP_REQUEST && at != qp->sq_tail;
    refused.msn -= begun && is_numbered(wqe_at(qp, at));
    if (begun && is_of(qp, wqe_at(qp, at), &refused)) {
        acked_before(qp, at);
        return;
    }
    while (at-- != qp->sq_head) {
        refused.msn -= is_numbered(wqe_at(qp, at));
        if (!is_of(qp, wqe_at(qp, at), &refused))
            continue;
        acked_before(qp, at);
        return;
    }
}

/* ---- answering ----------------------------------------------------------------------------------------------- */

bool soft_tcp_holds_acks(const struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    if (!tcp->acks || tcp->ack_held || tcp->by_engine || tcp->answer_at == qp->answer_tail ||
        qp->sq_next != qp->sq_tail || tcp->tx.open || tcp->tx.sent != tcp->tx.framed ||
        (tcp->rtr != IWARP_RTR_NONE && tcp->rtr != SOFT_TCP_TELL) ||
        (may_ask(qp) && is_due(qp, asked_to(qp))))
        return false;
    for (uint32_t at = tcp->answer_at; at != qp->answer_tail; at++)
        if (qp->answer[at % SOFT_RD_ATOMIC].left > 0 || tcp->asked_atomic[at % SOFT_RD_ATOMIC])
            return false;
    return true;
}
