/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* aside_thread.c - a call on a thread of its own. `lock` guards done and left; the later of both frees the struct. */
#define _GNU_SOURCE
#include "base/aside_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/condition.h"
#include "common/thread.h"

struct aside {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    void (*run)(void *arg);
    void (*left_behind)(void *arg);
    void *arg;
    bool done, left;
};

static void aside_free(struct aside *a) {
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static void *aside_main(void *arg) {
    struct aside *a = arg;
    a->run(a->arg);
    pthread_mutex_lock(&a->lock);
    a->done = true;
    bool left = a->left;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (left) {
        a->left_behind(a->arg);
        aside_free(a);
    }
    return NULL;
}

struct aside *aside_start(const char *name, void (*run)(void *arg), void (*left)(void *arg),
                          void *arg) {
    struct aside *a = malloc(sizeof *a);
    if (!a)
        return NULL;
    *a = (struct aside){.run = run, .left_behind = left, .arg = arg};
    pthread_mutex_init(&a->lock, NULL);
    condition_init(&a->changed);
    if (thread_start(&a->thread, name, aside_main, a) != 0) {
        aside_free(a);
        return NULL;
    }
    return a;
}

/* The thread is at its end, and joined so that nothing of it is left when the caller returns. */
static void collect(struct aside *a) {
    pthread_join(a->thread, NULL);
    aside_free(a);
}

bool aside_wait(struct aside *a, uint64_t until_ns) {
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    int error = 0;
    pthread_mutex_lock(&a->lock);
    while (!a->done && error != ETIMEDOUT)
        error = until_ns == UINT64_MAX ? pthread_cond_wait(&a->changed, &a->lock)
                                       : pthread_cond_timedwait(&a->changed, &a->lock, &until);
    bool done = a->done;
    pthread_mutex_unlock(&a->lock);
    if (done)
        collect(a);
    return done;
}

bool aside_leave(struct aside *a) {
    pthread_mutex_lock(&a->lock);
    bool done = a->done;
    a->left = true;
    pthread_t thread = a->thread;
    if (!done)
        pthread_detach(thread);
    pthread_mutex_unlock(&a->lock);
    if (done)
        collect(a);
    return done;
}
