/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * id_options.c - the options of a link for rdma_set_option(3).
 *
 * Type of service and ACK timeout are those of an id's own packets, so they are set on every id: the
 * dialer's before its address is resolved, a request's before the QP's attributes are asked for. On a
 * listener they are set as well, for transports that take them from there, and so that sluice_listen()
 * reports an option that the stack refuses, not every request. An option that the link does not have is not set:
 * the stack's own choice stays.
 *
 * Owner: the CM thread.
 */
#include <errno.h>
#include <string.h>

#include "cm/internal.h"
#include "core/context.h"

static bool set(const struct fabric_ops *fabric, struct rdma_cm_id *id, int name, void *value,
                size_t bytes) {
    return fabric->set_option(id, RDMA_OPTION_ID, name, value, bytes) == 0;
}

const char *cm_set_options(struct cm *cm, struct rdma_cm_id *id, const struct link_config *link,
                           bool listening) {
    cm_assert_thread(cm);
    const struct fabric_ops *fabric = cm->node->fabric;
    int reuse = 1; /* these are the sizes the stack insists on */
    uint8_t tos = (uint8_t)link->tos, ack_timeout = (uint8_t)link->ack_timeout;
    if (listening && (link->flags & SLUICE_REUSE) &&
        !set(fabric, id, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof reuse))
        return "the reuse of the address";
    if (tos && !set(fabric, id, RDMA_OPTION_ID_TOS, &tos, sizeof tos))
        return "the type of service";
    if (ack_timeout && !set(fabric, id, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, 1))
        return "the ACK timeout";
    return NULL;
}

bool cm_conn_options(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    const struct link_config *link = &session_of_conn(conn)->link_config;
    const char *refused = cm_set_options(cm, conn->owner.id, link, false);
    if (refused)
        cm_fail(cm, conn, SLUICE_REASON_DEVICE_ERROR, (uint32_t)errno, "%s cannot be set: %s",
                refused, strerror(errno));
    return !refused;
}
