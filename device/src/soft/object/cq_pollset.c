/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_pollset.c - the queue pairs of a CQ: hot ones, which every poll looks at, and cold ones.
 *
 * A QP is hot while it has unanswered sends or had anything lately. A poll looks at a few of the cold ones, round
 * robin; a cold QP becomes hot again through the warm list when the application posts a send to it. If there are many
 * QPs, the CQ listens to those whose peers announce what they send (cq_arrivals.h), hot or cold, as soon as it knows where:
 * such QPs are not cold, and a poll looks at a few of them, too. So it is with many sockets, which an epoll set tells of
 * (iwarp/cq_set.h): these are put aside, and cold. In the array the hot ones come first, then the cold ones, then those
 * that are listened to or put aside.
 *
 * Owner: the CQ's poll lock; the warm list is lock-free.
 */
#include "soft/object/cq_pollset.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/cq.h"
#include "soft/object/cq_arrivals.h"
#include "soft/object/cq_lines.h"
#include "soft/object/qp.h"

#define HOT_MIN 8 /* up to this many QPs are always hot */

/* Which of a QP's two CQs this is. */
static inline unsigned role(const struct soft_cq *cq, const struct soft_qp *qp) {
    return soft_cq_of(qp->ibv.recv_cq) == cq ? 0 : 1;
}

static inline void set(struct soft_cq *cq, unsigned i, struct soft_polled polled) {
    cq->polled[i] = polled;
    polled.qp->cq_at[role(cq, polled.qp)] = i;
}

static inline void swap(struct soft_cq *cq, unsigned i, unsigned j) {
    struct soft_polled polled = cq->polled[i];
    set(cq, i, cq->polled[j]);
    set(cq, j, polled);
}

static void assert_kept(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    ASSERT(cq->hot_count + cq->arrival_count <= cq->qp_count && cq->qp_count <= cq->qp_capacity);
}

/* False: it was removed. */
static bool is_member(const struct soft_cq *cq, const struct soft_qp *qp) {
    unsigned at = qp->cq_at[role(cq, qp)];
    return at < cq->qp_count && cq->polled[at].qp == qp;
}

/* Where those begin that are listened to, or put aside. */
static inline unsigned first_listened(const struct soft_cq *cq) {
    return cq->qp_count - cq->arrival_count;
}

/* Larger arrays, allocated outside of the lock that pollers take. */
struct grown {
    unsigned capacity, lines;
    struct soft_polled *polled;
    struct soft_arrivals *arrivals; /* for more than SOFT_MANY */
    const _Atomic uint64_t **boards;
    struct soft_line_group *groups;
    uint64_t *due;
};

static void grown_free(struct grown *g) {
    free(g->polled);
    free(g->arrivals);
    free((void *)g->boards);
    free(g->groups);
    free(g->due);
}

static int grow(struct grown *g, unsigned capacity) {
    grown_free(g);
    *g = (struct grown){.capacity = capacity, .lines = capacity > SOFT_MANY ? capacity / 2 : 0};
    g->polled = calloc(capacity, sizeof *g->polled);
    if (g->lines > 0) {
        g->arrivals = aligned_alloc(64, g->lines * sizeof *g->arrivals);
        g->boards = (const _Atomic uint64_t **)calloc(g->lines, sizeof *g->boards);
        g->groups = calloc(g->lines, sizeof *g->groups);
        g->due = calloc(g->lines / 64 + 1, sizeof *g->due);
    }
    bool lines = g->lines == 0 || (g->arrivals && g->boards && g->groups && g->due);
    return g->polled && lines ? 0 : ENOMEM;
}

