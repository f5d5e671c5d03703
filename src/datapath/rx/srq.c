/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * srq.c - one shared receive queue for the sessions of a loop.
 *
 * Sessions that share receives have credits like the others, each of which is a receive posted; they
 * share the spare receives, and one posting serves many of them. A completion says which queue pair
 * used a buffer, and a table by number which session has that.
 *
 * A peer that uses more than its credits takes the receive of another session. It loses its session
 * for that, its queue pair takes no more receives, and the buffer goes straight back: until then the
 * other session's next frame may have to be repeated by its device, and no frame is lost.
 *
 * A queue pair in ERR does not flush shared receives. The device reports when it takes no more (the
 * event LAST_WQE_REACHED); when the CQ was found empty after that, all it took have come back. A QP
 * that had to be given up before (DRAIN_NS) leaves a tombstone in the table, so that a late completion
 * of it can never be taken for another session's.
 *
 * The limit of the queue is a matter of statistics and of more spare receives: credits never exceed
 * the posted receives.
 *
 * Owner: the loop's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "datapath/rx/srq.h"
#include "common/uncancelled.h"
#include "core/context.h"
#include "core/techniques.h"
#include "datapath/loop/cq_share.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/loop/upward.h"
#include "fabric/fast.h"

#define SPARE_MAX 256u      /* spare receives that stay posted */
#define GROWTH_PART 4u      /* one place in so many is not for the first credits of a connection */
#define REPLIES_PART 8u     /* and one in so many for no credits at all */
#define LOW 32u             /* receives left, at which the device says so */
#define LOW_SPARE 32u       /* what is posted then */
#define LOW_LEAST (4 * LOW) /* buffers in all, below which that says nothing */

/* ---- queue pair numbers ---------------------------------------------------------------------- */

struct connection srq_tombstone;

bool srq_join(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    uint32_t number = c->qp->qp_num & 0xffffff;
    struct qp_chunk **chunk = &l->srq.connections[number >> 12];
    if (!*chunk && !(*chunk = calloc(1, sizeof **chunk)))
        return false;
    if ((*chunk)->at[number & 0xfff].conn)
        return false;
    (*chunk)->at[number & 0xfff] = (struct qp_entry){c, c->session};
    (*chunk)->count++;
    return true;
}

void srq_renamed(struct sluice_loop *l, const struct connection *c) {
    loop_assert_inside(l);
    if (!c->rx.queue->srq)
        return;
    uint32_t number = c->qp->qp_num & 0xffffff;
    struct qp_entry *entry = &l->srq.connections[number >> 12]->at[number & 0xfff];
    if (entry->conn == c)
        entry->session = c->session;
}

/* The receives that it had been granted and did not use stay posted, and are spare. */
void srq_leave(struct sluice_loop *l, struct connection *c, bool drained) {
    loop_assert_inside(l);
    struct recv_queue *q = &l->srq.queue;
    uint32_t number = c->qp->qp_num & 0xffffff;
    struct qp_chunk **chunk = &l->srq.connections[number >> 12];
    if (!*chunk || (*chunk)->at[number & 0xfff].conn != c)
        return;
    if (c->drain.last_poll != 0 && !c->drain.settled)
        l->settling--;
    c->drain.last_poll = 0;
    if (!drained) {
        (*chunk)->at[number & 0xfff].conn = &srq_tombstone;
    } else {
        (*chunk)->at[number & 0xfff] = (struct qp_entry){0};
        if (--(*chunk)->count == 0) {
            free(*chunk);
            *chunk = NULL;
        }
    }
    for (struct sluice_msg *msg = q->repost; msg; msg = msg->next)
        if (msg->owner == c) {
            msg->owner = NULL;
            msg->flags |= MSG_RESERVED;
        }
    c->rx.repost_count = 0;
    /* A receive set aside that a frame took is posted no more, or is spare once it is posted again. */
    q->spare += c->rx.granted + c->rx.unreported + recv_queue_reserved(c);
    c->rx.granted = c->rx.unreported = c->recv.reserved = 0;
}

/* ---- places ---------------------------------------------------------------------------------- */

static uint32_t in_use(const struct loop_srq *shared) {
    return shared->next_slot - shared->free_count;
}

