/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial.c - the dialer's way from an address to an established connection.
 *
 *   name -> ADDR_RESOLVED -> (loop: PREPARE) and ROUTE_RESOLVED (-> a line) -> connect -> CONNECT_RESPONSE
 *        -> (loop: APPLY) -> establish -> up
 *
 * The QP is not put on the id: the loop makes it, and its number goes into rdma_connect(). While
 * the loop prepares, the route is resolved. Until a peer has answered, a failure goes to
 * cm_try_failed(), which knows what else may be tried (dial_retry.c); from then on to cm_fail().
 *
 * Owner: the CM thread.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "cm/internal.h"
#include "cm/resolver.h"
#include "core/context.h"
#include "core/failure_text.h"

#define REJ_CONSUMER 28       /* the reject reason of a listener's own */
#define OVER_NS 1000000000ull /* at most, until an event says why a connection is over */
#define WORDLESS_TRIES 4      /* at most, with a peer that refuses without private data */

static void link_conn(struct cm *cm, struct cm_conn *conn) {
    conn->linked = true;
    cds_list_add(&conn->link, &cm->conns);
}

void cm_begin(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    struct session *s = session_of_conn(conn);
    link_conn(cm, conn);
    uint64_t timeout = s->link_config.timeout_ns;
    bool never = timeout > UINT64_MAX - cm->now_ns;
    if (conn->again.deadline_ns != 0)
        cm_watch(cm, conn, conn->again.deadline_ns == UINT64_MAX ? 0 : conn->again.deadline_ns);
    else
        cm_watch(cm, conn, never ? 0 : cm->now_ns + timeout);
}

