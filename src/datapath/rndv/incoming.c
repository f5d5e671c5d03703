/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * incoming.c - large messages of the peer: announced, then read by this side or written by the peer.
 *
 * An announcement is acted upon when it arrives, and its frame waits in line (held) until the message is
 * there and everything before it was delivered. Memory is found in the order of the announcements, so
 * that no message waits for memory which later ones of its session have; a session may have as much undelivered
 * memory as its window_bytes, or one message.
 *
 * Owner: the loop's thread. A peer's announcement is hostile: read once, then checked.
 */
#include <errno.h>
#include <string.h>

#include <sluice/memory.h>

#include "datapath/rndv/incoming.h"
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/internal.h"
#include "datapath/rx/landing.h"
#include "datapath/rndv/mw.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rndv/copy.h"
#include "datapath/loop/upward.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/tx/post.h"
#include "datapath/tx/unacked.h"
#include "core/region.h"

/* ---- life ------------------------------------------------------------------------------------ */

static struct rndv_rx *rndv_rx_new(struct rndv *r, unsigned number) {
    struct rndv_rx *a = r->rx;
    while (a->state != RNDV_RX_FREE) /* there is one: see RNDV_RX_MAX */
        a++;
    *a = (struct rndv_rx){.number = (uint8_t)number, .numbered = true};
    r->by_number[number] = a;
    r->refused &= ~(UINT32_C(1) << number);
    *r->last = a;
    r->last = &a->next;
    return a;
}

/* Delivered, and the peer has its number again: no pointer to it is left. */
static void rndv_rx_free(struct rndv *r, struct rndv_rx *a) {
    struct rndv_rx **link = &r->first;
    while (*link != a)
        link = &(*link)->next;
    *link = a->next;
    if (r->last == &a->next)
        r->last = link;
    a->state = RNDV_RX_FREE;
}

static void release_number(struct rndv *r, struct rndv_rx *a) {
    r->by_number[a->number] = NULL;
    a->numbered = false;
    r->refused |= (uint32_t)(a->outcome == RNDV_OUTCOME_NO_MEMORY) << a->number;
    if (a->state == RNDV_RX_DONE)
        rndv_rx_free(r, a);
    else
        r->waiting++;
}

bool rndv_rx_may_release(const struct rndv *r, const struct rndv_rx *a) {
    return a->state == RNDV_RX_DONE || r->waiting + r->ready < RNDV_RX_MAX - RNDV_NUMBERS;
}

void rndv_rx_release(struct rndv *r, struct rndv_rx *a) {
    a->answer = false;
    release_number(r, a);
}

void rndv_rx_done(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    a->state = RNDV_RX_DONE;
    if (!a->numbered) {
        r->waiting--;
        rndv_rx_free(r, a);
    }
    if (r->first)
        rndv_dirty(l, s); /* memory and numbers that others wait for */
}

/* Sets the state; the message may now be the next to deliver. */
static void settled(struct sluice_loop *l, struct session *s, struct rndv_rx *a,
                    enum rndv_rx_state state) {
    a->state = (uint8_t)state;
    if (!s->announced)
        return; /* looked at after UP */
    s->rx.held_pending = false;
    event_notice(l, s, NOTICE_HELD);
}

static void refuse(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    a->answer = true;
    a->outcome = RNDV_OUTCOME_NO_MEMORY;
    settled(l, s, a, RNDV_RX_REFUSED);
}

/* ---- announcements --------------------------------------------------------------------------- */

static const char *wrong_rts(const struct rndv *r, const struct session *s, uint64_t size,
                             unsigned flags, const uint64_t word[5]) {
    unsigned number = word[0] & 0xffff, type = word[0] >> 16 & 0xff;
    bool reply = type == FRAME_REPLY;
    if (number >= rndv_numbers(s) || r->by_number[number] || (r->taken | r->refuse) >> number & 1)
        return "an RTS whose id is in use, or none";
    if (type != FRAME_DATA && type != FRAME_REQUEST && !reply)
        return "an RTS of no message";
    if (reply != ((flags & FRAME_RESERVED) != 0))
        return "an RTS with the credit of another frame";
    const char *wrong = rndv_wrong_way(s, word);
    if (wrong)
        return wrong;
    if ((type == FRAME_DATA && word[2]) || word[4])
        return "an RTS with content that its type does not have";
    if (size <= s->tx.frame_payload || size > s->rx.message_max)
        return "an RTS of a message larger than agreed, or not large";
    return NULL;
}

