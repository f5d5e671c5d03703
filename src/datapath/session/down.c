/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * down.c - a session whose connection was lost waits for another one.
 *
 *   lost      the old connection is retired and drained; another one that nothing uses yet stands in its place
 *   drained   it is known what arrived. The dialer dials, a listener's session waits for its dialer
 *   coming    the CM thread has a connection for the session, which takes that place; it opens like a first one (open.c), with
 *             the number of the last frame that each side received in the records
 *   over      what the peer has not received is sent again (replay.c), and the session is up
 *
 * A connection that fails on its way is followed by the next one, until resume_ns is over. While a session is down it has no queue
 * pair and no receives; what is sent is queued up to the window. A dialer that was faster to notice the loss is believed: its
 * connection takes the place of one that seems to be up. Not where peers have keys, before the proof is there: it is told to come again.
 *
 * Large messages that were announced are announced again (rndv/again.c). Operations on memory are not done again (fence.c).
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/down.h"

#include <pthread.h>
#include <string.h>

#include "core/context.h"
#include "datapath/loop/events.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rpc/client.h"
#include "datapath/rpc/server.h"
#include "datapath/rx/acks.h"
#include "datapath/rx/credits.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/session/close.h"
#include "datapath/session/connections.h"
#include "datapath/session/drain.h"
#include "datapath/session/fence.h"
#include "datapath/session/move.h"
#include "datapath/session/open.h"
#include "datapath/session/redial.h"
#include "datapath/session/replay.h"
#include "datapath/tx/send.h"

#define PAUSE_FIRST_NS 10000000ull /* between a try that failed and the next */
#define PAUSE_LAST_NS 1000000000ull

/* ---- what survives ----------------------------------------------------------------------------- */

/*
 * Whether another connection may help. A listener's session is harmed by no connection that fails on its way, and a dialer's by
 * none that another program answered, or one without the key; it ends by what its own listener says.
 */
static bool may_pass(const struct session *s, sluice_reason reason) {
    bool waits = s->state == SESSION_DOWN && !s->link_config.dialing;
    switch (reason) {
    case SLUICE_REASON_PEER_LOST:
    case SLUICE_REASON_UNREACHABLE:
    case SLUICE_REASON_KEEPALIVE:
    case SLUICE_REASON_DEVICE_ERROR:
    case SLUICE_REASON_BUSY:
    case SLUICE_REASON_NO_LISTENER:
    case SLUICE_REASON_NO_MEMORY:
    case SLUICE_REASON_TIMEOUT:
        return true;
    case SLUICE_REASON_NOT_SLUICE:
    case SLUICE_REASON_AUTH_FAILED:
    case SLUICE_REASON_AUTH_ALTERED:
        return s->state == SESSION_DOWN;
    case SLUICE_REASON_REFUSED:
    case SLUICE_REASON_VERSION:
    case SLUICE_REASON_MALFORMED:
    case SLUICE_REASON_PROTOCOL:
    case SLUICE_REASON_CREDITS:
    case SLUICE_REASON_ADDRESS:
    case SLUICE_REASON_WRONG_DEVICE:
    case SLUICE_REASON_UNSUPPORTED:
    case SLUICE_REASON_VALUE:
    case SLUICE_REASON_AUTH_REQUIRED:
    case SLUICE_REASON_AUTH_KEY:
    case SLUICE_REASON_AUTH_REPLAY:
    case SLUICE_REASON_ACCESS:
        return waits;
    case SLUICE_REASON_NONE:
    case SLUICE_REASON_LOCAL_CLOSE:
    case SLUICE_REASON_PEER_CLOSE:
    case SLUICE_REASON_NODE_CLOSED:
    case SLUICE_REASON_DEVICE_REMOVED:
    case SLUICE_REASON_SESSION_UNKNOWN:
    case SLUICE_REASON_RESUME_TIMEOUT:
        return false;
    }
    return false;
}

static bool survives(const struct session *s, sluice_reason reason) {
    const struct sluice_node *n = s->node;
    if (s->rx.stopped || !may_pass(s, reason) ||
        atomic_load_explicit(&n->device_lost, memory_order_relaxed) ||
        atomic_load_explicit(&n->state, memory_order_relaxed) != NODE_OPEN)
        return false;
    if (s->state == SESSION_DOWN)
        return true;
    return (s->state == SESSION_UP || s->state == SESSION_FLUSHING) && !drain_said_bye(s) &&
           connection_keeps(session_connection(s)) && !(rndv_pending(s) && !s->resume.again);
}

/* ---- lost -------------------------------------------------------------------------------------- */

/* What the connection ended for is not what the session ends for, unless this side has hung up. */
static void forget_reason(struct session *s) {
    s->close.reason_provisional = false;
    if (s->close.hungup)
        return;
    pthread_mutex_lock(&s->node->lock);
    s->close.reason = SLUICE_REASON_NONE;
    s->close.vendor = 0;
    s->info.close_code = 0;
    s->info.cm_event = s->info.wc_status = -1;
    s->info.cm_status = 0;
    pthread_mutex_unlock(&s->node->lock);
}

