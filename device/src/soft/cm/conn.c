/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * conn.c - the connection's states: how timers and the end of a peer change them; answer.c has
 * how messages do.
 *
 * Follows the kernel's IB connection manager, with its timers made short (timers.h). Control lock
 * held throughout; runs on the engine thread, except when a call starts something. No function here touches a QP:
 * the thread that makes the call or fetches the event does that.
 */
#include "soft/cm/conn.h"

#include <errno.h>
#include <string.h>

#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/mpa.h"
#include "soft/cm/mpa_answer.h"
#include "soft/cm/port_cache.h"
#include "soft/cm/quiet.h"
#include "soft/cm/tcp.h"
#include "soft/cm/timers.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/fd_shortage.h"
#include "soft/ipc/peer.h"
#include "soft/object/profile.h"

#define REFUSED_AGAIN_US 1000

static void on_timer(struct soft_timer *timer);

/* ---- timer --------------------------------------------------------------------------------------- */

static void arm(struct soft_cm_id *id, uint64_t us) {
    soft_timer_arm(&id->conn.timer, soft_now_ns() + us * 1000, on_timer);
}

static void arm_again(struct soft_cm_id *id) {
    uint64_t ms = id->conn.waiting ? soft_cm_timers()->wait_ms : soft_cm_timers()->answer_ms;
    arm(id, ms * 1000 / soft_cm_timers()->tries);
}

/* Asks on, less often: the answer itself may get lost. Granted once, so that it has an end. */
void soft_cm_conn_wait(struct soft_cm_id *id) {
    if (id->conn.waiting)
        return;
    id->conn.waiting = true;
    id->conn.tries_left = soft_cm_timers()->tries - 1;
    arm_again(id);
}

/* ---- events --------------------------------------------------------------------------------------- */

/* The kernel reports nothing about an id in the wrong state, and nothing before accept. */
bool soft_cm_conn_hears_of(const struct soft_cm_id *id, enum rdma_cm_event_type type) {
    if (!id->published)
        return false;
    return id->state ==
           (type == RDMA_CM_EVENT_TIMEWAIT_EXIT ? SOFT_CM_DISCONNECT : SOFT_CM_CONNECT);
}

void soft_cm_conn_event_data(struct soft_cm_id *id, enum rdma_cm_event_type type, int status,
                             const uint8_t *data, size_t len) {
    if (!soft_cm_conn_hears_of(id, type))
        return;
    struct soft_cm_event *event = soft_cm_event_new(id, type, status);
    if (!event)
        return;
    soft_cm_event_set_data(event, data, len);
    soft_cm_event_post(event);
}

void soft_cm_conn_event(struct soft_cm_id *id, enum rdma_cm_event_type type, int status) {
    soft_assert_locked();
    if (!soft_cm_conn_hears_of(id, type))
        return;
    if (type == RDMA_CM_EVENT_DISCONNECTED)
        soft_cm_id_enter(id, SOFT_CM_DISCONNECT); /* which makes it the only one */
    soft_cm_event_raise(id, type, status);
}

static void rejected(struct soft_cm_id *id, enum soft_cm_reject reason) {
    static const uint8_t none[SOFT_CM_REJ_DATA];
    soft_cm_conn_event_data(id, RDMA_CM_EVENT_REJECTED, (int)reason, none, sizeof none);
}

void soft_cm_conn_fault(struct soft_cm_id *id, int type, int status) {
    static const uint8_t none[SOFT_CM_REJ_DATA];
    soft_cm_conn_over(id);
    if (type == RDMA_CM_EVENT_REJECTED)
        soft_cm_conn_event_data(id, RDMA_CM_EVENT_REJECTED, status, none, sizeof none);
    else
        soft_cm_conn_event(id, (enum rdma_cm_event_type)type, status);
}

/* ---- states --------------------------------------------------------------------------------------- */

#define BIT(state) (1u << (SOFT_CM_CONN_##state))