bool rndv_rts_arrived(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    loop_assert_inside(l);
    const uint64_t *from = (const uint64_t *)(const void *)msg->data;
    uint64_t word[FRAME_RTS_BYTES / sizeof(uint64_t)];
    struct rndv *r = rndv_get(l, s);
    if (!r) {
        session_stop(s);
        recv_queue_give_back(l, msg);
        session_close(l, s, SLUICE_REASON_NO_MEMORY, 0, "no memory to take large messages");
        return false;
    }
    for (unsigned i = 0; i < sizeof word / sizeof word[0]; i++)
        word[i] = le64toh(__atomic_load_n(&from[i], __ATOMIC_RELAXED));
    const char *wrong = wrong_rts(r, s, msg->rx.total, msg->rx.frame_flags, word);
    if (!wrong && word[3])
        wrong = rndv_tx_taken(l, s, word[3]);
    if (wrong)
        return !receive_broken(l, s, msg, wrong);
    struct rndv_rx *a = rndv_rx_new(r, word[0] & 0xffff);
    a->type = word[0] >> 16 & 0xff;
    a->way = word[0] >> 24 & 0xff;
    a->rkey = (uint32_t)(word[0] >> 32);
    a->address = word[1];
    a->total = word[2];
    a->bytes = msg->rx.total;
    a->behind = s->landing.begun;
    if (a->type == FRAME_REQUEST && word[2] >> 32) /* time goes on while it moves */
        a->arrived_ns = loop_clock(l);
    bool ask = (s->link_config.flags & SLUICE_RECEIVE_INTO) && a->type == FRAME_DATA;
    a->state = ask ? RNDV_RX_ASK : RNDV_RX_WAITS;
    msg->rx.rndv_entry = (uint32_t)(a - r->rx);
    if (a->way == RNDV_BY_COPY && a->type == FRAME_DATA && !ask && a->bytes <= RNDV_AT_ONCE &&
        r->first == a && s->announced && !s->rx.held.head && loop_room(l, s) &&
        s->state != SESSION_DOWN)
        rndv_copy_at_once(l, s, a);
    if (a->state != RNDV_RX_HERE || !rndv_answer_at_once(l, s, a))
        rndv_dirty(l, s);
    return true;
}

/* The peer's time for the next one begins; but while the first one is not whole, other messages gain it none. */
static void is_whole(struct sluice_loop *l, struct session *s, const struct rndv_rx *whole) {
    for (const struct rndv_rx *a = s->rndv->first; a != whole; a = a->next)
        if (a->state == RNDV_RX_MOVES || a->state == RNDV_RX_BEGINS)
            return;
    s->landing.ns = l->now_ns;
}

uint64_t rndv_owed(const struct session *s) {
    const struct rndv_rx *a = s->rndv ? s->rndv->first : NULL;
    while (a && a->state == RNDV_RX_DONE)
        a = a->next;
    bool owed = a && (a->state == RNDV_RX_MOVES ||
                      (a->state == RNDV_RX_BEGINS && session_connection(s)->tx.credits < 2) ||
                      (a->stale && a->landing && s->state != SESSION_DOWN));
    return owed ? a->bytes : 0;
}

void rndv_memory_found(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->rndv)
        rndv_dirty(l, s);
}

const char *rndv_write_arrived(struct sluice_loop *l, struct session *s, uint32_t immediate) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    struct rndv_rx *a = r && immediate < RNDV_NUMBERS ? r->by_number[immediate] : NULL;
    if (!a || a->way != RNDV_BY_WRITE || a->state != RNDV_RX_MOVES)
        return "a write that was not asked for";
    r->ready--;
    is_whole(l, s, a);
    a->state = RNDV_RX_CLOSES;
    release_number(r, a);
    rndv_dirty(l, s);
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* False: not now, or never (and then it is refused). */
static bool find_memory(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    struct rndv *r = s->rndv;
    if (a->region || a->landing)
        return true;
    if ((int32_t)(s->landing.found - a->behind) < 0)
        return false; /* a message before it has none yet */
    if (r->landing_bytes > 0 &&
        (a->bytes > s->link_config.window_bytes ||
         r->landing_bytes > s->link_config.window_bytes - a->bytes || !landing_may(l, a->bytes)))
        return false; /* what is delivered makes the session dirty */
    a->landing = landing_for(l, s, a->bytes);
    if (a->landing) {
        r->landing_bytes += a->bytes;
        a->holds = true;
        return true;
    }
    if (errno == EMSGSIZE)
        refuse(l, s, a);
    else
        rndv_retry(l, s);
    return false;
}

