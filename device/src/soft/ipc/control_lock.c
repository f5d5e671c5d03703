/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * control_lock.c - see control_lock.h.
 *
 * A mutex alone goes to the quickest thread. That is the thread that has just unlocked it and wants it again: the
 * engine, with peers that give it work all the time, or a call that waits for a peer and looks again and again. So a
 * thread that waits for the lock holds the entry mutex meanwhile, and no other thread can overtake it.
 */
#define _GNU_SOURCE
#include "soft/ipc/control_lock.h"
#include "common/condition.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/assert.h"

static pthread_mutex_t entry = PTHREAD_MUTEX_INITIALIZER;
/* Held for microseconds, by a thread that is often just about to let go: spins a little. */
static pthread_mutex_t control = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t changed; /* with control */
unsigned soft_lock_waiters;
#if ASSERTIONS
static __thread bool mine;
#endif

static void note(bool has) {
#if ASSERTIONS
    mine = has;
#else
    (void)has;
#endif
}

#if ASSERTIONS
void soft_assert_locked(void) {
    ASSERT(mine);
}
#endif

void soft_lock(void) {
    pthread_mutex_lock(&entry);
    pthread_mutex_lock(&control);
    pthread_mutex_unlock(&entry);
    note(true);
}

void soft_unlock(void) {
    note(false);
    pthread_mutex_unlock(&control);
}

/* Cancellation is off: a thread that is cancelled while it waits would end with the lock held. */
bool soft_lock_wait(uint64_t deadline_ns) {
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                             .tv_nsec = (long)(deadline_ns % 1000000000u)};
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    soft_lock_waiters++;
    int rc = pthread_cond_timedwait(&changed, &control, &until);
    soft_lock_waiters--;
    pthread_setcancelstate(state, NULL);
    return rc != ETIMEDOUT;
}

void soft_lock_wake(void) {
    soft_assert_locked();
    pthread_cond_broadcast(&changed);
}

void soft_lock_start(void) {
    condition_init(&changed);
}

void soft_lock_forked(void) {
    soft_lock_start(); /* those that waited are the parent's, */
    soft_lock_waiters = 0;
    pthread_mutex_init(&entry, NULL); /* the thread that held it is not in the child */
}
