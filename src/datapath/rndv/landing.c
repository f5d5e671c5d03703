/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * landing.c - memory for messages that arrive in parts: who may have it, and for how long.
 *
 * Who. The sessions of a node share the reserve, and it is the peer that decides how long a message takes.
 * So a session that has a landing gets another one only while all that wait for their peers hold no
 * more than half of it; the rest is for those that have none.
 *
 * How long. A peer whose message is not whole in the time that it takes at the least rate loses its session, when
 * and only when another session that holds nothing is without memory for that: an honest peer on a slow way is no
 * harm while nobody waits. A part that comes now and then gains no time.
 *
 * Owner: the loop's thread; the node's sums are everybody's.
 */
#include <errno.h>

#include "datapath/rndv/landing.h"
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/internal.h"
#include "datapath/session/close.h"

#define STILL_NS 10000000000ull /* for a message, since the one before it was whole */
#define BYTE_NS 1000u           /* and this for each byte of it: 1 MB/s */
#define LOOK_NS 250000000ull    /* between two looks from then on */
#define WANTED_NS 2000000000ull /* who waited so lately waits still */

struct sluice_msg *landing_get(struct sluice_loop *l, uint64_t bytes) {
    loop_assert_inside(l);
    errno = 0;
    struct sluice_msg *msg = pool_get(l->rx_pool, l->rx_cache, bytes);
    if (!msg && errno == EMSGSIZE) /* larger than the reserve will ever be */
        msg = pool_get(l->pool, l->cache, bytes);
    if (msg) {
        msg->state = MSG_RECEIVE;
        msg->tx.tag = 0;
        msg->foreign = false;
    }
    return msg;
}

/* ---- how long -------------------------------------------------------------------------------- */

/* The next one in line finds no memory while later ones of its session have some. */
static bool starves_itself(const struct session *s) {
    const struct sluice_msg *first = s->rx.held.head;
    return first && !s->rx.partial && !s->rx.held_pending && first->frame_type == FRAME_FRAG &&
           (first->rx.frame_flags & FRAME_FIRST) && s->landing.bytes > 0;
}

/* The message its peer is to go on with, in bytes; 0: none, or it is not the peer's turn. */
static uint64_t owed(const struct session *s) {
    const struct rndv_rx *a = s->rndv ? s->rndv->first : NULL;
    if (s->connection.rx.granted < 2 && s->connection.credits.retained > 0)
        return 0; /* nor is it while the application keeps its credits */
    if (s->rx.partial && !s->rx.held.head)
        return s->rx.partial->size;
    if (starves_itself(s))
        return s->rx.held.head->rx.total;
    while (a && a->state == RNDV_RX_DONE)
        a = a->next;
    if (a &&
        (a->state == RNDV_RX_MOVES || (a->state == RNDV_RX_BEGINS && s->connection.tx.credits < 2)))
        return a->bytes;
    return 0;
}

/* Its peer has the time for the next one from now on; but who lets the first one wait gains none by others. */
void landing_whole(struct sluice_loop *l, struct session *s, const struct rndv_rx *whole) {
    loop_assert_inside(l);
    for (const struct rndv_rx *a = s->rndv->first; a != whole; a = a->next)
        if (a->state == RNDV_RX_MOVES || a->state == RNDV_RX_BEGINS)
            return;
    s->landing.ns = l->now_ns;
}

void landing_check(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->landing.bytes == 0 || s->state > SESSION_FLUSHING)
        return;
    uint64_t bytes = owed(s);
    if (bytes == 0)
        s->landing.ns = l->now_ns;
    uint64_t time = STILL_NS + bytes * BYTE_NS, due = s->landing.ns + time;
    if ((int64_t)(l->now_ns - due) < 0) { /* soon after the system's start it may have wrapped */
        loop_deadline(l, due);
        return;
    }
    uint64_t last = atomic_load_explicit(&l->node->landing_wanted_ns, memory_order_relaxed);
    bool away = l->now_ns - due > 2 * LOOK_NS; /* this loop: what came may lie in its queue */
    if (!away && last != 0 && l->now_ns < last + WANTED_NS) {
        session_close(l, s, SLUICE_REASON_PROTOCOL, 0,
                      "a large message that does not go on while others wait for memory");
        return;
    }
    s->landing.ns = l->now_ns + LOOK_NS - time;
    loop_deadline(l, l->now_ns + LOOK_NS);
}

/* ---- who ------------------------------------------------------------------------------------- */

static void wanted(struct sluice_loop *l, const struct session *s) {
    if (s->landing.bytes == 0)
        atomic_store_explicit(&l->node->landing_wanted_ns, loop_clock(l), memory_order_relaxed);
}

bool landing_may(const struct sluice_loop *l, uint64_t bytes) {
    uint64_t all = atomic_load_explicit(&l->node->landing_bytes, memory_order_relaxed);
    uint64_t half = l->node->options.receive_bytes_max / 2;
    return bytes <= half && all <= half - bytes;
}

static void hold(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    atomic_fetch_add_explicit(&l->node->landing_bytes, bytes, memory_order_relaxed);
    if (s->landing.bytes == 0) {
        s->landing.ns = loop_clock(l);
        loop_deadline(l, s->landing.ns + STILL_NS);
    }
    s->landing.bytes += bytes;
}

void landing_done(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    loop_assert_inside(l);
    atomic_fetch_sub_explicit(&l->node->landing_bytes, bytes, memory_order_relaxed);
    s->landing.bytes -= bytes;
    s->landing.ns = l->now_ns;
}

struct sluice_msg *landing_for(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    loop_assert_inside(l);
    struct sluice_msg *msg = landing_get(l, bytes);
    if (msg)
        hold(l, s, bytes);
    else if (errno != EMSGSIZE)
        wanted(l, s);
    return msg;
}
