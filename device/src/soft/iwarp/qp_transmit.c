/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_transmit.c - puts recorded work requests, and answers to the peer's READs, into frames and into the socket.
 *
 * One message at a time is put into frames; requests and answers alternate. A SEND or a WRITE is complete when the peer
 * acknowledged it (qp_ack.h), or, to a peer that is not this device, when the socket took its last byte; a READ or an
 * atomic when it was answered. A WRITE with immediate data is two messages, between which an answer may go.
 *
 * An answer is kept until the socket took it, so that a call that takes its memory away finds it.
 *
 * Owner: the QP's lock.
 */
#include "soft/iwarp/qp_transmit.h"

#include <errno.h>
#include <string.h>

#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_ack.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_fault.h"
#include "soft/iwarp/qp_gather.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/iwarp/stock.h"
#include "soft/iwarp/wire.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/rc/completer.h"
#include "soft/rc/rdma.h"
#include "soft/rc/requester.h"
#include "soft/soft.h"

/* ---- work requests --------------------------------------------------------------------------------------- */

static bool has_frames(const struct soft_wqe *wqe) {
    return wqe->opcode != IBV_WR_BIND_MW && wqe->opcode != IBV_WR_LOCAL_INV;
}

/* Where the next work request ends. One that has no frames ends with the one before it: what asks behind that is not waited for. */
static uint32_t end_of(const struct soft_qp *qp, const struct soft_wqe *wqe) {
    if (has_frames(wqe))
        return soft_tcp_position(qp->tcp->tx.framed);
    return qp->sq_next != qp->sq_head ? qp->sq[(qp->sq_next - 1) & qp->sq_mask].end
                                      : ld(qp->tx_acked);
}

/* The next work request is in frames, or needed none. */
static void framed(struct soft_qp *qp) {
    struct soft_wqe *wqe = wqe_at(qp, qp->sq_next);
    wqe->end = end_of(qp, wqe);
    qp->sq_next++;
    st(qp->unretired, qp->sq_tail - qp->sq_head);
    if ((wqe->flags & IBV_SEND_SIGNALED) && !wqe->waiting)
        qp->tcp->signalled = wqe->end;
    if ((wqe->flags & IBV_SEND_SIGNALED) && !ld(qp->awaited))
        soft_find_due(qp);
}

/* A message of the next work request is in frames. */
static void request_framed(struct soft_qp *qp) {
    struct soft_wqe *wqe = wqe_at(qp, qp->sq_next);
    qp->tcp->sending = SOFT_TCP_NOTHING;
    if (wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && !wqe->started)
        wqe->started = true; /* the immediate data is next */
    else
        framed(qp);
}

/*
 * Lists the payload of the next work request, and says whether it may change or go until it is sent: a program may write to
 * memory that it sends, and gets on a NIC what was there when it was read. False: a key does not cover it.
 */
static bool gather(struct soft_qp *qp, const struct soft_wqe *wqe,
                   struct iovec piece[IWARP_TX_PIECES], struct iwarp_tx_message *message) {
    const struct ibv_sge *sge = wqe_sges(qp, qp->sq_next);
    unsigned *pieces = &message->pieces;
    if (wqe->inlined) {
        piece[(*pieces)++] = (struct iovec){wqe_inline(qp, qp->sq_next), wqe->total};
        return true;
    }
    for (unsigned i = 0; i < wqe->num_sge; i++) {
        if (sge[i].length == 0)
            continue;
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        uint8_t *from = mr ? soft_mr_range(mr, sge[i].addr, sge[i].length, 0) : NULL;
        if (!from)
            return false;
        piece[(*pieces)++] = (struct iovec){from, sge[i].length};
        if (qp->tcp->tx.crc) { /* else the socket reads it, once */
            message->changing |= !(mr->access & (int)SOFT_ACCESS_STILL);
            message->unpinned |= message->changing && mr->region < 0;
        }
    }
    return true;
}

struct iwarp_read soft_tcp_read(struct soft_qp *qp, const struct soft_wqe *wqe, uint32_t index) {
    const struct soft_wqe_remote *to = soft_wqe_remote(qp, wqe);
    return (struct iwarp_read){.sink_stag = index, /* names the READ, and is no key */
                               .bytes = wqe->total,
                               .source_stag = to->rkey,
                               .source_offset = to->addr};
}

