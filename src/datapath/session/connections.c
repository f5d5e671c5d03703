/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connections.c - the connections of a session: one is made, comes up, takes the session over, and is retired.
 *
 * A session begins with one, and has no other for most of its life. With another one that session goes on: what is sent from then
 * on goes over it, and only it posts receives of its own again. What arrives over the earlier one is delivered, what was sent over
 * it completes; the session may go back to it. It is retired when that is over, or when it breaks: drained by itself (drain.c),
 * and freed when no frame speaks of it that is held or lent.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/connections.h"

#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/techniques.h"
#include "datapath/loop/cq_share.h"
#include "datapath/loop/loop.h"
#include "datapath/rma/one_sided.h"
#include "datapath/rx/landing.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rpc/client.h"
#include "datapath/rx/credits.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"
#include "datapath/session/drain.h"
#include "datapath/session/keepalive.h"
#include "datapath/session/queue_pair.h"
#include "datapath/tx/confirm.h"
#include "datapath/tx/unacked.h"
#include "datapath/tx/post.h"
#include "fabric/fast.h"

#define SIGNAL_EVERY 16u

/* ---- making ------------------------------------------------------------------------------------ */

static struct ibv_qp *create_qp(struct sluice_loop *l, struct connection *c) {
    struct ibv_qp_init_attr init = {
        .qp_context = c,
        .send_cq = l->cq,
        .recv_cq = l->cq,
        .srq = c->rx.queue->srq,
        .cap = {.max_send_wr = c->sq.depth,
                .max_recv_wr = c->rx.queue->srq ? 0 : c->rx.queue->depth,
                .max_send_sge = c->sq.sges,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = queue_pair_create(l->node, &init, &c->extended);
    if (qp) {
        c->sq.inline_max = init.cap.max_inline_data;
        if (init.cap.max_send_sge < c->sq.sges)
            c->sq.sges = init.cap.max_send_sge;
    }
    return qp;
}

/*
 * Shared receives, unless there are none, or the link forbids it: a peer that has not proven its identity
 * yet must not be able to take the receives of other sessions.
 */
static void choose_receives(struct sluice_loop *l, struct connection *c) {
    struct session *s = c->session;
    const struct link_config *link = &s->link_config;
    bool stranger = c->cm.passive && link->keys;
    struct recv_queue *shared = &l->srq.queue;
    c->rx.queue = &c->recv.own;
    if (shared->srq && !stranger && !(link->flags & SLUICE_ISOLATED) && srq_takes_another(l))
        c->rx.queue = shared;
    c->credits.granted = 0;
    c->rx.repost_batch = 1;
    pthread_mutex_lock(&s->node->lock);
    s->info.shared = c->rx.queue == shared;
    pthread_mutex_unlock(&s->node->lock);
}

/* The queue pair, and what is kept here of its work requests. The share of the CQ says how large they are. */
static const char *make_queues(struct sluice_loop *l, struct connection *c, sluice_reason *reason) {
    c->sq.sges = queue_pair_sges(l->node);
    c->sq.mask = (uint16_t)(c->sq.depth - 1);
    c->sq.limit = c->sq.depth - SQ_RESERVE;
    c->sq.quick = (uint16_t)c->sq.limit;
    c->sq.follow = c->sq.blocked = 0; /* of an earlier try */
    c->confirm = (struct confirm){0};
    if (l->node->traits.sent_is_local)
        confirm_init(c);
    c->sq.entries = calloc(c->sq.depth, sizeof *c->sq.entries);
    *reason = SLUICE_REASON_NO_MEMORY;
    if (!c->sq.entries)
        return "out of memory";
    if (!c->rx.queue->srq && l->node->traits.silent_in_err) {
        c->recv.own.trail =
            (struct sluice_msg **)calloc(c->recv.own.depth, sizeof *c->recv.own.trail);
        if (!c->recv.own.trail)
            return "out of memory";
    }
    *reason = SLUICE_REASON_DEVICE_ERROR;
    c->qp = create_qp(l, c);
    if (!c->qp)
        return "the device cannot create another queue pair";
    c->recv.own.qp = c->qp;
    return NULL;
}

const char *connection_build(struct sluice_loop *l, struct connection *c, sluice_reason *reason) {
    choose_receives(l, c);
    *reason = SLUICE_REASON_BUSY;
    if (!cq_share_take(l, c, c->rx.queue == &c->recv.own))
        return "the completion queue of the loop has no room for another connection";
    const char *wrong = make_queues(l, c, reason);
    if (wrong) {
        cq_share_give_back(l, c);
        return wrong;
    }
    *reason = SLUICE_REASON_DEVICE_ERROR;
    if (!connection_modify(c, &c->cm.init, c->cm.init_mask))
        return "the queue pair cannot be moved to INIT";
    errno = ENOMEM; /* of what is not the device's */
    if (c->rx.queue->srq && !srq_join(l, c))
        return "too many queue pairs share receives";
    if (!recv_queue_prime(l, c)) {
        landing_missed(l);
        *reason = SLUICE_REASON_NO_MEMORY;
        return "no registered memory for the receive buffers";
    }
    return NULL;
}

/* ---- up ---------------------------------------------------------------------------------------- */

/* One send in so many is signalled: so often that a window that is full always has a signalled send in it. */
static uint16_t signal_every(const struct connection *c) {
    const struct session_window *window = &c->session->window;
    uint64_t inline_max = c->sq.inline_max ? c->sq.inline_max : 1;
    uint64_t every = SIGNAL_EVERY;
    every = every < c->sq.depth / 4 ? every : c->sq.depth / 4;
    every = every < window->messages / 4 ? every : window->messages / 4;
    every = every < window->bytes / 4 / inline_max ? every : window->bytes / 4 / inline_max;
    if ((c->session->node->options.without & WITHOUT_SIGNALLING) ||
        c->session->node->traits.sends_in_place)
        every = 1; /* no completion stands for another's memory */
    return every ? (uint16_t)every : 1;
}

void connection_agree(struct connection *c) {
    c->rx.payload_max = c->session->tx.frame_payload;
    c->tx.credits = CREDITS_INITIAL;
    c->tx.reserve = CREDIT_RESERVE;
    c->tx.credits_max = c->cm.passive ? c->cm.req.credits : c->cm.rep.credits;
    c->sq.signal_every = signal_every(c);
}

/*
 * The rights of the peer through this queue pair, given a key: rdma_cm's own answer is from before it
 * knew of READs.
 */
static unsigned remote_rights(const struct connection *c) {
    unsigned rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (c->session->node->device_attr.atomic_cap != IBV_ATOMIC_NONE)
        rights |= IBV_ACCESS_REMOTE_ATOMIC;
    return rights;
}

/* Both sides keep what they send until the other has it. */
static bool resumes(const struct connection *c) {
    const uint32_t both = PRIVATE_DATA_FEATURE_RESUME | PRIVATE_DATA_FEATURE_PIECES;
    return (c->cm.rep.features & both) == both;
}

/* And large messages are announced again. */
static bool says_again(const struct connection *c) {
    const uint32_t both = PRIVATE_DATA_FEATURE_AGAIN | PRIVATE_DATA_FEATURE_ANSWERS;
    return resumes(c) && (c->cm.rep.features & both) == both;
}

/* Which operations one of the two devices does not have. */
static void settle_operations(struct connection *c) {
    struct session *s = c->session;
    unsigned lacks = fabric_peer_lacks(s->node->fabric, c->qp);
    if (s->node->traits.no_immediate)
        lacks |= FABRIC_LACKS_IMMEDIATE;
    if (s->node->device_attr.atomic_cap == IBV_ATOMIC_NONE)
        lacks |= FABRIC_LACKS_ATOMICS;
    c->lacks = (uint8_t)lacks;
    if ((lacks & FABRIC_LACKS_ARRIVAL) && !c->confirm.on)
        confirm_init(c); /* nothing was posted yet */
    if (resumes(c))
        unacked_begin(c);
    if (s->state == SESSION_DOWN)
        return; /* as at first: down.c, fits() */
    s->resume.features = c->cm.rep.features;
    s->resume.again = says_again(c);
}

/*
 * RTR and RTS, where the kernel does not set them. A dialer that has not made its handshake yet may only send: until
 * WELCOME its queue pair reaches no region, whatever keys it has learnt.
 */
bool connection_up(struct connection *c) {
    struct session *s = c->session;
    struct cm_conn *conn = &c->cm;
    one_sided_up(c);
    if (s->node->traits.answer_is_up) {
        settle_operations(c);
        return true; /* it is, or will be */
    }
    bool stranger = conn->passive && c->handshake == HANDSHAKE_HELLO;
    conn->rtr.qp_access_flags = stranger ? 0 : remote_rights(c);
    if (!connection_modify(c, &conn->rtr, conn->rtr_mask | IBV_QP_ACCESS_FLAGS))
        return false;
    settle_operations(c);
    return connection_modify(c, &conn->rts, conn->rts_mask);
}

bool connection_admit(struct connection *c) {
    struct ibv_qp_attr attr = {.qp_access_flags = remote_rights(c)};
    return c->session->node->traits.answer_is_up ||
           connection_modify(c, &attr, IBV_QP_ACCESS_FLAGS);
}

/* ---- another one ------------------------------------------------------------------------------- */

struct connection *connection_add(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct connection *first = session_connection(s);
    struct connection *c = connection_make(l->node->connections, s);
    if (!c)
        return NULL;
    c->loop = l;
    c->credits.max = first->credits.max;
    c->recv.frame_bytes = first->recv.frame_bytes;
    c->next = first->next;
    first->next = c;
    return c;
}

/* What a message in parts, a reply or an operation of the peer's needs of the connection that it was begun with. */
static bool may_switch(const struct session *s) {
    const struct connection *c = session_connection(s);
    const struct sluice_msg *first = s->tx.queue.head;
    return s->state == SESSION_UP && !(first && first->tx.sent > 0) && !s->tx.replies.head &&
           !s->rndv && c->recv.reserved == 0 && c->rma.posted == 0 && !(c->sq.blocked & SQ_WAITS) &&
           !unacked_some(c) && (!connection_keeps(c) || c->rx.sequence == c->rx.updated) &&
           !s->rpc.answers && !s->rpc.cancels;
}

static void unlink_from(struct session *s, struct connection *c) {
    struct connection *before = session_connection(s);
    while (before->next != c)
        before = before->next;
    before->next = c->next;
}

bool connection_switch(struct sluice_loop *l, struct session *s, struct connection *c) {
    loop_assert_inside(l);
    struct connection *before = session_connection(s);
    if (c == before || !c->qp || c->drain.began || c->drain.asked || !may_switch(s))
        return false;
    /* So that what was sent without a signal completes: nothing follows it there. */
    if (before->qp && sq_used(before) > 0)
        send_nothing(l, s);
    if (s->state != SESSION_UP)
        return false; /* the device refused, and that ended it */
    /* The credits of kept messages are withheld from the peer, whichever connection they came by. */
    c->credits.retained = c->credits.withheld_due = before->credits.retained;
    before->credits.retained = before->credits.withheld_due = 0;
    unlink_from(s, c);
    c->next = before;
    session_set_connection(s, c);
    credits_start(l, c);
    credits_publish(c);
    keepalive_start(l, s);
    session_disturb(s);
    loop_dirty(l, s);
    if (before->drain.down_polls > 0) { /* that is no end of the session any more */
        before->drain.down_polls = 0;
        l->downs--;
        connection_retire(l, before);
    }
    return true;
}

void connection_put_first(struct session *s, struct connection *c) {
    struct connection *before = session_connection(s), *at = before;
    while (at->next != c)
        at = at->next;
    at->next = c->next;
    c->next = before;
    c->credits.retained = c->credits.withheld_due = before->credits.retained;
    before->credits.retained = before->credits.withheld_due = 0;
    session_set_connection(s, c);
}

void connection_go_on_counting(struct connection *c, const struct connection *before) {
    c->rx.sequence = c->rx.updated = c->acks.returned = before->rx.sequence;
}

bool connections_are_over(const struct session *s) {
    for (const struct connection *c = session_connection(s)->next; c; c = c->next)
        if (!c->drain.over)
            return false;
    return true;
}

/* Of one of its connections: messages in parts have that which they began with as owner. */
static bool holds_parts(const struct session *s) {
    return s->rx.partial || s->rx.partial_reply || rndv_pending(s);
}

/* Frames that are held, and messages that are lent, have the connection that they came by as owner. */
static bool is_named(const struct sluice_loop *l, const struct connection *c) {
    for (const struct sluice_msg *msg = c->session->rx.held.head; msg; msg = msg->next)
        if (msg->owner == c)
            return true;
    for (uint32_t i = 0; i < l->loan_count; i++)
        if (l->loans[i].conn == c)
            return true;
    return false;
}

void connections_reap(struct sluice_loop *l) {
    loop_assert_inside(l);
    for (struct session *s = l->sessions; s && l->retired > 0; s = s->next) {
        if (holds_parts(s))
            continue;
        for (struct connection **at = &session_connection(s)->next, *c; (c = *at);) {
            if (!c->drain.over || atomic_load(&c->last_posted) || c->sq.entries || is_named(l, c)) {
                at = &c->next;
                continue;
            }
            *at = c->next;
            l->retired--;
            connection_free(l->node->connections, c);
        }
    }
}
