/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * server.c - requests of the peer, and what answers them.
 *
 * Each request has an entry in a table, the one its id names. The entry's word holds the token that the
 * application has and whether it was answered: the thread that moves it from OPEN to ANSWERED, with one
 * compare-and-swap, is the one that answers, so that a request has exactly one
 * answer and a wrong or old token does nothing. The entry is free when the reply is posted, which is
 * before the peer could know.
 *
 * An answer without a message is a code in the entry and a bit in a map of entries: it needs no
 * memory and cannot fail. Replies take the room their request brought, so neither needs a credit.
 *
 * Owner: the loop's thread, except for the words, the codes (the answering thread's), and the map.
 */
#include <stdlib.h>

#include "datapath/rpc/server.h"
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/rx/loans.h"
#include "datapath/loop/loop.h"
#include "datapath/rpc/internal.h"
#include "datapath/tx/framed.h"
#include "datapath/tx/post.h"
#include "datapath/tx/send.h"
#include "core/forked.h"

#define COUNT_BITS (64 - RPC_ID_BITS - RPC_INBOUND_SHIFT)

static inline struct rpc_server *rpc_server_of(struct session *s) {
    return atomic_load_explicit(&s->rpc.server, memory_order_acquire);
}

static inline uint64_t word_of(uint64_t token, unsigned state) {
    return token << RPC_INBOUND_SHIFT | state;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static struct rpc_server *rpc_server_make(struct session *s) {
    struct rpc_server *v = rpc_server_of(s);
    if (likely(v != NULL))
        return v;
    v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    /* Tokens of two sessions should differ, for the application that mixes them up. */
    v->count = atomic_load_explicit(&s->id, memory_order_relaxed) * 0x9e3779b97f4a7c15u;
    atomic_store_explicit(&s->rpc.server, v, memory_order_release);
    return v;
}

static uint64_t new_request_id(struct rpc_server *v, uint32_t inbound) {
    v->count = (v->count + 1) & ((1ull << COUNT_BITS) - 1);
    if (v->count == 0) /* 0 is no token */
        v->count = 1;
    return v->count << RPC_ID_BITS | inbound;
}

bool rpc_server_claim(struct session *s, uint64_t token) {
    struct rpc_server *v = rpc_server_of(s);
    if (!v || token >> (64 - RPC_INBOUND_SHIFT))
        return false;
    uint64_t word = word_of(token, RPC_INBOUND_OPEN);
    return atomic_compare_exchange_strong_explicit(&v->inbound[token & (RPC_IDS_MAX - 1)].word,
                                                   &word, word_of(token, RPC_INBOUND_ANSWERED),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

void rpc_server_unclaim(struct session *s, uint64_t token) {
    atomic_store_explicit(&rpc_server_of(s)->inbound[token & (RPC_IDS_MAX - 1)].word,
                          word_of(token, RPC_INBOUND_OPEN), memory_order_release);
}

/* ---- answering ------------------------------------------------------------------------------- */

void rpc_server_assign(struct session *s, struct sluice_msg *msg, uint64_t *total) {
    struct rpc_inbound *inbound = &rpc_server_of(s)->inbound[msg->tx.id];
    *total = inbound->id;
    atomic_store_explicit(&inbound->word, 0, memory_order_relaxed);
}

bool rpc_server_due(struct session *s) {
    struct rpc_server *v = rpc_server_of(s);
    uint64_t any = 0;
    for (uint32_t i = 0; v && i < RPC_IDS_MAX / 64; i++)
        any |= atomic_load_explicit(&v->due[i], memory_order_acquire);
    return any != 0;
}

/* For the thread that claimed it. */
static void make_due(struct rpc_server *v, uint32_t index, uint32_t code) {
    v->inbound[index].code = code;
    atomic_fetch_or_explicit(&v->due[index / 64], 1ull << index % 64, memory_order_release);
}

static bool build_answer(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                         struct rpc_inbound *inbound) {
    struct connection *c = session_connection(s);
    uint32_t lkey;
    uint8_t *at = wr_batch_header(l, s, &lkey);
    if (!at)
        return false;
    bool inlined = c->sq.inline_max >= FRAME_BYTES;
    l->send_sge[batch->count][0] = (struct ibv_sge){(uintptr_t)at, FRAME_BYTES, lkey};
    struct ibv_send_wr *wr = wr_batch_add(l, s, batch, 1, inlined ? IBV_SEND_INLINE : 0);
    c->tx.sequence++;
    post_header(c, at, FRAME_REPLY, FRAME_RESERVED, 0, inbound->id | (uint64_t)inbound->code << 32);
    wr_batch_entry(s, NULL, 0, SQ_MESSAGE);
    wr_batch_signal(s, batch, wr);
    atomic_store_explicit(&inbound->word, 0, memory_order_relaxed);
    return true;
}

void rpc_server_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct rpc_server *v = rpc_server_of(s);
    for (uint32_t i = 0; i < RPC_IDS_MAX / 64; i++) {
        uint64_t due = atomic_load_explicit(&v->due[i], memory_order_acquire);
        for (; due; due &= due - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(due);
            if (batch->count == LOOP_WR_BATCH || sq_used(c) >= c->sq.limit ||
                !build_answer(l, s, batch, &v->inbound[i * 64 + bit]))
                return;
            atomic_fetch_and_explicit(&v->due[i], ~(1ull << bit), memory_order_relaxed);
        }
    }
    s->rpc.answers = rpc_server_due(s);
}

/* ---- requests that arrive -------------------------------------------------------------------- */

static void answer_now(struct sluice_loop *l, struct session *s, struct rpc_server *v,
                       uint32_t index, uint32_t code) {
    struct rpc_inbound *inbound = &v->inbound[index];
    atomic_store_explicit(&inbound->word, word_of(new_request_id(v, index), RPC_INBOUND_ANSWERED),
                          memory_order_relaxed);
    make_due(v, index, code);
    s->rpc.answers = true;
    loop_dirty(l, s);
}

static bool says_ended(const struct session *s) {
    return session_connection(s)->cm.rep.features & PRIVATE_DATA_FEATURE_ENDED;
}

void rpc_server_fenced(struct sluice_loop *l, struct session *s, uint32_t id, uint32_t code) {
    loop_assert_inside(l);
    if (code == 0)
        code = says_ended(s) ? CODE_ENDED : CODE_FAILED;
    answer_now(l, s, rpc_server_of(s), id & (RPC_IDS_MAX - 1), code);
}

void rpc_server_hungup(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rpc_server *v = rpc_server_of(s);
    if (!v || !says_ended(s))
        return;
    for (uint32_t i = 0; i < RPC_IDS_MAX; i++) {
        uint64_t word = atomic_load_explicit(&v->inbound[i].word, memory_order_acquire);
        uint64_t token = word >> RPC_INBOUND_SHIFT;
        if (word != word_of(token, RPC_INBOUND_OPEN) || !rpc_server_claim(s, token))
            continue; /* there is none, or another thread answers it just now */
        make_due(v, i, CODE_ENDED);
        s->rpc.answers = true;
    }
}

/* The requester does not wait for the answer any more: it gets a code, and the request is not delivered. */
static __attribute__((noinline)) bool is_over(struct sluice_loop *l, struct session *s,
                                              struct rpc_inbound *inbound, struct sluice_msg *msg,
                                              uint64_t left_us) {
    struct rpc_server *v = rpc_server_of(s);
    uint32_t index = (uint32_t)(inbound - v->inbound), code = 0;
    inbound->deadline_ns = 0;
    if (left_us != 0 && left_us != RPC_LEFT_LATER) {
        /* A frame that was held has the time it arrived at. */
        uint64_t now = loop_clock(l);
        inbound->deadline_ns = (msg->rx.arrived_ns ? msg->rx.arrived_ns : now) + left_us * 1000;
        if (now >= inbound->deadline_ns)
            code = CODE_EXPIRED;
    }
    if (inbound->cancelled)
        code = CODE_CANCELLED;
    if (s->close.hungup && says_ended(s))
        code = CODE_ENDED;
    if (code == 0)
        return false;
    answer_now(l, s, v, index, code);
    event_return(l, msg);
    return true;
}

static __attribute__((noinline)) void tell_request(struct sluice_loop *l, struct session *s,
                                                   struct sluice_msg *msg, uint64_t token,
                                                   uint64_t deadline) {
    sluice_event event = {.type = SLUICE_REQUEST, .token = token, .value = deadline};
    event_loan(l, s, msg, &event);
}

enum recv_result rpc_server_deliver(struct sluice_loop *l, struct session *s,
                                    struct sluice_msg *msg, uint64_t total) {
    loop_assert_inside(l);
    struct rpc_server *v = rpc_server_make(s);
    if (unlikely(!v))
        return RECV_NO_MEMORY;
    uint32_t index = (uint32_t)total & (RPC_IDS_MAX - 1);
    struct rpc_inbound *inbound = &v->inbound[index];
    uint64_t left_us = total >> 32;
    if (unlikely(atomic_load_explicit(&inbound->word, memory_order_relaxed) != 0))
        return rpc_broken(l, s, msg, "a request with a request id in use");
    inbound->id = (uint32_t)total;
    inbound->cancelled = inbound->cancelled_ahead && inbound->cancelled_id == inbound->id;
    inbound->cancelled_ahead = false;
    inbound->deadline_ns = 0;
    if (unlikely(left_us != 0 || inbound->cancelled || s->close.hungup) &&
        is_over(l, s, inbound, msg, left_us))
        return RECV_DONE;
    uint64_t token = new_request_id(v, index);
    atomic_store_explicit(&inbound->word, word_of(token, RPC_INBOUND_OPEN), memory_order_release);
    if (event_is_polled(l, s)) {
        sluice_event *event = event_lend(l, s, msg, SLUICE_REQUEST);
        event->token = token;
        event->value = inbound->deadline_ns;
    } else {
        tell_request(l, s, msg, token, inbound->deadline_ns);
    }
    return RECV_DONE;
}

bool rpc_server_ready(struct session *s) {
    return rpc_server_make(s) != NULL;
}

enum recv_result rpc_server_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    loop_assert_inside(l);
    return rpc_server_deliver(l, s, msg, msg->rx.total);
}

const char *rpc_server_cancelled(struct sluice_loop *l, struct session *s, const struct frame *f) {
    loop_assert_inside(l);
    (void)l;
    if (f->total > UINT32_MAX)
        return "a cancellation of no request";
    struct rpc_server *v = rpc_server_make(s);
    if (!v)
        return NULL; /* only work is done that no requester waits for */
    struct rpc_inbound *inbound = &v->inbound[f->total & (RPC_IDS_MAX - 1)];
    if (atomic_load_explicit(&inbound->word, memory_order_relaxed) != 0) {
        inbound->cancelled |= inbound->id == f->total;
        return NULL;
    }
    /* Its request is held; or it was answered, and the next one of this place will not match. */
    inbound->cancelled_id = (uint32_t)f->total;
    inbound->cancelled_ahead = true;
    return NULL;
}

/* ---- the public calls ------------------------------------------------------------------------ */

/* Into a frame that lies open; false: nothing happened, and send_submit() has to look. */
static inline bool reply_framed(struct sluice_loop *l, struct session *s, uint64_t id,
                                uint64_t token, struct sluice_msg *msg, bool more) {
    struct rpc_server *v = rpc_server_of(s);
    uint64_t bytes = msg->size, word = word_of(token, RPC_INBOUND_OPEN);
    uint32_t at;
    if (unlikely(!v || token >> (64 - RPC_INBOUND_SHIFT) || !framed_fits(s, id, msg->size) ||
                 !framed_may_take(l, msg)))
        return false;
    struct sluice_msg *frame = framed_place(l, s, &s->tx.replies, (uint32_t)bytes, more, &at);
    struct rpc_inbound *inbound = &v->inbound[token & (RPC_IDS_MAX - 1)];
    /* As rpc_server_claim(), and then rpc_server_assign(). */
    if (unlikely(!frame || !atomic_compare_exchange_strong_explicit(&inbound->word, &word, 0,
                                                                    memory_order_acq_rel,
                                                                    memory_order_relaxed)))
        return false;
    framed_put(frame, at, msg->data, (uint32_t)msg->size, FRAME_REPLY, inbound->id);
    framed_count(l, s, bytes);
    framed_done(l, msg);
    if (!more)
        send_flush(l, s);
    return true;
}

static __attribute__((noinline)) int reply_other(sluice_session handle, uint64_t token,
                                                 sluice_msg *msg, const sluice_send_options *o) {
    struct send_args args = {0};
    if (forked_id(handle.id) || forked_msg(msg))
        return SLUICE_EFORKED;
    if (!msg || (o && send_options(&args, o) != 0) || args.tag || args.deadline_ns)
        return SLUICE_EINVAL;
    args.request_id = token;
    args.kind = MSG_REPLY;
    args.id = (uint32_t)token & (RPC_IDS_MAX - 1);
    return send_submit(handle, msg, &args);
}

int sluice_reply_with(sluice_session handle, uint64_t token, sluice_msg *msg,
                      const sluice_send_options *o) {
    struct sluice_loop *l;
    struct session *s;
    bool nested;
    struct framed_options is = framed_options(o);
    if (likely(msg && is.plain && !is.tag && forked_bits() == 0) &&
        likely((s = framed_enter(handle.id, &l, &nested)) != NULL)) {
        bool more = is.more || framed_may_share(l, nested);
        bool sent = reply_framed(l, s, handle.id, token, msg, more);
        loop_leave(l, nested);
        if (likely(sent))
            return SLUICE_OK;
    }
    return reply_other(handle, token, msg, o);
}

int sluice_reply(sluice_session handle, uint64_t token, sluice_msg *msg) {
    return sluice_reply_with(handle, token, msg, NULL);
}

static int error_own(struct sluice_loop *l, struct session *s, uint64_t id, uint64_t token,
                     uint32_t code, bool nested) {
    if (atomic_load_explicit(&s->id, memory_order_relaxed) != id || !session_accepts(s) ||
        session_ref_hungup(&s->ref))
        return SLUICE_ECLOSED;
    if (!rpc_server_claim(s, token))
        return SLUICE_EINVAL;
    make_due(rpc_server_of(s), (uint32_t)token & (RPC_IDS_MAX - 1), code);
    s->rpc.answers = true;
    if (nested && l->wc_next < l->wc_count)
        loop_dirty(l, s);
    else
        send_flush(l, s);
    return SLUICE_OK;
}

/* The count in the reference keeps a session that is hung up from leaving before the message is posted. */
static int error_foreign(struct session *s, uint64_t id, uint64_t token, uint32_t code) {
    if (!session_ref_tryget(&s->ref, (uint32_t)id, SESSION_REF_OPEN, 1))
        return SLUICE_ECLOSED;
    int status = rpc_server_claim(s, token) ? SLUICE_OK : SLUICE_EINVAL;
    if (status == SLUICE_OK) {
        make_due(rpc_server_of(s), (uint32_t)token & (RPC_IDS_MAX - 1), code);
        if (session_ref_set(&s->ref, SESSION_REF_REQUESTS))
            loop_post(session_mail(s), s, LOOP_MSG_REQUESTS);
    }
    atomic_fetch_sub_explicit(&s->ref, 1, memory_order_release);
    session_ref_put(&s->ref);
    return status;
}

int sluice_reply_error(sluice_session handle, uint64_t token, uint32_t code) {
    if (forked_id(handle.id))
        return SLUICE_EFORKED;
    if (code > UINT32_MAX - CODE_APPLICATION)
        return SLUICE_EINVAL;
    struct session *s = session_table_find(handle.id);
    if (!s)
        return SLUICE_ECLOSED;
    code += CODE_APPLICATION;
    struct sluice_loop *l = atomic_load_explicit(&s->loop, memory_order_relaxed);
    bool nested;
    if (!l || !loop_enter(l, &nested))
        return error_foreign(s, handle.id, token, code);
    int status = error_own(l, s, handle.id, token, code, nested);
    loop_leave(l, nested);
    return status;
}

static int wanted(struct sluice_loop *l, struct session *s, uint64_t id, uint64_t token) {
    if (atomic_load_explicit(&s->id, memory_order_relaxed) != id || s->state > SESSION_FLUSHING)
        return SLUICE_ECLOSED;
    struct rpc_server *v = rpc_server_of(s);
    struct rpc_inbound *inbound = v ? &v->inbound[token & (RPC_IDS_MAX - 1)] : NULL;
    if (!inbound || token >> (64 - RPC_INBOUND_SHIFT) ||
        atomic_load_explicit(&inbound->word, memory_order_acquire) !=
            word_of(token, RPC_INBOUND_OPEN))
        return SLUICE_EINVAL;
    return !inbound->cancelled &&
           (inbound->deadline_ns == 0 || loop_clock(l) < inbound->deadline_ns);
}

int sluice_request_wanted(sluice_session handle, uint64_t token) {
    if (forked_id(handle.id))
        return SLUICE_EFORKED;
    struct session *s = session_table_find(handle.id);
    struct sluice_loop *l;
    bool nested;
    int status = loop_enter_session(s, handle.id, &l, &nested);
    if (status != SLUICE_OK)
        return status;
    status = wanted(l, s, handle.id, token);
    loop_leave(l, nested);
    return status;
}