static void close_sink(struct sluice_loop *l, struct rndv_rx *a) {
    struct ibv_send_wr none;
    mw_close(l->node, a->sink, &none); /* a registration: nothing is to be posted */
    a->sink = NULL;
}

void rndv_rx_let_go(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    loop_assert_inside(l);
    a->landing = NULL;
    if (!a->holds)
        return;
    a->holds = false;
    s->rndv->landing_bytes -= a->bytes;
    landing_done(l, s, a->bytes);
}

void rndv_rx_detach(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    loop_assert_inside(l);
    struct sluice_msg *landing = a->landing;
    if (landing) {
        rndv_rx_let_go(l, s, a);
        msg_discard(l, landing);
    }
    if (a->region)
        region_drop(a->region);
    a->region = NULL;
}

/*
 * WRITE: no completion proves that the peer wrote all of it, so the memory must hold nothing that the peer did not
 * send. That a buffer held a message of the same peer is no proof: the application may write into a message it got,
 * and into its own region. False: the rest in the next turn.
 */
static bool wipe(struct sluice_loop *l, struct session *s, struct rndv_rx *a, uint32_t *left) {
    uint32_t lkey;
    uint8_t *at = rndv_rx_place(a, &lkey);
    uint64_t bytes = a->bytes - a->wiped;
    if (bytes > *left)
        bytes = *left;
    memset(at + a->wiped, 0, bytes);
    a->wiped += bytes;
    *left -= (uint32_t)bytes;
    if (a->wiped == a->bytes)
        return true;
    s->rndv->goes_on = true;
    session_block(s);
    (void)loop_retry(l, s);
    return false;
}

/* ---- posting --------------------------------------------------------------------------------- */

static struct mw *free_mw(struct rndv *r) {
    uint64_t used = 0;
    for (const struct rndv_rx *a = r->first; a; a = a->next) {
        const struct mw *mw = a->mw ? a->mw : a->sink;
        if (mw)
            used |= UINT64_C(1) << (mw - r->mws);
    }
    unsigned i = (unsigned)__builtin_ctzll(~used);
    return i < RNDV_NUMBERS ? &r->mws[i] : NULL;
}

/* WRITE: a key for exactly these bytes, and the peer is told. */
static bool send_rtr(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                     struct rndv_rx *a) {
    struct connection *c = session_connection(s);
    struct rndv *r = s->rndv;
    struct mw *window = free_mw(r);
    struct ibv_send_wr wr;
    bool bind;
    uint32_t lkey;
    if (!window || r->waiting + r->ready >= RNDV_RX_MAX - RNDV_NUMBERS)
        return false; /* what is delivered makes the session dirty */
    if (batch->count + 2 > LOOP_WR_BATCH)
        wr_batch_post(l, s, batch);
    if (!rndv_room_control(l, s, batch))
        return false;
    if (sq_used(c) + 2 > sq_places(c) || !wr_batch_header(l, s, &lkey)) {
        session_block(s);
        return false;
    }
    uint8_t *at = rndv_rx_place(a, &lkey);
    struct mw_bytes of = {at, a->bytes, a->landing ? pool_mr(buffer_of(a->landing)) : a->region->mr,
                          IBV_ACCESS_REMOTE_WRITE, false};
    if (!mw_open(l->node, window, &of, &wr, &bind)) {
        rndv_retry(l, s);
        return false;
    }
    a->mw = window;
    if (bind)
        rndv_post_mw(l, s, batch, &wr, NULL, 0);
    uint64_t payload[FRAME_RTR_BYTES / sizeof(uint64_t)] = {
        htole64((uintptr_t)at), htole64(window->rkey), htole64(a->bytes)};
    struct frame f = {.type = FRAME_RTR, .length = FRAME_RTR_BYTES, .total = a->number};
    a->state = RNDV_RX_MOVES;
    r->ready++;
    return rndv_post_frame(l, s, batch, f, payload);
}

