/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reap.c - sessions that have ended: their slots become free when no thread is inside any more.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/reap.h"

#include "core/auth/keyring.h"
#include "core/context.h"
#include "core/resumable.h"
#include "datapath/rx/landing.h"
#include "datapath/rpc/client.h"
#include "datapath/session/connections.h"

void session_free(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    ASSERT(!s->over);
    s->over = true;
    /* It waits for memory and pins no more: these waits would only report its end again. */
    l->retries -= s->retry;
    l->pin_waits -= s->close.waits_for_pins;
    s->retry = s->close.waits_for_pins = false;
    s->dying_next = l->dying;
    l->dying = s;
}

/* All that it took has come back: the window, the send queue, what arrived, what was set aside. */
static void assert_over(const struct session *s) {
    const struct connection *c = session_connection(s);
    ASSERT(atomic_load(&s->window.own_messages) == 0 && atomic_load(&s->window.own_bytes) == 0);
    ASSERT(s->window.foreign_taken == 0 && atomic_load(&s->foreign.bytes) == 0);
    ASSERT(!s->tx.queue.head && !s->tx.replies.head && s->outcomes == 0);
    ASSERT(!s->rx.held.head && !s->rx.partial && s->landing.bytes == 0);
    ASSERT(!c->qp && c->sq.head == c->sq.tail && !c->sq.entries && !c->sq.headers);
    ASSERT(c->recv.own.posted == 0 && !c->recv.own.repost && c->recv.reserved == 0);
    ASSERT(c->credits.retained == 0 && c->credits.withheld_due == 0);
    ASSERT(!s->rndv && c->rma.posted == 0 && c->rma.reads == 0 && c->rma.large == 0);
    (void)c;
}

/* Frees sessions whose last event was delivered and that no thread is inside of. */
void session_reap(struct sluice_loop *l) {
    loop_assert_inside(l);
    if (l->retired > 0)
        connections_reap(l);
    struct session **at = &l->dying, *s;
    while ((s = *at)) {
        if (s->dirty || s->noticed || session_connection(s)->next ||
            !session_ref_tryfree(&s->ref)) {
            at = &s->dying_next; /* next turn */
            continue;
        }
        assert_over(s);
        *at = s->dying_next;
        *s->link = s->next;
        if (s->next)
            s->next->link = s->link;
        ASSERT(!s->retry && !s->close.waits_for_pins);
        session_set_state(s, SESSION_FREE);
        atomic_store_explicit(&s->id, 0, memory_order_relaxed);
        atomic_store_explicit(&s->loop, NULL, memory_order_relaxed);
        resumable_remove(l->node, s);
        landing_forget(l, s);
        rpc_client_forget(s);
        keyring_drop(s->link_config.keys);
        s->link_config.keys = NULL;
        connection_free(l->node->connections, session_connection(s));
        session_set_connection(s, NULL);
        session_table_free(s, l->node->index);
        atomic_fetch_sub_explicit(&l->assigned, 1, memory_order_relaxed);
        l->node->upcalls->session_ended(l->node);
    }
}
