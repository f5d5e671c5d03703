/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * barrier.c - membarrier(2), or fences on both sides where it is missing.
 *
 * It may go missing later: a seccomp filter forbids it. The other threads then have no fence yet. From the first
 * failure on they fence. A thread that is between its store and its load at that moment has its store visible
 * long before the pause here is over, as a processor keeps a store back only for as long as its cache line takes to
 * come. No caller relies on the fences before that pause is over, whichever thread makes it.
 *
 * Any thread. `settling` is held for the length of the pause.
 */
#define _GNU_SOURCE
#include "base/barrier.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Atomic bool barrier_needed = true;

static _Atomic bool settled = true; /* the other side has had its fence for as long as it takes */
static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void ask(void) {
    bool missing = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
    barrier_needed = missing;
    settled = missing;
}

/* The thread that held the lock does not exist in the child. */
static void ask_in_child(void) {
    pthread_mutex_init(&settling, NULL);
    ask();
}

/* Every process asks for itself, a child of fork() too. */
static void prepare(void) {
    ask();
    pthread_atfork(NULL, NULL, ask_in_child);
}

void barrier_init(void) {
    pthread_once(&once, prepare);
}

static void pause_ns(long ns) {
    struct timespec left = {.tv_nsec = ns};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* membarrier() failed: when this returns, every other thread fences. */
static void settle(void) {
    pthread_mutex_lock(&settling);
    if (!atomic_load(&settled)) {
        atomic_store(&barrier_needed, true);
        pause_ns(BARRIER_PAUSE_NS);
        atomic_store(&settled, true);
    }
    pthread_mutex_unlock(&settling);
}

void barrier_everywhere(void) {
    if (!atomic_load(&settled)) {
        if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
            return;
        settle();
    }
    atomic_thread_fence(memory_order_seq_cst);
}
