/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* guests.c - see guests.h. Any thread. */
#include "node/guests.h"

#include <pthread.h>
#include <string.h>

#include "cm/dial_places.h"
#include "common/uncancelled.h"
#include "core/forked.h"
#include "core/resumable.h"
#include "core/session_table.h"
#include "node/node.h"
#include "node/worker_select.h"

/* A handler, so that what a guest has to tell waits for no room; it is never told of anything. */
static void hear_nothing(const sluice_event *event, void *arg) {
    (void)event, (void)arg;
}

/* Not published yet. The host is pinned. */
static struct session *make(sluice_node *n, struct session *host, struct sluice_loop *l) {
    struct link_config link = host->link_config;
    bool drained;
    link.loop = l;
    link.handler = hear_nothing;
    link.handler_arg = link.arg = NULL;
    link.flags &= ~(SLUICE_ASK | SLUICE_WAIT | SLUICE_RECEIVE_INTO);
    link.private_bytes = 0;
    struct session *s = node_session_make(n, &link, &drained);
    if (s)
        s->host_id = atomic_load_explicit(&host->id, memory_order_relaxed);
    return s;
}

/* Where the host's peer is, and by which id it knows the host. */
static int read_peer(struct session *host, char text[64], uint8_t id[16],
                     struct cm_places *places) {
    pthread_mutex_lock(&host->node->lock);
    memcpy(text, host->peer.address, 64);
    memcpy(id, host->resume.id, 16);
    pthread_mutex_unlock(&host->node->lock);
    return dial_places_read(places, text, NULL);
}

static int begin_dial(sluice_node *n, struct session *host, struct sluice_loop *l) {
    struct cm_places places;
    char address[sizeof host->peer.address];
    uint8_t id[16];
    int status = read_peer(host, address, id, &places);
    struct session *s = status == SLUICE_OK ? make(n, host, l) : NULL;
    if (!s)
        return status == SLUICE_OK ? SLUICE_ELIMIT : status;
    struct cm_conn *conn = &session_connection(s)->cm;
    uint64_t now = env_now(&n->env), timeout = s->link_config.timeout_ns;
    dial_places_give(conn, &places, NULL);
    memcpy(s->peer.address, address, sizeof s->peer.address);
    memcpy(conn->resume.session_id, id, sizeof conn->resume.session_id);
    conn->joins = true;
    s->dial_end_ns = timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
    session_table_publish(s, n->index, SESSION_REF_ANSWER); /* as in sluice_dial() */
    cm_post(n, session_connection(s), CM_MSG_DIAL);
    return SLUICE_OK;
}

/* What has no handler is polled, which no thread does with the loop of a worker. */
static bool may_be_on(const struct session *s, struct sluice_loop *to) {
    bool worker = false;
    for (uint32_t i = 0; i < s->node->worker_count; i++)
        worker |= s->node->workers[i].loop == to;
    return s->handler != NULL || !worker;
}

/* A listener's: its dialer makes the connection. */
static int ask(struct session *s, struct sluice_loop *to) {
    atomic_fetch_add_explicit(&to->assigned, 1, memory_order_relaxed); /* it stays open */
    if (atomic_load(&s->has_guest) || !session_want(s, to)) {
        atomic_fetch_sub_explicit(&to->assigned, 1, memory_order_relaxed);
        return SLUICE_EAGAIN;
    }
    /* One has come meanwhile, for another loop. */
    if (atomic_load(&s->has_guest) && atomic_compare_exchange_strong(&s->wanted, &to, NULL)) {
        atomic_fetch_sub_explicit(&to->assigned, 1, memory_order_relaxed);
        return SLUICE_EAGAIN;
    }
    if (session_ref_set(&s->ref, SESSION_REF_ASKS_MOVE))
        loop_post(session_mail(s), s, LOOP_MSG_ASK_MOVE);
    return SLUICE_OK;
}

/* Pinned, and up. */
static int begin_move(struct session *s, struct sluice_loop *to) {
    const uint32_t both = PRIVATE_DATA_FEATURE_MOVE | PRIVATE_DATA_FEATURE_RESUME;
    pthread_mutex_lock(&s->node->lock);
    bool up = s->info.up;
    pthread_mutex_unlock(&s->node->lock);
    if (!up)
        return SLUICE_ECLOSED;
    if (to->node != s->node || to == session_mail(s) || !may_be_on(s, to) ||
        (s->resume.features & both) != both || !s->resume.again)
        return SLUICE_EINVAL;
    return s->link_config.dialing ? guests_dial(s->node, s, to) : ask(s, to);
}

/* NULL: there is none such. */
static struct sluice_loop *worker_loop(const sluice_node *n, uint32_t worker) {
    return worker < n->worker_count ? n->workers[worker].loop : NULL;
}

static int move(sluice_session handle, struct sluice_loop *to, uint32_t worker) {
    struct session *s = forked_id(handle.id) ? NULL : session_table_find(handle.id);
    if (forked_id(handle.id))
        return SLUICE_EFORKED;
    if (!s || !session_ref_tryget(&s->ref, (uint32_t)handle.id, SESSION_REF_OPEN, 0))
        return SLUICE_ECLOSED;
    int status = SLUICE_ECLOSED;
    if (context_call_begin(s->node)) {
        if (!to)
            to = worker_loop(s->node, worker);
        status = to ? begin_move(s, to) : SLUICE_EINVAL;
        context_call_end(s->node);
    }
    session_ref_put(&s->ref);
    return status;
}

int sluice_session_move(sluice_session s, sluice_loop *to) {
    UNCANCELLED;
    return to ? move(s, to, 0) : SLUICE_EINVAL;
}

int sluice_session_move_worker(sluice_session s, uint32_t worker) {
    UNCANCELLED;
    return move(s, NULL, worker);
}

void guests_move_away(sluice_node *n, struct sluice_loop *from) {
    for (uint32_t slot = 0; slot < SESSION_TABLE_MAX; slot++) {
        struct session *s = session_table_find(session_handle_make(n->index, slot, 0));
        if (!s)
            break; /* chunks are made in order */
        uint32_t generation = session_ref_generation(atomic_load(&s->ref));
        if (!session_ref_tryget(&s->ref, generation, SESSION_REF_OPEN, 0))
            continue;
        struct sluice_loop *to = session_mail(s) == from ? worker_select_worker(n) : NULL;
        if (to && to != from)
            (void)begin_move(s, to);
        session_ref_put(&s->ref);
    }
}

int guests_dial(sluice_node *n, struct session *host, struct sluice_loop *l) {
    if (atomic_exchange(&host->has_guest, true))
        return SLUICE_EAGAIN;
    int status = begin_dial(n, host, l);
    if (status != SLUICE_OK)
        atomic_store(&host->has_guest, false);
    return status;
}

void guests_asked(sluice_node *n, struct session *host) {
    (void)guests_dial(n, host, session_mail(host));
}

struct session *guests_join(sluice_node *n, const uint8_t id[16], bool *busy) {
    struct session *host = resumable_take(n, id, busy), *s = NULL;
    if (!host)
        return NULL;
    *busy = atomic_exchange(&host->has_guest, true);
    if (!*busy) {
        struct sluice_loop *wanted = session_unwant(host);
        s = make(n, host, wanted ? wanted : session_mail(host));
        /* The guest counts, from now on. Without one the loop is let go, and a move has not come about. */
        if (wanted)
            atomic_fetch_sub_explicit(&wanted->assigned, 1, memory_order_relaxed);
        *busy = !s;
        if (!s)
            atomic_store(&host->has_guest, false);
    }
    resumable_taken(n, host);
    return s;
}
