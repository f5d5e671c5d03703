/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * landing.c - memory for messages that arrive in parts: which sessions get it, and for how long.
 *
 * Which sessions. The sessions of a node share the reserve, and the peer decides how long a message takes.
 * So a session that has a landing gets another one only while no more than half of it is held; the rest is for
 * those that have none. Sessions are cheap, so those of one peer (a host; on the software device a process of our user, or
 * another user) have five eighths of it together, and all peers seven: the last is for the receives of new sessions. A
 * message that is larger than such a share finds memory where an eighth or less is held.
 *
 * What is held. A message counts as its peer's until its memory is free: not whole, kept by the application, or sent on and
 * not taken. Else a peer would have as much as it likes, by messages that come back to it and that it does not take.
 *
 * Short messages. What is received in a buffer of the queue is bounded by credits, but sent on it leaves the queue, and another
 * takes its place. So from then on it counts as well; but as each message would pay for that, only where the reserve has
 * grown beyond a quarter. What was not counted is in that quarter.
 *
 * In which order. That of the line, so that the first in line never waits for memory its session holds for later ones.
 *
 * How long. A peer whose message is not whole in the time that it takes at the least rate loses its session, when
 * and only when another session that holds nothing is without memory for that: an honest peer on a slow path does no
 * harm while no session waits, nor while the other one waits for what its own peer holds. A part that comes now and then
 * gains no time.
 *
 * Owner: the loop's thread; the sums of the node and of a peer are shared by all loops (atomics), and by whichever thread
 * returns a buffer: landing_returned().
 */
#include <errno.h>
#include <string.h>

#include "datapath/rx/landing.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/rndv.h"
#include "datapath/loop/upward.h"
#include "pool/arena.h"
#include "fabric/fast.h"

#define STILL_NS 10000000000ull /* for a message, since the one before it was whole */
#define BYTE_NS 1000u           /* and this for each byte of it: 1 MB/s */
#define LOOK_NS 250000000ull    /* between two looks from then on */
#define WANTED_NS 2000000000ull /* a session that waited so lately still waits */

struct sluice_msg *landing_get(struct sluice_loop *l, uint64_t bytes) {
    loop_assert_inside(l);
    errno = 0;
    struct sluice_msg *msg = message_of(pool_get(l->rx_pool, l->rx_cache, bytes));
    if (!msg && errno == EMSGSIZE) /* larger than the reserve will ever be */
        msg = message_of(pool_get(l->pool, l->cache, bytes));
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
    const struct connection *c = session_connection(s);
    if (c->rx.granted < 2 && c->credits.retained > 0)
        return 0; /* nor is it while the application keeps its credits */
    if (s->rx.partial && !s->rx.held.head)
        return s->rx.partial->size;
    return rndv_owed(s);
}