/* poll_lock held. Leaves the old arrays in *g, to be freed. */
static void take_grown(struct soft_cq *cq, struct grown *g) {
    spin_assert_held(&cq->poll_lock);
    struct grown old = {.polled = cq->polled,
                        .arrivals = cq->arrivals,
                        .boards = cq->boards,
                        .groups = cq->line_groups,
                        .due = cq->lines_due};
    if (cq->qp_count)
        memcpy(g->polled, cq->polled, cq->qp_count * sizeof *g->polled);
    if (cq->arrival_lines) {
        memcpy(g->arrivals, cq->arrivals, cq->arrival_lines * sizeof *g->arrivals);
        memcpy((void *)g->boards, (const void *)cq->boards, cq->arrival_lines * sizeof *g->boards);
        memcpy(g->groups, cq->line_groups, cq->line_group_count * sizeof *g->groups);
        memcpy(g->due, cq->lines_due, (cq->arrival_lines / 64 + 1) * sizeof *g->due);
    }
    cq->polled = g->polled;
    cq->arrivals = g->arrivals;
    cq->boards = g->boards;
    cq->line_groups = g->groups;
    cq->lines_due = g->due;
    cq->qp_capacity = g->capacity;
    cq->arrival_capacity = g->lines;
    *g = old;
}

int soft_cq_pollset_add(struct soft_cq *cq, struct soft_qp *qp) {
    static const _Atomic uint32_t nowhere = 0;
    struct grown grown = {0};
    for (;;) {
        spin_lock(&cq->poll_lock);
        if (cq->qp_count < cq->qp_capacity)
            break;
        if (grown.polled && grown.capacity > cq->qp_count) {
            take_grown(cq, &grown);
            break;
        }
        unsigned capacity = cq->qp_capacity ? 2 * cq->qp_capacity : 8;
        spin_unlock(&cq->poll_lock);
        if (grow(&grown, capacity) != 0) {
            grown_free(&grown);
            return ENOMEM;
        }
    }
    /* new ones start hot */
    unsigned end = first_listened(cq);
    set(cq, cq->qp_count++, (struct soft_polled){qp, &nowhere, 1});
    swap(cq, cq->qp_count - 1, end);
    swap(cq, end, cq->hot_count++);
    spin_unlock(&cq->poll_lock);
    grown_free(&grown);
    return 0;
}

#define LISTEN_AT_ONCE 128 /* keeps a poll short when many QPs became ready */

void soft_cq_pollset_listen(struct soft_cq *cq) {
    assert_kept(cq);
    unsigned count = 0;
    for (unsigned i = 0; i < cq->hot_count && count < LISTEN_AT_ONCE;) {
        if (!soft_arrivals_add(cq, cq->polled[i].qp)) {
            i++;
            continue;
        }
        swap(cq, i, --cq->hot_count);
        swap(cq, cq->hot_count, first_listened(cq)); /* which is one lower by now */
        count++;
    }
}

/* A QP that went cold before its peer was there. Returns whether the CQ listens to it now. */
bool soft_cq_pollset_listen_to(struct soft_cq *cq, unsigned i) {
    assert_kept(cq);
    struct soft_qp *qp = cq->polled[i].qp;
    if (cq->qp_count <= SOFT_MANY || !soft_arrivals_add(cq, qp))
        return false;
    st(qp->cold[role(cq, qp)], false);
    swap(cq, i, first_listened(cq)); /* which is one lower by now */
    return true;
}

/* poll_lock held. The cold QP at i had something: makes it hot. */
void soft_cq_pollset_warm_up(struct soft_cq *cq, unsigned i) {
    spin_assert_held(&cq->poll_lock);
    assert_kept(cq);
    st(cq->polled[i].qp->cold[role(cq, cq->polled[i].qp)], false);
    if (ld(cq->polled[i].qp->has_socket))
        st(cq->sockets_hot, true);
    swap(cq, i, cq->hot_count++);
}

/* ---- put aside --------------------------------------------------------------------------------- */

bool soft_cq_pollset_is_aside(const struct soft_cq *cq, unsigned at) {
    spin_assert_held(&cq->poll_lock);
    return at >= first_listened(cq) && ld(cq->polled[at].qp->arrival) == 0;
}

void soft_cq_pollset_set_aside(struct soft_cq *cq, unsigned at) {
    assert_kept(cq);
    ASSERT(at < cq->hot_count);
    struct soft_qp *qp = cq->polled[at].qp;
    swap(cq, at, --cq->hot_count);
    cq->arrival_count++;
    swap(cq, cq->hot_count, first_listened(cq));
    atomic_store(&qp->cold[role(cq, qp)], true);
}

/* It is among the cold ones then. */
static void take_back(struct soft_cq *cq, struct soft_qp *qp) {
    swap(cq, qp->cq_at[role(cq, qp)], first_listened(cq));
    cq->arrival_count--;
}

