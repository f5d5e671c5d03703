/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resolve.c - from an address to the device: bind_addr, resolve_addr, resolve_route.
 *
 * No answer of a network is waited for: an address of this host, or a TCP route, is known at once, so each call
 * posts its result as an event. Where the id may not use TCP an address of another host is EREMOTE, which no
 * route of the kernel's ends with: so the application knows that the software device does not go there.
 */
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/addr.h"
#include "soft/cm/device.h"
#include "soft/cm/event.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/net.h"
#include "soft/cm/resolve.h"
#include "soft/cm/sync.h"
#include "soft/cm/tcp.h"
#include "soft/cm/tcp_dial.h"
#include "soft/fault/plan.h"
#include "soft/ipc/control_lock.h"
#include "soft/object/profile.h"
#include "soft/soft.h"

static void clear_src(struct soft_cm_id *id) {
    memset(&id->id.route.addr.src_storage, 0, sizeof id->id.route.addr.src_storage);
}

/* 0 if the device may be bound to the address, else an errno. */
static int check_local(const struct sockaddr *addr) {
    if (soft_cm_addr_is_any(addr))
        return soft_cm_addr_has_family(addr->sa_family) ? 0 : EAFNOSUPPORT;
    if (soft_cm_addr_is_link_local(addr) &&
        ((const struct sockaddr_in6 *)(const void *)addr)->sin6_scope_id == 0)
        return EINVAL; /* says the kernel */
    int local = soft_cm_addr_is_local(addr);
    return local > 0 ? 0 : local < 0 ? -local : EADDRNOTAVAIL;
}

/* ---- bind_addr ------------------------------------------------------------------------------------ */

static int bind_locked(struct soft_cm_id *id, const struct sockaddr *addr, bool named,
                       bool allowed) {
    if (id->state != SOFT_CM_IDLE)
        return EINVAL;
    if (!allowed)
        return EACCES;
    soft_cm_addr_copy(&id->id.route.addr.src_storage, addr);
    if (!id->port.afonly_set)
        id->port.afonly = addr->sa_family == AF_INET;
    int error = named ? soft_cm_port_claim(id) : soft_cm_port_claim_ephemeral(id);
    if (error) {
        clear_src(id);
        return -error;
    }
    soft_cm_id_enter(id, SOFT_CM_BOUND);
    return 0;
}

int soft_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && !soft_cm_addr_bytes(addr))
        error = EINVAL;
    if (!error)
        error = check_local(addr);
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    bool allowed = soft_cm_addr_port_allowed(soft_cm_addr_port(addr));
    soft_lock();
    error = bind_locked(own, addr, true, allowed);
    soft_unlock();
    if (error || soft_cm_addr_is_any(addr))
        return error ? soft_cm_fail(error) : 0;
    error = soft_cm_device_attach(own, atomic_load(&own->channel));
    if (!error)
        return 0;
    soft_lock();
    soft_cm_port_release(own);
    clear_src(own);
    soft_cm_id_enter(own, SOFT_CM_IDLE);
    soft_unlock();
    return soft_cm_fail(error);
}

/* ---- resolve_addr --------------------------------------------------------------------------------- */

/* The source: as bound, as given, or to be chosen. */
static int prepare_src(struct soft_cm_id *id, const struct sockaddr *src,
                       const struct sockaddr *dst, bool allowed) {
    if (id->state == SOFT_CM_BOUND)
        return soft_cm_id_src(id)->sa_family == dst->sa_family ? 0 : EINVAL;
    if (id->state != SOFT_CM_IDLE)
        return EINVAL;
    struct sockaddr_storage any;
    soft_cm_addr_any(&any, dst->sa_family);
    if (!src)
        src = (struct sockaddr *)&any;
    return bind_locked(id, src, soft_cm_addr_port(src) != 0, allowed);
}

/* 0: it is bound to its source there, or goes within this host; else why it cannot be reached. */
static int go_over_tcp(struct soft_cm_id *id, bool local) {
    if (local && (!soft_cm_net_requires(id) || !soft_cm_net_allows(id)))
        return 0;
    return soft_cm_net_allows(id) ? soft_cm_tcp_open(id) : EREMOTE;
}

static int resolve_locked(struct soft_cm_id *id, const struct sockaddr *src,
                          const struct sockaddr *dst, int local, bool allowed) {
    int event, status;
    int error = prepare_src(id, src, dst, allowed);
    if (error)
        return error;
    soft_cm_addr_copy(&id->id.route.addr.dst_storage, dst);
    uint16_t port = soft_cm_addr_port(dst);
    if (soft_cm_addr_is_any(dst)) {
        soft_cm_addr_loopback(&id->id.route.addr.dst_storage, dst->sa_family);
        soft_cm_addr_set_port(&id->id.route.addr.dst_storage, port);
    }
    if (soft_fault_id_call(&id->fault, FAULT_RESOLVE_ADDR, &event, &status)) {
        soft_cm_event_raise(id, event, status);
        return 0;
    }
    error = local < 0 ? -local : go_over_tcp(id, local);
    if (error) {
        soft_cm_event_raise(id, RDMA_CM_EVENT_ADDR_ERROR, -error);
        return 0; /* still bound: the address may be resolved again */
    }
    if (soft_cm_addr_is_any(soft_cm_id_src(id))) {
        /* For a local destination routing chooses that address itself. */
        uint16_t own_port = soft_cm_addr_port(soft_cm_id_src(id));
        if (soft_cm_addr_is_group(dst))
            soft_cm_addr_loopback(&id->id.route.addr.src_storage, dst->sa_family);
        else
            soft_cm_addr_copy(&id->id.route.addr.src_storage, soft_cm_id_dst(id));
        soft_cm_addr_set_port(&id->id.route.addr.src_storage, own_port);
    }
    soft_cm_id_enter(id, SOFT_CM_ADDR_RESOLVED);
    return 0;
}

