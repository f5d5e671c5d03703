/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sessions.c - sessions and listeners from the application's side: dial, listen, answer, hang up.
 *
 * Any thread. A call that changes a session goes through its reference (core/session_ref.h) and then by message
 * to the thread that owns it; a query of a session's details is read under the node's lock.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "cm/cm.h"
#include "cm/dial_places.h"
#include "cm/listen.h"
#include "core/auth/keyring.h"
#include "datapath/loop/loop.h"
#include "datapath/rpc/client.h"
#include "datapath/rx/alloc_wait.h"
#include "node/node.h"
#include "node/worker_select.h"

/* ---- slots ----------------------------------------------------------------------------------- */

/* A slot that was taken and is not filled yet. */
static void give_back(sluice_node *n, struct session *s) {
    session_table_uncount(n->index);
    session_table_free(s, n->index);
    node_session_ended(n);
}

static struct connection *make_connection(sluice_node *n, struct session *s, sluice_loop *l,
                                          const struct link_config *link) {
    struct connection *c = connection_make(n->connections, s);
    if (!c)
        return NULL;
    c->loop = l;
    c->credits.max = link->credits;
    c->recv.frame_bytes = 1u << n->options.eager_log2;
    return c;
}

struct session *node_session_make(sluice_node *n, const struct link_config *link, bool *drained) {
    /* The slot first: while it is taken sluice_close() waits, so the loops are there. But a listener's
     * request is no call it has waited for before: it may have found no slot taken, and gone on. */
    struct session *s = session_table_alloc(n->index, n->options.sessions_max);
    struct connection *c = s ? make_connection(n, s, NULL, link) : NULL;
    bool closing = !link->dialing && atomic_load(&n->state) != NODE_OPEN;
    struct sluice_loop *l = c && !closing ? worker_select_loop(n, link) : NULL;
    *drained = c && !l;
    if (!l) {
        if (c)
            connection_free(n->connections, c);
        if (s)
            give_back(n, s);
        return NULL;
    }
    /* The reference stays FREE: no handle reaches the session while it is filled. */
    uint64_t word = atomic_load_explicit(&s->ref, memory_order_relaxed);
    uint32_t slot = s->slot;
    memset((char *)s + offsetof(struct session, state), 0,
           offsetof(struct session, ref) - offsetof(struct session, state));
    memset((char *)s + offsetof(struct session, foreign), 0,
           sizeof *s - offsetof(struct session, foreign));
    atomic_store_explicit(&s->ref, word, memory_order_relaxed);
    s->slot = slot;
    s->node = n;
    s->pool = n->pool;
    s->rx_pool = n->rx_pool;
    session_set_state(s, SESSION_OPENING);
    s->link_config = *link;
    keyring_hold(link->keys);    /* session_reap() drops it */
    s->link_config.loops = NULL; /* the array is the listener's or the caller's, and may go */
    s->link_config.loop_count = 0;
    s->handler = link->handler;
    s->handler_arg = link->handler_arg;
    s->arg = link->arg;
    s->window.messages = link->window_messages;
    s->window.bytes = link->window_bytes;
    c->loop = l;
    session_set_connection(s, c);
    s->info.cm_event = s->info.cm_status = s->info.wc_status = -1;
    msg_queue_init(&s->tx.queue);
    msg_queue_init(&s->tx.replies);
    msg_queue_init(&s->rx.held);
    atomic_store_explicit(&s->foreign.hangup_grace, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&s->mail, l, memory_order_relaxed);
    atomic_store_explicit(&s->loop, l, memory_order_relaxed);
    return s;
}

struct session *node_session(sluice_node *n, const struct link_config *link) {
    bool drained;
    return node_session_make(n, link, &drained);
}

struct connection *node_session_resume(sluice_node *n, const uint8_t id[16], bool *busy) {
    struct session *s = resumable_take(n, id, busy);
    if (!s)
        return NULL;
    struct connection *c = make_connection(n, s, session_mail(s), &s->link_config);
    *busy = !c;
    if (!c) {
        resumable_taken(n, s);
        return NULL;
    }
    c->coming = true;
    return c;
}

