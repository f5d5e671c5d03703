/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * coming.c - whether another connection is one for a session, and where both sides go on over it.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/coming.h"

#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/resumable.h"
#include "core/wire/frame.h"
#include "datapath/session/connections.h"
#include "datapath/session/down.h"
#include "datapath/session/drain.h"

/* What the peer says that it has received is what it can have received. */
static bool is_possible(const struct session *s, uint32_t received) {
    const struct session_resume *r = &s->resume;
    const struct connection *c = session_connection(s);
    bool up = s->state != SESSION_DOWN || r->draining;
    const struct connection *last = r->draining ? r->draining : c;
    uint32_t acked = up && last->served ? last->tx.acked : r->acked;
    uint32_t sent = up && last->served && !r->kept ? last->tx.sequence : r->sent;
    return received - acked <= sent - acked;
}

static void refuse(struct sluice_loop *l, struct connection *c, sluice_reason reason) {
    struct private_data_rej *rej = &c->cm.release;
    memset(rej, 0, sizeof *rej);
    rej->reason = (uint16_t)reason;
    snprintf(rej->text, sizeof rej->text, "%.*s", PRIVATE_DATA_REJ_TEXT,
             sluice_reason_text((int)reason));
    connection_retire(l, c);
}

/* And who was known by a key is known by that. */
bool coming_fits(const struct session *s, const struct connection *c) {
    const struct private_data_rep *rep = &c->cm.rep;
    const uint32_t large = PRIVATE_DATA_FEATURE_AGAIN | PRIVATE_DATA_FEATURE_ANSWERS |
                           PRIVATE_DATA_FEATURE_NUMBERS | PRIVATE_DATA_FEATURE_SHARED;
    const uint32_t both =
        PRIVATE_DATA_FEATURE_RESUME | PRIVATE_DATA_FEATURE_PIECES | (s->resume.features & large);
    bool keyed = rep->features & PRIVATE_DATA_FEATURE_HMAC;
    return (rep->features & both) == both &&
           (1u << rep->eager_log2) - FRAME_BYTES == s->tx.frame_payload &&
           1ull << rep->message_log2 == s->rx.message_max &&
           keyed == (s->link_config.keys != NULL) && (!keyed || c->cm.req.key_id == s->info.key_id);
}

/* NONE: it may take the place of the session's connection, which is not used then, or is lost by this. */
static sluice_reason judge(struct sluice_loop *l, struct session *s, const struct connection *c) {
    if (s->state != SESSION_UP && s->state != SESSION_FLUSHING && s->state != SESSION_DOWN)
        return SLUICE_REASON_SESSION_UNKNOWN;
    if (s->link_config.dialing || !coming_fits(s, c))
        return SLUICE_REASON_SESSION_UNKNOWN;
    if (!is_possible(s, c->cm.req.last_sequence))
        return SLUICE_REASON_VALUE;
    if (s->state == SESSION_DOWN && s->move.step == MOVE_DRAINS && s->link_config.keys)
        return SLUICE_REASON_BUSY; /* as below; the move has its own limit */
    if (s->state == SESSION_DOWN && s->move.step == MOVE_DRAINS)
        down_move_failed(l, s, "the peer has made another connection");
    if (s->state == SESSION_DOWN)
        return session_connection(s)->unused ? SLUICE_REASON_NONE : SLUICE_REASON_BUSY;
    if (s->link_config.keys)
        return SLUICE_REASON_BUSY; /* who says so is not known yet */
    if (!down_begin(l, s, SLUICE_REASON_PEER_LOST, 0, "the peer has made another connection"))
        return SLUICE_REASON_SESSION_UNKNOWN;
    return SLUICE_REASON_NONE;
}

void coming_arrived(struct sluice_loop *l, struct connection *c, enum loop_msg verb) {
    struct session *s = c->session;
    loop_assert_inside(l);
    c->coming = false;
    c->next = session_connection(s)->next;
    session_connection(s)->next = c;
    resumable_taken(l->node, s);
    if (verb != LOOP_MSG_PREPARE) { /* it failed, and is none of this session any more */
        connection_retire(l, c);
        return;
    }
    sluice_reason reason = judge(l, s, c);
    if (reason != SLUICE_REASON_NONE) {
        refuse(l, c, reason);
        return;
    }
    struct connection *unused = session_connection(s);
    ASSERT(unused->unused);
    connection_put_first(s, c);
    connection_go_on_counting(c, unused);
    c->next = unused->next;
    connection_free(l->node->connections, unused);
}

const char *coming_agree(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint32_t received = c->cm.passive ? c->cm.req.last_sequence : c->cm.rep.last_sequence;
    if (!coming_fits(s, c))
        return "other frames, other messages or another key than the session has";
    if (!is_possible(s, received))
        return "it received what was never sent, or lost what it had";
    c->tx.sequence = c->tx.acked = received;
    return NULL;
}
