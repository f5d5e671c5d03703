/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * redial.c - a dial whose listener answered, and gave the connection up before the session was up, goes on.
 *
 * A listener that is busy ends handshakes in favour of others (cm/admission.h). Before it has answered it says so in the refusal, and
 * the CM thread makes the next try (cm/dial_retry.c). After that the dialer has a queue pair that was connected, and HELLO may be
 * under way over it: the connection is retired, as that of a session that is lost, and the CM thread dials over another one, after a
 * pause, with what is left of the time.
 *
 * What was up, though its application does not know yet, ends as any session does: messages of the peer may be there. And so does one whose
 * listener can only end the connection and not say why, over TCP after its answer and with iWARP until HELLO has come: its application
 * may have hung up, and is not to be asked again.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/redial.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/failure_text.h"
#include "datapath/session/close.h"
#include "datapath/session/down.h"

#define HEARD_NS 10000000000ull /* at most, from a completion to the event that says why */

static bool goes_on(struct sluice_loop *l, const struct session *s, sluice_reason reason) {
    const struct sluice_node *n = s->node;
    const struct connection *c = session_connection(s);
    return reason == SLUICE_REASON_BUSY && s->state == SESSION_OPENING &&
           s->move.step != MOVE_SAID && s->link_config.dialing && c->recv.heard && !c->served &&
           !s->close.hungup && !(s->link_config.flags & SLUICE_ONCE) &&
           loop_clock(l) < s->dial_end_ns &&
           !atomic_load_explicit(&n->device_lost, memory_order_relaxed) &&
           atomic_load_explicit(&n->state, memory_order_relaxed) == NODE_OPEN;
}

/* What it ends with if no other connection comes up in time. */
static struct cm_failure failure_of(struct session *s, sluice_reason reason, uint32_t vendor,
                                    const char *text) {
    pthread_mutex_lock(&s->node->lock);
    struct cm_failure why = {.reason = reason,
                             .vendor = vendor,
                             .code = (uint16_t)s->info.close_code,
                             .cm_event = s->info.cm_event,
                             .cm_status = s->info.cm_status};
    pthread_mutex_unlock(&s->node->lock);
    snprintf(why.text, sizeof why.text, "%s",
             text && *text ? text : sluice_reason_text((int)reason));
    return why;
}

bool redial_begin(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                  const char *text) {
    loop_assert_inside(l);
    if (!goes_on(l, s, reason))
        return false;
    struct cm_failure why = failure_of(s, reason, vendor, text);
    if (!down_replace(l, s))
        return false;
    log_write(&l->node->log, SLUICE_LOG_DEBUG, "%s answered, and gave the connection up: %s",
              s->peer.address, why.text);
    session_connection(s)->cm.last = why;
    pthread_mutex_lock(&s->node->lock);
    snprintf(s->info.close_text, sizeof s->info.close_text, "%s", why.text);
    pthread_mutex_unlock(&s->node->lock);
    return true;
}

bool redial_awaits(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (s->state != SESSION_OPENING || !s->link_config.dialing || !c->recv.heard || c->served ||
        s->close.hungup || s->move.step == MOVE_SAID) /* a guest that has told its host */
        return false;
    if (!c->broke) {
        c->broke = true;
        s->close.deadline_ns = loop_clock(l) + HEARD_NS;
        if (s->close.deadline_ns > s->dial_end_ns)
            s->close.deadline_ns = s->dial_end_ns;
        loop_deadline(l, s->close.deadline_ns);
    }
    return true;
}

void redial_gone(struct sluice_loop *l, struct session *s) {
    char text[sizeof s->info.close_text];
    loop_assert_inside(l);
    int32_t status = s->info.wc_status;
    failure_text_of_completion(text, sizeof text, (enum ibv_wc_status)status);
    session_close(l, s, SLUICE_REASON_PEER_LOST, (uint32_t)status, text);
}

void redial_take_places(struct connection *c, struct connection *before) {
    struct cm_conn *to = &c->cm, *from = &before->cm;
    memcpy(to->candidates, from->candidates, sizeof to->candidates);
    to->candidate_count = from->candidate_count;
    to->places = from->places;
    from->places = NULL;
    for (unsigned i = 0; to->places && i < to->places->count; i++)
        to->places->at[i].conn = to;
}

void redial_take(struct connection *c, struct connection *before) {
    redial_take_places(c, before);
    c->cm.greets = before->cm.greets;
}

void redial_drained(struct sluice_loop *l, struct session *s, struct connection *before) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    redial_take(c, before);
    c->cm.joins = before->cm.joins;
    if (c->cm.joins)
        memcpy(c->cm.resume.session_id, before->cm.resume.session_id,
               sizeof c->cm.resume.session_id);
    c->cm.again.on = true;
    c->cm.again.deadline_ns = s->dial_end_ns;
    c->cm.pause_ns = before->cm.pause_ns;
    c->cm.head_start_ns = before->cm.head_start_ns;
    c->unused = false;
    cm_post(l->node, c, CM_MSG_DIAL);
}
