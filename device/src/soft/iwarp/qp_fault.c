/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_fault.c - see qp_fault.h.
 *
 * Each turn of progress, by a poller or by the engine's tick, asks again for a message that the plan holds. TCP loses
 * nothing: a transmission that the plan loses is late instead, and one that it always loses ends the request.
 */
#include "soft/iwarp/qp_fault.h"

#include <errno.h>
#include <sys/socket.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_receive.h"
#include "soft/object/device.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/rc/responder.h"

/* ---- nothing moves --------------------------------------------------------------------------------------- */

static bool peer_waits(const struct soft_tcp *tcp) {
    uint8_t byte;
    return tcp->inbox.at != tcp->inbox.end ||
           uncancelled(recv(tcp->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)) >= 0;
}

static bool waits(const struct soft_qp *qp) {
    const struct soft_tcp *tcp = qp->tcp;
    return qp->sq_head != qp->sq_tail || tcp->tx.open || tcp->tx.sent != tcp->tx.framed ||
           tcp->answer_at != qp->answer_tail || peer_waits(tcp);
}

bool soft_tcp_look_dark(struct soft_qp *qp, struct sink *sink) {
    struct soft_tcp *tcp = qp->tcp;
    bool port = atomic_load(&soft_port_down);
    uint64_t now = soft_now_ns();
    tcp->dark = soft_fault_active() && (port || now < tcp->stalled_until_ns);
    if (!tcp->dark || !port)
        tcp->dark_ns = 0;
    else if (tcp->dark_ns == 0)
        tcp->dark_ns = waits(qp) ? now : 0;
    else if (sink && now - tcp->dark_ns > soft_fault_retries_ns(qp))
        soft_tcp_lost(qp, sink, IBV_WC_RETRY_EXC_ERR);
    return tcp->dark;
}

static void stall_until(struct soft_tcp *tcp, const struct soft_fault_step *step) {
    if (!step->stall)
        return;
    tcp->stalled_until_ns = step->until_ns;
    tcp->dark = true;
}

/* ---- sends ----------------------------------------------------------------------------------------------- */

/* Both ends see the end of the stream: incomplete requests get RETRY_EXC_ERR. */
static void cut(struct soft_tcp *tcp) {
    shutdown(tcp->fd, SHUT_RDWR);
    tcp->error = ECONNRESET;
}

bool soft_tcp_ask_send(struct soft_qp *qp, struct soft_wqe *wqe) {
    struct soft_tcp *tcp = qp->tcp;
    const struct soft_fault_step *step = &qp->fault.send;
    int status = 0;
    bool local = wqe->opcode == IBV_WR_BIND_MW || wqe->opcode == IBV_WR_LOCAL_INV;
    enum soft_fault_verdict verdict = soft_fault_send(qp, &status);
    if (verdict == SOFT_FAULT_HOLD) {
        tcp->send_held = true;
        stall_until(tcp, step);
    } else if (verdict == SOFT_FAULT_BREAK && step->cut) {
        if (tcp->tx.sent == tcp->tx.framed) /* the messages before it are on their way */
            cut(tcp);
    } else if (verdict == SOFT_FAULT_BREAK) {
        soft_requester_break(qp, wqe, (enum ibv_wc_status)status);
    }
    tcp->tx.corrupt = verdict == SOFT_FAULT_PASS && step->corrupt && !local && !wqe->started;
    return verdict == SOFT_FAULT_PASS;
}

/* ---- receives -------------------------------------------------------------------------------------------- */

bool soft_tcp_ask_take(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    int status = 0;
    switch (soft_fault_receive(qp, NULL, &status)) {
    case SOFT_FAULT_PASS:
    case SOFT_FAULT_LOSE: /* of other transports */
        return true;
    case SOFT_FAULT_HOLD:
        tcp->take_held = true;
        stall_until(tcp, &qp->fault.recv);
        return false;
    case SOFT_FAULT_BREAK:
        tcp->take_status = soft_receive_get(qp) ? (uint8_t)status : 0;
        return false;
    }
    return true;
}

void soft_tcp_refuse_take(struct soft_qp *qp) {
    enum ibv_wc_status status = (enum ibv_wc_status)qp->tcp->take_status;
    struct ibv_wc wc = error_wc(qp, soft_receive_get(qp)->wr_id, status, IBV_WC_RECV);
    qp->tcp->take_status = 0;
    soft_tcp_complete_receive(qp, &wc, true);
    soft_tcp_terminate(qp, &(struct iwarp_terminate){.refusal = status == IBV_WC_LOC_LEN_ERR
                                                                    ? IWARP_UNTAGGED_TOO_LONG
                                                                    : IWARP_OPERATION_STREAM});
}