/*
 * READ, where the peer's answer is a WRITE like another's: a registration of exactly these bytes, which the
 * peer may write until all of them are here.
 */
static bool open_sink(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    struct mw *window = free_mw(s->rndv);
    struct ibv_send_wr none;
    bool bind;
    uint32_t lkey;
    if (!window)
        return false; /* a READ that completes makes the session dirty */
    struct mw_bytes of = {rndv_rx_place(a, &lkey), a->bytes, NULL, IBV_ACCESS_REMOTE_WRITE, false};
    if (!mw_open(l->node, window, &of, &none, &bind)) {
        rndv_retry(l, s);
        return false;
    }
    a->sink = window;
    return true;
}

/* READ: as many as the depth, the send queue and this turn's share allow. */
static bool read_some(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                      struct rndv_rx *a, uint32_t *left) {
    struct rndv *r = s->rndv;
    while (a->offset < a->bytes) {
        if (*left == 0 || r->flying >= rndv_depth(s))
            return false; /* a READ that completes makes the session dirty */
        if (!rndv_room(l, s, batch))
            return false;
        if (s->node->traits.sink_is_target && !a->sink && !open_sink(l, s, a))
            return false;
        uint32_t lkey, bytes = rndv_chunk(s, a->bytes, a->offset);
        uint8_t *to = rndv_rx_place(a, &lkey) + a->offset;
        if (a->sink)
            lkey = a->sink->mr->lkey;
        l->send_sge[batch->count][0] = (struct ibv_sge){(uintptr_t)to, bytes, lkey};
        struct ibv_send_wr *wr = rndv_wr(l, s, batch, a, 0);
        wr->sg_list = l->send_sge[batch->count - 1];
        wr->num_sge = 1;
        wr->opcode = IBV_WR_RDMA_READ;
        wr->send_flags |= IBV_SEND_SIGNALED;
        wr->wr.rdma.remote_addr = a->address + a->offset;
        wr->wr.rdma.rkey = a->rkey;
        a->offset += bytes;
        a->flying++;
        r->flying++;
        *left -= bytes < *left ? bytes : *left;
    }
    return true;
}

void rndv_rx_whole(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    loop_assert_inside(l);
    a->answer = true;
    is_whole(l, s, a);
    settled(l, s, a, RNDV_RX_HERE);
}

static void close_mw(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                     struct rndv_rx *a) {
    struct ibv_send_wr wr;
    if (!rndv_room(l, s, batch))
        return;
    if (mw_close(l->node, a->mw, &wr)) {
        a->state = RNDV_RX_CLOSING;
        rndv_post_mw(l, s, batch, &wr, a, 0);
    } else {
        a->mw = NULL;
        settled(l, s, a, RNDV_RX_HERE);
    }
}

void rndv_rx_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                   uint32_t *bytes) {
    const struct connection *c = session_connection(s);
    loop_assert_inside(l);
    bool more = true; /* memory and reading: in order */
    for (struct rndv_rx *a = s->rndv->first, *next; a && !rndv_is_over(s, c); a = next) {
        next = a->next;
        if (a->stale) {
            more = false;
            continue;
        }
        if (a->state == RNDV_RX_ASK || a->state == RNDV_RX_ASKED)
            more = false;
        if (a->state == RNDV_RX_WAITS && a->way != RNDV_BY_WRITE && *bytes == 0)
            more = false; /* its memory may be that of a message which is delivered first */
        if (a->state == RNDV_RX_WAITS && more) {
            if (find_memory(l, s, a))
                a->state = a->way == RNDV_BY_WRITE ? RNDV_RX_BEGINS : RNDV_RX_MOVES;
            else if (a->state == RNDV_RX_WAITS)
                more = false;
        }
        if (a->state == RNDV_RX_BEGINS && more)
            more = wipe(l, s, a, bytes) && send_rtr(l, s, batch, a);
        if (a->state == RNDV_RX_MOVES && a->way == RNDV_BY_READ && more)
            more = read_some(l, s, batch, a, bytes);
        if (a->state == RNDV_RX_MOVES && a->way == RNDV_BY_COPY && more)
            more = rndv_copy_some(l, s, batch, a, bytes);
        if (a->state == RNDV_RX_CLOSES)
            close_mw(l, s, batch, a);
        if (a->answer)
            rndv_answer(l, s, batch, a);
    }
    if (rndv_is_over(s, c))
        return;
    if (s->rndv->refuse)
        rndv_answer_refused(l, s, batch);
    if (s->rndv->taken)
        rndv_answer_flush(l, s, batch);
}