/* The keys of a READ or an atomic allow writing to every piece of its target. */
static bool sink_is_good(struct soft_qp *qp, const struct soft_wqe *wqe) {
    const struct ibv_sge *sge = wqe_sges(qp, qp->sq_next);
    for (unsigned i = 0; i < wqe->num_sge; i++) {
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        if (sge[i].length > 0 &&
            (!mr || !soft_mr_range(mr, sge[i].addr, sge[i].length, IBV_ACCESS_LOCAL_WRITE)))
            return false;
    }
    return true;
}

/* 8 MiB in all: peers that read nothing cannot hold more. Other connections copy to their own 16 KiB. */
#define LENT_MAX 64u

static struct iwarp_stock stock = {.bytes = IWARP_TX_LENT, .kept_max = 16, .lent_max = LENT_MAX};

/* Lends memory for a long message that is copied, so that one system call sends more of it. */
static void lend(struct iwarp_tx *tx, uint32_t bytes, bool copied) {
    if (!copied || tx->lent || tx->open || bytes <= IWARP_TX_COPY_SEGMENT)
        return;
    uint8_t *lent = iwarp_stock_take(&stock);
    if (lent)
        iwarp_tx_lend(tx, lent);
}

static enum soft_outcome begin(struct soft_qp *qp, const struct iwarp_tx_message *message) {
    uint64_t end;
    int error = iwarp_tx_begin(&qp->tcp->tx, message, &end);
    if (error == EAGAIN)
        return SOFT_NO_ROOM;
    if (error != 0)
        return SOFT_BROKEN;
    qp->tcp->sending = SOFT_TCP_REQUEST;
    return SOFT_SENT;
}

/* The request message of a READ or an atomic. */
static struct iwarp_tx_message question(struct soft_qp *qp, const struct soft_wqe *wqe,
                                        uint8_t payload[IWARP_ATOMIC_BYTES], struct iovec *piece) {
    const struct soft_wqe_remote *to = soft_wqe_remote(qp, wqe);
    struct iwarp_tx_message message = {.opcode = IWARP_READ_REQUEST, .piece = piece, .pieces = 1};
    *piece = (struct iovec){payload, IWARP_READ_BYTES};
    if (!is_atomic(wqe->opcode)) {
        struct iwarp_read read = soft_tcp_read(qp, wqe, qp->sq_next);
        iwarp_read_put(payload, &read);
        return message;
    }
    bool swap = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    struct iwarp_atomic atomic = {.kind = swap ? IWARP_COMPARE_AND_SWAP : IWARP_FETCH_AND_ADD,
                                  .id = qp->sq_next,
                                  .stag = to->rkey,
                                  .offset = to->addr,
                                  .value = swap ? to->swap : to->compare_add,
                                  .compare = swap ? to->compare_add : 0};
    iwarp_atomic_put(payload, &atomic);
    piece->iov_len = IWARP_ATOMIC_BYTES;
    message.opcode = IWARP_ATOMIC_REQUEST;
    return message;
}

static enum soft_outcome begin_question(struct soft_qp *qp, struct soft_wqe *wqe) {
    unsigned ord = qp->tcp->ord;
    ord = qp->attr.max_rd_atomic < ord ? qp->attr.max_rd_atomic : ord;
    if (ord == 0) {
        wqe->status = IBV_WC_REM_INV_REQ_ERR;
        return SOFT_BROKEN;
    }
    if (qp->waiting >= ord || qp->waiting + qp->tcp->ack_count >= SOFT_RD_ATOMIC)
        return SOFT_NO_ROOM;
    if (!sink_is_good(qp, wqe))
        return SOFT_BROKEN;
    uint8_t payload[IWARP_ATOMIC_BYTES];
    struct iovec piece;
    struct iwarp_tx_message message = question(qp, wqe, payload, &piece);
    enum soft_outcome outcome = begin(qp, &message);
    if (outcome != SOFT_SENT)
        return outcome;
    wqe->waiting = true; /* the answer may come before all of the request is sent */
    if (qp->waiting++ == 0)
        qp->wait_index = qp->sq_next;
    return SOFT_SENT;
}

