/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * addrinfo.c - names to addresses (rdma_getaddrinfo and its asynchronous form), and the list of
 * devices. Resolving may ask a name server and so blocks: no lock is held meanwhile.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/addr.h"
#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/object/profile.h"
#include "soft/soft.h"

/* ---- rdma_getaddrinfo ------------------------------------------------------------------------------ */

static void to_system(const struct rdma_addrinfo *hints, struct addrinfo *out) {
    memset(out, 0, sizeof *out);
    out->ai_flags = (hints->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0) |
                    (hints->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
    out->ai_family = hints->ai_family;
    if (hints->ai_qp_type == IBV_QPT_UD)
        out->ai_socktype = SOCK_DGRAM;
    else if (hints->ai_qp_type)
        out->ai_socktype = SOCK_STREAM;
    if (hints->ai_port_space == RDMA_PS_TCP)
        out->ai_protocol = IPPROTO_TCP;
    else if (hints->ai_port_space == RDMA_PS_UDP || hints->ai_port_space == RDMA_PS_IPOIB)
        out->ai_protocol = IPPROTO_UDP;
}

static int copy_addr(struct sockaddr **out, socklen_t *out_len, const struct sockaddr *addr,
                     socklen_t len) {
    if (!addr || !len)
        return 0;
    *out = malloc(len);
    if (!*out)
        return soft_cm_fail(ENOMEM);
    memcpy(*out, addr, len);
    *out_len = len;
    return 0;
}

static int copy_name(char **out, const char *name) {
    if (!name)
        return 0;
    *out = strdup(name);
    return *out ? 0 : soft_cm_fail(ENOMEM);
}

static void set_types(struct rdma_addrinfo *rai, int socktype, const struct rdma_addrinfo *hints) {
    if (hints && hints->ai_qp_type)
        rai->ai_qp_type = hints->ai_qp_type;
    else
        rai->ai_qp_type = socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
    if (hints && hints->ai_port_space)
        rai->ai_port_space = hints->ai_port_space;
    else
        rai->ai_port_space = rai->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
}

/*
 * A name of this host that is asked for without a service, to be bound to, is asked for an address to tell others: libfabric
 * does so with "localhost". On a NIC a loopback address is bound to no device, and such a program goes on with one of a
 * device's. Here it would be, and others would find only themselves there: the host's first other address takes its place.
 */
static void name_to_others(const char *node, struct sockaddr *addr) {
    struct sockaddr_storage other;
    struct in6_addr number;
    if (!soft_cm_addr_is_loopback(addr) || inet_pton(AF_INET, node, &number) == 1 ||
        inet_pton(AF_INET6, node, &number) == 1 || !soft_cm_addr_outside(&other, addr->sa_family))
        return;
    memcpy(addr, &other, soft_cm_addr_bytes(addr));
}

/* 0, -1 and errno, or an EAI_ code. */
static int by_name(const char *node, const char *service, const struct rdma_addrinfo *hints,
                   struct rdma_addrinfo *rai) {
    struct addrinfo system_hints, *found = NULL;
    if (hints)
        to_system(hints, &system_hints);
    int error = getaddrinfo(node, service, hints ? &system_hints : NULL, &found);
    if (error)
        return error;
    rai->ai_family = found->ai_family;
    set_types(rai, found->ai_socktype, hints);
    if (rai->ai_flags & RAI_PASSIVE) {
        if (node && !service)
            name_to_others(node, found->ai_addr);
        error = copy_addr(&rai->ai_src_addr, &rai->ai_src_len, found->ai_addr, found->ai_addrlen);
        if (!error)
            error = copy_name(&rai->ai_src_canonname, found->ai_canonname);
    } else {
        error = copy_addr(&rai->ai_dst_addr, &rai->ai_dst_len, found->ai_addr, found->ai_addrlen);
        if (!error)
            error = copy_name(&rai->ai_dst_canonname, found->ai_canonname);
    }
    freeaddrinfo(found);
    return error;
}

/* No name to look up: the hints are the answer. */
static int by_hints(const struct rdma_addrinfo *hints, struct rdma_addrinfo *rai) {
    rai->ai_family = hints->ai_family;
    set_types(rai, 0, hints);
    if (rai->ai_flags & RAI_PASSIVE)
        return 0; /* the source follows for both */
    return copy_addr(&rai->ai_dst_addr, &rai->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
}

int soft_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                     struct rdma_addrinfo **res) {
    UNCANCELLED;
    if (!res || (!node && !service && !hints))
        return soft_cm_fail(EINVAL);
    struct rdma_addrinfo *rai = calloc(1, sizeof *rai);
    if (!rai)
        return soft_cm_fail(ENOMEM);
    rai->ai_flags = hints ? hints->ai_flags : 0;
    int error = node || service ? by_name(node, service, hints, rai) : by_hints(hints, rai);
    if (!error && !rai->ai_src_len && hints)
        error =
            copy_addr(&rai->ai_src_addr, &rai->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
    if (error) {
        int saved = errno;
        soft_freeaddrinfo(rai);
        errno = saved;
        return error;
    }
    *res = rai;
    return 0;
}

void soft_freeaddrinfo(struct rdma_addrinfo *res) {
    UNCANCELLED;
    while (res) {
        struct rdma_addrinfo *next = res->ai_next;
        free(res->ai_src_addr);
        free(res->ai_dst_addr);
        free(res->ai_src_canonname);
        free(res->ai_dst_canonname);
        free(res->ai_route);
        free(res->ai_connect);
        free(res);
        res = next;
    }
}

/* ---- asynchronous ----------------------------------------------------------------------------------- */

/* EAI_ codes as the positive errno the event carries. */
static int errno_of(int code) {
    if (code == -1)
        return errno ? errno : EIO;
    switch (code) {
    case EAI_MEMORY:
        return ENOMEM;
    case EAI_AGAIN:
        return EAGAIN;
    case EAI_SYSTEM:
        return errno ? errno : EIO;
    case EAI_BADFLAGS:
    case EAI_FAMILY:
    case EAI_SOCKTYPE:
        return EINVAL;
    }
    return ENOENT;
}

/* librdmacm writes this event itself: a kernel that lets no process write events refuses it. */
int soft_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
                          const struct rdma_addrinfo *hints) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && ((!node && !service && !hints) || !soft_profile()->user_events))
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    soft_lock();
    error = own->info_busy || own->info ? EBUSY : 0;
    if (!error)
        own->info_busy = true;
    soft_unlock();
    if (error)
        return soft_cm_fail(error);
    struct rdma_addrinfo *found = NULL;
    int code = soft_getaddrinfo(node, service, hints, &found);
    int status = code ? errno_of(code) : 0;
    soft_lock();
    own->info_busy = false;
    own->info = found;
    soft_cm_event_raise(
        own, status ? SOFT_CM_EVENT_ADDRINFO_ERROR : SOFT_CM_EVENT_ADDRINFO_RESOLVED, status);
    soft_unlock();
    return 0;
}

int soft_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && !info)
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    soft_lock();
    if (own->info)
        *info = own->info;
    else
        error = ENOENT;
    own->info = NULL;
    soft_unlock();
    return error ? soft_cm_fail(error) : 0;
}

/* ---- devices ---------------------------------------------------------------------------------------- */

/* Contexts stay open while any caller holds a list. */
struct ibv_context **soft_get_devices(int *count) {
    UNCANCELLED;
    struct ibv_context **list = calloc(2, sizeof *list);
    if (!list)
        return NULL;
    list[0] = soft_cm_context_get();
    if (!list[0]) {
        free(list);
        return NULL;
    }
    if (count)
        *count = 1;
    return list;
}

void soft_free_devices(struct ibv_context **list) {
    UNCANCELLED;
    if (!list)
        return;
    soft_cm_context_put(list[0]);
    free(list);
}
