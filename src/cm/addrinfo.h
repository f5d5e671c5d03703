/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * addrinfo.h - what rdma_cm makes of an address that a name has.
 *
 * Owner: the thread that asks, until the query is answered.
 */
#ifndef CM_ADDRINFO_H
#define CM_ADDRINFO_H

#include <stdbool.h>

#include "base/address.h"
#include "core/cm_conn.h"
#include "fabric/fabric.h"

struct cm_names;

struct cm_addrinfo_query {
    struct cm_owner owner; /* first; its id is there from the call to the answer */
    union address found;   /* of no family: nothing was */
};

/* A resolver thread, for as long as it takes. 0: an event is on its way, or was taken; or -errno. */
int cm_addrinfo_ask(struct cm_addrinfo_query *query, const struct fabric_ops *fabric,
                    struct rdma_event_channel *channel, const union address *address);
void cm_addrinfo_end(struct cm_addrinfo_query *query, const struct fabric_ops *fabric);
/* Moves the address that rdma_cm found to the front, if it is among them. */
void cm_addrinfo_prefer(const struct cm_addrinfo_query *query, struct cm_names *names);
bool cm_same_host(const union address *a, const union address *b);

#endif