uint32_t srq_room(const struct sluice_loop *l) {
    uint32_t depth = l->srq.queue.depth, most = depth - depth / REPLIES_PART;
    return in_use(&l->srq) < most ? most - in_use(&l->srq) : 0;
}

bool srq_takes_another(const struct sluice_loop *l) {
    uint32_t depth = l->srq.queue.depth;
    return l->srq.queue.spare >= CREDITS_INITIAL ||
           in_use(&l->srq) + CREDITS_INITIAL <= depth - depth / GROWTH_PART;
}

bool srq_enter(struct sluice_loop *l, struct sluice_msg *msg) {
    loop_assert_inside(l);
    struct loop_srq *shared = &l->srq;
    uint32_t place;
    if (shared->free_count > 0)
        place = shared->free_slots[--shared->free_count];
    else if (shared->next_slot < shared->queue.depth)
        place = shared->next_slot++;
    else
        return false;
    msg->flags |= MSG_SHARED;
    srq_put(l, msg, place);
    return true;
}

void srq_put(struct sluice_loop *l, struct sluice_msg *msg, uint64_t place) {
    loop_assert_inside(l);
    l->srq.all[place] = msg;
    msg->rx.srq_slot = place;
}

void srq_forget(struct sluice_loop *l, uint64_t place) {
    loop_assert_inside(l);
    l->srq.all[place] = NULL;
    l->srq.free_slots[l->srq.free_count++] = (uint32_t)place;
}

/* ---- receives without a credit --------------------------------------------------------------- */

void srq_restore(struct sluice_loop *l, struct sluice_msg *msg) {
    loop_assert_inside(l);
    struct recv_queue *q = &l->srq.queue;
    msg->owner = NULL;
    msg->state = MSG_RECEIVE;
    msg->next = q->repost;
    q->repost = msg;
    (void)recv_queue_post(l, q, NULL); /* refused: the next session that posts says so */
}

void srq_stray(struct sluice_loop *l, struct sluice_msg *msg) {
    loop_assert_inside(l);
    l->srq.queue.posted--;
    srq_restore(l, msg);
}

void srq_arm(struct sluice_loop *l) {
    UNCANCELLED;
    loop_assert_inside(l);
    struct loop_srq *shared = &l->srq;
    struct ibv_srq_attr attr = {.srq_limit = LOW};
    if (shared->armed || in_use(shared) < LOW_LEAST || shared->queue.posted < 2 * LOW)
        return;
    shared->armed = l->node->fabric->modify_srq(shared->queue.srq, &attr, IBV_SRQ_LIMIT) == 0;
}

/* Few are left: posts those at hand, and some more for which no session has a credit. */
void srq_low(struct sluice_loop *l) {
    loop_assert_inside(l);
    struct recv_queue *q = &l->srq.queue;
    atomic_store(&l->srq.low_posted, false);
    if (!q->srq)
        return;
    l->srq.armed = false;
    l->totals.srq_limit_events++;
    l->totals_moved = true;
    for (struct session *s = l->sessions; s; s = s->next) {
        struct connection *c = session_connection(s);
        if (c->rx.queue == q && c->qp && s->state < SESSION_RELEASED) {
            recv_queue_spare(l, c, LOW_SPARE, RECV_NEEDED);
            break;
        }
    }
}

/* Any thread; the queue cannot go before its event was acknowledged. */
void srq_say_low(struct sluice_loop *l) {
    if (!atomic_exchange(&l->srq.low_posted, true))
        mailbox_post(&l->mailbox, &l->srq.low_node, LOOP_MSG_SRQ_LOW, 0, 0);
}

/* Any thread, while the queue pair lives; one message stands for all until it is taken. */
void srq_say_last(struct sluice_loop *l, struct connection *c) {
    if (!atomic_exchange(&c->last_posted, true))
        loop_post_connection(l, c, LOOP_MSG_LAST_WQE);
}

/* ---- the end of a queue pair ----------------------------------------------------------------- */

void srq_await(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (c->drain.settled || c->drain.last_poll != 0)
        return;
    c->drain.last_poll = l->polls ? l->polls : 1;
    l->settling++;
}