int soft_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
                      int timeout_ms) {
    UNCANCELLED;
    (void)timeout_ms;
    int error = soft_cm_id_unusable(id);
    if (!error && !soft_cm_addr_bytes(dst))
        error = EINVAL;
    if (!error && src && src->sa_family && src->sa_family != dst->sa_family)
        error = EINVAL;
    if (src && !src->sa_family)
        src = NULL; /* "choose one" */
    if (!error && src)
        error = check_local(src);
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    /* A group of datagrams is wherever its members are. */
    bool group = soft_cm_addr_is_group(dst) && soft_cm_id_is_ud(own);
    struct sockaddr_storage there; /* the unspecified address is loopback */
    soft_cm_addr_copy(&there, dst);
    if (soft_cm_addr_is_any(dst))
        soft_cm_addr_loopback(&there, dst->sa_family);
    int local = group ? 1 : soft_cm_addr_is_local((struct sockaddr *)&there);
    bool allowed = !src || soft_cm_addr_port_allowed(soft_cm_addr_port(src));
    soft_lock();
    error = resolve_locked(own, src, dst, local, allowed);
    bool resolved = !error && own->state == SOFT_CM_ADDR_RESOLVED;
    soft_unlock();
    if (error)
        return soft_cm_fail(error);
    if (resolved) {
        error = soft_cm_device_attach(own, atomic_load(&own->channel));
        soft_lock();
        if (error && own->state == SOFT_CM_ADDR_RESOLVED)
            soft_cm_id_enter(own, SOFT_CM_BOUND);
        soft_cm_event_raise(own, error ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED,
                            -error);
        soft_unlock();
    }
    return soft_cm_sync_complete(own);
}

/* ---- resolve_route -------------------------------------------------------------------------------- */

static struct ibv_sa_path_rec *make_path(struct soft_cm_id *id) {
    struct ibv_sa_path_rec *path = calloc(1, sizeof *path);
    if (!path)
        return NULL;
    path->sgid = id->id.route.addr.addr.ibaddr.sgid;
    path->dgid = id->id.route.addr.addr.ibaddr.dgid;
    path->hop_limit = 64;
    path->traffic_class = id->tos;
    path->reversible = 1;
    path->numb_path = 1;
    path->pkey = htons(0xffff);
    path->mtu_selector = path->rate_selector = path->packet_life_time_selector = 2; /* exactly */
    path->mtu = IBV_MTU_4096;
    path->rate = IBV_RATE_100_GBPS;
    path->packet_life_time = 16;
    return path;
}

int soft_cm_route_found(struct soft_cm_id *id) {
    if (!soft_profile()->iwarp) { /* there it is the network's affair */
        struct ibv_sa_path_rec *path = make_path(id);
        if (!path)
            return ENOMEM;
        free(id->id.route.path_rec);
        id->id.route.path_rec = path;
        id->id.route.num_paths = 1;
    }
    soft_cm_id_enter(id, SOFT_CM_ROUTE_RESOLVED);
    soft_cm_event_raise(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    return 0;
}

/* 0: go on; -1: the fault plan has answered; else an errno. */
static int begin_route(struct soft_cm_id *id) {
    int event, status;
    if (id->state != SOFT_CM_ADDR_RESOLVED)
        return EINVAL;
    if (!soft_fault_id_call(&id->fault, FAULT_RESOLVE_ROUTE, &event, &status))
        return 0;
    soft_cm_event_raise(id, event, status);
    return -1;
}

/* Also the end of set_option(IB_PATH): there is but one path, whatever was given. */
int soft_cm_resolve_route_locked(struct soft_cm_id *id) {
    soft_assert_locked();
    int error = begin_route(id);
    if (error == 0)
        error = soft_cm_route_found(id);
    return error < 0 ? 0 : error;
}

static int reach_locked(struct soft_cm_id *id, int timeout_ms, bool *awaited) {
    if (!id->conn.tcp)
        return soft_cm_resolve_route_locked(id);
    int error = begin_route(id);
    if (error != 0)
        return error < 0 ? 0 : error;
    error = soft_cm_tcp_reach(id, timeout_ms);
    *awaited = error == 0;
    return error;
}

int soft_cm_reach(struct rdma_cm_id *id, int timeout_ms) {
    UNCANCELLED;
    bool awaited = false;
    int error = soft_cm_id_unusable(id);
    if (!error && timeout_ms <= 0)
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    soft_lock();
    error = reach_locked(soft_cm_id_of(id), timeout_ms, &awaited);
    soft_unlock();
    return error ? soft_cm_fail(error) : awaited;
}

int soft_resolve_route(struct rdma_cm_id *id, int timeout_ms) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && !timeout_ms)
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    soft_lock();
    error = soft_cm_resolve_route_locked(own);
    soft_unlock();
    return error ? soft_cm_fail(error) : soft_cm_sync_complete(own);
}

/* ---- what is bound -------------------------------------------------------------------------------- */

uint16_t soft_get_src_port(struct rdma_cm_id *id) {
    return htons(soft_cm_addr_port(&id->route.addr.src_addr));
}

uint16_t soft_get_dst_port(struct rdma_cm_id *id) {
    return htons(soft_cm_addr_port(&id->route.addr.dst_addr));
}
