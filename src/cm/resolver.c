/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resolver.c - a few threads that ask name servers, so that no other thread waits for them.
 *
 * Dials of one name share one lookup, which has one thread: so a name that hangs keeps no more than that, however
 * often it is dialed. Threads are started one by one when no thread is free. ASKING_MAX of them at most are inside
 * getaddrinfo(); while so many are, the thread beyond them asks this host alone (numbers, /etc/hosts) about the names
 * that wait: those it knows go on, the others wait for a thread that asks servers.
 *
 * A lookup waits in a list only while a dial waits for it, so the lists are bounded by dials that exist. What is under
 * way cannot be cancelled: it keeps its thread, and dials of the same name join it. On closing, the
 * threads are left to themselves, find the resolver closed when their lookups end, and the last one
 * frees everything: the channel too in which rdma_cm answers (addrinfo.c), because a thread may be about to
 * write there.
 *
 * `lock` protects everything here but a lookup that is in no list, which is its thread's or the CM
 * thread's; `known`, and of each lookup `known`, `dials` and `host`, are the CM thread's alone (the last: to write).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <urcu/list.h>

#include "cm/resolver.h"
#include "cm/addrinfo.h"
#include "cm/name_lookup.h"
#include "base/env.h"
#include "common/thread.h"

#define ASKING_MAX 16 /* lookups by name servers under way */
#define IDLE_MAX 2    /* threads that wait for a request; one more ends */
#define BUCKETS 64

