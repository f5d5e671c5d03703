/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* quiet.c - see quiet.h. The connection's timer is free, as no answer is waited for. */
#include "soft/cm/quiet.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/cm/conn.h"
#include "soft/cm/id.h"
#include "soft/cm/timers.h"
#include "soft/ipc/engine.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/rc/progress.h"

#define LOOK_NS 1000000u
#define REST_NS 4000000u /* a thread that shares its CPU has had a turn by then */

static bool is_untaken(struct ibv_cq *cq) {
    return cq->channel && atomic_load(&soft_cq_of(cq)->ring_count) != 0;
}

/* NULL: no thread sleeps on its completions. */
static struct soft_qp *slept_on(const struct soft_cm_id *id) {
    struct soft_qp *qp = soft_qp_find(id->conn.local_qpn);
    return qp && (qp->own_recv_cq->channel || qp->own_send_cq->channel) ? qp : NULL;
}

static void on_look(struct soft_timer *timer) {
    struct soft_cm_id *id =
        (struct soft_cm_id *)((char *)timer - offsetof(struct soft_cm_id, conn.timer));
    struct soft_cm_conn *conn = &id->conn;
    const struct soft_qp *qp = slept_on(id);
    uint64_t now = soft_now_ns();
    if (qp && (is_untaken(qp->own_recv_cq) || is_untaken(qp->own_send_cq)))
        conn->taken_ns = now;
    bool late = now - conn->end_ns >= soft_cm_timers()->end_ms * UINT64_C(1000000);
    if (!qp || late || now - conn->taken_ns >= REST_NS)
        soft_cm_quiet_tell(id);
    else
        soft_timer_arm(timer, now + LOOK_NS, on_look);
}

void soft_cm_quiet_end(struct soft_cm_id *id) {
    soft_assert_locked();
    struct soft_cm_conn *conn = &id->conn;
    struct soft_qp *qp = soft_cm_timers()->end_ms ? slept_on(id) : NULL;
    if (!qp) {
        soft_cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    }
    if (soft_qp_has_any_work(qp)) /* what arrived before the end is a completion before it */
        soft_qp_progress(qp);
    conn->end_ns = conn->taken_ns = soft_now_ns();
    soft_timer_arm(&conn->timer, conn->end_ns + LOOK_NS, on_look);
}

void soft_cm_quiet_tell(struct soft_cm_id *id) {
    soft_assert_locked();
    if (id->conn.end_ns == 0)
        return;
    id->conn.end_ns = 0;
    soft_timer_cancel(&id->conn.timer);
    soft_cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}