/* Which states may follow. From any to OVER, from which an id that may connect again comes back to NONE. */
static const uint16_t follows[] = {
    [SOFT_CM_CONN_NONE] = BIT(REQ_SENT) | BIT(REQ_RCVD) | BIT(SIDR_SENT) | BIT(SIDR_RCVD),
    [SOFT_CM_CONN_REQ_SENT] = BIT(REP_RCVD) | BIT(UP), /* UP: in iWARP the answer is all */
    [SOFT_CM_CONN_REQ_RCVD] = BIT(REP_SENT) | BIT(UP),
    [SOFT_CM_CONN_REP_SENT] = BIT(UP) | BIT(DREQ_SENT) | BIT(DREQ_RCVD),
    [SOFT_CM_CONN_REP_RCVD] = BIT(UP) | BIT(DREQ_SENT) | BIT(TIMEWAIT),
    [SOFT_CM_CONN_UP] = BIT(DREQ_SENT) | BIT(DREQ_RCVD) | BIT(TIMEWAIT),
    [SOFT_CM_CONN_DREQ_SENT] = BIT(TIMEWAIT),
    [SOFT_CM_CONN_DREQ_RCVD] = BIT(TIMEWAIT),
    [SOFT_CM_CONN_TIMEWAIT] = 0,
    [SOFT_CM_CONN_SIDR_SENT] = 0,
    [SOFT_CM_CONN_SIDR_RCVD] = BIT(SIDR_DONE),
    [SOFT_CM_CONN_SIDR_DONE] = 0,
    [SOFT_CM_CONN_OVER] = BIT(NONE) | BIT(SIDR_DONE),
};

void soft_cm_conn_enter(struct soft_cm_conn *conn, enum soft_cm_conn_state state) {
    soft_assert_locked();
    ASSERT(state == SOFT_CM_CONN_OVER || (follows[conn->state] >> state & 1));
    conn->state = state;
}

/* ---- ends ----------------------------------------------------------------------------------------- */

static void forget_peer(struct soft_cm_id *id) {
    if (id->conn.peer)
        soft_peer_release(id->conn.peer);
    id->conn.peer = NULL;
}

void soft_cm_conn_over(struct soft_cm_id *id) {
    soft_assert_locked();
    soft_timer_cancel(&id->conn.timer);
    id->conn.end_ns = 0;
    forget_peer(id); /* a late disconnect of the peer is confirmed without us */
    soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_OVER);
    soft_cm_tcp_forget(id);
}

void soft_cm_conn_enter_timewait(struct soft_cm_id *id) {
    forget_peer(id);
    soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_TIMEWAIT);
    soft_cm_tcp_forget(id);
    arm(id, (uint64_t)soft_cm_timers()->timewait_ms * 1000);
}

/*
 * Between the two ends of a network some time passes before a request is refused, in which the listener
 * may appear.
 */
bool soft_cm_conn_comes_again(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    uint64_t now = soft_now_ns();
    if (conn->state != SOFT_CM_CONN_REQ_SENT && conn->state != SOFT_CM_CONN_SIDR_SENT)
        return false;
    if (conn->refuse_ns == 0)
        conn->refuse_ns = now + (uint64_t)soft_cm_timers()->refuse_ms * 1000000;
    if (now >= conn->refuse_ns)
        return false;
    forget_peer(id);
    conn->turn = (struct soft_cm_port_turn){0};
    if (conn->tries_left == 0)
        conn->tries_left = 1;
    arm(id, REFUSED_AGAIN_US);
    return true;
}

/* ---- requests and their repetition ------------------------------------------------------------------ */

static void refused(struct soft_cm_id *id) {
    static const uint8_t none[SOFT_CM_SIDR_REP_DATA];
    bool ud = id->conn.state == SOFT_CM_CONN_SIDR_SENT;
    soft_cm_conn_over(id);
    if (ud)
        soft_cm_conn_event_data(id, RDMA_CM_EVENT_UNREACHABLE, SOFT_CM_SIDR_UNSUPPORTED, none,
                                sizeof none);
    else
        rejected(id,
                 id->conn.asked_the_dead ? SOFT_CM_REJECT_CONSUMER : SOFT_CM_REJECT_NO_LISTENER);
}

