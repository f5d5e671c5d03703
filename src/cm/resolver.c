/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resolver.c - a few threads that ask name servers, so that no other thread waits for them.
 *
 * Started one by one when a name is dialed and no thread is free, up to THREADS_MAX: a name that
 * takes long delays no other until so many of them do. A lookup cannot be cancelled: on closing, the
 * threads are left to themselves, find the resolver closed when their lookups end, and the last one
 * frees everything: the channel too in which rdma_cm answers (addrinfo.c), because a thread may be about to
 * write there.
 *
 * `lock` protects everything here but a lookup that is in no list, which is its thread's or the CM
 * thread's. Requests are bounded by the number of sessions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <urcu/list.h>

#include "cm/resolver.h"
#include "cm/addrinfo.h"
#include "base/env.h"
#include "base/thread.h"

#define THREADS_MAX 4
#define FOUND_MAX 32 /* addresses looked at, before the same ones are left out */

struct cm_lookup {
    struct cm_addrinfo_query query; /* first */
    struct cds_list_head link;
    struct cm_names names;
    char host[256];
};

struct cm_resolver {
    pthread_mutex_t lock;
    pthread_cond_t asked;
    struct mailbox *wake; /* NULL: closed */
    struct sluice_env env;
    const struct fabric_ops *fabric;
    struct rdma_event_channel *channel; /* NULL: rdma_cm is not asked */
    _Atomic bool unable;                /* it was, and has no such call */
    unsigned threads, idle, waiting;    /* idle: in pthread_cond_wait(); waiting: requests */
    struct cds_list_head requests, answers;
    _Atomic bool has_answers;
};

static void free_list(struct cm_resolver *r, struct cds_list_head *list) {
    struct cm_lookup *lookup, *next;
    cds_list_for_each_entry_safe(lookup, next, list, link) {
        cm_addrinfo_end(&lookup->query, r->fabric);
        free(lookup);
    }
}

/* The oldest, no longer in the list; NULL: it is empty. */
static struct cm_lookup *pop(struct cds_list_head *list) {
    if (cds_list_empty(list))
        return NULL;
    struct cm_lookup *lookup = cds_list_first_entry(list, struct cm_lookup, link);
    cds_list_del(&lookup->link);
    return lookup;
}

/* ---- a lookup, without the lock --------------------------------------------------------------- */

