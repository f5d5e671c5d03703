/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * notify.c - ibv_req_notify_cq: arming a CQ whose poller is about to sleep.
 *
 * Owner: the CQ's poll lock.
 */
#include <errno.h>
#include <stdatomic.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/process_fence.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/cq_arrivals.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/qp.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/rc/qp_timer.h"
#include "soft/ud/ud_recv.h"
#include "soft/verbs/internal.h"

/*
 * poll_lock. How many queue pairs have to be looked at, from the first on: the others are listened to (object/cq_arrivals.h), and what
 * they have is found by what their peers announce, or the CQ's set of sockets tells of them (iwarp/cq_set.h).
 */
static unsigned unheard(const struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    return cq->qp_count - cq->arrival_count;
}

/* poll_lock. Some queue pair has asked to be looked at since all were, whatever its peer announces. */
static bool is_attended(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    return ld(cq->attended) && atomic_exchange(&cq->attended, false);
}

/* The next tick looks at those that have sends out: this one, or the one that is just beginning. */
static void watch(struct soft_cq *cq) {
    uint32_t round;
    do {
        round = ld(soft_qp_timer_round);
        st(cq->watch_round, round + 1);
        soft_fence(); /* partner: qp_timer.c, on_tick() */
    } while (ld(soft_qp_timer_round) != round);
}

/* poll_lock, behind the arming. Those that were announced before a peer could see that. */
static void look_after_announced(struct soft_cq *cq) {
    struct soft_arrival told[SOFT_ARRIVAL_MAX];
    uint32_t at = 0, left = cq->arrival_lines * (uint32_t)SOFT_TOLD_LINE;
    spin_assert_held(&cq->poll_lock);
    while (left > 0) {
        unsigned count = soft_arrivals_next(cq, &at, &left, told);
        for (unsigned i = 0; i < count; i++) {
            struct soft_qp *qp = soft_arrival_qp(cq, told[i].at);
            if (qp && soft_qp_has_work(qp))
                st(qp->need_tick, true);
        }
    }
}

/*
 * After the arming: what another thread posted before it could see the armed word is found here,
 * what it posts later it gives to the engine itself.
 */
static void look_after(struct soft_cq *cq) {
    bool outstanding = false, unsure = soft_fence_any_unsure(); /* some peer may not see it */
    spin_lock(&cq->poll_lock);
    soft_tcp_set_arm(cq); /* then: partner is soft_tcp_set_is_watched() */
    soft_cq_pollset_take_warm(cq);
    bool all = unsure || is_attended(cq);
    unsigned count = all ? cq->qp_count : unheard(cq);
    if (count < cq->qp_count && cq->arrival_lines > 0) {
        look_after_announced(cq);
        watch(cq);
        outstanding = true;
    }
    for (unsigned i = 0; i < count; i++) {
        struct soft_qp *qp = cq->polled[i].qp;
        if (ld(qp->has_socket))
            soft_tcp_arm(qp);
        else if (ld(qp->backlog)) /* the engine asks for room to be told */
            soft_qp_progress(qp);
        if (unsure || ld(qp->unretired) || (qp->ud ? soft_ud_arrived(qp) : soft_qp_has_work(qp))) {
            st(qp->need_tick, true);
            outstanding = true;
        }
    }
    spin_unlock(&cq->poll_lock);
    if (outstanding)
        soft_qp_timer_want();
}

/* poll_lock. */
static void collect_of(struct soft_cq *cq, struct soft_qp *qp) {
    spin_assert_held(&cq->poll_lock);
    if (soft_qp_has_any_work(qp))
        soft_qp_progress(qp);
    if (ld(qp->arrival) != 0 && (ld(qp->attention) || ld(qp->backlog))) /* it is not done with */
        st(cq->attended, true);
    soft_qp_idle(qp);
    if (ld(qp->arrival) != 0 && ld(qp->rx_told) != ld(qp->rx_pos))
        soft_cq_owing_lost(cq);
}