void rndv_rx_completed(struct sluice_loop *l, struct session *s, struct rndv_rx *a,
                       sluice_status status) {
    loop_assert_inside(l);
    bool reading = a->state == RNDV_RX_MOVES;
    if (reading) {
        a->flying--;
        s->rndv->flying--;
    }
    if (status != SLUICE_OK)
        return; /* the session ends: rndv_rx_end() */
    if (!reading) {
        a->mw = NULL;
        settled(l, s, a, RNDV_RX_HERE);
    } else if (a->flying == 0 && a->offset == a->bytes) {
        if (a->sink)
            close_sink(l, a); /* before the application reads what arrived */
        rndv_rx_whole(l, s, a);
    }
    rndv_dirty(l, s);
}

/* ---- without a connection ---------------------------------------------------------------------- */

void rndv_rx_lost(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    for (unsigned i = 0; i < RNDV_NUMBERS; i++)
        mw_free(l->node, &r->mws[i]);
    r->stale = 0;
    for (struct rndv_rx *a = r->first; a; a = a->next) {
        a->mw = a->sink = NULL;
        a->flying = 0;
        a->stale = a->numbered;
        r->stale += a->stale;
        switch ((enum rndv_rx_state)a->state) {
        case RNDV_RX_BEGINS:
        case RNDV_RX_MOVES: /* its memory is kept */
            a->offset = 0;
            a->state = RNDV_RX_WAITS;
            break;
        case RNDV_RX_CLOSES: /* all of it was written */
        case RNDV_RX_CLOSING:
            settled(l, s, a, RNDV_RX_HERE);
            break;
        case RNDV_RX_ASK:
        case RNDV_RX_ASKED:
        case RNDV_RX_WAITS:
        case RNDV_RX_HERE:
        case RNDV_RX_REFUSED:
        case RNDV_RX_FAILED:
        case RNDV_RX_DONE:
        case RNDV_RX_FREE:
            break;
        }
    }
    r->flying = r->ready = 0;
    r->taken = r->refuse = 0; /* the sender asks again for all that it was not told of */
    r->in_kind = false;
}

/* ---- the end --------------------------------------------------------------------------------- */

void rndv_rx_end(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    for (unsigned i = 0; i < RNDV_NUMBERS; i++)
        mw_free(l->node, &r->mws[i]); /* before the memory is used for anything else */
    for (struct rndv_rx *a = r->first; a; a = a->next) {
        a->mw = a->sink = NULL;
        a->answer = false;
        switch ((enum rndv_rx_state)a->state) {
        case RNDV_RX_ASK:
        case RNDV_RX_ASKED:
        case RNDV_RX_WAITS:
        case RNDV_RX_BEGINS:
        case RNDV_RX_MOVES:
            rndv_rx_detach(l, s, a);
            a->state = RNDV_RX_FAILED;
            break;
        case RNDV_RX_CLOSES: /* all of it was written */
        case RNDV_RX_CLOSING:
            a->state = RNDV_RX_HERE;
            break;
        case RNDV_RX_HERE:
        case RNDV_RX_REFUSED:
        case RNDV_RX_FAILED:
        case RNDV_RX_DONE:
        case RNDV_RX_FREE:
            break;
        }
    }
    s->rndv->taken = 0;
    s->rx.held_pending = false;
    if (s->rx.held.head && s->announced)
        event_notice(l, s, NOTICE_HELD);
}

void rndv_rx_drop(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    for (struct rndv_rx *a = s->rndv->first; a; a = a->next)
        rndv_rx_detach(l, s, a);
}
