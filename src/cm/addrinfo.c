/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * addrinfo.c - what rdma_cm makes of an address that a name has: rdma_resolve_addrinfo() and its two events.
 *
 * Only the events of the call are asynchronous. librdmacm asks the name server inside of the call, and
 * ibacm where there is one, for as long as they take; then it writes the event to its own channel. So a
 * resolver thread makes the call, on an id of the lookup's own, and the CM thread takes the event like all others.
 *
 * rdma_cm returns one address of a name (librdmacm 65), and for a name it cannot find no more than that. So the
 * system looks up the name, once: its answer decides which addresses there are, how many, and what an
 * error is called. rdma_cm gets the first of them as a number, so that it asks no name server; ibacm
 * may know more of it. The address it returns is tried first, if it is among them. A dial ends in the same way with
 * and without rdma_cm.
 *
 * Owner of a query: the resolver thread until its lookup is answered, then the CM thread; but `found` is
 * the CM thread's alone, which takes the event, perhaps before that. The id is not destroyed before the
 * lookup is answered: until then the resolver thread may be in a call with it.
 */
#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "cm/addrinfo.h"
#include "cm/internal.h"
#include "cm/resolver.h"
#include "core/context.h"

int cm_addrinfo_ask(struct cm_addrinfo_query *query, const struct fabric_ops *fabric,
                    struct rdma_event_channel *channel, const union address *address) {
    const struct rdma_addrinfo hints = {
        .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_RC};
    socklen_t bytes = address->any.sa_family == AF_INET ? sizeof address->v4 : sizeof address->v6;
    char host[NI_MAXHOST];
    struct rdma_cm_id *id;
    if (getnameinfo(&address->any, bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        return -EINVAL;
    if (fabric->create_id(channel, &id, &query->owner, RDMA_PS_TCP) != 0)
        return -errno;
    query->owner.state = CM_RESOLVING_ADDRINFO;
    query->owner.id = id;
    if (fabric->resolve_addrinfo(id, host, NULL, &hints) == 0)
        return 0;
    int error = errno; /* librdmacm may leave getaddrinfo()'s code there, which is negative */
    cm_addrinfo_end(query, fabric);
    return error > 0 ? -error : -EIO;
}

void cm_addrinfo_end(struct cm_addrinfo_query *query, const struct fabric_ops *fabric) {
    if (query->owner.id)
        fabric->destroy_id(query->owner.id); /* an event that was not fetched vanishes with it */
    query->owner.id = NULL;
}

/* The first address of a family that can be dialed; the CM thread. */
void cm_on_addrinfo_resolved(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_addrinfo_query *query = (struct cm_addrinfo_query *)(void *)owner;
    const struct fabric_ops *fabric = cm->node->fabric;
    struct rdma_addrinfo *list = NULL;
    (void)event;
    if (fabric->query_addrinfo(owner->id, &list) != 0)
        return; /* the system's answer is as good */
    for (const struct rdma_addrinfo *at = list; at && !query->found.any.sa_family;
         at = at->ai_next) {
        const struct sockaddr *address = at->ai_dst_addr;
        size_t bytes = !address                         ? 0
                       : address->sa_family == AF_INET  ? sizeof query->found.v4
                       : address->sa_family == AF_INET6 ? sizeof query->found.v6
                                                        : 0;
        if (bytes != 0 && at->ai_dst_len >= bytes)
            memcpy(&query->found, address, bytes);
    }
    fabric->free_addrinfo(list);
}

/* The status is a positive errno, or the subnet administrator's: the system has better words. */
void cm_on_addrinfo_error(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    (void)owner;
    log_write(&cm->node->log, SLUICE_LOG_DEBUG, "rdma_cm does not find a name (status %d)",
              event->status);
}

bool cm_same_host(const union address *a, const union address *b) {
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_INET)
        return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    return a->v6.sin6_scope_id == b->v6.sin6_scope_id &&
           memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr) == 0;
}

void cm_addrinfo_prefer(const struct cm_addrinfo_query *query, struct cm_names *names) {
    if (!query->found.any.sa_family)
        return;
    for (unsigned i = 0; i < names->count; i++) {
        union address preferred = names->addresses[i];
        if (!cm_same_host(&preferred, &query->found))
            continue;
        memmove(&names->addresses[1], &names->addresses[0], i * sizeof names->addresses[0]);
        names->addresses[0] = preferred;
        return;
    }
}
