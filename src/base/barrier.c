/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* barrier.c - membarrier(2), or fences on both sides where it is missing. */
#define _GNU_SOURCE
#include "base/barrier.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

bool barrier_needed = true;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void ask(void) {
    barrier_needed = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
}

/* Every process asks for itself, a child of fork() too. */
static void prepare(void) {
    ask();
    pthread_atfork(NULL, NULL, ask);
}

void barrier_init(void) {
    pthread_once(&once, prepare);
}

void barrier_everywhere(void) {
    if (barrier_needed || syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
        atomic_thread_fence(memory_order_seq_cst);
}
