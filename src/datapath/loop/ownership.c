/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ownership.c - which thread may touch a loop: claiming, leaving, and taking it from a thread that is in it.
 *
 * The head of loop.h explains the protocol. Threads that poll one loop in turn must hand it over in
 * an orderly way, as with any object of one owner; what the protocol adds is that an earlier owner
 * that only sends is never in the way, and that sluice_close() can take the loop at any time, and the
 * CM thread for a moment.
 */
#define _GNU_SOURCE
#include "datapath/loop/ownership.h"

#include <sched.h>
#include <time.h>

#include "base/barrier.h"
#include "datapath/loop/loop.h"
#include "datapath/loop/upward.h"

#define REVOKE_PAUSE_NS 50000
#define REVOKE_PAUSE_MAX_NS 5000000
#define ASSIST_MAX 64 /* in a row, at most, while a thread that wants to poll may wait */

__thread struct loop_thread loop_thread __attribute__((tls_model("initial-exec")));
const char loop_revoked;

void ownership_forked(void) {
    loop_thread.current = NULL;
}

void ownership_init(void) {
    barrier_init();
}

bool ownership_one_cpu(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

static int take_over(struct sluice_loop *l, const void *owner) {
    if (atomic_load_explicit(&l->poll_busy, memory_order_acquire))
        return SLUICE_EINVAL; /* another thread is in it */
    if (!atomic_compare_exchange_strong(&l->owner, &owner, loop_this_thread()))
        return owner == &loop_revoked ? SLUICE_ECLOSED : SLUICE_EINVAL;
    barrier_everywhere();
    const void *me = loop_this_thread();
    if (atomic_load_explicit(&l->poll_busy, memory_order_acquire)) {
        /* The earlier owner came in first; leave it the loop. */
        atomic_compare_exchange_strong(&l->owner, &me, owner);
        return SLUICE_EINVAL;
    }
    while (atomic_load_explicit(&l->send_busy, memory_order_acquire))
        sched_yield();
    return SLUICE_OK;
}

static int acquire(struct sluice_loop *l) {
    const void *owner = atomic_load_explicit(&l->owner, memory_order_relaxed);
    if (owner == &loop_revoked)
        return SLUICE_ECLOSED;
    if (owner != loop_this_thread()) {
        int status = take_over(l, owner);
        if (status != SLUICE_OK)
            return status;
    } else if (atomic_load_explicit(&l->poll_busy, memory_order_relaxed)) {
        return SLUICE_EINVAL; /* from a handler of this very poll */
    }
    loop_thread.current = l;
    return loop_mark_polling(l) ? SLUICE_OK : SLUICE_ECLOSED;
}

/* One that arrives from another loop has none (hand_over.c): it is that of its mailbox, which is there while the session is. */
int loop_enter_session(struct session *s, uint64_t id, struct sluice_loop **l, bool *nested) {
    *l = s ? atomic_load_explicit(&s->loop, memory_order_relaxed) : NULL;
    if (*l)
        return loop_enter(*l, nested) ? SLUICE_OK : SLUICE_EINVAL;
    if (!s || !session_ref_tryget(&s->ref, (uint32_t)id, 0, 0))
        return SLUICE_ECLOSED;
    *l = session_mail(s);
    bool mine = loop_enter(*l, nested);
    session_ref_put(&s->ref);
    return mine ? SLUICE_OK : SLUICE_EINVAL;
}

int loop_acquire_slow(struct sluice_loop *l) {
    for (;;) {
        uint32_t assist = atomic_load(&l->assist);
        int status = acquire(l);
        if (status == SLUICE_OK || atomic_load(&l->owner) == &loop_revoked)
            return status;
        /* Was the CM thread in the way, which leaves after a turn, or another thread, which is an error? */
        if (!(assist & 1) && atomic_load(&l->assist) == assist && status == SLUICE_EINVAL)
            return status;
        sched_yield();
    }
}

void loop_device_lost(struct sluice_loop *l) {
    mailbox_post(&l->mailbox, &l->device_lost_node, LOOP_MSG_DEVICE_LOST, 0, 0);
}

void loop_assist(struct sluice_loop *l) {
    atomic_fetch_add(&l->assist, 1);
    if (acquire(l) == SLUICE_OK) {
        l->defer_events = true;
        for (int turns = 0; turns < ASSIST_MAX && loop_progress(l) > 0; turns++)
            ;
        l->defer_events = false;
        loop_unmark_polling(l);
    }
    loop_thread.current = NULL;
    atomic_fetch_add(&l->assist, 1);
}

void loop_revoke_begin(struct sluice_loop *l) {
    atomic_store(&l->owner, &loop_revoked);
}

bool loop_revoke_done(struct sluice_loop *l) {
    if (!atomic_load_explicit(&l->send_busy, memory_order_acquire) &&
        !atomic_load_explicit(&l->poll_busy, memory_order_acquire))
        return true;
    wakeup_signal_flag(&l->mailbox.wakeup);
    return false;
}

void loop_revoke(struct sluice_loop *l) {
    struct timespec pause = {.tv_nsec = REVOKE_PAUSE_NS};
    loop_revoke_begin(l);
    barrier_everywhere();
    while (!loop_revoke_done(l)) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < REVOKE_PAUSE_MAX_NS)
            pause.tv_nsec *= 2; /* a handler may take its time */
    }
}