void cm_dial(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    cm_begin(cm, conn);
    stats_add(&cm->stats->dials, 1);
    if (cm->device_lost) {
        cm_fail(cm, conn, SLUICE_REASON_DEVICE_REMOVED, 0, DEVICE_LOST_TEXT);
        return;
    }
    if (conn->again.on)
        cm_try_again(cm, conn);
    else
        cm_try_first(cm, conn);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The last try has used the QP up. */
static bool prepare_another(struct cm *cm, struct cm_conn *conn) {
    (void)cm;
    conn->used_up = conn->prepared = false;
    cm_tell_loop(conn, LOOP_MSG_PREPARE);
    return true;
}

/*
 * The QP is made once, with the INIT attributes of the first address that got so far. Another
 * address must do with that QP.
 */
static bool prepare(struct cm *cm, struct cm_conn *conn) {
    struct ibv_qp_attr init;
    int mask;
    if (!cm_attributes(cm, conn, IBV_QPS_INIT, &init, &mask)) {
        cm_try_failed(cm, conn, CM_HOPE_ELSEWHERE, SLUICE_REASON_DEVICE_ERROR, (uint32_t)errno,
                      "no INIT attributes: %s", strerror(errno));
        return false;
    }
    if (conn->preparing) {
        if (init.port_num == conn->init.port_num && init.pkey_index == conn->init.pkey_index)
            return !conn->used_up || prepare_another(cm, conn);
        cm_try_failed(cm, conn, CM_HOPE_ELSEWHERE, SLUICE_REASON_WRONG_DEVICE, 0,
                      "the address is reached through port %u, an earlier one through %u",
                      init.port_num, conn->init.port_num);
        return false;
    }
    conn->preparing = true;
    conn->init = init;
    conn->init_mask = mask;
    cm_tell_loop(conn, LOOP_MSG_PREPARE);
    return true;
}

void cm_on_addr_resolved(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    (void)event;
    if (!cm_same_device(cm, owner->id)) {
        cm_try_failed(cm, conn, CM_HOPE_ELSEWHERE, SLUICE_REASON_WRONG_DEVICE, 0,
                      "the address is reached through %s, the node uses %s",
                      owner->id->verbs ? cm->node->fabric->get_device_name(owner->id->verbs->device)
                                       : "no device",
                      cm->node->choice.device);
        return;
    }
    if (!prepare(cm, conn))
        return;
    cm_enter(cm, conn, CM_RESOLVING_ROUTE);
    if (cm_race_route(cm, conn) != 0) {
        int error = errno;
        bool route = error == ENETUNREACH || error == EHOSTUNREACH || error == ETIMEDOUT;
        cm_try_failed(cm, conn, CM_HOPE_ELSEWHERE,
                      route ? SLUICE_REASON_UNREACHABLE : SLUICE_REASON_DEVICE_ERROR,
                      (uint32_t)error, "%s: %s",
                      route ? "no route" : "the route cannot be looked up", strerror(error));
    }
}

void cm_on_route_error(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    int error = (int)cm_code(event->status);
    if (conn->search.reaches) {
        cm_connect_failed(cm, conn, error);
        return;
    }
    cm_try_failed(cm, conn, error == ETIMEDOUT ? CM_HOPE_LATER : CM_HOPE_ELSEWHERE,
                  SLUICE_REASON_UNREACHABLE, (uint32_t)error, "no route: " CM_STATUS_FORMAT,
                  CM_STATUS(event->status));
}

static void connect_now(struct cm *cm, struct cm_conn *conn) {
    struct session *s = session_of_conn(conn);
    uint8_t data[PRIVATE_DATA_REQ_BYTES];
    cm_proposal(cm, &s->link_config, &conn->req);
    if (conn->greets) {
        conn->req.features |= PRIVATE_DATA_FEATURE_HANDSHAKE;
        cm_offer_probe(cm, &conn->req);
    }
    const struct sluice_env *env = &cm->node->env;
    if (!env->random_bytes(env->arg, conn->req.session_id, sizeof conn->req.session_id) ||
        !env->random_bytes(env->arg, conn->req.nonce, sizeof conn->req.nonce)) {
        cm_fail(cm, conn, SLUICE_REASON_DEVICE_ERROR, 0, "%s", cm_no_random);
        return;
    }
    if (conn->resume.on) {
        conn->req.features |= PRIVATE_DATA_FEATURE_RESUMES;
        conn->req.last_sequence = conn->resume.last_sequence;
        memcpy(conn->req.session_id, conn->resume.session_id, sizeof conn->req.session_id);
    }
    if (conn->joins) {
        conn->req.features |= PRIVATE_DATA_FEATURE_JOINS;
        memcpy(conn->req.session_id, conn->resume.session_id, sizeof conn->req.session_id);
    }
    private_data_req_encode(&conn->req, data);
    struct rdma_conn_param param = {
        .private_data = data,
        .private_data_len = sizeof data,
        .responder_resources = conn->req.depth_in,
        .initiator_depth = conn->req.depth_out,
        .flow_control = 1,
        .retry_count = CM_RETRIES_MAX,
        .rnr_retry_count = CM_RETRIES_MAX,
        .srq = conn->srq,
        .qp_num = conn->qp_num,
    };
    cm_enter(cm, conn, CM_CONNECTING);
    cm_try_share(cm, conn);
    cm_connect(cm, conn, &param);
}

void cm_dial_turn(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    connect_now(cm, conn);
}

/* Its queue pair is there, and the route: it is this dial's turn, or that comes. */
static void ask(struct cm *cm, struct cm_conn *conn) {
    if (!dial_line_join(cm, conn))
        cm_try_share(cm, conn); /* other addresses may have no line */
    else
        connect_now(cm, conn);
}

void cm_on_route_resolved(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    (void)event;
    cm_enter(cm, conn, CM_CREATING_QP); /* no other try goes on: there is one request at a time */
    conn->pausing = false;              /* the step is over that would end it */
    conn->step_ns = 0;
    if (conn->prepared)
        ask(cm, conn); /* else our own loop is awaited: no address is to blame */
}

void cm_prepared(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    conn->prepared = true;
    if (conn->left)
        cm_give_left(cm, conn);
    if (conn->owner.state == CM_CREATING_QP) {
        ask(cm, conn);
    } else if (conn->owner.state == CM_CREATING_QP_PASSIVE) {
        cm_accept_now(cm, conn);
    }
    /* RESOLVING_NAME, BACKOFF, RESOLVING_ADDR, RESOLVING_ROUTE: ROUTE_RESOLVED connects. FAILED, RELEASED: it is over. */
}

/*
 * A call for a connection that was answered fails. EINVAL: the connection is over, since the answer was sent; it was read late, and the
 * listener's patience was over, or its application hung up. What the dial ends with, or goes on with, is in the event that follows.
 */
static void unread_in_time(struct cm *cm, struct cm_conn *conn, int error, const char *call) {
    conn->unread = error == EINVAL;
    if (conn->unread)
        cm_watch_step(cm, conn, cm->now_ns + OVER_NS);
    else
        cm_fail(cm, conn, cm_reason_of_answer(error), (uint32_t)error, "%s: %s", call,
                strerror(error));
}

void cm_on_response(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    const struct fabric_traits *traits = &cm->node->traits;
    conn->established = true;
    conn->rejectable = !traits->answer_is_up; /* until we establish, the listener can be told no */
    conn->step_ns = 0; /* the peer answered: from here on no other address is tried */
    cm_decided(conn);
    sluice_reason reason = private_data_rep_decode(&conn->rep, event->data, event->data_bytes);
    if (reason == SLUICE_REASON_NONE)
        reason = private_data_check(&conn->rep, &conn->req);
    if (reason != SLUICE_REASON_NONE) {
        cm_fail(cm, conn, reason, 0, "the listener's answer: %s", sluice_reason_text((int)reason));
        return;
    }
    if (event->rnr_retry_count > CM_RETRIES_MAX) {
        cm_fail(cm, conn, SLUICE_REASON_VALUE, event->rnr_retry_count,
                "the listener's answer: an rnr_retry_count of %u, above %d", event->rnr_retry_count,
                CM_RETRIES_MAX);
        return;
    }
    conn->retry_count = CM_RETRIES_MAX; /* as it was asked for: a response has none */
    conn->rnr_retry_count = event->rnr_retry_count;
    if (!traits->answer_is_up &&
        (!cm_attributes(cm, conn, IBV_QPS_RTR, &conn->rtr, &conn->rtr_mask) ||
         !cm_attributes(cm, conn, IBV_QPS_RTS, &conn->rts, &conn->rts_mask))) {
        unread_in_time(cm, conn, errno, "no RTR or RTS attributes");
        return;
    }
    cm_enter(cm, conn, CM_MODIFYING_QP);
    cm_tell_loop(conn, LOOP_MSG_APPLY);
}

void cm_ready(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    if (conn->owner.state != CM_MODIFYING_QP)
        return; /* it failed meanwhile */
    if (!cm->node->traits.answer_is_up && cm->node->fabric->establish(conn->owner.id) != 0) {
        unread_in_time(cm, conn, errno, "establish");
        return;
    }
    cm_adopt(cm, conn);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/*
 * A REJ without a record of ours: what the transport's own number means. A listener of ours refuses with words, so a
 * REJ of an application without any is most often none: the stack sends it for a port that is listened at, but not at
 * this address, and for a listener that has ended.
 */
static sluice_reason reason_of_rej(int status, bool empty) {
    switch (status) {
    case 8: /* invalid service id */
    case -ECONNREFUSED:
        return SLUICE_REASON_NO_LISTENER;
    case 4: /* timeout; software device over TCP: the stream ended without an answer */
        return SLUICE_REASON_UNREACHABLE;
    case 10: /* stale connection */
        return SLUICE_REASON_PEER_LOST;
    case REJ_CONSUMER:
    case -ECONNRESET: /* the same of iWARP, or an end of the stream */
        return empty ? SLUICE_REASON_NO_LISTENER : SLUICE_REASON_NOT_SLUICE;
    default:
        return SLUICE_REASON_REFUSED;
    }
}

void cm_on_rejected(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    struct private_data_rej rej;
    bool answered = conn->rejectable || owner->state != CM_CONNECTING;
    conn->rejectable = false;
    conn->established = false; /* there is nothing to disconnect */
    cm_decided(conn);
    bool ours = private_data_rej_decode(&rej, event->data, event->data_bytes) == SLUICE_REASON_NONE;
    char text[sizeof conn->down.text];
    if (ours)
        failure_text_of_refusal(text, sizeof text, &rej, !conn->passive);
    if (conn->passive) {
        cm_fail(cm, conn,
                ours && rej.reason ? failure_text_reason_of_refusal(&rej) : SLUICE_REASON_PEER_LOST,
                cm_code(event->status), "%s",
                ours && text[0] ? text : "the peer gave up before the session was established");
        return;
    }
    if (ours) {
        sluice_reason reason = failure_text_reason_of_refusal(&rej);
        if (reason == SLUICE_REASON_UNSUPPORTED && rej.code == PRIVATE_DATA_REJ_WANTS_HANDSHAKE &&
            cm_try_greeting(cm, conn))
            return;
        conn->down.code = rej.code;
        cm_try_failed(cm, conn, cm_hope_of(reason), reason,
                      reason == SLUICE_REASON_REFUSED ? rej.code : cm_code(event->status), "%s",
                      text);
        return;
    }
    bool empty = true;
    for (uint32_t i = 0; i < event->data_bytes; i++)
        empty = empty && event->data[i] == 0;
    sluice_reason reason = reason_of_rej(event->status, empty);
    /* By its application only with the code for that; the others are the transport's own. */
    bool consumer = event->status == REJ_CONSUMER || event->status == -ECONNRESET;
    bool wordless = reason == SLUICE_REASON_REFUSED || (consumer && empty);
    enum cm_hope hope = cm_hope_of(reason);
    if (answered && wordless) {
        reason =
            SLUICE_REASON_PEER_LOST; /* its application hung up, or would not wait any longer */
        hope = CM_HOPE_NONE;
    } else if (wordless) {
        /* The stack there refused, for one that listens at another address or for one that gave this handshake
         * up in favour of others. It is asked a few times more. */
        bool again = session_of_conn(conn)->info.tries < WORDLESS_TRIES;
        hope = again ? CM_HOPE_LATER : CM_HOPE_ELSEWHERE;
    }
    cm_try_failed(cm, conn, hope, reason, cm_code(event->status), "%s (" CM_STATUS_FORMAT ")",
                  failure_text_of_rejection(reason, consumer, empty), CM_STATUS(event->status));
}

/* ---- losses: either side, any time ----------------------------------------------------------- */

void cm_on_lost(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    bool early = !conn->passive && owner->state != CM_UP;
    cm_decided(conn);
    if (cm_failed_here(cm, conn, event))
        return;
    cm_try_failed(cm, conn, CM_HOPE_LATER,
                  early ? SLUICE_REASON_UNREACHABLE : SLUICE_REASON_PEER_LOST,
                  cm_code(event->status), "the peer %s (" CM_STATUS_FORMAT ")",
                  owner->state == CM_UP ? "cannot be reached any more" : "did not answer",
                  CM_STATUS(event->status));
}

void cm_on_connect_error(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    cm_decided((struct cm_conn *)(void *)owner);
    if (cm_failed_here(cm, (struct cm_conn *)(void *)owner, event))
        return;
    if (event->status == -EPROTO && owner->state != CM_UP) {
        cm_try_failed(cm, (struct cm_conn *)(void *)owner, CM_HOPE_ELSEWHERE,
                      SLUICE_REASON_NOT_SLUICE, EPROTO,
                      "the peer speaks something else than iWARP");
        return;
    }
    cm_try_failed(cm, (struct cm_conn *)(void *)owner, CM_HOPE_ELSEWHERE,
                  SLUICE_REASON_DEVICE_ERROR, cm_code(event->status),
                  "the connection %s (" CM_STATUS_FORMAT ")",
                  owner->state == CM_UP ? "failed" : "could not be made", CM_STATUS(event->status));
}

/* Whether the peer said good-bye first is known to the loop, which has its BYE, or not. */
void cm_on_disconnected(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    cm_decided((struct cm_conn *)(void *)owner);
    cm_try_failed(cm, (struct cm_conn *)(void *)owner, CM_HOPE_ELSEWHERE, SLUICE_REASON_PEER_LOST,
                  cm_code(event->status), "the connection was closed without a good-bye");
}

void cm_on_device_removal(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    (void)event;
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    conn->rejectable = false;
    if (cm_same_device(cm, owner->id))
        cm_device_lost(cm);
    cm_fail(cm, conn, SLUICE_REASON_DEVICE_REMOVED, 0, "%s was removed", cm->node->choice.device);
}
