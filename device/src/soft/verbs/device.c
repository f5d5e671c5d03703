/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device.c - the one software device: list, context, attributes, GIDs.
 *
 * The device object is static and lives as long as the process. A context holds a reference on the
 * engine. The device reports itself as RoCE v2 with the host's IPv4 and IPv6 addresses as GIDs, and
 * says "soft" in its name.
 */
#define _GNU_SOURCE
#include "soft/verbs/device.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/settings.h"
#include "common/uncancelled.h"
#include "soft/fault/environment.h"
#include "soft/fault/inject.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/shm_layout.h"
#include "soft/object/async_event.h"
#include "soft/object/device.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/soft.h"
#include "soft/verbs/internal.h"
#include "soft/verbs/mw.h"
#include "soft/verbs/post_recv.h"
#include "soft/verbs/srq.h"

#define MAX_GIDS 16
#define GUID 0x02534c5543450001ull

static struct {
    struct ibv_device ibv;
    uint8_t zero[256];
} device = {.ibv = {
                .node_type = IBV_NODE_CA,
                .transport_type = IBV_TRANSPORT_IB,
                .name = SOFT_DEVICE_NAME,
                .dev_name = SOFT_DEVICE_NAME,
            }};

static void become(void) {
    if (!soft_profile()->iwarp)
        return;
    device.ibv.node_type = IBV_NODE_RNIC;
    device.ibv.transport_type = IBV_TRANSPORT_IWARP;
}

struct ibv_device **soft_get_device_list(int *num) {
    UNCANCELLED;
    if (settings_refused() || soft_fault_refused())
        return NULL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, become);
    struct ibv_device **list = calloc(2, sizeof *list);
    if (!list)
        return NULL;
    bool here = !atomic_load(&soft_device_gone);
    list[0] = here ? &device.ibv : NULL;
    if (num)
        *num = here;
    return list;
}

void soft_free_device_list(struct ibv_device **list) {
    UNCANCELLED;
    free(list);
}

const char *soft_get_device_name(struct ibv_device *dev) {
    return dev->name;
}

/* Once in a process: it stays wrong. */
static void complain_of_profile(const char *unknown) {
    static atomic_bool told;
    if (!atomic_exchange(&told, true))
        fprintf(stderr, "sluice: SLUICE_SOFT_PROFILE: no profile \"%s\"; there is: %s\n", unknown,
                soft_profile_names());
}

struct ibv_context *soft_open_device(struct ibv_device *dev) {
    UNCANCELLED;
    const char *unknown = soft_profile_unknown();
    if (dev != &device.ibv || unknown) {
        if (unknown)
            complain_of_profile(unknown);
        errno = unknown ? EINVAL : ENODEV;
        return NULL;
    }
    struct soft_context *ctx = soft_context_alloc();
    if (!ctx)
        return NULL;
    if (soft_engine_get() != 0)
        goto free_context;
    errno = soft_fault_call(FAULT_CALL_open_device);
    if (!errno && atomic_load(&soft_device_gone))
        errno = ENODEV;
    if (errno)
        goto put_engine;
    ctx->ibv.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (ctx->ibv.async_fd < 0)
        goto put_engine;
    ctx->ibv.device = dev;
    ctx->ibv.cmd_fd = eventfd(0, EFD_CLOEXEC); /* says nothing: to be duplicated, or polled */
    if (ctx->ibv.cmd_fd < 0)
        goto close_async;
    ctx->ibv.num_comp_vectors = 1;
    ctx->ibv.ops.poll_cq = soft_poll_cq;
    ctx->ibv.ops.req_notify_cq = soft_req_notify_cq;
    ctx->ibv.ops.post_send = soft_post_send;
    ctx->ibv.ops.post_recv = soft_post_recv;
    ctx->ibv.ops.post_srq_recv = soft_post_srq_recv;
    ctx->ibv.ops.alloc_mw = soft_alloc_mw;
    ctx->ibv.ops.dealloc_mw = soft_dealloc_mw;
    pthread_mutex_init(&ctx->ibv.mutex, NULL);
    pthread_mutex_init(&ctx->async.lock, NULL);
    pthread_cond_init(&ctx->async.acked, NULL);
    CDS_INIT_LIST_HEAD(&ctx->async.waiting);
    CDS_INIT_LIST_HEAD(&ctx->async.fetched);
    ctx->generation = soft_generation_now;
    soft_lock();
    soft_context_register(ctx);
    soft_unlock();
    return &ctx->ibv;
    int err;
close_async:
    err = errno;
    close(ctx->ibv.async_fd);
    errno = err;
put_engine:
    err = errno;
    soft_engine_put();
    errno = err;
free_context:
    err = errno;
    soft_context_free(ctx);
    errno = err;
    return NULL;
}