static int ask_system(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                      unsigned *count) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found;
    (void)arg;
    int error = getaddrinfo(host, NULL, &hints, &found);
    if (error != 0)
        return error;
    for (struct addrinfo *at = found; at && *count < max; at = at->ai_next)
        if (at->ai_addrlen <= sizeof *out)
            memcpy(&out[(*count)++], at->ai_addr, at->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

static void add(struct cm_names *names, const struct sockaddr_storage *found) {
    union address address = {0};
    size_t bytes = found->ss_family == AF_INET    ? sizeof address.v4
                   : found->ss_family == AF_INET6 ? sizeof address.v6
                                                  : 0;
    if (bytes == 0 || names->count == CM_CANDIDATES)
        return;
    memcpy(&address, found, bytes);
    for (unsigned i = 0; i < names->count; i++)
        if (cm_same_host(&names->addresses[i], &address))
            return;
    names->addresses[names->count++] = address;
}

/* Without descriptors no name server can be asked: that is a local error, whatever getaddrinfo() makes of it. */
static int short_of_files(void) {
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error == EMFILE || error == ENFILE ? error : 0;
}

/* rdma_cm is asked about the address that is tried first, not about the name: a name server is asked once. */
static void ask_rdma_cm(struct cm_resolver *r, struct cm_lookup *lookup) {
    if (r->channel && !atomic_load_explicit(&r->unable, memory_order_relaxed) &&
        cm_addrinfo_ask(&lookup->query, r->fabric, r->channel, &lookup->names.addresses[0]) ==
            -ENOSYS)
        atomic_store_explicit(&r->unable, true, memory_order_relaxed);
}

static void look_up(struct cm_resolver *r, struct cm_lookup *lookup) {
    const struct sluice_env *env = &r->env;
    struct sockaddr_storage found[FOUND_MAX];
    struct cm_names *names = &lookup->names;
    unsigned count = 0;
    memset(found, 0, sizeof found);
    errno = 0;
    names->error = (env->resolve ? env->resolve : ask_system)(env->arg, lookup->host, found,
                                                              FOUND_MAX, &count);
    names->os_errno = names->error == EAI_SYSTEM ? errno : names->error ? short_of_files() : 0;
    for (unsigned i = 0; names->error == 0 && i < count && i < FOUND_MAX; i++)
        add(names, &found[i]);
    if (names->error == 0 && names->count == 0)
        names->error = EAI_NONAME;
    if (names->error == 0)
        ask_rdma_cm(r, lookup);
}

/* ---- the threads ------------------------------------------------------------------------------ */

static void destroy(struct cm_resolver *r) {
    free_list(r, &r->requests);
    free_list(r, &r->answers);
    if (r->channel)
        r->fabric->destroy_event_channel(r->channel);
    pthread_cond_destroy(&r->asked);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static struct cm_lookup *take_request(struct cm_resolver *r) {
    struct cm_lookup *lookup = pop(&r->requests);
    r->waiting -= lookup != NULL;
    return lookup;
}

static void *run(void *arg) {
    struct cm_resolver *r = arg;
    pthread_mutex_lock(&r->lock);
    while (r->wake) {
        struct cm_lookup *lookup = take_request(r);
        if (!lookup) {
            r->idle++;
            pthread_cond_wait(&r->asked, &r->lock);
            r->idle--;
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        look_up(r, lookup);
        pthread_mutex_lock(&r->lock);
        cds_list_add_tail(&lookup->link, &r->answers);
        atomic_store(&r->has_answers, true);
        if (r->wake)
            wakeup_signal_flag(
                &r->wake->wakeup); /* under the lock: the wakeup is not closed meanwhile */
    }
    bool last = --r->threads == 0;
    pthread_mutex_unlock(&r->lock);
    if (last)
        destroy(r);
    return NULL;
}

/* With the lock held. 0 or -errno. */
static int start_thread(struct cm_resolver *r) {
    int error = thread_start_detached("sluice-names", run, r);
    if (error == 0)
        r->threads++;
    return -error;
}

/* ---- the CM thread's side --------------------------------------------------------------------- */

/* NULL: without rdma_cm. */
static struct rdma_event_channel *open_channel(const struct fabric_ops *fabric) {
    struct rdma_event_channel *channel = fabric->create_event_channel();
    int flags = channel ? fcntl(channel->fd, F_GETFL) : -1;
    if (channel && (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)) {
        fabric->destroy_event_channel(channel);
        channel = NULL;
    }
    return channel;
}

int resolver_open(struct cm_resolver **out, struct mailbox *wake, const struct fabric_ops *fabric,
                  const struct sluice_env *env) {
    struct cm_resolver *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->asked, NULL);
    r->wake = wake;
    r->env = *env;
    r->fabric = fabric;
    if (wake->wakeup.channel && fabric->resolve_addrinfo && !env->resolve)
        r->channel = open_channel(fabric);
    CDS_INIT_LIST_HEAD(&r->requests);
    CDS_INIT_LIST_HEAD(&r->answers);
    *out = r;
    return 0;
}

void resolver_close(struct cm_resolver *r) {
    pthread_mutex_lock(&r->lock);
    r->wake = NULL;
    bool last = r->threads == 0;
    pthread_cond_broadcast(&r->asked);
    pthread_mutex_unlock(&r->lock);
    if (last)
        destroy(r); /* else the last thread does */
}

struct rdma_event_channel *resolver_channel(struct cm_resolver *r) {
    return r->channel;
}

int resolver_ask(struct cm_resolver *r, uint64_t id, const char *host) {
    struct cm_lookup *lookup = calloc(1, sizeof *lookup);
    int error = 0;
    if (!lookup)
        return -ENOMEM;
    lookup->names.id = id;
    memcpy(lookup->host, host, strnlen(host, sizeof lookup->host - 1));
    pthread_mutex_lock(&r->lock);
    if (r->waiting >= r->idle && r->threads < THREADS_MAX)
        error = start_thread(r);
    if (r->threads > 0) { /* one more would have been better, but one comes round */
        error = 0;
        cds_list_add_tail(&lookup->link, &r->requests);
        r->waiting++;
        lookup = NULL;
        pthread_cond_signal(&r->asked);
    }
    pthread_mutex_unlock(&r->lock);
    free(lookup);
    return error;
}

bool resolver_has_answers(struct cm_resolver *r) {
    return atomic_load(&r->has_answers);
}

struct cm_lookup *resolver_take(struct cm_resolver *r) {
    if (!atomic_load(&r->has_answers))
        return NULL;
    pthread_mutex_lock(&r->lock);
    struct cm_lookup *lookup = pop(&r->answers);
    if (cds_list_empty(&r->answers))
        atomic_store(&r->has_answers, false);
    pthread_mutex_unlock(&r->lock);
    return lookup;
}

void resolver_answer(struct cm_resolver *r, struct cm_lookup *lookup, struct cm_names *out) {
    *out = lookup->names;
    cm_addrinfo_prefer(&lookup->query, out);
    cm_addrinfo_end(&lookup->query, r->fabric);
    free(lookup);
}

const char *resolver_text(int error) {
    return gai_strerror(error);
}