void srq_last(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    atomic_store(&c->last_posted, false);
    c->drain.last = true;
    l->lasts++;
    if (c->qp && c->rx.queue->srq)
        srq_await(l, c);
}

void srq_drain(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    /* One that could never receive has taken nothing; and a device that is gone says no more. */
    if (!c->recv.heard) {
        /* Of one that was in ERR already the device may have said so, and it is waited for. */
        srq_unsettle(l, c);
        c->drain.settled = true;
    } else if (l->lost) {
        srq_await(l, c);
    }
}

void srq_unsettle(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (c->drain.last_poll != 0 && !c->drain.settled)
        l->settling--;
    c->drain.last_poll = 0;
    c->drain.settled = false;
}

unsigned srq_settle(struct sluice_loop *l) {
    loop_assert_inside(l);
    unsigned count = 0;
    if (!l->wc_short || l->wc_next != l->wc_count)
        return 0;
    for (struct session *s = l->sessions; s && l->settling > 0; s = s->next)
        for (struct connection *c = session_connection(s); c; c = c->next) {
            if (c->drain.settled || c->drain.last_poll == 0 || c->drain.last_poll == l->polls)
                continue;
            l->settling--;
            c->drain.settled = true;
            connection_progress(l, c);
            count++;
        }
    return count;
}

/* ---- life ------------------------------------------------------------------------------------ */

static uint32_t shared_depth(const struct sluice_loop *l) {
    const sluice_node *n = l->node;
    const struct ibv_device_attr *attr = &n->device_attr;
    if ((n->options.without & WITHOUT_SRQ) || !n->traits.drains_shared || attr->max_srq <= 0 ||
        attr->max_srq_wr <= 0)
        return 0;
    uint32_t depth = cq_share_receives(l);
    return depth < (uint32_t)attr->max_srq_wr ? depth : (uint32_t)attr->max_srq_wr;
}

void srq_free(struct sluice_loop *l) {
    loop_assert_inside(l);
    struct loop_srq *shared = &l->srq;
    for (unsigned i = 0; shared->connections && i < QP_CHUNKS; i++)
        free(shared->connections[i]);
    free((void *)shared->connections);
    free((void *)shared->all);
    free(shared->free_slots);
    memset(shared, 0, offsetof(struct loop_srq, low_node));
}

void srq_open(struct sluice_loop *l) {
    loop_assert_inside(l);
    struct loop_srq *shared = &l->srq;
    uint32_t depth = shared_depth(l);
    if (depth == 0)
        return;
    shared->all = (struct sluice_msg **)calloc(depth, sizeof *shared->all);
    shared->free_slots = calloc(depth, sizeof *shared->free_slots);
    shared->connections = (struct qp_chunk **)calloc(QP_CHUNKS, sizeof *shared->connections);
    struct ibv_srq_init_attr attr = {.srq_context = l, .attr = {.max_wr = depth, .max_sge = 1}};
    struct ibv_srq *srq = NULL;
    if (shared->all && shared->free_slots && shared->connections)
        srq = l->node->fabric->create_srq(l->node->pd, &attr);
    if (!srq) { /* every session has its own, then */
        srq_free(l);
        return;
    }
    fabric_srq_newest_first(l->node->fabric, srq);
    shared->queue = (struct recv_queue){.srq = srq, .depth = depth, .spare_max = SPARE_MAX};
    l->cq_used += depth;
}

void srq_close(struct sluice_loop *l) {
    loop_assert_inside(l);
    struct loop_srq *shared = &l->srq;
    if (!shared->queue.srq)
        return;
    int error = l->node->fabric->destroy_srq(shared->queue.srq);
    if (error != 0)
        log_write(&l->node->log, SLUICE_LOG_ERROR,
                  "a shared receive queue cannot be destroyed: errno %d", error);
    l->cq_used -= shared->queue.depth;
    shared->queue.srq = NULL;
    /* Buffers that the application or a session still uses come back later. */
    for (uint32_t i = 0; i < shared->next_slot; i++)
        if (shared->all[i] && !shared->all[i]->owner && error == 0)
            recv_buffer_put(l, shared->all[i]);
    shared->queue.repost = NULL;
}
