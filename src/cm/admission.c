/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * admission.c - which peer's handshake begins now, which peer waits, and which handshake is ended for another.
 *
 * Peers that ask and never finish could keep all handshakes taken. So while a peer waits for one, the
 * oldest handshake is ended once it took longer than the patience; its peer may try again. No handshake
 * is ended while there is room, except by the time limit that all have.
 *
 * Ending an honest peer is worse than it looks: one that has our answer may be up on its side
 * already, and cannot try again by itself. And honest peers are slow together: a thousand that dial
 * at once are as many on their hosts, whose answers are read one after the other; a second was seen, with a
 * thousandth of that as the usual time. Peers of a flood do nothing but be slow, in great numbers.
 * So the patience is the larger of:
 *
 *   - eight times the smoothed time of those that succeeded, 20 ms to 1 s;
 *   - the grace: 2 s, less with each that had to be ended and more again with each that came up.
 *     After as many ended as there are handshakes a seventh is left of it. It is whole again when
 *     none had to be ended for 2 s.
 *
 * In a storm of honest peers no handshake is ended; a flood is waited for once, for some 3 s, and then costs
 * each handshake no more than eight times what an honest peer needs. Ends are spread over the patience, one for
 * each part of it that falls to a handshake; a thread that comes late makes up for a part of them.
 *
 * Where no peer waits, a handshake has ADMISSION_LIMIT_NS, or eight times that smoothed time if it is more.
 *
 * Owner: the CM thread.
 */
#include "cm/admission.h"
#include "cm/internal.h"
#include "core/context.h"

/* ---- lines ----------------------------------------------------------------------------------- */

static void line_append(struct admission_queue *line, struct cm_conn *conn) {
    cds_list_add_tail(&conn->line, &line->conns);
    line->count++;
}

static void line_remove(struct admission_queue *line, struct cm_conn *conn) {
    cds_list_del(&conn->line);
    line->count--;
}

/* The line is not empty. */
static struct cm_conn *line_first(const struct admission_queue *line) {
    return cds_list_first_entry(&line->conns, struct cm_conn, line);
}

/* ---- places ---------------------------------------------------------------------------------- */

static enum admission_class class_in(enum cm_state state) {
    switch (state) {
    case CM_AWAITING_APP:
        return ADMISSION_ASKING;
    case CM_QUEUED:
        return ADMISSION_QUEUED;
    case CM_CREATING_QP_PASSIVE:
    case CM_ACCEPTING:
    case CM_HANDSHAKE:
        return ADMISSION_OPEN;
    case CM_IDLE:
    case CM_REMOVAL_WATCH:
    case CM_RESOLVING_ADDRINFO:
    case CM_LISTENING:
    case CM_RESOLVING_NAME:
    case CM_BACKOFF:
    case CM_RESOLVING_ADDR:
    case CM_RESOLVING_ROUTE:
    case CM_CREATING_QP:
    case CM_IN_LINE:
    case CM_CONNECTING:
    case CM_MODIFYING_QP:
    case CM_UP:
    case CM_FAILED:
    case CM_RELEASED:
    case CM_STATE_COUNT:
        break;
    }
    return ADMISSION_NONE;
}

static void show(struct cm *cm) {
    atomic_store_explicit(&cm->stats->handshakes, cm->admission.open.count, memory_order_relaxed);
    atomic_store_explicit(&cm->stats->queued, cm->admission.queue.count, memory_order_relaxed);
}

/* So that a seventh is left of the whole after as many of them as there are places. */
static uint64_t share(const struct cm *cm, uint64_t whole_ns) {
    return 2 * whole_ns / (cm->node->options.handshakes_max + 3ull);
}

/* Handshakes that had to be ended long ago do not count against the peers that come now. */
static uint64_t grace(const struct cm *cm) {
    const struct admission *admit = &cm->admission;
    bool lately = admit->evicted_ns != 0 && cm->now_ns < admit->evicted_ns + ADMISSION_GRACE_NS;
    return lately ? admit->grace_ns : ADMISSION_GRACE_NS;
}

/* A handshake begins: it has its own limit within that of the whole way. */
static void take_open(struct cm *cm, struct cm_conn *conn) {
    line_append(&cm->admission.open, conn);
    conn->open_ns = cm->now_ns;
    conn->way_deadline_ns = conn->deadline_ns;
    uint64_t limit = cm->now_ns + ADMISSION_LIMIT_NS;
    if (conn->deadline_ns == 0 || conn->deadline_ns > limit)
        cm_watch(cm, conn, limit);
}

/*
 * All are slow where the machine is: then its peers have not stopped. No more than the time of the whole way, as ever.
 */
bool admission_prolongs(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    uint64_t limit = conn->open_ns + cm->admission.usual_ns * ADMISSION_PATIENCE_FACTOR;
    if (conn->admission_class != ADMISSION_OPEN)
        return false;
    if (conn->way_deadline_ns != 0 && limit > conn->way_deadline_ns)
        limit = conn->way_deadline_ns;
    if (limit <= cm->now_ns)
        return false;
    cm_watch(cm, conn, limit);
    return true;
}

static void leave_open(struct cm *cm, struct cm_conn *conn, enum cm_state state) {
    struct admission *admit = &cm->admission;
    line_remove(&admit->open, conn);
    if (state != CM_UP && state != CM_AWAITING_APP)
        return;
    uint64_t took = cm->now_ns - conn->open_ns;
    if (took > ADMISSION_LIMIT_NS) /* so the next limit is no longer for that one */
        took = ADMISSION_LIMIT_NS;
    admit->usual_ns = admit->usual_ns - admit->usual_ns / 8 + took / 8;
    admit->grace_ns = grace(cm) + share(cm, ADMISSION_GRACE_NS - grace(cm));
    if (state == CM_AWAITING_APP) /* after HELLO: the decision has the time it was given */
        cm_watch(cm, conn, conn->way_deadline_ns);
}

