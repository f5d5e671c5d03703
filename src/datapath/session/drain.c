/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * drain.c - the last of a queue pair: into ERR, its completions back, destroyed.
 *
 * Flushed work requests give buffers and messages back. Where receives are shared, the device reports when the
 * queue pair takes no more of them. A device that does not flush is not waited for for ever.
 *
 * Where a device is silent in ERR, WRs posted there never complete, and WRs posted before may complete
 * late when the queue pair fell by itself. So the queue pair is destroyed first: the device is done with its
 * buffers then, all that it will ever tell is in the CQ, which keeps it, and one poll that finds the CQ empty
 * ends it.
 *
 * A queue pair that a try of a dial has used up goes the same way while its session opens (renewing).
 *
 * Owner: the loop's thread.
 */
#include <stdlib.h>

#include "datapath/session/drain.h"
#include "common/uncancelled.h"
#include "core/wire/frame.h"
#include "datapath/session/close.h"
#include "datapath/session/down.h"
#include "datapath/session/guest.h"
#include "datapath/session/replay.h"
#include "datapath/tx/post.h"
#include "core/connection_table.h"
#include "core/context.h"
#include "datapath/loop/cq_share.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rpc/client.h"
#include "datapath/rx/acks.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/retain.h"
#include "datapath/rx/srq.h"
#include "datapath/session/open.h"
#include "datapath/session/queue_pair.h"
#include "datapath/session/send_completion.h"
#include "datapath/tx/unacked.h"

#define DRAIN_EXTENSIONS 10u /* of DRAIN_NS, while completions come */

/* A farewell that waits behind a large message of which the rest will not come. */
bool drain_said_bye(const struct session *s) {
    for (const struct sluice_msg *msg = s->rx.held.head; msg; msg = msg->next)
        if (msg->frame_type == FRAME_BYE)
            return true;
    return false;
}

/* Destroyed, or left to the connector thread that is still in rdma_connect() with it (cm/connector.c). */
static void detach_qp(struct sluice_loop *l, struct connection *c) {
    struct cm_conn *conn = &c->cm;
    int error = 0;
    if (conn->qp_left && !conn->left_qp)
        conn->left_qp = c->qp;
    else
        error = l->node->fabric->destroy_qp(c->qp);
    if (error != 0)
        log_write(&l->node->log, SLUICE_LOG_ERROR, "a queue pair cannot be destroyed: errno %d",
                  error);
    c->qp = c->recv.own.qp = NULL;
    c->drain.ended = true;
}

static void release_qp(struct sluice_loop *l, struct connection *c) {
    if (c->rx.queue->srq) {
        srq_leave(l, c, c->drain.settled);
    } else {
        srq_unsettle(l, c);
        c->recv.reserved = 0; /* what was set aside for replies went with its own queue */
    }
    if (c->qp)
        detach_qp(l, c);
    c->drain.ended = false;
    recv_queue_unprime(c);
    cq_share_give_back(l, c);
}

static void free_queues(struct connection *c) {
    free(c->sq.entries);
    c->sq.entries = NULL;
    free((void *)c->recv.own.trail);
    c->recv.own.trail = NULL;
}

static void free_headers(struct sluice_loop *l, struct connection *c) {
    if (c->sq.headers && c->sq.headers->pool == l->pool)
        atomic_fetch_sub_explicit(pool_note(l->pool), 1, memory_order_relaxed);
    if (c->sq.headers)
        msg_discard(l, c->sq.headers);
    c->sq.headers = NULL;
}

void drain_free_queues(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    free_queues(c);
    free_headers(l, c);
}

/* HELLO, which waited for the connection to be announced. */
static void free_hello(struct sluice_loop *l, struct connection *c) {
    if (c->hello)
        recv_buffer_put(l, c->hello);
    c->hello = NULL;
    guest_drop(l, c);
}

