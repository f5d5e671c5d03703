/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* agreed.c - see agreed.h. Owner: the control lock. */
#include "soft/cm/agreed.h"

#include <stddef.h>

#include "soft/cm/id.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/peer.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/rc/pending_ring.h"

void soft_cm_agreed_note(const struct soft_cm_id *id, uint32_t local_qpn) {
    soft_assert_locked();
    struct soft_qp *qp = local_qpn ? soft_qp_find(local_qpn) : NULL;
    if (qp)
        qp->agreed = id->number;
}

void soft_cm_agreed_tell(const struct soft_cm_id *id, struct ibv_qp_attr *attr) {
    attr->alt_ah_attr.grh.dgid.global.subnet_prefix = soft_peer_own_number();
    attr->alt_ah_attr.grh.dgid.global.interface_id = id->number;
}

/* What is there may be anything: the number of this process, which is random, says that it is an id. */
static const struct soft_cm_id *told(const struct ibv_qp_attr *attr, int mask) {
    const union ibv_gid *gid = &attr->alt_ah_attr.grh.dgid;
    if ((mask & IBV_QP_ALT_PATH) || gid->global.subnet_prefix != soft_peer_own_number())
        return NULL;
    return soft_cm_id_find(gid->global.interface_id);
}

/* Ids that know the number at the other end, and whose peer may still be there. */
static bool leads_to(const struct soft_cm_id *id, uint32_t qpn) {
    const struct soft_cm_conn *conn = &id->conn;
    bool knows = conn->state == SOFT_CM_CONN_REQ_RCVD || conn->state == SOFT_CM_CONN_REP_SENT ||
                 conn->state == SOFT_CM_CONN_REP_RCVD || conn->state == SOFT_CM_CONN_UP;
    return knows && conn->remote_qpn == qpn && conn->peer && soft_peer_alive(conn->peer);
}

/* Who has asked for the connection said for which queue pair; who answers says it when it accepts. */
static bool is_for(const struct soft_cm_id *id, const struct soft_qp *qp) {
    return !id->conn.local_qpn || id->conn.local_qpn == qp->ibv.qp_num;
}

struct soft_peer *soft_cm_agreed_peer(const struct soft_qp *qp, const struct ibv_qp_attr *attr,
                                      int mask) {
    soft_assert_locked();
    const struct soft_cm_id *id = qp->agreed ? soft_cm_id_find(qp->agreed) : NULL;
    if (!id || !is_for(id, qp) || !leads_to(id, attr->dest_qp_num))
        id = told(attr, mask);
    if (!id || !is_for(id, qp) || !leads_to(id, attr->dest_qp_num))
        return NULL;
    return soft_peer_hold(id->conn.peer);
}

bool soft_cm_agreed_with(const struct soft_qp *qp, const struct soft_peer *peer) {
    soft_assert_locked();
    const struct soft_cm_id *id = qp->agreed ? soft_cm_id_find(qp->agreed) : NULL;
    return id && id->conn.peer && soft_same_process(id->conn.peer, peer);
}
