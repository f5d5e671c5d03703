/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* thread.c - a thread begins with the mask of the one that creates it, and to be cancelled: that ends first. */
#define _GNU_SOURCE
#include "common/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

struct beginning {
    void *(*run)(void *arg);
    void *arg;
};

static void *begin(void *arg) {
    struct beginning own = *(struct beginning *)arg;
    free(arg);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return own.run(own.arg);
}

static int start(pthread_t *thread, const pthread_attr_t *attr, const char *name,
                 void *(*run)(void *arg), void *arg) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    sigset_t blocked, before;
    struct beginning *first = malloc(sizeof *first);
    if (!first)
        return ENOMEM;
    *first = (struct beginning){run, arg};
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, attr, begin, first);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(*thread, name);
    else
        free(first);
    return error;
}

int thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg) {
    return start(thread, NULL, name, run, arg);
}

int thread_start_on(pthread_t *thread, int cpu, const char *name, void *(*run)(void *arg),
                    void *arg) {
    pthread_attr_t attr;
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return EINVAL;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    int error = pthread_attr_init(&attr);
    if (error != 0)
        return error;
    error = pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    if (error == 0)
        error = start(thread, &attr, name, run, arg);
    pthread_attr_destroy(&attr);
    return error;
}

int thread_start_detached(const char *name, void *(*run)(void *arg), void *arg) {
    pthread_t thread;
    int error = thread_start(&thread, name, run, arg);
    if (error == 0)
        pthread_detach(thread);
    return error;
}