/* Finds the process to ask, if there is none yet. False: refused, or it is asked for again: this was no try. */
static bool find_peer(struct soft_cm_id *id) {
    if (id->conn.peer && soft_peer_alive(id->conn.peer))
        return true;
    forget_peer(id);
    if (!id->conn.guessed) {
        id->conn.peer = soft_cm_port_cache_recall(soft_cm_id_ps(id), soft_cm_id_dst(id));
        id->conn.guessed = id->conn.peer != NULL;
        if (id->conn.peer)
            return true;
    }
    int error =
        soft_cm_port_owner(soft_cm_id_ps(id), soft_cm_id_dst(id), &id->conn.turn, &id->conn.peer);
    if (!error)
        return true;
    id->conn.peer = NULL;
    if (error == -EINPROGRESS) {
        id->conn.tries_left += id->conn.tries_left == 0;
        arm(id, SOFT_CM_NAMES_AGAIN_NS / 1000);
        return false;
    }
    if (error == -EMFILE || error == -ENFILE) { /* our own limit: the application can raise it */
        soft_cm_conn_over(id);
        soft_cm_conn_event(id, RDMA_CM_EVENT_UNREACHABLE, error);
        return false;
    }
    if (error != -ECONNREFUSED) { /* its queue is full: the next try may do */
        (void)soft_cm_port_turn_silent(&id->conn.turn);
        return true;
    }
    if (!soft_cm_conn_comes_again(id))
        refused(id);
    return false;
}

/*
 * False: too many messages wait for the peer. A disconnect goes all the same, once: if its id is destroyed, nothing sends it
 * again. Thousands that are repeated to a process that does not read would fill the queue, and end what the two have besides.
 */
static bool send_once(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    if (conn->request_type != SOFT_CM_WIRE_DREQ || conn->asked_before)
        return soft_cm_wire_send_repeated(id, conn->request_type, &conn->request,
                                          conn->request_bytes);
    soft_cm_wire_send(id, conn->request_type, &conn->request, conn->request_bytes);
    return true;
}

/* A try that stayed behind thousands of others is no silence of the peer's, for a time. */
static bool counts_as_try(const struct soft_cm_conn *conn) {
    const struct soft_cm_timers *t = soft_cm_timers();
    unsigned patience = t->wait_ms * t->tries / t->answer_ms;
    return conn->unsent == 0 || conn->waiting || conn->unsent > patience;
}

static void send_request(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    bool active = conn->state == SOFT_CM_CONN_REQ_SENT || conn->state == SOFT_CM_CONN_SIDR_SENT;
    if (active && !conn->tcp && !find_peer(id))
        return;
    arm_again(id);
    conn->unsent = send_once(id) ? 0 : conn->unsent + 1;
    conn->asked_before = true;
    if (conn->tries_left && counts_as_try(conn))
        conn->tries_left--;
    if (conn->unsent > 0)
        return;
    if (conn->request_type == SOFT_CM_WIRE_REQ)
        conn->request.req.again = 1;
    else if (conn->request_type == SOFT_CM_WIRE_SIDR_REQ)
        conn->request.sidr_req.again = 1;
}

bool soft_cm_conn_guessed_wrong(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    if (!conn->guessed || conn->looked_again)
        return false;
    conn->looked_again = true;
    soft_cm_port_cache_forget(soft_cm_id_ps(id), soft_cm_id_dst(id));
    forget_peer(id);
    send_request(id);
    return true;
}

bool soft_cm_conn_ask_next(struct soft_cm_id *id) {
    if (!soft_cm_port_turn_refused(&id->conn.turn))
        return false;
    forget_peer(id);
    send_request(id);
    return true;
}

/* Before it is sent again: no process has said that it has it. */
static void was_silent(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    if (conn->peer && !conn->waiting && conn->unsent == 0 && soft_cm_port_turn_silent(&conn->turn))
        forget_peer(id);
}

