/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * outgoing.c - large messages of this side: announced, then read by the peer or written to it.
 *
 * READ: the message's buffer is given back only after its rkey was invalidated, so that a peer that
 * reads on never sees later contents. WRITE: no peer gets an rkey of this side's memory. COPY: the peer has mapped this
 * memory anyway, and copies the message out of it.
 * A message counts against the session's window until then, and has its outcome then. A message that was announced
 * is on its way: its deadline does not drop it any more.
 *
 * Owner: the loop's thread. A peer's answer is hostile.
 */
#include "datapath/rndv/outgoing.h"
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/internal.h"
#include "datapath/rndv/mw.h"
#include "datapath/rpc/client.h"
#include "datapath/rpc/server.h"
#include "datapath/tx/iov.h"
#include "datapath/tx/post.h"
#include "datapath/tx/send.h"

static void set_state(struct rndv *r, struct rndv_tx *d, enum rndv_tx_state state) {
    uint32_t bit = UINT32_C(1) << (d - r->out);
    r->out_in[d->state] &= ~bit;
    r->out_in[state] |= bit;
    d->state = (uint8_t)state;
}

struct rndv_tx *rndv_tx_oldest(struct rndv *r, uint32_t numbers) {
    struct rndv_tx *found = NULL;
    for (; numbers != 0; numbers &= numbers - 1) {
        struct rndv_tx *d = &r->out[__builtin_ctz(numbers)];
        if (!found || d->order < found->order)
            found = d;
    }
    return found;
}

/*
 * The last WRITE of a message takes a credit. Frames behind the announcement wait at the peer until the message is
 * whole: if they had all credits, and the application kept what came before, none would ever come back. So each
 * announcement sets one aside.
 */
static void reserve(struct session *s, struct rndv_tx *d) {
    struct connection *c = session_connection(s);
    d->reserves = d->way == RNDV_BY_WRITE;
    c->tx.reserve = (uint8_t)(c->tx.reserve + d->reserves);
}

static void unreserve(struct session *s, struct rndv_tx *d) {
    struct connection *c = session_connection(s);
    c->tx.reserve = (uint8_t)(c->tx.reserve - d->reserves);
    d->reserves = false;
}

void rndv_tx_begin(struct session *s, struct rndv_tx *d, struct sluice_msg *msg) {
    struct rndv *r = s->rndv;
    d->counted = msg->kind != MSG_REQUEST; /* a request's place has its share */
    d->outcome = SLUICE_EUNKNOWN;
    d->again = false;
    d->msg = msg;
    d->offset = 0;
    d->order = ++r->out_order;
    set_state(r, d, RNDV_TX_RTS);
    r->out_count++;
    r->out_writes += d->way == RNDV_BY_WRITE;
    reserve(s, d);
}

void rndv_tx_again(struct session *s, struct rndv_tx *d, unsigned way) {
    d->way = (uint8_t)way;
    d->again = true;
    s->rndv->out_writes += d->way == RNDV_BY_WRITE;
    reserve(s, d);
}

/* ---- the end of one -------------------------------------------------------------------------- */

static void finish(struct sluice_loop *l, struct session *s, struct rndv_tx *d,
                   sluice_status status) {
    struct rndv *r = s->rndv;
    struct sluice_msg *msg = d->msg;
    r->out_count--;
    r->out_writes -= d->way == RNDV_BY_WRITE;
    unreserve(s, d);
    if (d->counted)
        window_release(s, 1, msg->size, msg->foreign);
    set_state(r, d, RNDV_TX_FREE);
    d->msg = NULL;
    if (msg->kind == MSG_IOV)
        iov_regions_done(msg);
    if (msg->kind == MSG_REQUEST && status == SLUICE_EMSGSIZE)
        rpc_client_refused(l, s, msg, status);
    else if (msg->kind == MSG_REQUEST)
        rpc_client_completed(l, s, msg, status);
    else if (msg->tx.tag)
        event_outcome(l, s, msg, status);
    else
        msg_discard(l, msg);
    if (s->window.waits_writable)
        send_check_writable(l, s);
    if (s->tx.queue.head || s->tx.replies.head)
        loop_dirty(l, s); /* messages that waited for a number */
}

/* The peer has it only when this side has written it. */
static bool must_be_written(const struct rndv_tx *d) {
    return d->way == RNDV_BY_WRITE && !d->again;
}

void rndv_tx_completed(struct sluice_loop *l, struct session *s, struct rndv_tx *d,
                       sluice_status status) {
    loop_assert_inside(l);
    bool taken = d->state == RNDV_TX_CLOSING;
    if (status == SLUICE_OK)
        finish(l, s, d, taken ? d->outcome : SLUICE_OK);
    else if (!taken)
        d->outcome = status; /* the session ends: rndv_tx_end() */
}