bool down_replace(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct connection *before = session_connection(s), *c = connection_add(l, s);
    if (!c)
        return false;
    if (before->drain.down_polls > 0) {
        before->drain.down_polls = 0;
        l->downs--;
    }
    acks_forget(before);
    if (before->served) /* those that arrived took theirs; see receive_completed() */
        before->recv.reserved -= rpc_client_arrived(s);
    c->unused = true;
    c->sq.limit = 0;
    connection_put_first(s, c);
    if (!s->resume
             .draining) /* else this one has not begun, as the one that is drained has to be first */
        s->resume.draining = before;
    s->adopted = false;
    s->close.deadline_ns = 0;
    forget_reason(s);
    connection_retire(l, before);
    return true;
}

static uint64_t sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void note_loss(struct sluice_loop *l, struct session *s, sluice_reason reason,
                      uint32_t vendor, const char *text, uint64_t hangup_ns) {
    struct session_resume *r = &s->resume;
    uint64_t now = loop_clock(l);
    log_write(&l->node->log, SLUICE_LOG_INFO, "the connection to %s was lost: %s", s->peer.address,
              text && *text ? text : sluice_reason_text((int)reason));
    r->hangup_ns = hangup_ns;
    r->deadline_ns = sum(now, s->link_config.resume_ns);
    if (r->hangup_ns != 0 && r->hangup_ns < r->deadline_ns)
        r->deadline_ns = r->hangup_ns;
    r->down_ns = now;
    r->waits = false;
    r->pause_ns = r->retry_ns = 0;
    r->reason = reason;
    r->vendor = vendor;
    pthread_mutex_lock(&l->node->lock);
    s->info.up = 0;
    pthread_mutex_unlock(&l->node->lock);
    if (s->state != SESSION_DOWN)
        session_set_state(s, SESSION_DOWN);
    if (s->notices & NOTICE_RESUMED) /* the application was not told that it was up again */
        s->notices &= (uint8_t)~NOTICE_RESUMED;
    else
        event_notice(l, s, NOTICE_DOWN);
    loop_deadline(l, r->deadline_ns);
}

bool down_begin(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                const char *text) {
    loop_assert_inside(l);
    if (!survives(s, reason))
        return false;
    bool tries = s->state == SESSION_DOWN;
    uint64_t hangup_ns = s->state == SESSION_FLUSHING ? s->close.deadline_ns : 0;
    if (tries && loop_clock(l) >= s->resume.deadline_ns)
        return false;
    if (tries &&
        s->move.step >=
            MOVE_DRAINS) { /* the other connection is no good, and may be in its place already */
        if (s->move.step > MOVE_DRAINS && !down_replace(l, s))
            return false;
        down_move_failed(l, s, text);
        return true;
    }
    if (!tries) {
        fence_begin(s);
        move_abandon(l, s);
    }
    if (!down_replace(l, s))
        return false;
    if (!tries) {
        note_loss(l, s, reason, vendor, text, hangup_ns);
        return true;
    }
    uint64_t pause = 2 * s->resume.pause_ns;
    s->resume.pause_ns = pause < PAUSE_FIRST_NS  ? PAUSE_FIRST_NS
                         : pause < PAUSE_LAST_NS ? pause
                                                 : PAUSE_LAST_NS;
    return true;
}

bool down_move(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    uint64_t hangup_ns = s->state == SESSION_FLUSHING ? s->close.deadline_ns : 0;
    if (!down_replace(l, s))
        return false;
    uint64_t now = loop_clock(l);
    if (hangup_ns != 0 && hangup_ns < now + LINGER_NS) /* the good-bye goes over the other one */
        hangup_ns = now + LINGER_NS;
    s->resume.down_ns = now;
    s->resume.deadline_ns = hangup_ns != 0 ? hangup_ns : UINT64_MAX; /* move_timer() */
    s->resume.hangup_ns = hangup_ns;
    s->resume.retry_ns = s->resume.pause_ns = 0;
    s->resume.waits = false;
    session_set_state(s, SESSION_DOWN);
    loop_deadline(l, s->resume.deadline_ns);
    return true;
}

void down_hangup(struct sluice_loop *l, struct session *s, uint64_t due_ns) {
    loop_assert_inside(l);
    struct session_resume *r = &s->resume;
    due_ns = due_ns ? due_ns : 1;
    if (r->hangup_ns == 0 || due_ns < r->hangup_ns)
        r->hangup_ns = due_ns;
    if (r->hangup_ns < r->deadline_ns)
        r->deadline_ns = r->hangup_ns;
    loop_deadline(l, s->resume.deadline_ns);
    down_timer(l, s);
}

/* ---- dialing again ----------------------------------------------------------------------------- */

