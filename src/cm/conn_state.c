/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * conn_state.c - the states of a connection: up, failed, released, gone; what its loop is told of them, and what
 * becomes of its id.
 *
 * Owner: the CM thread.
 */
#include <stdarg.h>
#include <stdio.h>

#include "cm/cm.h"
#include "cm/internal.h"
#include "cm/resolver.h"
#include "core/context.h"
#include "core/failure_text.h"

void cm_enter(struct cm *cm, struct cm_conn *conn, enum cm_state state) {
    cm_assert_thread(cm);
    ASSERT(cm_may_follow(conn->owner.state, state));
    admission_move(cm, conn, state);
    dial_line_move(cm, conn, state);
    if (!cm_race_may_go_on(state)) {
        cm_race_end(cm, conn);
        cm_names_leave(cm, conn);
    }
    if (state == CM_UP || state == CM_FAILED || state == CM_RELEASED)
        conn->deadline_ns = conn->step_ns = 0;
    conn->owner.state = (uint8_t)state;
}

/* ---- telling the loop ------------------------------------------------------------------------ */

void cm_describe(const struct cm *cm, struct cm_failure *why, sluice_reason reason, uint32_t vendor,
                 const char *format, va_list args) {
    cm_assert_thread(cm);
    why->reason = reason;
    why->vendor = vendor;
    why->cm_event = cm->cause ? (int32_t)cm->cause->type : -1;
    why->cm_status = cm->cause ? cm->cause->status : 0;
    vsnprintf(why->text, sizeof why->text, format, args);
}

void cm_fail(struct cm *cm, struct cm_conn *conn, sluice_reason reason, uint32_t vendor,
             const char *format, ...) {
    cm_assert_thread(cm);
    struct cm_failure why = {.code = conn->down.code};
    va_list args;
    va_start(args, format);
    cm_describe(cm, &why, reason, vendor, format, args);
    va_end(args);
    cm_end(cm, conn, &why);
}

void cm_end(struct cm *cm, struct cm_conn *conn, const struct cm_failure *why) {
    cm_assert_thread(cm);
    struct session *s = session_of_conn(conn);
    if (conn->reported || conn->owner.state == CM_RELEASED)
        return;
    conn->reported = true;
    bool was_up = conn->owner.state == CM_UP;
    conn->down = *why;
    if (!was_up)
        stats_add(conn->passive ? &cm->stats->refused : &cm->stats->failed, 1);
    char text[256];
    failure_text_of_end(text, sizeof text, why->reason, why->text);
    log_write(&cm->node->log, SLUICE_LOG_DEBUG, "%s %s: %s", conn->passive ? "from" : "to",
              s->peer.address, text);
    cm_enter(cm, conn, CM_FAILED);
    cm_tell_loop(conn, LOOP_MSG_DOWN);
}

void cm_up(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    cm_enter(cm, conn, CM_UP);
    stats_add(conn->passive ? &cm->stats->accepted : &cm->stats->connected, 1);
}

/* The connection is there: the session is up, unless there is a handshake first. */
void cm_adopt(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    conn->rejectable = false;
    if (conn->rep.features & PRIVATE_DATA_FEATURE_HANDSHAKE)
        cm_enter(cm, conn, CM_HANDSHAKE);
    else
        cm_up(cm, conn);
    cm_tell_loop(conn, LOOP_MSG_ADOPT);
}

/* ---- ending ---------------------------------------------------------------------------------- */

bool cm_say_no(struct cm *cm, struct cm_conn *conn, const struct private_data_rej *rej) {
    uint8_t data[PRIVATE_DATA_REJ_BYTES];
    cm_assert_thread(cm);
    size_t bytes = private_data_rej_encode(rej, data);
    if (cm->node->fabric->reject(conn->owner.id, data, (uint8_t)bytes) != 0)
        return false;
    conn->rejectable = false;
    return true;
}

static bool said_no(struct cm *cm, struct cm_conn *conn) {
    bool said = cm_say_no(cm, conn, &conn->release), answered = conn->established;
    conn->rejectable = false;
    return said || !answered;
}

void cm_release(struct cm *cm, struct cm_conn *conn) {
    const struct fabric_ops *fabric = cm->node->fabric;
    conn->over = true;
    if (conn->call && cm_leave(cm, conn)) {
        /* the id goes as soon as the kernel lets it */
    } else if (conn->rejectable && said_no(cm, conn)) {
        if (conn->passive && !conn->reported)
            stats_add(&cm->stats->refused, 1);
    } else if (conn->established) {
        bool undecided = conn->owner.state == CM_HANDSHAKE || conn->owner.state == CM_AWAITING_APP;
        if (conn->passive && !conn->reported && undecided)
            stats_add(&cm->stats->refused, 1);
        fabric->disconnect(conn->owner.id); /* an error means that it was over already */
    }
    cm_enter(cm, conn, CM_RELEASED);
    cm_tell_loop(conn, LOOP_MSG_DRAIN);
}

void cm_drained(struct cm *cm, struct cm_conn *conn) {
    /* Its flush may have been faster than the news of why, which were there before its queue pair was gone. */
    cm_hear_now(cm);
    if (conn->owner.id)
        cm->node->fabric->destroy_id(conn->owner.id); /* unfetched events vanish with it */
    conn->owner.id = NULL;
    conn->owner.state = CM_IDLE;
    if (conn->left)
        cm_give_left(cm, conn);
    if (conn->linked) {
        cds_list_del(&conn->link);
        conn->linked = false;
    }
    stats_add(&cm->stats->closed, 1);
    cm_tell_loop(conn, LOOP_MSG_GONE);
}