void soft_cm_conn_ask(struct soft_cm_id *id, enum soft_cm_conn_state state) {
    soft_cm_conn_enter(&id->conn, state);
    id->conn.asked_ns = soft_now_ns();
    id->conn.waiting = id->conn.asked_before = false;
    id->conn.unsent = 0;
    id->conn.refuse_ns = 0;
    id->conn.turn = (struct soft_cm_port_turn){0};
    id->conn.tries_left = soft_cm_timers()->tries;
    send_request(id);
}

static void on_timer(struct soft_timer *timer) {
    struct soft_cm_id *id =
        (struct soft_cm_id *)((char *)timer - offsetof(struct soft_cm_id, conn.timer));
    struct soft_cm_conn *conn = &id->conn;
    bool exhausted = !conn->tries_left;
    switch (conn->state) {
    case SOFT_CM_CONN_REQ_SENT:
    case SOFT_CM_CONN_SIDR_SENT:
        if (!exhausted)
            was_silent(id);
        __attribute__((fallthrough));
    case SOFT_CM_CONN_REP_SENT:
        if (!exhausted) {
            send_request(id);
            return;
        }
        soft_cm_conn_over(id);
        soft_cm_conn_event(id, RDMA_CM_EVENT_UNREACHABLE,
                           -soft_files_or(conn->asked_ns, ETIMEDOUT));
        return;
    case SOFT_CM_CONN_DREQ_SENT:
        if (!exhausted) {
            send_request(id);
            return;
        }
        soft_cm_conn_enter_timewait(id);
        soft_cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
        return;
    case SOFT_CM_CONN_TIMEWAIT:
        soft_cm_conn_over(id);
        soft_cm_conn_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
        return;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_REP_RCVD:
    case SOFT_CM_CONN_UP:
    case SOFT_CM_CONN_DREQ_RCVD:
    case SOFT_CM_CONN_SIDR_RCVD:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        return; /* these wait for the application or for ever; this timer is not armed */
    }
}

/* ---- the peer's process died ------------------------------------------------------------------------ */

/* This process left the peer, because the peer's descriptors found no place here: the peer is not at fault. */
static bool left_for_files(struct soft_cm_id *id) {
    int error = soft_files_or(id->conn.asked_ns, 0);
    if (error == 0)
        return false;
    soft_cm_conn_over(id);
    soft_cm_conn_event(id, RDMA_CM_EVENT_UNREACHABLE, -error);
    return true;
}

/* The peer's process died: the message that its kernel would have sent when it closed everything. */
void soft_cm_conn_peer_gone(struct soft_cm_id *id) {
    soft_assert_locked();
    if (soft_profile()->iwarp) {
        soft_cm_mpa_peer_gone(id);
        return;
    }
    switch (id->conn.state) {
    case SOFT_CM_CONN_REQ_SENT:
        if (left_for_files(id))
            return;
        if (!id->conn.waiting) {
            (void)soft_cm_port_turn_silent(&id->conn.turn);
            forget_peer(id); /* another process may have the port: the next try finds out */
            id->conn.asked_the_dead = true;
            arm(id, 0);
            return;
        }
        soft_cm_conn_over(id);
        rejected(id, SOFT_CM_REJECT_CONSUMER);
        return;
    case SOFT_CM_CONN_REP_SENT:
        soft_cm_conn_over(id);
        rejected(id, SOFT_CM_REJECT_TIMEOUT);
        return;
    case SOFT_CM_CONN_REP_RCVD:
        if (left_for_files(id))
            return;
        soft_cm_conn_over(id);
        rejected(id, SOFT_CM_REJECT_CONSUMER);
        return;
    case SOFT_CM_CONN_UP:
        forget_peer(id);
        soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_DREQ_RCVD);
        soft_cm_quiet_end(id);
        return;
    case SOFT_CM_CONN_DREQ_SENT:
        soft_cm_conn_enter_timewait(id);
        soft_cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_SIDR_RCVD:
        soft_cm_conn_over(id); /* accept will fail */
        return;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_DREQ_RCVD:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        forget_peer(id);
        return;
    }
}