void node_session_ended(sluice_node *n) {
    if (atomic_load_explicit(&n->state, memory_order_relaxed) != NODE_CLOSING)
        return;
    pthread_mutex_lock(&n->lock);
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

/* ---- dialing --------------------------------------------------------------------------------- */

static int dial(sluice_node *n, const char *address, const sluice_link_options *o,
                sluice_session *out, sluice_error *e) {
    struct link_config link;
    struct cm_places places, *copy;
    int status = dial_places_read(&places, address, e);
    if (status == SLUICE_OK)
        status = options_link(&link, n, o, true, e);
    if (status != SLUICE_OK)
        return status;
    if (!dial_places_copy(&places, &copy)) {
        keyring_drop(link.keys);
        return error_set(e, SLUICE_ENOMEM, 0, ENOMEM, "no memory for the addresses");
    }
    bool drained;
    struct session *s = node_session_make(n, &link, &drained);
    keyring_drop(link.keys); /* the session has its own reference */
    if (!s)
        free(copy);
    if (!s && drained)
        return error_set(e, SLUICE_ELIMIT, 0, 0, "every worker of the node is drained");
    if (!s)
        return error_set(e, SLUICE_ELIMIT, 0, 0, "the node has its %u sessions, or no memory",
                         n->options.sessions_max);
    struct cm_conn *conn = &session_connection(s)->cm;
    dial_places_give(conn, &places, copy);
    s->known = true;
    uint64_t now = env_now(&n->env);
    s->dial_end_ns = link.timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + link.timeout_ns;
    if (places.count > 1)
        snprintf(s->peer.address, sizeof s->peer.address, "%.63s", address);
    else if (places.at[0].host[0])
        snprintf(s->peer.address, sizeof s->peer.address, "%.56s:%u", places.at[0].host,
                 places.at[0].port);
    else
        address_format(&conn->candidates[0].any, s->peer.address);
    /* ANSWER marks the message on its way: the slot cannot be freed before the CM thread took it,
     * even if sluice_close() hangs the session up at this very moment. */
    out->id = session_table_publish(s, n->index, SESSION_REF_ANSWER);
    cm_post(n, session_connection(s), CM_MSG_DIAL);
    return SLUICE_OK;
}

int sluice_dial(sluice_node *n, const char *address, const sluice_link_options *o,
                sluice_session *out, sluice_error *e) {
    UNCANCELLED;
    if (forked_node(n))
        return error_set(e, SLUICE_EFORKED, 0, 0, FORKED_TEXT);
    if (!n || !out)
        return error_set(e, SLUICE_EINVAL, 0, 0, "no node, or nowhere to put the session");
    if (!context_call_begin(n))
        return error_set(e, SLUICE_ECLOSED, SLUICE_REASON_NODE_CLOSED, 0, "the node is closed");
    int status = dial(n, address, o, out, e);
    context_call_end(n);
    return status;
}

/* ---- answers --------------------------------------------------------------------------------- */

static int answer(sluice_session handle, bool accepted, void *arg, uint16_t code,
                  const char *text) {
    if (forked_id(handle.id))
        return SLUICE_EFORKED;
    struct session *s = session_table_find(handle.id);
    if (!s || !session_ref_tryget(&s->ref, (uint32_t)handle.id, SESSION_REF_ASKED, 0))
        return SLUICE_ECLOSED;
    int status = SLUICE_ECLOSED;
    if (session_ref_set(&s->ref, SESSION_REF_ANSWERED)) {
        struct cm_conn *conn = &session_connection_seen(s)->cm;
        conn->accepted = accepted;
        conn->answer_arg = arg;
        conn->refuse_code = code;
        snprintf(conn->refuse_text, sizeof conn->refuse_text, "%s", text ? text : "");
        session_ref_set(&s->ref, SESSION_REF_ANSWER);
        cm_post(s->node, session_connection_seen(s), CM_MSG_ANSWER);
        status = SLUICE_OK;
    }
    session_ref_put(&s->ref);
    return status;
}

int sluice_accept(sluice_session s, void *arg) {
    UNCANCELLED;
    return answer(s, true, arg, 0, NULL);
}

int sluice_refuse(sluice_session s, uint16_t code, const char *text) {
    UNCANCELLED;
    return answer(s, false, NULL, code, text);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Pinned by the caller. */
static void ask_hangup(struct session *s, uint64_t grace_ns) {
    uint64_t grace = atomic_load_explicit(&s->foreign.hangup_grace, memory_order_relaxed);
    while (grace_ns < grace &&
           !atomic_compare_exchange_weak_explicit(&s->foreign.hangup_grace, &grace, grace_ns,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
    if (session_ref_set(&s->ref, SESSION_REF_HANGUP))
        loop_post(session_mail(s), s, LOOP_MSG_HANGUP);
}

void sluice_hangup(sluice_session handle, uint64_t grace_ns) {
    UNCANCELLED;
    struct session *s = forked_id(handle.id) ? NULL : session_table_find(handle.id);
    if (!s || !session_ref_tryget(&s->ref, (uint32_t)handle.id, 0, 0))
        return;
    ask_hangup(s, grace_ns);
    session_ref_put(&s->ref);
}

void node_hangup_all(sluice_node *n, uint64_t grace_ns) {
    for (uint32_t slot = 0; slot < SESSION_TABLE_MAX; slot++) {
        struct session *s = session_table_find(session_handle_make(n->index, slot, 0));
        if (!s)
            break; /* chunks are made in order */
        uint64_t word = atomic_load_explicit(&s->ref, memory_order_acquire);
        if ((word & SESSION_REF_FREE) ||
            !session_ref_tryget(&s->ref, session_ref_generation(word), 0, 0))
            continue;
        ask_hangup(s, grace_ns);
        session_ref_put(&s->ref);
    }
}

int sluice_session_get_info(sluice_session handle, sluice_session_info *info) {
    UNCANCELLED;
    if (forked_id(handle.id))
        return SLUICE_EFORKED;
    if (!info || info->size < sizeof info->size)
        return SLUICE_EINVAL;
    struct session *s = session_table_find(handle.id);
    if (!s || !session_ref_tryget(&s->ref, (uint32_t)handle.id, 0, 0))
        return SLUICE_ECLOSED;
    sluice_session_info known = {.size = info->size};
    pthread_mutex_lock(&s->node->lock);
    memcpy(known.peer, s->peer.address, sizeof known.peer);
    known.message_bytes_max = s->info.message_bytes_max;
    known.eager_bytes = s->info.eager_bytes;
    known.credits = s->info.credits;
    known.close_code = s->info.close_code;
    memcpy(known.close_text, s->info.close_text, sizeof known.close_text);
    known.key_id = s->info.key_id;
    known.keepalive_ns = s->info.keepalive_ns;
    known.tries = s->info.tries;
    known.cm_event = s->info.cm_event;
    known.cm_status = s->info.cm_status;
    known.wc_status = s->info.wc_status;
    known.shared = s->info.shared;
    known.transport = s->info.transport;
    known.up = s->info.up;
    known.resumed = s->info.resumed;
    known.down_ns_total = s->info.down_ns_total;
    known.moved = s->info.moved;
    pthread_mutex_unlock(&s->node->lock);
    known.kept = atomic_load_explicit(&session_connection_seen(s)->credits.published_retained,
                                      memory_order_relaxed);
    known.granted = atomic_load_explicit(&session_connection_seen(s)->credits.published_granted,
                                         memory_order_relaxed);
    known.requests = rpc_client_count(s);
    known.waits = atomic_load_explicit(&s->shown_waits, memory_order_relaxed);
    if (alloc_wait_pending(session_mail(s)))
        known.waits |= SLUICE_WAITS_MEMORY;
    known.window_messages_used =
        (uint32_t)atomic_load_explicit(&s->window.own_messages, memory_order_relaxed) +
        (uint32_t)session_ref_count(&s->ref);
    known.window_bytes_used = atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed) +
                              atomic_load_explicit(&s->foreign.bytes, memory_order_relaxed);
    session_ref_put(&s->ref);
    size_t bytes = info->size < sizeof known ? info->size : sizeof known;
    memcpy(info, &known, bytes);
    return SLUICE_OK;
}

/* ---- listeners ------------------------------------------------------------------------------- */

/* Until the CM thread has answered; in a node driven by hand, by doing its work. */
static void await_listener(sluice_node *n, struct cm_listener *listener) {
    while (n->manual && (uint32_t)atomic_load(&listener->word) == LISTENER_STARTING)
        cm_progress(n->cm, 0);
    pthread_mutex_lock(&n->lock);
    while ((uint32_t)atomic_load(&listener->word) == LISTENER_STARTING)
        pthread_cond_wait(&n->changed, &n->lock);
    pthread_mutex_unlock(&n->lock);
}

static int listen_at(sluice_node *n, const char *address, const sluice_link_options *o,
                     sluice_listener *out, sluice_error *e) {
    struct link_config link;
    union address parsed;
    char host[256];
    int status = address_parse(address, true, &parsed, host, e);
    if (status == SLUICE_OK)
        status = options_link(&link, n, o, false, e);
    if (status != SLUICE_OK)
        return status;
    struct cm_listener *listener = listener_take(n);
    if (!listener) {
        keyring_drop(link.keys);
        return error_set(e, SLUICE_ELIMIT, 0, 0,
                         "a node has at most %d listeners, or there is no memory", LISTENERS_MAX);
    }
    listener->address = parsed;
    listener->everywhere = host[0] != 0; /* "*" */
    listener->link = link;               /* and with it the reference to the keys */
    if (link.loop_count > 0) {           /* the caller's array need not live on */
        memcpy(listener->loops, link.loops, link.loop_count * sizeof *link.loops);
        listener->link.loops = listener->loops;
    }
    worker_select_hold(&listener->link);
    mailbox_post(&n->cm_mailbox, &listener->item, CM_MSG_LISTEN, listener->slot,
                 (uint32_t)listener_handle(listener));
    await_listener(n, listener);
    if ((uint32_t)atomic_load(&listener->word) == LISTENER_LISTENING) {
        out->id = listener_handle(listener);
        return SLUICE_OK;
    }
    status = reason_status(listener->reason);
    error_set(e, (sluice_status)status, listener->reason, listener->os_errno, "%s", listener->text);
    listener_give_back(listener);
    return status;
}

int sluice_listen(sluice_node *n, const char *address, const sluice_link_options *o,
                  sluice_listener *out, sluice_error *e) {
    UNCANCELLED;
    if (forked_node(n))
        return error_set(e, SLUICE_EFORKED, 0, 0, FORKED_TEXT);
    if (!n || !out)
        return error_set(e, SLUICE_EINVAL, 0, 0, "no node, or nowhere to put the listener");
    if (!context_call_begin(n))
        return error_set(e, SLUICE_ECLOSED, SLUICE_REASON_NODE_CLOSED, 0, "the node is closed");
    int status = listen_at(n, address, o, out, e);
    context_call_end(n);
    return status;
}

int sluice_listener_port(sluice_listener handle) {
    if (forked_id(handle.id))
        return SLUICE_EFORKED;
    enum listener_life life;
    struct cm_listener *listener = listener_find(handle.id, &life);
    if (!listener)
        return SLUICE_ECLOSED;
    return life == LISTENER_LISTENING ? listener->port : SLUICE_EDEVICE;
}

void sluice_unlisten(sluice_listener handle) {
    UNCANCELLED;
    enum listener_life life;
    struct cm_listener *listener = forked_id(handle.id) ? NULL : listener_find(handle.id, &life);
    if (listener)
        listener_stop(listener, (uint32_t)handle.id);
}
