/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* guest.c - see guest.h. */
#include "datapath/session/guest.h"

#include <pthread.h>

#include "core/context.h"
#include "core/session_table.h"
#include "core/wire/frame.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"
#include "datapath/session/close.h"
#include "datapath/session/connections.h"
#include "datapath/session/redial.h"

/* ---- the host ---------------------------------------------------------------------------------- */

/* Pinned; NULL: it is over. */
static struct session *host_of(const struct session *s) {
    struct session *host = session_table_find(s->host_id);
    return host && session_ref_tryget(&host->ref, (uint32_t)s->host_id, 0, 0) ? host : NULL;
}

/* False: there is no host. */
static bool tell(struct session *s, enum loop_msg verb) {
    struct session *host = host_of(s);
    if (!host)
        return false;
    atomic_fetch_add_explicit(&s->ref, 1, memory_order_relaxed);
    loop_post(session_mail(host), s, verb);
    session_ref_put(&host->ref);
    return true;
}

/* Which may have another one. */
static void forget_host(const struct session *s) {
    struct session *host = host_of(s);
    if (!host)
        return;
    atomic_store(&host->has_guest, false);
    session_ref_put(&host->ref);
}

void guest_ready(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    c->early = NULL;
    c->early_tail = &c->early;
    c->waits = true;
    s->rx.stopped = true; /* what comes from now on is looked at by guest_holds() */
    if (tell(s, LOOP_MSG_GUEST_READY))
        s->move.step = MOVE_SAID;
    else
        session_close(l, s, SLUICE_REASON_SESSION_UNKNOWN, 0, NULL);
}

/* Of frames that are held, one is its peer's good-bye to the host. */
static bool holds_bye(const struct connection *c) {
    for (const struct sluice_msg *msg = c->early; msg; msg = msg->next)
        if (frame_get(msg->data - FRAME_BYTES).type == FRAME_BYE)
            return true;
    return false;
}

void guest_ended(struct session *s) {
    if (s->move.step == MOVE_CONFIRMS)
        return; /* the host knows */
    if (s->move.step == MOVE_NONE)
        forget_host(s);
    if (s->move.step != MOVE_SAID)
        return;
    s->move.heard = holds_bye(session_connection(s)); /* for the host */
    (void)tell(s, LOOP_MSG_GUEST_LOST);
}

void guest_release(struct session *s) {
    forget_host(s);
    atomic_fetch_sub_explicit(&s->ref, 1, memory_order_release);
}

void guest_let_go(struct session *s) {
    atomic_store(&s->let_go, true);
    if (session_ref_set(&s->ref, SESSION_REF_HANGUP)) {
        atomic_store_explicit(&s->foreign.hangup_grace, 0, memory_order_relaxed);
        loop_post(session_mail(s), s, LOOP_MSG_HANGUP);
    }
    guest_release(s);
}

/* ---- early frames ------------------------------------------------------------------------------ */

bool guest_holds(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                 const struct ibv_wc *wc) {
    loop_assert_inside(l);
    if (wc->opcode != IBV_WC_RECV || wc->byte_len < FRAME_BYTES || c->early_count >= c->rx.granted)
        return false;
    msg->size = wc->byte_len;
    msg->next = NULL;
    *c->early_tail = msg;
    c->early_tail = &msg->next;
    c->early_count++;
    return true;
}

void guest_give_up(struct sluice_loop *l, struct sluice_msg *msg) {
    loop_assert_inside(l);
    if (msg->flags & MSG_SHARED)
        srq_restore(l, msg);
    else
        recv_buffer_put(l, msg);
}

void guest_drop(struct sluice_loop *l, struct connection *c) {
    struct sluice_msg *msg;
    loop_assert_inside(l);
    while ((msg = c->early)) {
        c->early = msg->next;
        c->early_count--;
        guest_give_up(l, msg);
    }
}

/* ---- giving ------------------------------------------------------------------------------------ */

bool guest_waits(const struct session *s) {
    return s->state == SESSION_OPENING && s->move.step == MOVE_SAID;
}

bool guest_stays(struct session *s) {
    return guest_waits(s) && !atomic_load(&s->let_go);
}

struct connection *guest_give(struct sluice_loop *l, struct session *s, struct session *host) {
    struct connection *c = session_connection(s), *unused = session_connection(host);
    struct connection *former = c->next; /* of a guest that was dialed again: they are its own */
    loop_assert_inside(l);
    ASSERT(unused->unused && c->loop == l);
    c->next = unused->next;
    c->credits.retained = c->credits.withheld_due = unused->credits.retained;
    connection_go_on_counting(c, unused);
    if (host->link_config.dialing)
        redial_take_places(c, unused);
    unused->next = former;
    unused->credits.retained = unused->credits.withheld_due = 0;
    connection_set_session(unused, s);
    connection_set_session(c, host);
    session_set_connection(host, c);
    session_set_connection(s, unused);
    pthread_mutex_lock(&l->node->lock);
    host->info.shared = s->info.shared;
    pthread_mutex_unlock(&l->node->lock);
    srq_renamed(l, c);
    s->move.step = MOVE_CONFIRMS; /* the host knows */
    session_end(l, s, SLUICE_REASON_LOCAL_CLOSE, 0, NULL);
    return c;
}
