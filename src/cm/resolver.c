/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resolver.c - one thread that asks name servers, so that nobody else waits for them.
 *
 * Started when a host name is dialed first. A lookup cannot be cancelled: on closing, the thread is
 * left to itself, finds the resolver closed when the lookup ends, and frees everything. So the
 * resolver is counted: by the CM thread while open and by its own thread.
 *
 * `lock` protects everything here. Requests are bounded by the number of sessions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm.h"

struct lookup {
    struct lookup *next;
    uint64_t id;
    int error;
    union cm_address address;
    char host[256];
};

struct cm_resolver {
    pthread_mutex_t lock;
    pthread_cond_t asked;
    struct mailbox *wake; /* NULL: closed */
    struct lookup *requests, **requests_tail, *answers, **answers_tail;
    _Atomic bool has_answers;
};

static void free_list(struct lookup *list) {
    while (list) {
        struct lookup *next = list->next;
        free(list);
        list = next;
    }
}

static void look_up(struct lookup *lookup) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found;
    lookup->error = getaddrinfo(lookup->host, NULL, &hints, &found);
    if (lookup->error != 0)
        return;
    if (found->ai_addrlen <= sizeof lookup->address)
        memcpy(&lookup->address, found->ai_addr, found->ai_addrlen);
    else
        lookup->error = EAI_FAMILY;
    freeaddrinfo(found);
}

static void *run(void *arg) {
    struct cm_resolver *r = arg;
    pthread_mutex_lock(&r->lock);
    while (r->wake) {
        struct lookup *lookup = r->requests;
        if (!lookup) {
            pthread_cond_wait(&r->asked, &r->lock);
            continue;
        }
        if (!(r->requests = lookup->next))
            r->requests_tail = &r->requests;
        pthread_mutex_unlock(&r->lock);
        look_up(lookup);
        pthread_mutex_lock(&r->lock);
        lookup->next = NULL;
        *r->answers_tail = lookup;
        r->answers_tail = &lookup->next;
        atomic_store(&r->has_answers, true);
        if (r->wake)
            doorbell_ring(&r->wake->bell, 0); /* under the lock: the bell is not closed meanwhile */
    }
    pthread_mutex_unlock(&r->lock);
    free_list(r->requests);
    free_list(r->answers);
    pthread_cond_destroy(&r->asked);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return NULL;
}

int resolver_open(struct cm_resolver **out, struct mailbox *wake) {
    struct cm_resolver *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->asked, NULL);
    r->wake = wake;
    r->requests_tail = &r->requests;
    r->answers_tail = &r->answers;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, run, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        pthread_cond_destroy(&r->asked);
        pthread_mutex_destroy(&r->lock);
        free(r);
        return -error;
    }
    pthread_setname_np(thread, "sluice-names");
    pthread_detach(thread);
    *out = r;
    return 0;
}

void resolver_close(struct cm_resolver *r) {
    pthread_mutex_lock(&r->lock);
    r->wake = NULL;
    pthread_cond_signal(&r->asked);
    pthread_mutex_unlock(&r->lock); /* its thread frees it */
}

int resolver_ask(struct cm_resolver *r, uint64_t id, const char *host) {
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return -ENOMEM;
    lookup->id = id;
    memcpy(lookup->host, host, strnlen(host, sizeof lookup->host - 1));
    pthread_mutex_lock(&r->lock);
    *r->requests_tail = lookup;
    r->requests_tail = &lookup->next;
    pthread_cond_signal(&r->asked);
    pthread_mutex_unlock(&r->lock);
    return 0;
}

bool resolver_has_answers(struct cm_resolver *r) {
    return atomic_load(&r->has_answers);
}

bool resolver_answer(struct cm_resolver *r, uint64_t *id, union cm_address *address, int *error) {
    if (!atomic_load(&r->has_answers))
        return false;
    pthread_mutex_lock(&r->lock);
    struct lookup *lookup = r->answers;
    if (lookup && !(r->answers = lookup->next))
        r->answers_tail = &r->answers;
    if (!r->answers)
        atomic_store(&r->has_answers, false);
    pthread_mutex_unlock(&r->lock);
    if (!lookup)
        return false;
    *id = lookup->id;
    *address = lookup->address;
    *error = lookup->error;
    free(lookup);
    return true;
}

const char *resolver_text(int error) {
    return gai_strerror(error);
}
