/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * failure.c - what a completion or a post that failed says of the peer or of the device.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/failure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/uncancelled.h"
#include "core/context.h"
#include "core/failure_text.h"
#include "datapath/session/close.h"
#include "datapath/session/move.h"
#include "datapath/session/drain.h"
#include "datapath/session/redial.h"

void session_post_refused(struct sluice_loop *l, struct session *s, int error, const char *what) {
    UNCANCELLED;
    loop_assert_inside(l);
    char text[sizeof s->info.close_text];
    bool down = error == ENOTCONN || error == ECONNRESET || error == EPIPE;
    close_adopt_heard(l, s);
    snprintf(text, sizeof text, "the device refused a %s: %s", what, strerror(error));
    if (!down || !s->node->traits.answer_is_up) {
        session_close(l, s, SLUICE_REASON_DEVICE_ERROR, (uint32_t)error, text);
        return;
    }
    if (s->state < SESSION_RELEASED) /* the event, which is on its way, may say why */
        s->close.reason_provisional = s->close.reason == SLUICE_REASON_NONE;
    session_close(l, s, SLUICE_REASON_PEER_LOST, (uint32_t)error, text);
}

void session_wc_error(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    sluice_reason reason = SLUICE_REASON_DEVICE_ERROR;
    if (s->state >= SESSION_RELEASED)
        return;
    /* The kernel ended the queue pair, or a try did: the event, which is on its way, says why. */
    if (wc->status == IBV_WC_WR_FLUSH_ERR && s->state == SESSION_OPENING && !s->adopted &&
        l->node->traits.answer_is_up)
        return;
    close_note_cause(s, -1, 0, (int32_t)wc->status);
    close_adopt_heard(l, s);
    if (wc->status == IBV_WC_WR_FLUSH_ERR && c->drain.down_polls > 0) {
        close_down_now(l, s); /* nothing more had arrived, and why is known */
        return;
    }
    switch (wc->status) {
    case IBV_WC_WR_FLUSH_ERR: /* the queue pair broke; another completion or event says why */
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        reason = SLUICE_REASON_PEER_LOST;
        break;
    case IBV_WC_REM_INV_REQ_ERR: /* the peer's buffers are smaller than agreed */
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_LOC_LEN_ERR: /* a frame larger than our buffers */
        reason = SLUICE_REASON_PROTOCOL;
        break;
    case IBV_WC_SUCCESS:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_BAD_RESP_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE:
        break;
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_GENERAL_ERR:
        if (s->node->traits.sent_is_local) /* the connection under the device broke while it sent */
            reason = SLUICE_REASON_PEER_LOST;
        break;
    }
    if (reason == SLUICE_REASON_PEER_LOST && redial_awaits(l, s))
        return;
    s->close.reason_provisional =
        reason == SLUICE_REASON_PEER_LOST && s->close.reason == SLUICE_REASON_NONE;
    char text[sizeof s->info.close_text];
    failure_text_of_completion(text, sizeof text, wc->status);
    if (wc->status == IBV_WC_WR_FLUSH_ERR && atomic_load(&c->moved))
        snprintf(text, sizeof text, "the queue pair broke after an address of this side changed");
    session_close(l, s, reason, (uint32_t)wc->status, text);
}

void connection_wc_error(struct sluice_loop *l, struct connection *c, const struct ibv_wc *wc) {
    loop_assert_inside(l);
    if (likely(session_connection(c->session) == c)) {
        if (!move_broken(l, c->session))
            session_wc_error(l, c->session, wc);
    } else
        connection_retire(l, c);
}

void session_access_error(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc) {
    loop_assert_inside(l);
    char text[sizeof s->info.close_text];
    failure_text_of_completion(text, sizeof text, wc->status);
    close_note_cause(s, -1, 0, (int32_t)wc->status);
    if (s->state >= SESSION_RELEASED && s->close.reason_provisional &&
        s->close.reason == SLUICE_REASON_PEER_LOST)
        close_settle(s, SLUICE_REASON_ACCESS, (uint32_t)wc->status, text);
    session_close(l, s, SLUICE_REASON_ACCESS, (uint32_t)wc->status, text);
}

/*
 * When a process is killed, the kernel may take its memory from the device before its queue pairs: an honest
 * peer's end looks like this now and then, and no later word tells it from a key that never was one.
 */
void session_withdrawn(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc) {
    loop_assert_inside(l);
    if (s->state >= SESSION_RELEASED)
        return;
    close_note_cause(s, -1, 0, (int32_t)wc->status);
    s->close.reason_provisional = s->close.reason == SLUICE_REASON_NONE;
    session_close(l, s, SLUICE_REASON_PEER_LOST, (uint32_t)wc->status,
                  "the peer's memory of a large message is gone");
}