/* poll_lock. Of queue pairs that are listened to: those whose peers announce something, and those that owe an acknowledgement. */
static void collect_announced(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    struct soft_arrival told[SOFT_ARRIVAL_MAX];
    uint32_t at = 0, left = cq->arrival_lines * (uint32_t)SOFT_TOLD_LINE;
    while (left > 0) {
        unsigned count = soft_arrivals_next(cq, &at, &left, told);
        for (unsigned i = 0; i < count; i++)
            if (soft_arrival_qp(cq, told[i].at))
                collect_of(cq, soft_arrival_qp(cq, told[i].at));
    }
    for (unsigned i = 0; i < cq->owing_count; i++)
        if (soft_arrival_qp(cq, cq->owing[i]))
            collect_of(cq, soft_arrival_qp(cq, cq->owing[i]));
}

/* poll_lock held. Messages that have arrived by now are moved into the ring. */
static void collect(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    soft_cq_pollset_take_warm(cq);
    bool all = is_attended(cq) || cq->owing_lost || cq->owing_count > SOFT_OWING;
    unsigned count = all ? cq->qp_count : unheard(cq);
    cq->owing_lost = false;
    for (unsigned i = 0; i < count; i++)
        collect_of(cq, cq->polled[i].qp);
    if (count < cq->qp_count)
        collect_announced(cq);
    cq->owing_count = 0;
}

/*
 * NICs are armed with the number of completions that were taken: a completion after those fires, even if it was
 * there before. Programs written for them do not all poll once more before they sleep. A completion that has fired
 * already does not fire again: other programs take each event for a completion that they have not seen.
 */
static void fire_for_untaken(struct soft_cq *cq) {
    spin_lock(&cq->poll_lock);
    collect(cq);
    if (ld(cq->untold))
        soft_cq_signal(cq, true);
    spin_unlock(&cq->poll_lock);
}

/*
 * poll_lock. Other threads only disarm it. The page's word changes first, and by one operation: at no time does it say of
 * another CQ that shares it that bells are enough.
 */
static void set_armed(struct soft_cq *cq, uint32_t want) {
    spin_assert_held(&cq->poll_lock);
    uint32_t old = atomic_load(&cq->armed);
    bool wider = (old & SOFT_ARMED_SOLICITED) && want == SOFT_ARMED_ANY;
    bool bells = cq->on_bells && !(old & SOFT_ARMED_WITH_BELLS);
    if (old != 0 && !wider && !bells)
        return;
    if (soft_cq_disarm(cq) && (old & SOFT_ARMED_ANY))
        want = SOFT_ARMED_ANY;
    want |= cq->on_bells ? SOFT_ARMED_WITH_BELLS : 0;
    atomic_fetch_add(&soft_shm_page->cq[cq->shm_index].armed, soft_armed_count(want));
    atomic_store(&cq->armed, want);
}

/*
 * poll_lock, behind the arming. Whether what completes here may be written by threads of other processes. What comes over
 * sockets is given to the CQ by threads of this process, which look at the armed word behind a fence or a lock. A queue pair
 * that is connected later is so behind the arming.
 */
static bool hears_processes(const struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    for (unsigned i = 0; i < unheard(cq); i++)
        if (!ld(cq->polled[i].qp->has_socket))
            return true;
    return cq->arrival_lines > 0; /* else all others are put aside, and have sockets */
}

/*
 * Messages that have arrived by now are moved into the ring first, as on a device, where they would lie in the
 * CQ already and not fire; then the CQ is armed and the peers' view of it is ordered before
 * whatever the caller polls next.
 */
int soft_req_notify_cq(struct ibv_cq *ibcq, int solicited_only) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (soft_stale(cq))
        return EPERM;
    spin_lock(&cq->poll_lock);
    if (!soft_dropin)
        collect(cq);
    set_armed(cq, solicited_only ? SOFT_ARMED_SOLICITED : SOFT_ARMED_ANY);
    bool processes = hears_processes(cq);
    spin_unlock(&cq->poll_lock);
    /* Partners: requester.h, bell_wanted(); ud.c, bell_if_armed(); post_recv.c; cq.c, soft_cq_push(). */
    if (processes)
        soft_fence_all();
    else
        soft_fence();
    if (soft_dropin)
        fire_for_untaken(cq);
    look_after(cq);
    return 0;
}