void rndv_tx_lost(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    for (unsigned i = 0; i < RNDV_NUMBERS; i++)
        mw_free(l->node, &r->out[i].mw); /* no key of before opens anything */
    for (struct rndv_tx *d;
         (d = rndv_tx_oldest(r, r->out_in[RNDV_TX_ATS] | r->out_in[RNDV_TX_CLOSING]));)
        finish(l, s, d, d->outcome); /* the peer has it, or does not want it */
    r->out_again = ~r->out_in[RNDV_TX_FREE];
    r->out_replay = 0;
    r->out_writes = 0;
    for (uint32_t left = r->out_again; left != 0; left &= left - 1) {
        struct rndv_tx *d = &r->out[__builtin_ctz(left)];
        d->way = 0;
        d->reserves = false; /* a credit of the connection that was lost */
        d->offset = 0;
        d->outcome = SLUICE_EUNKNOWN;
        set_state(r, d, RNDV_TX_RTS);
    }
}

void rndv_tx_fenced(struct sluice_loop *l, struct session *s, uint32_t number) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    struct rndv_tx *d = &r->out[number];
    uint32_t bit = UINT32_C(1) << number;
    enum msg_kind kind = (enum msg_kind)d->msg->kind;
    uint32_t id = d->msg->tx.id;
    ASSERT(d->state == RNDV_TX_RTS && r->out_again & bit);
    r->out_again &= ~bit;
    finish(l, s, d, SLUICE_EFENCED);
    if (kind == MSG_REQUEST)
        rpc_client_fenced(l, s, id);
    else if (kind == MSG_REPLY)
        rpc_server_fenced(l, s, id, 0);
}

void rndv_tx_end(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    for (unsigned i = 0; i < RNDV_NUMBERS; i++)
        mw_free(l->node, &r->out[i].mw); /* before the memory is used for anything else */
    for (struct rndv_tx *d; (d = rndv_tx_oldest(r, ~r->out_in[RNDV_TX_FREE]));) {
        switch ((enum rndv_tx_state)d->state) {
        case RNDV_TX_FREE: /* cannot be */
        case RNDV_TX_STATES:
            return;
        case RNDV_TX_RTS: /* it may have been read */
            finish(l, s, d, must_be_written(d) ? SLUICE_ECLOSED : SLUICE_EUNKNOWN);
            break;
        case RNDV_TX_WRITING:
            finish(l, s, d, SLUICE_ECLOSED);
            break;
        case RNDV_TX_WRITTEN:
        case RNDV_TX_ATS:
        case RNDV_TX_CLOSING:
            finish(l, s, d, d->outcome);
            break;
        }
    }
}

/* ---- the peer's answer ----------------------------------------------------------------------- */

static const char *ready(struct rndv *r, struct rndv_tx *d, const uint8_t *payload) {
    const uint64_t *word = (const uint64_t *)(const void *)payload;
    uint64_t address = le64toh(__atomic_load_n(&word[0], __ATOMIC_RELAXED));
    uint64_t key = le64toh(__atomic_load_n(&word[1], __ATOMIC_RELAXED));
    uint64_t bytes = le64toh(__atomic_load_n(&word[2], __ATOMIC_RELAXED));
    if (d->way != RNDV_BY_WRITE)
        return "leave to write what was to be read";
    if (bytes != d->msg->size || key >> 32)
        return "leave to write that does not fit its message";
    d->address = address;
    d->rkey = (uint32_t)key;
    set_state(r, d, RNDV_TX_WRITING);
    return NULL;
}

/* Numbers of which the peer has an announcement that it has not answered. */
static uint32_t awaited(const struct rndv *r) {
    return r->out_in[RNDV_TX_RTS] & ~(r->out_again | r->out_replay);
}

static void is_taken(struct sluice_loop *l, struct session *s, struct rndv_tx *d) {
    if (d->way == RNDV_BY_COPY) /* there is no key to take back */
        finish(l, s, d, d->outcome);
    else
        set_state(s->rndv, d, RNDV_TX_ATS);
}

const char *rndv_tx_taken(struct sluice_loop *l, struct session *s, uint64_t numbers) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    if (!r || !rndv_agreed_answers(s) || numbers & ~(uint64_t)awaited(r))
        return "an answer to no RTS";
    for (uint64_t left = numbers; left != 0; left &= left - 1)
        if (must_be_written(&r->out[__builtin_ctzll(left)]))
            return "an answer that cannot be";
    for (; numbers != 0; numbers &= numbers - 1) {
        struct rndv_tx *d = &r->out[__builtin_ctzll(numbers)];
        d->outcome = SLUICE_OK;
        is_taken(l, s, d);
    }
    if (r->out_in[RNDV_TX_ATS])
        rndv_dirty(l, s);
    return NULL;
}

