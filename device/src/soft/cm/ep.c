/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ep.c - endpoints: an id, its address, its route and its QP in one call. No state of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/id.h"
#include "soft/cm/sync.h"
#include "soft/soft.h"

#define RESOLVE_MS 2000

static int make_passive(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
                        const struct ibv_qp_init_attr *attr) {
    if (soft_bind_addr(id, res->ai_src_addr))
        return -1;
    if (attr) {
        struct ibv_qp_init_attr *stored = malloc(sizeof *stored);
        if (!stored)
            return soft_cm_fail(ENOMEM);
        *stored = *attr;
        stored->qp_type = (enum ibv_qp_type)res->ai_qp_type;
        soft_cm_id_of(id)->stored_qp_attr = stored;
    }
    if (pd)
        id->pd = pd;
    return 0;
}

static int make_active(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
                       struct ibv_qp_init_attr *attr) {
    if (soft_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS))
        return -1;
    int failed;
    if (res->ai_route_len) {
        failed = soft_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, res->ai_route,
                                 res->ai_route_len);
        if (!failed)
            failed = soft_cm_sync_complete(soft_cm_id_of(id));
    } else {
        failed = soft_resolve_route(id, RESOLVE_MS);
    }
    if (failed)
        return -1;
    if (attr) {
        attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
        if (soft_cm_create_qp(id, pd, attr))
            return -1;
    }
    if (res->ai_connect_len) {
        uint8_t *prefix = malloc(res->ai_connect_len);
        if (!prefix)
            return soft_cm_fail(ENOMEM);
        memcpy(prefix, res->ai_connect, res->ai_connect_len);
        soft_cm_id_of(id)->connect_prefix = prefix;
        soft_cm_id_of(id)->connect_prefix_len = res->ai_connect_len;
    }
    return 0;
}

int soft_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
                   struct ibv_qp_init_attr *attr) {
    UNCANCELLED;
    if (!out || !res)
        return soft_cm_fail(EINVAL);
    struct rdma_cm_id *id;
    if (soft_create_id2(NULL, &id, NULL, (enum rdma_port_space)res->ai_port_space,
                        (enum ibv_qp_type)res->ai_qp_type))
        return -1;
    int failed = res->ai_flags & RAI_PASSIVE ? make_passive(id, res, pd, attr)
                                             : make_active(id, res, pd, attr);
    if (failed) {
        int error = errno;
        soft_destroy_ep(id);
        return soft_cm_fail(error);
    }
    *out = id;
    return 0;
}

void soft_destroy_ep(struct rdma_cm_id *id) {
    UNCANCELLED;
    if (!id)
        return;
    soft_cm_destroy_qp(id);
    soft_cm_destroy_srq(id);
    soft_destroy_id(id);
}
