/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * conn.c - the connection's states: what timers and the end of a peer do to them; answer.c has
 * what messages do.
 *
 * Follows the kernel's IB connection manager, with its timers made short (timers.h). Control lock
 * held throughout; runs on the engine thread but for what calls start. Nothing here touches a QP:
 * that is done by whoever calls or fetches, in his own thread.
 */
#include "soft/cm/conn.h"

#include <string.h>

#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/mpa.h"
#include "soft/cm/port_cache.h"
#include "soft/cm/timers.h"
#include "soft/ipc/fd_shortage.h"
#include "soft/verbs/object.h"
#include "soft/verbs/profile.h"

#define REFUSED_AGAIN_US 1000

static void on_timer(struct soft_timer *timer);

/* ---- timer --------------------------------------------------------------------------------------- */

static void arm(struct cm_id *id, uint64_t us) {
    soft_timer_arm(&id->conn.timer, soft_now_ns() + us * 1000, on_timer);
}

static void arm_again(struct cm_id *id) {
    uint64_t ms = id->conn.waiting ? cm_times()->wait_ms : cm_times()->answer_ms;
    arm(id, ms * 1000 / cm_times()->tries);
}

/* Asks on, less often: the answer itself may get lost. Granted once, so that it has an end. */
void cm_conn_wait(struct cm_id *id) {
    if (id->conn.waiting)
        return;
    id->conn.waiting = true;
    id->conn.tries_left = cm_times()->tries - 1;
    arm_again(id);
}

/* ---- events --------------------------------------------------------------------------------------- */

/* The kernel reports nothing about an id in the wrong state, and nothing before accept. */
bool cm_conn_hears_of(const struct cm_id *id, enum rdma_cm_event_type type) {
    if (!id->published)
        return false;
    return id->state == (type == RDMA_CM_EVENT_TIMEWAIT_EXIT ? CM_DISCONNECT : CM_CONNECT);
}

void cm_conn_event_data(struct cm_id *id, enum rdma_cm_event_type type, int status,
                        const uint8_t *data, size_t len) {
    if (!cm_conn_hears_of(id, type))
        return;
    struct cm_event *event = cm_event_new(id, type, status);
    if (!event)
        return;
    cm_event_set_data(event, data, len);
    cm_event_post(event);
}

void cm_conn_event(struct cm_id *id, enum rdma_cm_event_type type, int status) {
    if (!cm_conn_hears_of(id, type))
        return;
    if (type == RDMA_CM_EVENT_DISCONNECTED)
        id->state = CM_DISCONNECT; /* which makes it the only one */
    cm_event_raise(id, type, status);
}

static void rejected(struct cm_id *id, enum cm_reject reason) {
    static const uint8_t none[CM_REJ_DATA];
    cm_conn_event_data(id, RDMA_CM_EVENT_REJECTED, (int)reason, none, sizeof none);
}

void cm_conn_fault(struct cm_id *id, int type, int status) {
    static const uint8_t none[CM_REJ_DATA];
    cm_conn_over(id);
    if (type == RDMA_CM_EVENT_REJECTED)
        cm_conn_event_data(id, RDMA_CM_EVENT_REJECTED, status, none, sizeof none);
    else
        cm_conn_event(id, (enum rdma_cm_event_type)type, status);
}

/* ---- ends ----------------------------------------------------------------------------------------- */

static void forget_peer(struct cm_id *id) {
    if (id->conn.peer)
        soft_peer_release(id->conn.peer);
    id->conn.peer = NULL;
}

void cm_conn_over(struct cm_id *id) {
    soft_timer_cancel(&id->conn.timer);
    forget_peer(id); /* a late disconnect of the peer is confirmed without us */
    id->conn.state = CM_CONN_OVER;
}

void cm_conn_enter_timewait(struct cm_id *id) {
    forget_peer(id);
    id->conn.state = CM_CONN_TIMEWAIT;
    arm(id, (uint64_t)cm_times()->timewait_ms * 1000);
}

void cm_conn_reject(struct cm_id *id, enum cm_reject reason, const void *data, uint8_t len) {
    union cm_wire_any msg = {.rej.reason = (uint32_t)reason};
    if (len)
        memcpy(msg.rej.data, data, len);
    cm_wire_send(id, CM_WIRE_REJ, &msg, sizeof msg.rej);
    cm_conn_over(id);
}

