/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * landing.c - memory for messages that arrive in parts: which sessions get it, and for how long.
 *
 * Which sessions. The sessions of a node share the reserve, and the peer decides how long a message takes.
 * So a session that has a landing gets another one only while all that wait for their peers hold no
 * more than half of it; the rest is for those that have none. Sessions are cheap, so those of one peer (a host; on the
 * software device a process of our user, or another user) have five eighths of it together, and all peers seven: the
 * last is for the receives of new sessions. A message that is larger than such a share finds memory where nothing else
 * is held.
 *
 * In which order. That of the line, so that the first in line never waits for memory its session holds for later ones.
 *
 * How long. A peer whose message is not whole in the time that it takes at the least rate loses its session, when
 * and only when another session that holds nothing is without memory for that: an honest peer on a slow path does no
 * harm while no session waits. A part that comes now and then gains no time.
 *
 * Owner: the loop's thread; the node's sums are shared by all loops (atomics).
 */
#include <errno.h>
#include <string.h>

#include "datapath/rndv/landing.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/internal.h"
#include "datapath/session/close.h"

#define STILL_NS 10000000000ull /* for a message, since the one before it was whole */
#define BYTE_NS 1000u           /* and this for each byte of it: 1 MB/s */
#define LOOK_NS 250000000ull    /* between two looks from then on */
#define WANTED_NS 2000000000ull /* a session that waited so lately still waits */

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

/* The message its peer is to go on with, in bytes; 0: none, or it is not the peer's turn. */
static uint64_t owed(const struct session *s) {
    const struct rndv_rx *a = s->rndv ? s->rndv->first : NULL;
    if (s->connection.rx.granted < 2 && s->connection.credits.retained > 0)
        return 0; /* nor is it while the application keeps its credits */
    if (s->rx.partial && !s->rx.held.head)
        return s->rx.partial->size;
    while (a && a->state == RNDV_RX_DONE)
        a = a->next;
    if (a &&
        (a->state == RNDV_RX_MOVES || (a->state == RNDV_RX_BEGINS && s->connection.tx.credits < 2)))
        return a->bytes;
    return 0;
}

/* The peer's time for the next one begins; but while the first one is not whole, other messages gain it none. */
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

/* ---- which sessions -------------------------------------------------------------------------- */

void landing_missed(struct sluice_loop *l) {
    loop_assert_inside(l);
    atomic_store_explicit(&l->node->landing_wanted_ns, loop_clock(l), memory_order_relaxed);
}

void landing_found(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    s->landing.found++;
    if (s->rndv)
        rndv_dirty(l, s);
}

bool landing_may(const struct sluice_loop *l, uint64_t bytes) {
    uint64_t all = atomic_load_explicit(&l->node->landing_bytes, memory_order_relaxed);
    uint64_t half = l->node->options.receive_bytes_max / 2;
    return bytes <= half && all <= half - bytes;
}

/* NULL: there is no memory to count in. */
static struct landing_peer *peer_of(struct sluice_loop *l, struct session *s) {
    const struct fabric_ops *fabric = l->node->fabric;
    if (!s->landing.peer) {
        /* Fragments that were held may be put together when the queue pair is gone. */
        bool ask = fabric->peer_number && s->connection.qp;
        uint64_t number = ask ? fabric->peer_number(s->connection.qp) : 0;
        s->landing.peer = landing_peer_get(&l->node->landing_peers, number, s->peer.address);
    }
    return s->landing.peer;
}

void landing_forget(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->landing.peer)
        landing_peer_put(&l->node->landing_peers, s->landing.peer);
    s->landing.peer = NULL;
}

static bool fits(uint64_t held, uint64_t bytes, uint64_t eighths, unsigned share) {
    return held == 0 || (bytes <= eighths * share && held <= eighths * share - bytes);
}

static bool peer_may(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    uint64_t eighths = l->node->options.receive_bytes_max / 8;
    uint64_t all = atomic_load_explicit(&l->node->landing_bytes, memory_order_relaxed);
    const struct landing_peer *peer = peer_of(l, s);
    if (peer && bytes > l->node->options.receive_bytes_max)
        return true; /* not of the reserve, if at all: landing_get() */
    return peer && fits(all, bytes, eighths, 7) &&
           fits(atomic_load_explicit(&peer->bytes, memory_order_relaxed), bytes, eighths, 5);
}

static void hold(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    atomic_fetch_add_explicit(&l->node->landing_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->landing.peer->bytes, bytes, memory_order_relaxed);
    if (s->landing.bytes == 0) {
        s->landing.ns = loop_clock(l);
        loop_deadline(l, s->landing.ns + STILL_NS);
    }
    s->landing.bytes += bytes;
}

void landing_done(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    loop_assert_inside(l);
    atomic_fetch_sub_explicit(&l->node->landing_bytes, bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&s->landing.peer->bytes, bytes, memory_order_relaxed);
    s->landing.bytes -= bytes;
    s->landing.ns = l->now_ns;
}

struct sluice_msg *landing_passing(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    loop_assert_inside(l);
    return s->landing.bytes == 0 && peer_may(l, s, bytes) ? landing_get(l, bytes) : NULL;
}

struct sluice_msg *landing_for(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    loop_assert_inside(l);
    struct sluice_msg *msg = NULL;
    errno = EAGAIN;
    if (peer_may(l, s, bytes))
        msg = landing_get(l, bytes);
    if (msg)
        hold(l, s, bytes);
    else if (errno != EMSGSIZE && s->landing.bytes == 0)
        landing_missed(l);
    return msg;
}