static void drained(struct sluice_loop *l, struct session *s) {
    UNCANCELLED;
    struct connection *c = session_connection(s);
    if (s->close.reason_provisional && s->close.reason == SLUICE_REASON_PEER_LOST &&
        drain_said_bye(s))
        close_settle(s, SLUICE_REASON_PEER_CLOSE, 0, NULL);
    if (connection_has_qp(c))
        release_qp(l, c);
    session_set_state(s, SESSION_DRAINED);
    uint32_t count = atomic_load_explicit(&l->drained_count, memory_order_relaxed);
    atomic_store_explicit(&l->drained_count, count + 1, memory_order_relaxed);
    c->drain.deadline_ns = 0;
    retain_end(l, s);
    free_hello(l, c);
    send_abandon(l, c, SLUICE_EUNKNOWN);
    replay_drop(l, s, SLUICE_EUNKNOWN);
    send_drop_queue(l, s, SLUICE_ECLOSED);
    rndv_end(l, s);
    rpc_client_end(l, s);
    drain_free_queues(l, c);
    cm_post(l->node, c, CM_MSG_DRAINED);
}

/* The device does not flush: completions of the dying QP that were polled already are forgotten. */
static void forget_completions(struct sluice_loop *l, struct connection *c) {
    for (uint32_t i = l->wc_next; i < l->wc_count; i++) {
        uint64_t id = l->wc[i].wr_id;
        struct sluice_msg *msg = (struct sluice_msg *)(uintptr_t)id;
        bool shared = !(id & 1) && id != 0 && c->rx.queue->srq && (msg->flags & MSG_SHARED) &&
                      l->wc[i].qp_num == c->qp->qp_num;
        if (id == 0 || (id & 1 && wr_send_connection(l->node->connections, id) != c) ||
            (!(id & 1) && msg->owner != c && !shared))
            continue;
        if (shared) {
            srq_stray(l, msg);
        } else if (!(id & 1)) {
            recv_buffer_put(l, msg);
            c->rx.queue->posted--;
        }
        l->wc[i].wr_id = 0;
    }
}

/* As long as the device may take: closing the node does not shorten it, for the device is all that is waited for. */
static void give_time(struct sluice_loop *l, struct connection *c) {
    c->drain.lasts_seen = l->lasts;
    c->drain.deadline_ns = loop_clock(l) + DRAIN_NS;
    loop_deadline(l, c->drain.deadline_ns);
}

static bool is_silent(const struct connection *c) {
    return !c->rx.queue->srq && c->session->node->traits.silent_in_err;
}

/* The device gives nothing back of what was posted, or has no queue pair any more. Frames that are kept stay. */
static void give_sends_up(struct sluice_loop *l, struct connection *c) {
    if (connection_keeps(c) && c->served && c->session->state == SESSION_DOWN)
        c->unacked.done = c->sq.tail;
    else
        send_abandon(l, c, SLUICE_EUNKNOWN);
}

/* The QP into ERR. Its end is known by a marker that completes, or by an empty poll; without sends, by neither. */
static void end_qp(struct sluice_loop *l, struct connection *c) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    bool ended = c->qp && connection_modify(c, &attr, IBV_QP_STATE);
    c->drain.began = true;
    if (is_silent(c)) {
        if (c->qp)
            detach_qp(l, c);
        srq_await(l, c);
    } else if (!c->drain.renewing && !(ended && send_marker(l, c))) {
        give_sends_up(l, c);
    }
    give_time(l, c);
}

void drain_begin(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    c->drain.renewing = true;
    end_qp(l, c);
    drain_progress(l, c);
}