void cm_conn_sidr_reply(struct cm_id *id, enum cm_sidr status, const void *data, uint8_t len) {
    struct cm_conn *conn = &id->conn;
    memset(&conn->request, 0, sizeof conn->request);
    conn->request.sidr_rep.status = (uint32_t)status;
    conn->request.sidr_rep.qp_num = conn->local_qpn;
    conn->request.sidr_rep.qkey = conn->qkey;
    if (len)
        memcpy(conn->request.sidr_rep.data, data, len);
    conn->request_type = CM_WIRE_SIDR_REP;
    conn->request_bytes = sizeof conn->request.sidr_rep;
    conn->state = CM_CONN_SIDR_DONE; /* stays there to answer a repeated request */
    cm_wire_send(id, CM_WIRE_SIDR_REP, &conn->request, conn->request_bytes);
}

/*
 * The peer gives up its queue pair when it hears that the connection ends. What was taken from it by then
 * is acknowledged, though a poller that has not come again has not said so yet.
 */
void cm_conn_acknowledge(const struct cm_id *id) {
    soft_qp_acknowledge(id->conn.local_qpn);
}

void cm_conn_kill(struct cm_id *id) {
    if (soft_profile()->iwarp) {
        cm_mpa_kill(id);
        return;
    }
    switch (id->conn.state) {
    case CM_CONN_REQ_SENT:
        cm_conn_reject(id, CM_REJECT_TIMEOUT, NULL, 0);
        break;
    case CM_CONN_REQ_RCVD:
    case CM_CONN_REP_SENT:
    case CM_CONN_REP_RCVD:
        cm_conn_reject(id, CM_REJECT_CONSUMER, NULL, 0);
        break;
    case CM_CONN_UP:
        cm_conn_acknowledge(id);
        cm_wire_send_plain(id, CM_WIRE_DREQ);
        break;
    case CM_CONN_DREQ_RCVD:
        cm_wire_send_plain(id, CM_WIRE_DREP);
        break;
    case CM_CONN_SIDR_RCVD:
        cm_conn_sidr_reply(id, CM_SIDR_REJECTED, NULL, 0);
        break;
    case CM_CONN_NONE:
    case CM_CONN_DREQ_SENT:
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        break; /* the peer knows, or will find out by asking */
    }
    cm_conn_over(id);
}

/*
 * Between the two ends of a network some time passes before a request is refused, in which the listener
 * may appear.
 */
bool cm_conn_comes_again(struct cm_id *id) {
    struct cm_conn *conn = &id->conn;
    uint64_t now = soft_now_ns();
    if (conn->state != CM_CONN_REQ_SENT && conn->state != CM_CONN_SIDR_SENT)
        return false;
    if (conn->refuse_ns == 0)
        conn->refuse_ns = now + (uint64_t)cm_times()->refuse_ms * 1000000;
    if (now >= conn->refuse_ns)
        return false;
    forget_peer(id);
    if (conn->tries_left == 0)
        conn->tries_left = 1;
    arm(id, REFUSED_AGAIN_US);
    return true;
}

/* ---- requests and their repetition ------------------------------------------------------------------ */

static void refused(struct cm_id *id) {
    static const uint8_t none[CM_SIDR_REP_DATA];
    bool ud = id->conn.state == CM_CONN_SIDR_SENT;
    cm_conn_over(id);
    if (ud)
        cm_conn_event_data(id, RDMA_CM_EVENT_UNREACHABLE, CM_SIDR_UNSUPPORTED, none, sizeof none);
    else
        rejected(id, id->conn.asked_the_dead ? CM_REJECT_CONSUMER : CM_REJECT_NO_LISTENER);
}

/* Finds the process to ask, if there is none yet. False: refused, the connection is over. */
static bool find_peer(struct cm_id *id) {
    if (id->conn.peer && soft_peer_alive(id->conn.peer))
        return true;
    forget_peer(id);
    if (!id->conn.guessed) {
        id->conn.peer = cm_owner_recall(cm_id_ps(id), cm_id_dst(id));
        id->conn.guessed = id->conn.peer != NULL;
        if (id->conn.peer)
            return true;
    }
    int error = cm_port_owner(cm_id_ps(id), cm_id_dst(id), &id->conn.peer);
    if (!error)
        return true;
    id->conn.peer = NULL;
    if (error == -EMFILE ||
        error == -ENFILE) { /* ours, and whoever asked can do something about it */
        cm_conn_over(id);
        cm_conn_event(id, RDMA_CM_EVENT_UNREACHABLE, error);
        return false;
    }
    if (error != -ECONNREFUSED)
        return true; /* its queue is full: the next try may do */
    if (!cm_conn_comes_again(id))
        refused(id);
    return false;
}

