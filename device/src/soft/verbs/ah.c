/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ah.c - address handles, and making them from the header of a received datagram.
 *
 * An address handle is two addresses and the other fields of a GRH. It leads to this host or to a multicast group, as datagrams
 * go nowhere else: one to another host is refused. Constant once made.
 */
#define _GNU_SOURCE
#include "soft/verbs/ah.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/object/ah.h"
#include "soft/object/device.h"
#include "soft/object/mr.h"
#include "soft/soft.h"
#include "soft/ud/mcast.h"

#define GIDS_MAX 16

/* Does this host have it? Scopes are not in a GID, so they do not count. */
static bool gid_is_local(const union ibv_gid *gid) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t loopback[16] = {[15] = 1};
    bool v4 = memcmp(gid->raw, mapped, sizeof mapped) == 0, found = false;
    if (memcmp(gid->raw, loopback, 16) == 0 || (v4 && gid->raw[12] == 127))
        return true;
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return true; /* not known; the number still has to be right */
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        if (!i->ifa_addr)
            continue;
        if (v4 && i->ifa_addr->sa_family == AF_INET)
            found = memcmp(&((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr,
                           gid->raw + 12, 4) == 0;
        else if (!v4 && i->ifa_addr->sa_family == AF_INET6)
            found = memcmp(&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr,
                           gid->raw, 16) == 0;
    }
    freeifaddrs(list);
    return found;
}

bool soft_gid_is_reached(const union ibv_gid *gid) {
    return soft_gid_is_group(gid) || gid_is_local(gid);
}

static int check(struct ibv_pd *pd, const struct ibv_ah_attr *attr) {
    if (soft_stale(soft_pd_of(pd)))
        return EPERM;
    if (soft_removed(pd->context))
        return EIO;
    /* RoCE knows no way without a GRH. */
    if (attr->port_num != 1 || !attr->is_global || attr->grh.sgid_index >= GIDS_MAX)
        return EINVAL;
    return soft_gid_is_reached(&attr->grh.dgid) ? 0 : EHOSTUNREACH;
}

struct ibv_ah *soft_create_ah(struct ibv_pd *ibpd, struct ibv_ah_attr *attr) {
    UNCANCELLED;
    errno = check(ibpd, attr);
    if (errno)
        return NULL;
    struct soft_ah *ah = calloc(1, sizeof *ah);
    if (!ah)
        return NULL;
    if (soft_query_gid(ibpd->context, 1, attr->grh.sgid_index, &ah->sgid) != 0) {
        free(ah);
        return NULL;
    }
    ah->ibv.context = ibpd->context;
    ah->ibv.pd = ibpd;
    ah->generation = soft_generation_now;
    ah->dgid = attr->grh.dgid;
    ah->tclass_flow =
        htobe32((uint32_t)attr->grh.traffic_class << 20 | (attr->grh.flow_label & 0xfffff));
    ah->hop_limit = attr->grh.hop_limit;
    ah->sl = attr->sl & 15;
    atomic_fetch_add(&soft_pd_of(ibpd)->users, 1);
    return &ah->ibv;
}

int soft_destroy_ah(struct ibv_ah *ibah) {
    UNCANCELLED;
    struct soft_ah *ah = soft_ah_of(ibah);
    if (soft_stale(ah))
        return EPERM;
    atomic_fetch_sub(&soft_pd_of(ibah->pd)->users, 1);
    free(ah);
    return 0;
}

/* Index of the GID the datagram was sent to; 0 where it was a group's, or has gone. */
static uint8_t gid_index(struct ibv_context *ctx, const union ibv_gid *gid) {
    union ibv_gid own;
    for (uint8_t i = 0; i < GIDS_MAX; i++)
        if (soft_query_gid(ctx, 1, i, &own) == 0 && memcmp(&own, gid, sizeof own) == 0)
            return i;
    return 0;
}

int soft_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc,
                         struct ibv_grh *grh, struct ibv_ah_attr *attr) {
    UNCANCELLED;
    memset(attr, 0, sizeof *attr);
    if (port != 1 || !(wc->wc_flags & IBV_WC_GRH) || !grh) {
        errno = EINVAL;
        return -1;
    }
    uint32_t word = be32toh(grh->version_tclass_flow);
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    attr->is_global = 1;
    attr->grh.dgid = grh->sgid;
    attr->grh.sgid_index = gid_index(ctx, &grh->dgid);
    attr->grh.flow_label = word & 0xfffff;
    attr->grh.traffic_class = (uint8_t)(word >> 20);
    attr->grh.hop_limit = 0xff;
    return 0;
}

struct ibv_ah *soft_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                      uint8_t port) {
    UNCANCELLED;
    struct ibv_ah_attr attr;
    if (soft_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0)
        return NULL;
    return soft_create_ah(pd, &attr);
}
