/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ownership.c - who may touch a loop: claiming, leaving, and taking it from a thread that is in it.
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

#define SEIZE_PAUSE_NS 50000
#define SEIZE_PAUSE_MAX_NS 5000000
#define CARE_TURNS 64 /* in a row, at most, while a thread that wants to poll may wait */

__thread struct loop_self loop_self __attribute__((tls_model("initial-exec")));
const char loop_seized;

void own_forked(void) {
    loop_self.current = NULL;
}

void own_init(void) {
    barrier_init();
}

bool own_one_cpu(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

static int take_over(struct sluice_loop *l, const void *owner) {
    if (atomic_load_explicit(&l->poll_busy, memory_order_acquire))
        return SLUICE_EINVAL; /* another thread is in it */
    if (!atomic_compare_exchange_strong(&l->owner, &owner, loop_me()))
        return owner == &loop_seized ? SLUICE_ECLOSED : SLUICE_EINVAL;
    barrier_everywhere();
    const void *me = loop_me();
    if (atomic_load_explicit(&l->poll_busy, memory_order_acquire)) {
        /* The earlier owner came in first; leave it the loop. */
        atomic_compare_exchange_strong(&l->owner, &me, owner);
        return SLUICE_EINVAL;
    }
    while (atomic_load_explicit(&l->send_busy, memory_order_acquire))
        sched_yield();
    return SLUICE_OK;
}

static int claim(struct sluice_loop *l) {
    const void *owner = atomic_load_explicit(&l->owner, memory_order_relaxed);
    if (owner == &loop_seized)
        return SLUICE_ECLOSED;
    if (owner != loop_me()) {
        int status = take_over(l, owner);
        if (status != SLUICE_OK)
            return status;
    } else if (atomic_load_explicit(&l->poll_busy, memory_order_relaxed)) {
        return SLUICE_EINVAL; /* from a handler of this very poll */
    }
    loop_self.current = l;
    return loop_mark_polling(l) ? SLUICE_OK : SLUICE_ECLOSED;
}

int loop_claim_slow(struct sluice_loop *l) {
    for (;;) {
        uint32_t care = atomic_load(&l->care);
        int status = claim(l);
        if (status == SLUICE_OK || atomic_load(&l->owner) == &loop_seized)
            return status;
        /* In the way was the CM thread, which leaves after a turn, or was it somebody to be told of? */
        if (!(care & 1) && atomic_load(&l->care) == care && status == SLUICE_EINVAL)
            return status;
        sched_yield();
    }
}

void loop_device_lost(struct sluice_loop *l) {
    mailbox_post(&l->mailbox, &l->device_lost_node, LOOP_MSG_DEVICE_LOST, 0, 0);
}

void loop_care(struct sluice_loop *l) {
    atomic_fetch_add(&l->care, 1);
    if (claim(l) == SLUICE_OK) {
        l->mute = true;
        for (int turns = 0; turns < CARE_TURNS && loop_progress(l) > 0; turns++)
            ;
        l->mute = false;
        loop_unclaim(l);
    }
    loop_self.current = NULL;
    atomic_fetch_add(&l->care, 1);
}

void loop_seize_begin(struct sluice_loop *l) {
    atomic_store(&l->owner, &loop_seized);
}

bool loop_seize_done(struct sluice_loop *l) {
    if (!atomic_load_explicit(&l->send_busy, memory_order_acquire) &&
        !atomic_load_explicit(&l->poll_busy, memory_order_acquire))
        return true;
    wakeup_signal_flag(&l->mailbox.wakeup);
    return false;
}

void loop_seize(struct sluice_loop *l) {
    struct timespec pause = {.tv_nsec = SEIZE_PAUSE_NS};
    loop_seize_begin(l);
    barrier_everywhere();
    while (!loop_seize_done(l)) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < SEIZE_PAUSE_MAX_NS)
            pause.tv_nsec *= 2; /* a handler may take its time */
    }
}