static void send_request(struct cm_id *id) {
    struct cm_conn *conn = &id->conn;
    bool active = conn->state == CM_CONN_REQ_SENT || conn->state == CM_CONN_SIDR_SENT;
    if (active && !find_peer(id))
        return;
    if (conn->tries_left)
        conn->tries_left--;
    arm_again(id);
    cm_wire_send(id, conn->request_type, &conn->request, conn->request_bytes);
    if (conn->request_type == CM_WIRE_REQ)
        conn->request.req.again = 1;
    else if (conn->request_type == CM_WIRE_SIDR_REQ)
        conn->request.sidr_req.again = 1;
}

bool cm_conn_guessed_wrong(struct cm_id *id) {
    struct cm_conn *conn = &id->conn;
    if (!conn->guessed || conn->looked_again)
        return false;
    conn->looked_again = true;
    cm_owner_forget(cm_id_ps(id), cm_id_dst(id));
    forget_peer(id);
    send_request(id);
    return true;
}

void cm_conn_ask(struct cm_id *id, enum cm_conn_state state) {
    id->conn.state = state;
    id->conn.asked_ns = soft_now_ns();
    id->conn.waiting = false;
    id->conn.refuse_ns = 0;
    id->conn.tries_left = cm_times()->tries;
    send_request(id);
}

static void on_timer(struct soft_timer *timer) {
    struct cm_id *id = (struct cm_id *)((char *)timer - offsetof(struct cm_id, conn.timer));
    struct cm_conn *conn = &id->conn;
    bool exhausted = !conn->tries_left;
    switch (conn->state) {
    case CM_CONN_REQ_SENT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_REP_SENT:
        if (!exhausted) {
            send_request(id);
            return;
        }
        cm_conn_over(id);
        cm_conn_event(id, RDMA_CM_EVENT_UNREACHABLE, -soft_files_or(conn->asked_ns, ETIMEDOUT));
        return;
    case CM_CONN_DREQ_SENT:
        if (!exhausted) {
            send_request(id);
            return;
        }
        cm_conn_enter_timewait(id);
        cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
        return;
    case CM_CONN_TIMEWAIT:
        cm_conn_over(id);
        cm_conn_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
        return;
    case CM_CONN_NONE:
    case CM_CONN_REQ_RCVD:
    case CM_CONN_REP_RCVD:
    case CM_CONN_UP:
    case CM_CONN_DREQ_RCVD:
    case CM_CONN_SIDR_RCVD:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        return; /* these wait for the application or for ever; no timer is armed */
    }
}

/* ---- the peer's process died ------------------------------------------------------------------------ */

/* It was we who left, because its descriptors found no place here: it is not to blame. */
static bool left_for_files(struct cm_id *id) {
    int error = soft_files_or(id->conn.asked_ns, 0);
    if (error == 0)
        return false;
    cm_conn_over(id);
    cm_conn_event(id, RDMA_CM_EVENT_UNREACHABLE, -error);
    return true;
}

/* What its kernel would have sent when it closed everything. */
void cm_conn_peer_gone(struct cm_id *id) {
    if (soft_profile()->iwarp) {
        cm_mpa_peer_gone(id);
        return;
    }
    switch (id->conn.state) {
    case CM_CONN_REQ_SENT:
        if (left_for_files(id))
            return;
        if (!id->conn.waiting) {
            forget_peer(id); /* somebody else may have the port: the next try finds out */
            id->conn.asked_the_dead = true;
            arm(id, 0);
            return;
        }
        cm_conn_over(id);
        rejected(id, CM_REJECT_CONSUMER);
        return;
    case CM_CONN_REP_SENT:
        cm_conn_over(id);
        rejected(id, CM_REJECT_TIMEOUT);
        return;
    case CM_CONN_REP_RCVD:
        if (left_for_files(id))
            return;
        cm_conn_over(id);
        rejected(id, CM_REJECT_CONSUMER);
        return;
    case CM_CONN_UP:
        forget_peer(id);
        id->conn.state = CM_CONN_DREQ_RCVD;
        cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    case CM_CONN_DREQ_SENT:
        cm_conn_enter_timewait(id);
        cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    case CM_CONN_REQ_RCVD:
    case CM_CONN_SIDR_RCVD:
        cm_conn_over(id); /* accept will fail */
        return;
    case CM_CONN_NONE:
    case CM_CONN_DREQ_RCVD:
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        forget_peer(id);
        return;
    }
}