/* ---- cold and warm ----------------------------------------------------------------------------- */

/* Makes QPs cold, except those that wait for an acknowledgement or had something lately. */
void soft_cq_pollset_cool(struct soft_cq *cq) {
    assert_kept(cq);
    st(cq->idle_polls, 0);
    if (cq->qp_count <= HOT_MIN)
        return;
    if (cq->qp_count > SOFT_MANY)
        soft_cq_pollset_listen(cq);
    for (unsigned i = 0; i < cq->hot_count;) {
        struct soft_qp *qp = cq->polled[i].qp;
        if (ld(qp->used_lately) || ld(qp->unretired)) {
            st(qp->used_lately, false);
            i++;
            continue;
        }
        swap(cq, i, --cq->hot_count);
        atomic_store(&qp->cold[role(cq, qp)], true);
        if (ld(qp->unretired)) /* a thread posted meanwhile, and did not see the flag */
            soft_cq_pollset_warm(qp);
    }
}

/* Any thread. The thread that clears the flag owns the list entry. */
static void warm_one(struct soft_cq *cq, struct soft_qp *qp) {
    unsigned r = role(cq, qp);
    if (!atomic_exchange(&qp->cold[r], false))
        return;
    struct soft_qp *head = atomic_load(&cq->warm);
    do
        qp->warm_next[r] = head;
    while (!atomic_compare_exchange_weak(&cq->warm, &head, qp));
}

void soft_cq_pollset_warm(struct soft_qp *qp) {
    warm_one(soft_cq_of(qp->ibv.recv_cq), qp);
    if (qp->ibv.send_cq != qp->ibv.recv_cq)
        warm_one(soft_cq_of(qp->ibv.send_cq), qp);
}

/* poll_lock held. */
void soft_cq_pollset_take_warm(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    assert_kept(cq);
    struct soft_qp *qp = atomic_exchange(&cq->warm, NULL);
    while (qp) {
        unsigned r = role(cq, qp);
        struct soft_qp *next = qp->warm_next[r];
        if (is_member(cq, qp) && soft_cq_pollset_is_aside(cq, qp->cq_at[r]))
            take_back(cq, qp);
        if (ld(qp->has_socket))
            st(cq->sockets_hot, true);
        if (qp->cq_at[r] >= cq->hot_count &&
            qp->cq_at[r] < first_listened(cq)) /* else it is found */
            swap(cq, qp->cq_at[r], cq->hot_count++);
        qp = next;
    }
}

/* What the CQ's set has reported, and no poll has served. */
static void forget_due(struct soft_cq *cq, const struct soft_qp *qp) {
    unsigned kept = 0;
    spin_assert_held(&cq->poll_lock);
    for (unsigned i = cq->tcp_due_next; i < cq->tcp_due_count; i++)
        if (cq->tcp_due[i] != qp)
            cq->tcp_due[kept++] = cq->tcp_due[i];
    cq->tcp_due_next = 0;
    cq->tcp_due_count = kept;
}

void soft_cq_pollset_remove(struct soft_cq *cq, struct soft_qp *qp, bool purge) {
    spin_lock(&cq->poll_lock);
    soft_cq_pollset_take_warm(cq); /* so that no list points to it any more */
    unsigned i = qp->cq_at[role(cq, qp)], first = first_listened(cq);
    bool there = is_member(cq, qp);
    bool aside = there && soft_cq_pollset_is_aside(cq, i);
    soft_arrivals_remove(cq, qp);
    cq->arrival_count -= aside;
    forget_due(cq, qp);
    if (there && i < cq->hot_count) {
        swap(cq, i, --cq->hot_count);
        i = cq->hot_count;
    }
    if (there) { /* as the last one before those that are listened to, and then at the end */
        unsigned before = i < first ? first - 1 : first;
        swap(cq, i, before);
        swap(cq, before, --cq->qp_count);
    }
    st(qp->cold[role(cq, qp)], false);
    if (purge && ld(cq->ring_count) > 0)
        soft_cq_purge(cq, qp->ibv.qp_num);
    spin_unlock(&cq->poll_lock);
}
