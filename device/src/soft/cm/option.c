/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * option.c - rdma_set_option. Options are plain fields of the id; those that decide whether ids may
 * share a port change its name as well.
 */
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/id.h"
#include "soft/cm/resolve.h"
#include "soft/fault/inject.h"
#include "soft/soft.h"

static int set_reuse(struct soft_cm_id *id, bool reuse) {
    bool allowed = (reuse && id->state != SOFT_CM_LISTEN) || id->state == SOFT_CM_IDLE;
    if (!allowed || id->state == SOFT_CM_DEAD)
        return EINVAL;
    id->port.reuse = reuse;
    return -soft_cm_port_rename(id);
}

static int set_afonly(struct soft_cm_id *id, bool afonly) {
    if (id->state != SOFT_CM_IDLE && id->state != SOFT_CM_BOUND)
        return EINVAL;
    bool former = id->port.afonly;
    id->port.afonly = afonly;
    id->port.afonly_set = true;
    int error = soft_cm_port_rename(id);
    if (error)
        id->port.afonly = former;
    return -error;
}

static int set_ack_timeout(struct soft_cm_id *id, uint8_t exponent) {
    if (id->id.qp_type != IBV_QPT_RC)
        return EINVAL;
    id->ack_timeout = exponent;
    id->ack_timeout_set = true;
    return 0;
}

static int set_id_option(struct soft_cm_id *id, int name, const void *value, size_t len) {
    uint8_t byte;
    int word;
    switch (name) {
    case RDMA_OPTION_ID_TOS:
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (len != sizeof byte)
            return EINVAL;
        memcpy(&byte, value, sizeof byte);
        if (name == RDMA_OPTION_ID_ACK_TIMEOUT)
            return set_ack_timeout(id, byte);
        id->tos = byte;
        return 0;
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
        if (len != sizeof word)
            return EINVAL;
        memcpy(&word, value, sizeof word);
        return name == RDMA_OPTION_ID_AFONLY ? set_afonly(id, word) : set_reuse(id, word);
    }
    return ENOSYS;
}

static int set_path(struct soft_cm_id *id, const void *value, size_t len) {
    const uint32_t wanted = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    struct ibv_path_data path;
    if (!len || len % sizeof path)
        return EINVAL;
    for (size_t at = 0; at < len; at += sizeof path) {
        memcpy(&path, (const uint8_t *)value + at, sizeof path);
        if (path.flags == wanted)
            return soft_cm_resolve_route_locked(id);
    }
    return EINVAL;
}

int soft_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && !value)
        error = EINVAL;
    if (!error)
        error = soft_fault_call(FAULT_CALL_set_option);
    if (error)
        return soft_cm_fail(error);
    soft_lock();
    if (level == RDMA_OPTION_ID)
        error = set_id_option(soft_cm_id_of(id), name, value, len);
    else if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH)
        error = set_path(soft_cm_id_of(id), value, len);
    else
        error = ENOSYS;
    soft_unlock();
    return error ? soft_cm_fail(error) : 0;
}

/* ECE is a matter of NICs. Where a QP sits on the id the library would deal with it. */
int soft_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error)
        error = !ece || id->qp ? EINVAL : EOPNOTSUPP;
    return soft_cm_fail(error);
}

int soft_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece) {
    UNCANCELLED;
    return soft_set_local_ece(id, ece);
}