int soft_close_device(struct ibv_context *ibctx) {
    UNCANCELLED;
    struct soft_context *ctx = soft_context_of(ibctx);
    if (soft_stale(ctx))
        return EPERM;
    if (atomic_load(&ctx->users) != 0)
        return EBUSY;
    soft_lock();
    soft_context_unregister(ctx);
    soft_unlock();
    soft_async_free(ctx);
    close(ctx->ibv.cmd_fd);
    close(ctx->ibv.async_fd);
    pthread_cond_destroy(&ctx->async.acked);
    pthread_mutex_destroy(&ctx->async.lock);
    pthread_mutex_destroy(&ctx->ibv.mutex);
    soft_context_free(ctx);
    soft_engine_put();
    return 0;
}

__be64 soft_device_guid(void) {
    return htobe64(GUID);
}

int soft_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr) {
    UNCANCELLED;
    const struct soft_profile *like = soft_profile();
    if (soft_removed(ctx))
        return EIO;
    *attr = (struct ibv_device_attr){
        .fw_ver = "soft",
        .node_guid = htobe64(GUID),
        .sys_image_guid = htobe64(GUID),
        .max_mr_size = UINT64_MAX,
        .page_size_cap = 0xfffff000,
        .vendor_id = like->vendor_id,
        .vendor_part_id = like->vendor_part_id,
        .hw_ver = 1,
        .max_qp = SOFT_MAX_QP_BLOCKS * SOFT_QP_BLOCK,
        .max_qp_wr = (int)like->wr_most,
        .max_sge = (int)like->sge_most,
        .max_sge_rd = (int)like->sge_read_most,
        .max_cq = SOFT_MAX_QP_BLOCKS * SOFT_QP_BLOCK,
        .max_cqe = (int)like->cqe_most,
        .max_mr = SOFT_MAX_MR - 1,
        .max_pd = 65536,
        .max_mw = like->windows ? SOFT_MAX_MR - 1 : 0,
        .max_srq = SOFT_MAX_MR,
        .max_srq_wr = (int)like->srq_wr_most,
        .max_srq_sge = (int)like->srq_sge_most,
        .device_cap_flags =
            (like->windows ? IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0) |
            (like->iwarp ? 0 : IBV_DEVICE_RC_RNR_NAK_GEN),
        .max_qp_rd_atom = like->depth_most,
        .max_res_rd_atom = 16 * SOFT_MAX_QP_BLOCKS * SOFT_QP_BLOCK,
        .max_qp_init_rd_atom = like->depth_most,
        .atomic_cap = like->atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE,
        .max_ah = 65536,
        .max_mcast_grp = 64,
        .max_mcast_qp_attach = like->members_most,
        .max_total_mcast_qp_attach = 64 * like->members_most,
        .max_pkeys = 1,
        .local_ca_ack_delay = 15,
        .phys_port_cnt = 1,
    };
    return 0;
}

int soft_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr) {
    UNCANCELLED;
    if (soft_removed(ctx))
        return EIO;
    if (port != 1)
        return EINVAL;
    bool down = atomic_load(&soft_port_down);
    memset(attr, 0, sizeof *attr);
    attr->state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
    attr->gid_tbl_len = MAX_GIDS;
    attr->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr->max_msg_sz = SOFT_MAX_MSG;
    attr->pkey_tbl_len = !soft_profile()->iwarp;
    attr->max_vl_num = 1;
    attr->active_width = 2;          /* 4X */
    attr->active_speed = 32;         /* EDR */
    attr->phys_state = down ? 3 : 5; /* disabled, link up */
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

static void gid_of(const struct sockaddr *sa, union ibv_gid *gid) {
    memset(gid, 0, sizeof *gid);
    if (sa->sa_family == AF_INET) {
        gid->raw[10] = gid->raw[11] = 0xff;
        memcpy(gid->raw + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
    } else {
        const struct sockaddr_in6 *sin6 = (const void *)sa;
        memcpy(gid->raw, &sin6->sin6_addr, 16);
    }
}

/* Index 0 is always valid: the first address that is not loopback, else 127.0.0.1. */
int soft_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid) {
    UNCANCELLED;
    bool removed = soft_removed(ctx);
    if (removed || port != 1 || index < 0 || index >= MAX_GIDS) {
        errno = removed ? EIO : EINVAL;
        return -1;
    }
    struct ifaddrs *list = NULL;
    int at = 0, found = 0;
    memset(gid, 0, sizeof *gid);
    if (getifaddrs(&list) != 0)
        list = NULL;
    for (int loopback = 0; loopback < 2 && !found; loopback++)
        for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
            if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
                !!(i->ifa_flags & IFF_LOOPBACK) != loopback ||
                (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
                continue;
            if (at++ == index) {
                gid_of(i->ifa_addr, gid);
                found = 1;
            }
        }
    if (list)
        freeifaddrs(list);
    if (!found && index == 0) {
        gid->raw[10] = gid->raw[11] = 0xff; /* ::ffff:127.0.0.1 */
        gid->raw[12] = 127;
        gid->raw[15] = 1;
    }
    return 0;
}
