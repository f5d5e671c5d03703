/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* name_server.c - see name_server.h. */
#include "support/name_server.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned inside, answered;
    bool go;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void name_server_go(bool go) {
    pthread_mutex_lock(&server.lock);
    server.go = go;
    if (!go)
        server.answered = 0;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.lock);
}

void name_server_lookup(bool hangs) {
    pthread_mutex_lock(&server.lock);
    server.inside++;
    while (hangs && !server.go)
        pthread_cond_wait(&server.changed, &server.lock);
    server.inside--;
    server.answered++;
    pthread_mutex_unlock(&server.lock);
}

static unsigned look(const unsigned *count) {
    pthread_mutex_lock(&server.lock);
    unsigned is = *count;
    pthread_mutex_unlock(&server.lock);
    return is;
}

unsigned name_server_inside(void) {
    return look(&server.inside);
}

unsigned name_server_answered(void) {
    return look(&server.answered);
}