const char *rndv_answer_arrived(struct sluice_loop *l, struct session *s, const struct frame *f,
                                const uint8_t *payload) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    uint64_t number = f->type == FRAME_ATS ? (uint32_t)f->total : f->total;
    uint64_t outcome = f->type == FRAME_ATS ? f->total >> 32 : 0;
    if (outcome == RNDV_OUTCOME_SEVERAL)
        return number ? rndv_tx_taken(l, s, number) : "an ATS to no RTS";
    if (!r || number >= RNDV_NUMBERS || !(awaited(r) >> number & 1))
        return "an RTR or ATS to no RTS";
    struct rndv_tx *d = &r->out[number];
    if (f->type == FRAME_RTR) {
        const char *wrong = ready(r, d, payload);
        if (wrong)
            return wrong;
    } else {
        if (outcome > RNDV_OUTCOME_NO_MEMORY || (must_be_written(d) && outcome == RNDV_OUTCOME_OK))
            return "an outcome that cannot be";
        d->outcome = outcome == RNDV_OUTCOME_OK ? SLUICE_OK : SLUICE_EMSGSIZE;
        is_taken(l, s, d);
    }
    rndv_dirty(l, s);
    return NULL;
}

/* ---- posting --------------------------------------------------------------------------------- */

/* The share of the window that its last entry gives back. */
static uint64_t count_by_entry(struct rndv_tx *d) {
    uint64_t counted = d->counted ? wr_batch_counted(d->msg) : 0;
    d->counted = false;
    return counted;
}

/* True: its end is posted, or it had one. */
static bool take_back(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                      struct rndv_tx *d) {
    struct ibv_send_wr wr;
    if (!rndv_room(l, s, batch))
        return false;
    if (!mw_close(l->node, &d->mw, &wr)) {
        finish(l, s, d, d->outcome);
        return true;
    }
    set_state(s->rndv, d, RNDV_TX_CLOSING);
    rndv_post_mw(l, s, batch, &wr, d, count_by_entry(d));
    return true;
}

static unsigned slice(const struct session *s, const struct rndv_tx *d, struct ibv_sge sge[2],
                      uint32_t *bytes) {
    unsigned count = 1;
    *bytes = rndv_chunk(s, d->msg->size, d->offset);
    if (d->parts)
        *bytes = rndv_slice(d->parts, d->part_count, d->offset, *bytes, sge, &count);
    else
        sge[0] = (struct ibv_sge){(uintptr_t)d->msg->data + d->offset, *bytes, d->msg->lkey};
    return count;
}

/* False: credits, room or this turn's share are used up. */
static bool write_some(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                       struct rndv_tx *d, uint32_t *left) {
    struct connection *c = session_connection(s);
    while (d->state == RNDV_TX_WRITING) {
        uint32_t bytes;
        /* One credit stays: a WRITE returns none, and both sides could be without. */
        if (*left == 0 || c->tx.credits < 2) {
            session_block(s);
            return false;
        }
        if (!rndv_room(l, s, batch))
            return false;
        unsigned count = slice(s, d, l->send_sge[batch->count], &bytes);
        if (bytes == 0)
            return false; /* cannot be: the pieces are the message */
        uint64_t offset = d->offset;
        bool last = (d->offset += bytes) == d->msg->size;
        struct ibv_send_wr *wr =
            rndv_wr(l, s, batch, last ? d : NULL,
                    last && !s->resume.again ? count_by_entry(d) : 0); /* else it may be again */
        wr->sg_list = l->send_sge[batch->count - 1];
        wr->num_sge = (int)count;
        wr->opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        wr->wr.rdma.remote_addr = d->address + offset;
        wr->wr.rdma.rkey = d->rkey;
        batch->waited_for = true;
        *left -= bytes < *left ? bytes : *left;
        if (last) {
            wr->imm_data = htobe32((uint32_t)(d - s->rndv->out));
            c->tx.credits--;
            unreserve(s, d);
            batch->frameless--; /* the peer hears of this one */
            set_state(s->rndv, d, RNDV_TX_WRITTEN);
        }
    }
    return true;
}

void rndv_tx_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                   uint32_t *bytes) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    struct rndv_tx *d;
    if (r->out_count == 0)
        return;
    while ((d = rndv_tx_oldest(r, r->out_in[RNDV_TX_ATS])))
        if (!take_back(l, s, batch, d))
            return;
    while ((d = rndv_tx_oldest(r, r->out_in[RNDV_TX_WRITING])))
        if (!write_some(l, s, batch, d, bytes))
            return;
}