struct cm_lookup {
    struct cm_addrinfo_query query; /* first */
    struct cds_list_head link;      /* fresh, seen or answers; in none while a thread has it */
    struct cds_list_head known;     /* from the first dial of the name to the answer */
    struct cds_list_head dials;     /* cm_place.asking */
    bool begun;                     /* a thread has it, or had it: in no list of requests */
    bool seen;                      /* this host does not know the name */
    bool unasked;                   /* it had no dials when a server was to be asked */
    bool wanted;                    /* it has dials */
    struct cm_names names;
    uint32_t hash;
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
    unsigned threads, idle, asking;     /* idle: in pthread_cond_wait(); asking: a name server */
    unsigned unseen;                    /* length of `fresh` */
    struct cds_list_head fresh, seen;   /* requests, by lookup.seen */
    struct cds_list_head answers;
    _Atomic bool has_answers;
    struct cds_list_head known[BUCKETS]; /* lookups not answered, by the hash of their name */
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

/* No dial waits for it any more, or the node is closed. */
static bool is_over(struct cm_resolver *r, const struct cm_lookup *lookup) {
    pthread_mutex_lock(&r->lock);
    bool over = !r->wake || !lookup->wanted;
    pthread_mutex_unlock(&r->lock);
    return over;
}

/* rdma_cm is asked about the address that is tried first, not about the name: a name server is asked once. */
static void ask_rdma_cm(struct cm_resolver *r, struct cm_lookup *lookup) {
    if (r->channel && !atomic_load_explicit(&r->unable, memory_order_relaxed) &&
        !is_over(r, lookup) &&
        cm_addrinfo_ask(&lookup->query, r->fabric, r->channel, &lookup->names.addresses[0]) ==
            -ENOSYS)
        atomic_store_explicit(&r->unable, true, memory_order_relaxed);
}

static void ask_servers(struct cm_resolver *r, struct cm_lookup *lookup) {
    name_lookup_servers(&r->env, lookup->host, &lookup->names);
    if (lookup->names.error == 0)
        ask_rdma_cm(r, lookup);
}

/* ---- the threads ------------------------------------------------------------------------------ */

static void destroy(struct cm_resolver *r) {
    free_list(r, &r->fresh);
    free_list(r, &r->seen);
    free_list(r, &r->answers);
    if (r->channel)
        r->fabric->destroy_event_channel(r->channel);
    pthread_cond_destroy(&r->asked);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* With the lock held. */
static void answer(struct cm_resolver *r, struct cm_lookup *lookup) {
    cds_list_add_tail(&lookup->link, &r->answers);
    atomic_store(&r->has_answers, true);
    if (r->wake)
        wakeup_signal_flag(
            &r->wake->wakeup); /* under the lock: the wakeup is not closed meanwhile */
}

/* With the lock held. */
static void wait_for_server(struct cm_resolver *r, struct cm_lookup *lookup) {
    lookup->begun = lookup->unasked = false;
    cds_list_add_tail(&lookup->link, &r->seen);
}

/* With the lock held, which is let go meanwhile; the oldest request first. False: there is none. */
static bool serve_servers(struct cm_resolver *r) {
    struct cm_lookup *lookup = pop(&r->seen);
    if (!lookup) {
        lookup = pop(&r->fresh);
        r->unseen -= lookup != NULL;
    }
    if (!lookup)
        return false;
    lookup->begun = true;
    r->asking++;
    pthread_mutex_unlock(&r->lock);
    ask_servers(r, lookup);
    pthread_mutex_lock(&r->lock);
    r->asking--;
    answer(r, lookup);
    return true;
}

/* Asks the host's own names alone, for which no server is needed. The CM thread drops a lookup that lost its dials. */
static bool serve_host(struct cm_resolver *r) {
    struct cm_lookup *lookup = pop(&r->fresh);
    if (!lookup)
        return false;
    r->unseen--;
    lookup->begun = true;
    pthread_mutex_unlock(&r->lock);
    bool known = name_lookup_host(&r->env, lookup->host, &lookup->names);
    pthread_mutex_lock(&r->lock);
    lookup->seen = true;
    lookup->unasked = !known && !lookup->wanted;
    if (known || lookup->unasked)
        answer(r, lookup);
    else
        wait_for_server(r, lookup);
    return true;
}

static void *run(void *arg) {
    struct cm_resolver *r = arg;
    pthread_mutex_lock(&r->lock);
    while (r->wake) {
        if (r->asking < ASKING_MAX ? serve_servers(r) : serve_host(r))
            continue;
        if (r->idle == IDLE_MAX)
            break;
        r->idle++;
        pthread_cond_wait(&r->asked, &r->lock);
        r->idle--;
    }
    bool last = --r->threads == 0 && !r->wake;
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
    CDS_INIT_LIST_HEAD(&r->fresh);
    CDS_INIT_LIST_HEAD(&r->seen);
    CDS_INIT_LIST_HEAD(&r->answers);
    for (unsigned i = 0; i < BUCKETS; i++)
        CDS_INIT_LIST_HEAD(&r->known[i]);
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

static uint32_t hash_name(const char *host) {
    uint32_t hash = 2166136261u; /* FNV-1a, of letters in one case */
    for (; *host; host++)
        hash = (hash ^ (uint32_t)(*host >= 'A' && *host <= 'Z' ? *host | 32 : *host)) * 16777619u;
    return hash;
}

static struct cm_lookup *find(struct cm_resolver *r, const char *host, uint32_t hash) {
    struct cm_lookup *lookup;
    cds_list_for_each_entry(lookup, &r->known[hash % BUCKETS], known)
        if (lookup->hash == hash && strcasecmp(lookup->host, host) == 0)
            return lookup;
    return NULL;
}

static int request(struct cm_resolver *r, const char *host, uint32_t hash, struct cm_lookup **out) {
    struct cm_lookup *lookup = calloc(1, sizeof *lookup);
    int error = 0;
    if (!lookup)
        return -ENOMEM;
    CDS_INIT_LIST_HEAD(&lookup->dials);
    lookup->wanted = true;
    lookup->hash = hash;
    memcpy(lookup->host, host, strnlen(host, sizeof lookup->host - 1));
    pthread_mutex_lock(&r->lock);
    if (r->unseen >= r->idle && r->threads <= ASKING_MAX) /* and one that asks this host */
        error = start_thread(r);
    bool served = r->threads > 0; /* one more would have been better, but one comes round */
    if (served) {
        cds_list_add_tail(&lookup->link, &r->fresh);
        r->unseen++;
        pthread_cond_signal(&r->asked);
    }
    pthread_mutex_unlock(&r->lock);
    if (!served) {
        free(lookup);
        return error;
    }
    cds_list_add(&lookup->known, &r->known[hash % BUCKETS]);
    *out = lookup;
    return 0;
}

int resolver_ask(struct cm_resolver *r, struct cm_place *place) {
    uint32_t hash = hash_name(place->host);
    struct cm_lookup *lookup = find(r, place->host, hash);
    int error = lookup ? 0 : request(r, place->host, hash, &lookup);
    if (error != 0)
        return error;
    place->lookup = lookup;
    cds_list_add_tail(&place->asking, &lookup->dials);
    pthread_mutex_lock(&r->lock);
    lookup->wanted = true;
    pthread_mutex_unlock(&r->lock);
    return 0;
}

void resolver_leave(struct cm_resolver *r, struct cm_place *place) {
    struct cm_lookup *lookup = place->lookup;
    if (!lookup)
        return;
    cds_list_del(&place->asking);
    place->lookup = NULL;
    if (!cds_list_empty(&lookup->dials))
        return;
    pthread_mutex_lock(&r->lock);
    lookup->wanted = false;
    bool drop = !lookup->begun;
    if (drop) {
        r->unseen -= !lookup->seen;
        cds_list_del(&lookup->link);
    }
    pthread_mutex_unlock(&r->lock);
    if (!drop)
        return;
    cds_list_del(&lookup->known);
    free(lookup);
}

bool resolver_has_answers(struct cm_resolver *r) {
    return atomic_load(&r->has_answers);
}

/* Its name was asked of no server for want of a dial: it has one again, or it goes. */
static void settle(struct cm_resolver *r, struct cm_lookup *lookup) {
    if (cds_list_empty(&lookup->dials)) {
        cds_list_del(&lookup->known);
        free(lookup);
        return;
    }
    wait_for_server(r, lookup);
    pthread_cond_signal(&r->asked);
}

struct cm_lookup *resolver_take(struct cm_resolver *r) {
    struct cm_lookup *lookup;
    if (!atomic_load(&r->has_answers))
        return NULL;
    pthread_mutex_lock(&r->lock);
    while ((lookup = pop(&r->answers)) && lookup->unasked)
        settle(r, lookup);
    if (cds_list_empty(&r->answers))
        atomic_store(&r->has_answers, false);
    pthread_mutex_unlock(&r->lock);
    return lookup;
}

void resolver_answer(struct cm_resolver *r, struct cm_lookup *lookup, struct cm_names *out) {
    *out = lookup->names;
    cm_addrinfo_prefer(&lookup->query, out);
    cm_addrinfo_end(&lookup->query, r->fabric);
    cds_list_del(&lookup->known); /* from here on a dial of the name asks again */
}

struct cm_place *resolver_next(struct cm_lookup *lookup) {
    if (cds_list_empty(&lookup->dials)) {
        free(lookup);
        return NULL;
    }
    struct cm_place *place = cds_list_first_entry(&lookup->dials, struct cm_place, asking);
    cds_list_del(&place->asking);
    place->lookup = NULL;
    return place;
}

const char *resolver_text(int error) {
    return gai_strerror(error);
}
