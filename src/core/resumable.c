/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resumable.c - the sessions that may get another connection: a table by id, whose first bytes are random.
 *
 * Owner: any thread, under the node's lock.
 */
#include "core/resumable.h"

#include <pthread.h>
#include <string.h>

#include "core/context.h"
#include "core/session.h"

static struct session **bucket_of(struct sluice_node *n, const uint8_t id[16]) {
    uint16_t hash;
    memcpy(&hash, id, sizeof hash);
    return &n->resumable[hash % RESUMABLE_BUCKETS];
}

void resumable_add(struct sluice_node *n, struct session *s, const uint8_t id[16]) {
    pthread_mutex_lock(&n->lock);
    if (!s->resume.listed) {
        struct session **bucket = bucket_of(n, id);
        memcpy(s->resume.id, id, sizeof s->resume.id);
        s->resume.listed = true;
        s->resume.next = *bucket;
        *bucket = s;
    }
    pthread_mutex_unlock(&n->lock);
}

void resumable_remove(struct sluice_node *n, struct session *s) {
    pthread_mutex_lock(&n->lock);
    if (s->resume.listed) {
        struct session **at = bucket_of(n, s->resume.id);
        while (*at != s)
            at = &(*at)->resume.next;
        *at = s->resume.next;
        s->resume.listed = false;
    }
    pthread_mutex_unlock(&n->lock);
}

struct session *resumable_take(struct sluice_node *n, const uint8_t id[16], bool *busy) {
    pthread_mutex_lock(&n->lock);
    struct session *s = *bucket_of(n, id);
    while (s && memcmp(s->resume.id, id, sizeof s->resume.id) != 0)
        s = s->resume.next;
    /* So many threads are inside that to pin it would be to wait for one of them: it passes. */
    bool crowded = s && (atomic_load(&s->ref) & SESSION_REF_USERS) > SESSION_REF_USERS / 2;
    *busy = s && (s->resume.coming || crowded);
    if (*busy || (s && !session_ref_tryget(&s->ref, session_generation(s), 0, 0)))
        s = NULL;
    if (s)
        s->resume.coming = true;
    pthread_mutex_unlock(&n->lock);
    return s;
}

void resumable_taken(struct sluice_node *n, struct session *s) {
    pthread_mutex_lock(&n->lock);
    s->resume.coming = false;
    pthread_mutex_unlock(&n->lock);
    session_ref_put(&s->ref);
}