/* What the next one has to say, and where it may be dialed. */
static void prepare(struct session *s, struct connection *before) {
    struct connection *c = session_connection(s);
    redial_take(c, before);
    c->cm.resume.on = true;
    memcpy(c->cm.resume.session_id, before->cm.req.session_id, sizeof c->cm.resume.session_id);
    if (before->cm.resume.on)
        memcpy(c->cm.resume.session_id, before->cm.resume.session_id,
               sizeof c->cm.resume.session_id);
    c->cm.resume.last_sequence = c->rx.sequence;
}

static void dial(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    c->cm.again.deadline_ns = s->resume.deadline_ns;
    s->resume.retry_ns = loop_clock(l) + s->resume.pause_ns;
    loop_deadline(l, s->resume.retry_ns);
    down_timer(l, s);
}

void down_move_failed(struct sluice_loop *l, struct session *s, const char *text) {
    loop_assert_inside(l);
    const struct sluice_node *n = l->node;
    move_abandon(l, s);
    if (atomic_load_explicit(&n->device_lost, memory_order_relaxed)) {
        session_end(l, s, SLUICE_REASON_DEVICE_REMOVED, 0, DEVICE_LOST_TEXT);
        return;
    }
    if (atomic_load_explicit(&n->state, memory_order_relaxed) != NODE_OPEN) {
        session_end(l, s, SLUICE_REASON_PEER_LOST, 0, text);
        return;
    }
    note_loss(l, s, SLUICE_REASON_PEER_LOST, 0, text, s->resume.hangup_ns);
    if (s->link_config.dialing && !s->resume.draining)
        dial(l, s);
}

void down_drained(struct sluice_loop *l, struct connection *before) {
    struct session *s = before->session;
    loop_assert_inside(l);
    if (s->resume.draining != before)
        return;
    s->resume.draining = NULL;
    if (s->state == SESSION_OPENING)
        redial_drained(l, s, before);
    if (s->state != SESSION_DOWN)
        return;
    struct connection *c = session_connection(s);
    connection_go_on_counting(c, before);
    if (before->served)
        rndv_lost(l, s);
    if (s->link_config.dialing)
        prepare(s, before);
    if (move_drained(l, s))
        return;
    if (s->link_config.dialing)
        dial(l, s);
    else if (!c->unused)
        session_prepare(l, s);
}

void down_timer(struct sluice_loop *l, struct session *s) {
    struct session_resume *r = &s->resume;
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (s->state != SESSION_DOWN)
        return;
    if (l->now_ns >= r->deadline_ns) {
        session_end(l, s, SLUICE_REASON_RESUME_TIMEOUT, 0, NULL);
        return;
    }
    loop_deadline(l, r->deadline_ns);
    if (r->retry_ns == 0)
        return;
    if (l->now_ns < r->retry_ns) {
        loop_deadline(l, r->retry_ns);
        return;
    }
    r->retry_ns = 0;
    c->unused = false;
    cm_post(l->node, c, CM_MSG_DIAL);
}

/* ---- up again ---------------------------------------------------------------------------------- */

void down_tell(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    fence_told(l, s);
    event_turn(l, s);
    if (!s->resume.waits || s->notices & (NOTICE_DOWN | NOTICE_RESUMED))
        return;
    s->resume.waits = false;
    if (s->state == SESSION_UP || s->state == SESSION_FLUSHING)
        replay_begin(l, s, session_connection(s)->tx.acked);
}

void down_over(struct sluice_loop *l, struct session *s) {
    struct session_resume *r = &s->resume;
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint64_t now = loop_clock(l);
    if (!rpc_client_reserve_again(l, s)) {
        session_close(l, s, SLUICE_REASON_NO_MEMORY, 0, "no receives for the replies to come");
        return;
    }
    bool silent = s->move.silent;
    r->another = true;
    if (!silent) {
        r->up_again_ns = now - r->down_ns;
        r->count++;
        pthread_mutex_lock(&l->node->lock);
        s->info.up = 1;
        s->info.resumed = r->count;
        s->info.down_ns_total += r->up_again_ns;
        pthread_mutex_unlock(&l->node->lock);
    }
    r->deadline_ns = r->retry_ns = r->pause_ns = 0;
    s->landing.ns = now; /* its peer's time for what is not whole */
    session_set_state(s, SESSION_UP);
    if (!silent) {
        event_notice(l, s, NOTICE_RESUMED); /* before what may bring it down again */
        r->waits = r->fences;
    }
    if (r->waits)
        c->sq.limit = 0; /* replay_flush() */
    else
        replay_begin(l, s, c->tx.acked);
    if (s->window.waits_writable)
        send_check_writable(l, s);
    if (r->hangup_ns != 0) {
        rpc_server_hungup(l, s);
        session_flush_until(l, s, r->hangup_ns);
    }
    /* Before what comes over it; without room for that, nothing that comes has room either. */
    while (s->notices & (NOTICE_DOWN | NOTICE_RESUMED) && loop_room(l, s))
        down_tell(l, s);
    l->crowded |= s->notices != 0;
}