static bool is_wanted(const _Atomic uint64_t *wanted_ns, uint64_t now) {
    uint64_t last = atomic_load_explicit(wanted_ns, memory_order_relaxed);
    return last != 0 && now < last + WANTED_NS;
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
    bool wanted = is_wanted(&l->node->landing_wanted_ns, l->now_ns) ||
                  is_wanted(&s->landing.peer->wanted_ns, l->now_ns);
    bool away = l->now_ns - due > 2 * LOOK_NS; /* this loop: what came may lie in its queue */
    if (!away && wanted) {
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
    rndv_memory_found(l, s);
}

bool landing_may(const struct sluice_loop *l, uint64_t bytes) {
    uint64_t all = atomic_load_explicit(&l->node->landing_bytes, memory_order_relaxed);
    uint64_t half = l->node->options.receive_bytes_max / 2;
    return bytes <= half && all <= half - bytes;
}

/* NULL: there is no memory to count in. */
static struct landing_peer *peer_of(struct sluice_loop *l, struct session *s) {
    if (!s->landing.peer) {
        /* Fragments that were held may be put together when the queue pair is gone. */
        struct ibv_qp *qp = session_connection(s)->qp;
        uint64_t number = qp ? fabric_peer_number(l->node->fabric, qp) : 0;
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

/* Of what so many eighths are for. */
static bool fits(uint64_t held, uint64_t bytes, uint64_t eighth, unsigned share) {
    uint64_t most = eighth * share;
    return bytes <= most ? held <= most - bytes : held <= eighth;
}

/* NULL: this peer may hold so many more; else the mark of those that have what it waits for. */
static _Atomic uint64_t *lacking(const struct sluice_loop *l, struct landing_peer *peer,
                                 uint64_t bytes) {
    const struct node_options *o = &l->node->options;
    uint64_t all = atomic_load_explicit(&l->node->landing_bytes, memory_order_relaxed);
    uint64_t its = atomic_load_explicit(&peer->bytes, memory_order_relaxed);
    if (bytes > o->receive_bytes_max) { /* of the memory for sending, or refused: landing_get() */
        uint64_t sending = o->memory_bytes_max - o->receive_bytes_max;
        return bytes > sending || fits(its, bytes, sending / 8, 5) ? NULL : &peer->wanted_ns;
    }
    if (!fits(its, bytes, o->receive_bytes_max / 8, 5))
        return &peer->wanted_ns;
    return fits(all, bytes, o->receive_bytes_max / 8, 7) ? NULL : &l->node->landing_wanted_ns;
}

static bool of_reserve(const sluice_node *n, const struct pool_buffer *buffer) {
    return buffer->pool == n->rx_pool;
}

/* As what it counts: its buffer; but a mapping of its own without the page that the headroom may take. */
static uint64_t bytes_of(const struct pool_buffer *buffer) {
    uint64_t bytes = buffer->capacity;
    return buffer->size_class < POOL_CLASSES ? bytes : bytes - bytes % POOL_PAGE;
}

/* From now on it counts, until landing_returned(). The peer's sum is never less than its part of the node's. */
static void charge(sluice_node *n, struct landing_peer *peer, struct sluice_msg *msg) {
    atomic_fetch_add_explicit(&peer->bytes, bytes_of(buffer_of(msg)), memory_order_relaxed);
    if (of_reserve(n, buffer_of(msg)))
        atomic_fetch_add_explicit(&n->landing_bytes, bytes_of(buffer_of(msg)),
                                  memory_order_relaxed);
    pool_charge(buffer_of(msg), peer->account);
}

/* Release: the peer may be over with its last one. */
void landing_returned(const struct pool_buffer *buffer, uint16_t account, void *node) {
    sluice_node *n = node;
    struct landing_peer *peer = landing_peer_at(&n->landing_peers, account);
    if (of_reserve(n, buffer))
        atomic_fetch_sub_explicit(&n->landing_bytes, bytes_of(buffer), memory_order_relaxed);
    atomic_fetch_sub_explicit(&peer->bytes, bytes_of(buffer), memory_order_release);
}

/* ---- short messages that are sent on ----------------------------------------------------------- */

void landing_meet(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    (void)peer_of(l, s);
}

static bool is_passed_for_nothing(const struct session *s, const struct sluice_msg *msg) {
    const sluice_node *n = s->node;
    return (msg->cache & POOL_CHARGED) || !of_reserve(n, buffer_of(msg)) ||
           pool_bytes(n->rx_pool) <= n->options.receive_bytes_max / 4;
}

bool landing_may_pass(const struct session *s, const struct sluice_msg *msg) {
    const struct landing_peer *peer = s->landing.peer;
    return is_passed_for_nothing(s, msg) ||
           (peer && fits(atomic_load_explicit(&peer->bytes, memory_order_relaxed),
                         bytes_of(buffer_of(msg)), s->node->options.receive_bytes_max / 8, 5));
}

void landing_passed(struct session *s, struct sluice_msg *msg) {
    if (s->landing.peer && !is_passed_for_nothing(s, msg))
        charge(s->node, s->landing.peer, msg);
}

/* ---- large messages ------------------------------------------------------------------------------ */

void landing_done(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    loop_assert_inside(l);
    s->landing.bytes -= bytes;
    s->landing.ns = l->now_ns;
}

struct sluice_msg *landing_passing(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    loop_assert_inside(l);
    struct landing_peer *peer = s->landing.bytes == 0 ? peer_of(l, s) : NULL;
    struct sluice_msg *msg = peer && !lacking(l, peer, bytes) ? landing_get(l, bytes) : NULL;
    if (msg)
        charge(l->node, peer, msg);
    return msg;
}

struct sluice_msg *landing_for(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    loop_assert_inside(l);
    struct landing_peer *peer = peer_of(l, s);
    _Atomic uint64_t *wanted_ns = peer ? lacking(l, peer, bytes) : &l->node->landing_wanted_ns;
    struct sluice_msg *msg = NULL;
    errno = EAGAIN;
    if (!wanted_ns) {
        msg = landing_get(l, bytes);
        wanted_ns = &l->node->landing_wanted_ns;
    }
    if (msg) {
        charge(l->node, peer, msg);
        if (s->landing.bytes == 0) {
            s->landing.ns = loop_clock(l);
            loop_deadline(l, s->landing.ns + STILL_NS);
        }
        s->landing.bytes += bytes;
    } else if (errno != EMSGSIZE && s->landing.bytes == 0) {
        atomic_store_explicit(wanted_ns, loop_clock(l), memory_order_relaxed);
    }
    return msg;
}