static uint8_t opcode_of(const struct soft_wqe *wqe) {
    bool solicited = (wqe->flags & IBV_SEND_SOLICITED) != 0;
    if (wqe->opcode == IBV_WR_RDMA_WRITE || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        return IWARP_WRITE;
    if (wqe->opcode == IBV_WR_SEND_WITH_IMM)
        return solicited ? IWARP_SEND_IMMEDIATE_SOLICITED : IWARP_SEND_IMMEDIATE;
    if (wqe->opcode == IBV_WR_SEND_WITH_INV)
        return solicited ? IWARP_SEND_SOLICITED_INVALIDATE : IWARP_SEND_INVALIDATE;
    return solicited ? IWARP_SEND_SOLICITED : IWARP_SEND;
}

/* The immediate data behind its WRITE. */
static enum soft_outcome begin_immediate(struct soft_qp *qp, const struct soft_wqe *wqe) {
    uint8_t payload[IWARP_IMMEDIATE_BYTES] = {0};
    memcpy(payload, &wqe->imm, sizeof wqe->imm);
    struct iovec piece = {payload, sizeof payload};
    bool solicited = (wqe->flags & IBV_SEND_SOLICITED) != 0;
    struct iwarp_tx_message message = {.opcode =
                                           solicited ? IWARP_IMMEDIATE_SOLICITED : IWARP_IMMEDIATE,
                                       .piece = &piece,
                                       .pieces = 1};
    return begin(qp, &message);
}

static enum soft_outcome begin_request(struct soft_qp *qp, struct soft_wqe *wqe) {
    if ((wqe->flags & IBV_SEND_FENCE) && qp->waiting)
        return SOFT_NO_ROOM;
    if (wqe->opcode == IBV_WR_SEND && wqe->inlined && !(wqe->flags & IBV_SEND_SOLICITED) &&
        iwarp_tx_small(&qp->tcp->tx, wqe_inline(qp, qp->sq_next), wqe->total)) {
        qp->tcp->sending = SOFT_TCP_REQUEST;
        return SOFT_SENT;
    }
    if (wqe->opcode == IBV_WR_BIND_MW || wqe->opcode == IBV_WR_LOCAL_INV)
        return soft_run_local(qp, wqe);
    if (wqe->opcode == IBV_WR_RDMA_READ || is_atomic(wqe->opcode))
        return begin_question(qp, wqe);
    if (wqe->started)
        return begin_immediate(qp, wqe);
    struct iovec piece[IWARP_TX_PIECES];
    struct iwarp_tx_message message = {.opcode = opcode_of(wqe), .piece = piece};
    if (!gather(qp, wqe, piece, &message))
        return SOFT_BROKEN;
    lend(&qp->tcp->tx, wqe->total, message.changing);
    if (message.opcode == IWARP_WRITE) {
        message.stag = soft_wqe_remote(qp, wqe)->rkey;
        message.offset = soft_wqe_remote(qp, wqe)->addr;
    } else if (wqe->opcode == IBV_WR_SEND_WITH_INV) {
        message.stag = wqe->imm;
    } else if (wqe->opcode == IBV_WR_SEND_WITH_IMM) {
        message.stag = iwarp_get32((const uint8_t *)&wqe->imm);
    }
    return begin(qp, &message);
}

/* True: the next work request is in frames, wholly or in part. */
static bool next_request(struct soft_qp *qp) {
    if (qp->state != IBV_QPS_RTS || qp->sq_broken || qp->sq_next == qp->sq_tail)
        return false;
    struct soft_wqe *wqe = wqe_at(qp, qp->sq_next);
    if (!soft_tcp_may_send(qp, wqe))
        return false;
    enum soft_outcome outcome = begin_request(qp, wqe);
    qp->tcp->tx.corrupt &= outcome == SOFT_SENT; /* the next frame may be of another message */
    if (outcome == SOFT_BROKEN)
        soft_requester_broken(qp, wqe);
    if (outcome != SOFT_SENT)
        return false;
    if (!qp->tcp->tx.open)
        request_framed(qp);
    return true;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void answer_framed(struct soft_tcp *tcp) {
    tcp->answer_end[tcp->answer_at++ % SOFT_RD_ATOMIC] = tcp->tx.framed;
    tcp->sending = SOFT_TCP_NOTHING;
}

void soft_tcp_take_back_lent(struct soft_tcp *tcp) {
    iwarp_stock_give(&stock, iwarp_tx_take_back(&tcp->tx));
}

void soft_tcp_transmit_forked(void) {
    iwarp_stock_forked(&stock);
}

static bool next_answer(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    if (tcp->answer_at == qp->answer_tail)
        return false;
    const struct soft_answer *answer = &qp->answer[tcp->answer_at % SOFT_RD_ATOMIC];
    const struct iwarp_read *asked = &tcp->asked[tcp->answer_at % SOFT_RD_ATOMIC];
    uint8_t payload[IWARP_ATOMIC_RESPONSE_BYTES];
    struct iovec piece = {(void *)(uintptr_t)answer->from, answer->left};
    struct iwarp_tx_message message = {.opcode = IWARP_READ_RESPONSE,
                                       .stag = asked->sink_stag,
                                       .offset = asked->sink_offset,
                                       .piece = &piece,
                                       .pieces = 1};
    if (tcp->asked_atomic[tcp->answer_at % SOFT_RD_ATOMIC]) {
        struct iwarp_atomic_response response = {asked->sink_stag, answer->value};
        iwarp_atomic_response_put(payload, &response);
        piece = (struct iovec){payload, sizeof payload};
        message.opcode = IWARP_ATOMIC_RESPONSE;
        message.stag = 0;
    }
    const struct soft_mr *mr = soft_mr_find_remote(answer->key, qp);
    message.changing =
        !mr || !(mr->access & (int)SOFT_ACCESS_STILL); /* the application may write */
    message.unpinned = message.changing && mr && mr->region < 0;
    uint64_t end;
    lend(&tcp->tx, answer->left, message.changing && (tcp->tx.crc || message.unpinned));
    if (iwarp_tx_begin(&tcp->tx, &message, &end) != 0)
        return false;
    tcp->sending = SOFT_TCP_ANSWER;
    if (!tcp->tx.open)
        answer_framed(tcp);
    return true;
}

/* An answer lost its memory: its window was taken back meanwhile. */
static bool cut_off(const struct soft_qp *qp) {
    for (uint32_t i = qp->answer_head; i != qp->answer_tail; i++)
        if (!qp->answer[i % SOFT_RD_ATOMIC].from)
            return true;
    return false;
}

/* ---- a turn ---------------------------------------------------------------------------------------------- */

/* After the socket took bytes: the open message may be wholly in frames now, and answers wholly sent. */
static void settle(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    if (!tcp->tx.open && tcp->sending == SOFT_TCP_REQUEST) {
        request_framed(qp);
    } else if (!tcp->tx.open && tcp->sending == SOFT_TCP_ANSWER) {
        answer_framed(tcp);
    }
    while (qp->answer_head != tcp->answer_at &&
           tcp->tx.sent >= tcp->answer_end[qp->answer_head % SOFT_RD_ATOMIC])
        qp->answer_head++;
    if (!tcp->acks)
        st(qp->tx_acked, soft_tcp_position(tcp->tx.sent));
}

/* The empty frame by which the listener learns that the dialer is ready. */
static bool begin_stream(struct soft_tcp *tcp) {
    uint8_t request[IWARP_READ_BYTES];
    struct iovec piece = {request, sizeof request};
    struct iwarp_tx_message message = {.opcode = IWARP_WRITE, .piece = &piece};
    uint64_t end;
    if (tcp->rtr == IWARP_RTR_READ) {
        iwarp_read_put(request, &(struct iwarp_read){.bytes = 0});
        message.opcode = IWARP_READ_REQUEST;
        message.pieces = 1;
        tcp->rtr_answered = true;
    }
    tcp->rtr = IWARP_RTR_NONE;
    return iwarp_tx_begin(&tcp->tx, &message, &end) == 0;
}

/* What the peer's program is told by the next request, its device was told before: qp_ack.h. */
static bool tell(struct soft_tcp *tcp) {
    struct iwarp_tx_message message = {
        .opcode = IWARP_WRITE, .stag = SOFT_TCP_TOLD, .offset = tcp->rx.msn[IWARP_QUEUE_SEND]};
    uint64_t end;
    if (iwarp_tx_begin(&tcp->tx, &message, &end) != 0)
        return false;
    tcp->rtr = IWARP_RTR_NONE;
    return true;
}

/* The immediate data of a WRITE follows it at once. */
static bool request_is_next(struct soft_qp *qp) {
    return qp->sq_next != qp->sq_tail && !wqe_at(qp, qp->sq_next)->started;
}

/* False, as mostly behind a message: there is none to put into frames. */
static inline bool has_message(const struct soft_qp *qp) {
    return qp->sq_next != qp->sq_tail || qp->tcp->answer_at != qp->answer_tail ||
           qp->tcp->rtr != IWARP_RTR_NONE || soft_tcp_asks(qp);
}

static bool next_message(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    if (tcp->tx.open || tcp->tx.ended || !has_message(qp))
        return false;
    if (__builtin_expect(tcp->rtr != IWARP_RTR_NONE, 0)) {
        if (tcp->rtr != SOFT_TCP_TELL)
            return (tcp->begun || qp->sq_next != qp->sq_tail) && begin_stream(tcp);
        if (request_is_next(qp))
            return tell(tcp);
    }
    if (soft_tcp_asks(qp)) {
        if (soft_tcp_ask(qp, false))
            return true;
        if (soft_tcp_is_far_ahead(qp))
            return false;
    }
    tcp->answer_turn = !tcp->answer_turn;
    return tcp->answer_turn ? next_answer(qp) || next_request(qp)
                            : next_request(qp) || next_answer(qp);
}

void soft_tcp_answer_last(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    if (!tcp->acks || tcp->mute || tcp->error != 0 || tcp->tx.open || tcp->tx.ended)
        return;
    while (tcp->answer_at != qp->answer_tail &&
           qp->answer[tcp->answer_at % SOFT_RD_ATOMIC].left == 0 && next_answer(qp))
        continue;
    (void)iwarp_stream_send(tcp->fd, &tcp->tx, SOFT_TCP_TURN);
}

static bool transmit(struct soft_qp *qp, bool gather) {
    struct soft_tcp *tcp = qp->tcp;
    struct iwarp_tx *tx = &tcp->tx;
    uint64_t before = tx->sent;
    if (!tx->open && !tx->ended && before == tx->framed && !has_message(qp)) {
        tcp->gathered = tcp->more = false;
        return false;
    }
    if (qp->state == IBV_QPS_INIT || tcp->mute || tcp->error != 0 || qp->give_up != 0)
        return false;
    if (__builtin_expect(cut_off(qp), 0)) {
        soft_tcp_terminate(qp, &(struct iwarp_terminate){.refusal = IWARP_REMOTE_STAG});
        return false;
    }
    do {
        while (next_message(qp))
            continue;
        bool waits = gather && soft_tcp_is_little(tx);
        if (!waits && !tx->open && soft_tcp_asks(qp)) /* once for all that is sent */
            (void)soft_tcp_ask(qp, true);
        if (!tx->open && tx->sent == tx->framed)
            break;
        tcp->gathered = waits;
        if (waits)
            break;
        tcp->gather.kept = 0;
        int error = iwarp_stream_send(tcp->fd, tx, SOFT_TCP_TURN);
        settle(qp);
        if (error == EAGAIN)
            break;
        tcp->error = error;
    } while (tcp->error == 0 && tx->sent - before < SOFT_TCP_TURN);
    settle(qp);
    if (__builtin_expect(tx->gone, 0)) { /* an answer's memory */
        tx->gone = false;
        soft_tcp_terminate(qp, &(struct iwarp_terminate){.refusal = IWARP_LOCAL_CATASTROPHIC});
        return tx->sent != before;
    }
    if (tx->lent && iwarp_tx_is_sent(tx))
        soft_tcp_take_back_lent(tcp);
    tcp->more = tcp->error == 0 && tx->sent - before >= SOFT_TCP_TURN;
    return tx->sent != before;
}

bool soft_tcp_transmit(struct soft_qp *qp) {
    return transmit(qp, false);
}

bool soft_tcp_gather(struct soft_qp *qp) {
    return transmit(qp, true);
}