/* One that its session does not send over any more. */
static void retired(struct sluice_loop *l, struct connection *c) {
    if (connection_has_qp(c))
        release_qp(l, c);
    c->drain.deadline_ns = 0;
    c->drain.began = false; /* nothing is left to come back */
    free_hello(l, c);
    struct session *s = c->session;
    bool awaited = s->resume.draining == c;
    bool stays = s->state == SESSION_DOWN && c->served && replay_keep(l, c);
    if (!stays)
        send_abandon(l, c, SLUICE_EUNKNOWN);
    recv_queue_forget(l, c);
    if (!stays)
        drain_free_queues(l, c);
    down_drained(l, c);
    cm_post(l->node, c, CM_MSG_DRAINED);
    if (awaited && s->state == SESSION_DRAINING && !connection_has_qp(session_connection(s)))
        drained(l, s); /* the session has ended, and waited for this */
}

void connection_retire(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    ASSERT(session_connection(c->session) != c);
    if (c->drain.asked)
        return;
    c->drain.asked = true;
    if (!c->served)
        c->handshake = HANDSHAKE_OVER;
    cm_post(l->node, c, CM_MSG_RELEASE);
}

void connection_drain(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    acks_forget(c);
    c->drain.began = true;
    c->drain.renewing = false;
    if (!connection_has_qp(c)) {
        retired(l, c);
        return;
    }
    end_qp(l, c);
    if (c->rx.queue->srq)
        srq_drain(l, c);
    drain_progress(l, c);
}

void session_drain(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    session_set_state(s, SESSION_DRAINING);
    acks_forget(c);
    c->drain.renewing = false;
    for (struct connection *other = c->next; other; other = other->next)
        connection_retire(l, other);
    if (!connection_has_qp(c)) {
        if (!s->resume.draining) /* which may still read what would be given back */
            drained(l, s);
        return;
    }
    end_qp(l, c);
    if (c->rx.queue->srq)
        srq_drain(l, c);
    session_progress(l, s);
}

/* True: the device, which was told to end this queue pair, still has receives of it. */
static bool has_receives(const struct connection *c) {
    return c->rx.queue->srq ? !c->drain.settled : c->rx.queue->posted > 0;
}

static void finish(struct sluice_loop *l, struct connection *c) {
    bool former = session_connection(c->session) != c;
    if (!c->drain.renewing) {
        if (former)
            retired(l, c);
        else
            drained(l, c->session);
        return;
    }
    release_qp(l, c);
    free_queues(c);
    c->drain.renewing = c->drain.began = false;
    c->drain.deadline_ns = 0;
    if (!former) /* else the CM thread's DRAIN comes */
        session_renewed(l, c->session);
}

void drain_progress(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (c->drain.settled && is_silent(c)) {
        give_sends_up(l, c);
        recv_queue_swallowed(l, c);
    }
    if (!has_receives(c) && unacked_done(c) == c->sq.tail)
        finish(l, c);
}

/*
 * The device flushes; this loop, or the CM thread with its news of it, is behind with many of them. The
 * first time in any case: it may be this process that was away.
 */
static bool drain_goes_on(struct sluice_loop *l, struct connection *c) {
    bool moves = l->wc_count > 0 || l->lasts != c->drain.lasts_seen || c->drain.extensions == 0;
    if (!moves || c->drain.extensions++ >= DRAIN_EXTENSIONS)
        return false;
    give_time(l, c);
    return true;
}

static void expired(struct sluice_loop *l, struct connection *c) {
    if (drain_goes_on(l, c))
        return;
    log_write(&l->node->log, SLUICE_LOG_WARNING,
              "the device did not flush a queue pair: %u receives, %u sends outstanding",
              has_receives(c) ? c->recv.own.posted + c->rx.granted : 0, c->sq.tail - c->sq.head);
    forget_completions(l, c);
    recv_queue_swallowed(l, c);
    /* Which buffers the device kept is not known: they are lost until the node closes. A next queue pair has none. */
    c->recv.own.posted = 0;
    finish(l, c);
}

void drain_timer(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (c->drain.deadline_ns == 0)
        return;
    if (l->now_ns >= c->drain.deadline_ns)
        expired(l, c);
    else
        loop_deadline(l, c->drain.deadline_ns);
}
