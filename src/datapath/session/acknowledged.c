/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * acknowledged.c - the end of frames that are kept until the peer has acknowledged them (tx/unacked.c).
 *
 * An entry of the send queue that is no numbered frame ends when it completes, whatever waits before it, and what is left of it
 * is empty (where READs confirm what arrived, behind one of those: confirm.c). A numbered one ends in order, when the device is done
 * with its memory and the number was acknowledged: one that was framed need not have completed, which one of many does. The place of
 * an entry is free once it has, and all before it have ended.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/acknowledged.h"

#include "core/context.h"
#include "datapath/loop/upward.h"
#include "datapath/rx/acks.h"
#include "datapath/session/close.h"
#include "datapath/session/fence.h"
#include "datapath/session/move.h"
#include "datapath/session/replay.h"
#include "datapath/session/send_completion.h"
#include "datapath/tx/confirm.h"
#include "datapath/tx/send.h"
#include "datapath/tx/unacked.h"

static struct sq_entry *entry_at(const struct connection *c, uint32_t at) {
    return &c->sq.entries[at & c->sq.mask];
}

void acknowledged_end(struct sluice_loop *l, struct connection *c, struct sq_entry *entry,
                      sluice_status status) {
    struct sq_entry ended = *entry;
    loop_assert_inside(l);
    *entry = (struct sq_entry){0};
    ended.bytes &= ~SQ_NUMBERED;
    send_retire(l, c, &ended, status);
}

/* It completed; a numbered frame stays, and so does an operation that may have been done or not: fence.c. */
static void complete(struct sluice_loop *l, struct connection *c, uint32_t at,
                     sluice_status status) {
    struct sq_entry *entry = entry_at(c, at);
    if (entry->bytes & SQ_NUMBERED)
        return;
    if (status != SLUICE_OK && fence_is_operation(entry)) {
        if (status == SLUICE_EUNKNOWN)
            return;
        fence_failed(c, at);
    }
    acknowledged_end(l, c, entry, status);
}

/* Those before `at`, and not before the head, that a READ is behind: it is back, or never will be. */
static void prove(struct sluice_loop *l, struct connection *c, uint32_t at, sluice_status status) {
    for (uint32_t i = c->unacked.proved; (int32_t)(at - i) > 0; i++)
        if (entry_at(c, i)->bytes & SQ_BEHIND)
            complete(l, c, i, status);
    c->unacked.proved = at;
}

/* A numbered frame: whether the device reads its memory no more. */
static bool is_read(const struct connection *c, uint32_t at) {
    const uint64_t framed = SQ_FRAMED | (uint64_t)SQ_WHAT_MASK << SQ_WHAT_SHIFT;
    return (int32_t)(at - c->unacked.done) < 0 || (entry_at(c, at)->bytes & framed) == SQ_FRAMED;
}

/* Ends numbered frames, in order, as far as the peer has them. */
static void end_acked(struct sluice_loop *l, struct connection *c) {
    struct unacked *u = &c->unacked;
    if ((int32_t)(u->ended - c->sq.head) < 0)
        u->ended = c->sq.head; /* others were given up */
    for (; u->ended != c->sq.tail; u->ended++) {
        struct sq_entry *entry = entry_at(c, u->ended);
        if (!(entry->bytes & SQ_NUMBERED))
            continue; /* when it completes */
        if ((int32_t)(c->tx.acked - u->next) < 0 || !is_read(c, u->ended))
            return;
        u->next++;
        u->had = u->ended + 1;
        acknowledged_end(l, c, entry, SLUICE_OK);
    }
}

/* And frees places. */
static void release(struct sluice_loop *l, struct connection *c) {
    struct unacked *u = &c->unacked;
    if ((int32_t)(c->tx.acked - u->asked) > 0)
        u->asked = c->tx.acked;
    end_acked(l, c);
    while (c->sq.head != u->done && c->sq.head != u->ended &&
           !(entry_at(c, c->sq.head)->bytes & SQ_BEHIND) &&
           !fence_is_operation(entry_at(c, c->sq.head)))
        c->sq.head++;
    if ((int32_t)(u->proved - c->sq.head) < 0)
        u->proved = c->sq.head; /* what has ended waits for no READ */
}

void acknowledged_completed(struct sluice_loop *l, struct connection *c, const struct ibv_wc *wc,
                            uint32_t at, sluice_status status) {
    struct unacked *u = &c->unacked;
    loop_assert_inside(l);
    bool failed = wc->status != IBV_WC_SUCCESS;
    if ((int32_t)(at - u->done) < 0)
        return; /* a device that says it twice */
    for (uint32_t i = u->done; i != at; i++)
        if (!(entry_at(c, i)->bytes & SQ_BEHIND))
            complete(l, c, i, failed && c->confirm.on ? SLUICE_EUNKNOWN : SLUICE_OK);
    u->done = at + 1;
    if (failed)
        prove(l, c, at, SLUICE_EUNKNOWN);
    if (failed || !(entry_at(c, at)->bytes & SQ_BEHIND))
        complete(l, c, at, status);
    if (!c->confirm.on)
        u->proved = at + 1; /* nothing is behind a READ */
    else if (failed || wc->opcode == IBV_WC_RDMA_READ)
        prove(l, c, at + 1, status);
    release(l, c);
    if (unlikely(c->sq.limit == 0) && !failed && session_connection(c->session) == c)
        move_completed(l, c->session);
    if (c->confirm.on && session_connection(c->session) == c)
        confirm_again(l, c->session);
}

void acknowledged_flush(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint32_t head = c->sq.head;
    release(l, c);
    if (unlikely(c->sq.limit == 0))
        replay_flush(l, s);
    if (c->sq.head != head) {
        if (s->window.waits_writable)
            send_check_writable(l, s);
        if (c->confirm.on)
            confirm_again(l, s); /* there is room for it */
    }
    send_flush(l, s);
    acks_flush(l, c);
    if (unlikely(s->move.step != MOVE_NONE || s->move.guest || s->move.asks || s->move.tells))
        move_progress(l, s);
    c = session_connection(s);
    s->plain_rx =
        connection_keeps(c) && !c->confirm.on && c->sq.limit > 0 && session_receives_plain(s)
            ? SESSION_RX_ACKS
            : SESSION_RX_ANY;
}

void acknowledged_others(struct sluice_loop *l, struct connection *c, sluice_status status) {
    loop_assert_inside(l);
    for (uint32_t i = c->sq.head; i != c->sq.tail; i++)
        complete(l, c, i, status);
}

void acknowledged_last(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    struct unacked *u = &c->unacked;
    if (!connection_keeps(c))
        return;
    for (uint32_t i = c->sq.head; i != c->sq.tail; i++) {
        struct sq_entry *entry = entry_at(c, i);
        if (!(entry->bytes & SQ_NUMBERED))
            continue;
        if ((int32_t)(c->tx.acked - u->next) < 0)
            break;
        u->next++;
        u->had = i + 1;
        acknowledged_end(l, c, entry, SLUICE_OK);
    }
    u->done = c->sq.tail; /* as the caller ends the rest */
}