void admission_move(struct cm *cm, struct cm_conn *conn, enum cm_state state) {
    cm_assert_thread(cm);
    enum admission_class from = (enum admission_class)conn->admission_class;
    enum admission_class to = conn->passive ? class_in(state) : ADMISSION_NONE;
    if (from == to)
        return;
    conn->admission_class = (uint8_t)to;
    switch (from) {
    case ADMISSION_OPEN:
        leave_open(cm, conn, state);
        break;
    case ADMISSION_QUEUED:
        line_remove(&cm->admission.queue, conn);
        break;
    case ADMISSION_ASKING:
        cm->admission.asking--;
        break;
    case ADMISSION_NONE:
        break;
    }
    switch (to) {
    case ADMISSION_OPEN:
        take_open(cm, conn);
        break;
    case ADMISSION_QUEUED:
        line_append(&cm->admission.queue, conn);
        break;
    case ADMISSION_ASKING:
        cm->admission.asking++;
        break;
    case ADMISSION_NONE:
        break;
    }
    show(cm);
}

/* ---- letting in ------------------------------------------------------------------------------ */

void admission_init(struct cm *cm) {
    cm_assert_thread(cm);
    cm->admission = (struct admission){.usual_ns = ADMISSION_USUAL_NS};
    CDS_INIT_LIST_HEAD(&cm->admission.open.conns);
    CDS_INIT_LIST_HEAD(&cm->admission.queue.conns);
}

bool admission_idle(const struct cm *cm) {
    const struct admission *admit = &cm->admission;
    return admit->open.count == 0 && admit->queue.count == 0 && admit->asking == 0;
}

static bool has_slot(const struct cm *cm) {
    return cm->admission.open.count < cm->node->options.handshakes_max;
}

bool admission_room(const struct cm *cm, bool asks) {
    cm_assert_thread(cm);
    if (cm->admission.asking + cm->admission.queue.count < cm->node->options.requests_max)
        return true;
    return !asks && cm->admission.queue.count == 0 && has_slot(cm);
}

void admission_start(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    if (cm->admission.queue.count == 0 && has_slot(cm))
        cm_answer(cm, conn);
    else
        cm_enter(cm, conn, CM_QUEUED);
}

uint64_t admission_patience(const struct cm *cm) {
    cm_assert_thread(cm);
    uint64_t patience = ADMISSION_PATIENCE_MAX_NS;
    if (cm->admission.usual_ns < ADMISSION_PATIENCE_MAX_NS / ADMISSION_PATIENCE_FACTOR)
        patience = cm->admission.usual_ns * ADMISSION_PATIENCE_FACTOR;
    if (patience < ADMISSION_PATIENCE_MIN_NS)
        patience = ADMISSION_PATIENCE_MIN_NS;
    return patience > grace(cm) ? patience : grace(cm);
}

/* Between two that are ended. */
static uint64_t spacing(const struct cm *cm, uint64_t patience) {
    return patience / cm->node->options.handshakes_max;
}

/* The time from which the oldest handshake may be ended, if a peer waits for one. */
static uint64_t slow_since(const struct cm *cm, uint64_t patience) {
    const struct admission *admit = &cm->admission;
    uint64_t slow = line_first(&admit->open)->open_ns + patience;
    uint64_t next = admit->due_ns + spacing(cm, patience);
    return slow > next ? slow : next;
}

uint64_t admission_due(const struct cm *cm) {
    cm_assert_thread(cm);
    if (cm->admission.queue.count == 0 || cm->admission.open.count == 0)
        return UINT64_MAX;
    return slow_since(cm, admission_patience(cm));
}

/* False: an event that has not been read says that it is further than that. */
static bool evict(struct cm *cm) {
    struct admission *admit = &cm->admission;
    struct cm_conn *conn = line_first(&admit->open);
    struct private_data_rej busy = {.reason = SLUICE_REASON_BUSY, .text = ADMISSION_BUSY_TEXT};
    if (conn->owner.state == CM_ACCEPTING && conn->rejectable && !cm_say_no(cm, conn, &busy)) {
        conn->rejectable = false; /* it cannot be told why: once more, when the events are read */
        return false;
    }
    uint64_t step = spacing(cm, admission_patience(cm));
    uint64_t behind = step * (cm->node->options.handshakes_max / ADMISSION_BURST);
    admit->due_ns += step;
    if (admit->due_ns < cm->now_ns - behind)
        admit->due_ns = cm->now_ns - behind;
    stats_add(&cm->stats->evicted, 1);
    admit->grace_ns = grace(cm) - share(cm, grace(cm));
    admit->evicted_ns = cm->now_ns;
    cm_fail(cm, conn, SLUICE_REASON_BUSY, 0, ADMISSION_BUSY_TEXT);
    return true;
}

unsigned admission_progress(struct cm *cm, bool seen) {
    cm_assert_thread(cm);
    struct admission *admit = &cm->admission;
    unsigned count = 0;
    while (admit->queue.count > 0) {
        if (!has_slot(cm)) {
            uint64_t patience = admission_patience(cm) * (seen ? 1 : ADMISSION_UNSEEN_FACTOR);
            if (patience > ADMISSION_GRACE_NS)
                patience = ADMISSION_GRACE_NS;
            if (cm->now_ns < slow_since(cm, patience))
                break;
            if (!evict(cm))
                break;
        }
        cm_answer(cm, line_first(&admit->queue)); /* or it fails; either way it left the line */
        count++;
    }
    return count;
}
