/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* thread.c - a thread begins with the mask of the one that creates it. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

int thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(*thread, name);
    return error;
}

int thread_start_detached(const char *name, void *(*run)(void *arg), void *arg) {
    pthread_t thread;
    int error = thread_start(&thread, name, run, arg);
    if (error == 0)
        pthread_detach(thread);
    return error;
}
