/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resolver.h - threads that ask name servers, so that the CM thread waits for none.
 *
 * Owner: the CM thread.
 */
#ifndef CM_RESOLVER_H
#define CM_RESOLVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/address.h"
#include "base/env.h"
#include "core/cm_conn.h"
#include "core/mailbox.h"
#include "fabric/fabric.h"

struct cm_lookup;
struct cm_resolver;

struct cm_names {
    int error;    /* of getaddrinfo(), or 0 and at least one address, with port 0 */
    int os_errno; /* behind that error, or 0 */
    unsigned count;
    union address addresses[CM_CANDIDATES];
};

/*
 * Starts no thread. 0 or -errno. rdma_cm is asked too where it can be: if it takes user events (then the
 * wakeup of `wake` is one), and if env has no resolver of its own.
 */
int resolver_open(struct cm_resolver **out, struct mailbox *wake, const struct fabric_ops *fabric,
                  const struct sluice_env *env);
/* Where rdma_cm's events of lookups come; NULL: it is not asked. As long as the resolver is open. */
struct rdma_event_channel *resolver_channel(struct cm_resolver *resolver);
/* Never waits for a name server: lookups under way are left to themselves. */
void resolver_close(struct cm_resolver *resolver);
/* 0 or -errno. The name is place->host; dials of one name share its lookup, also one that is under way. */
int resolver_ask(struct cm_resolver *resolver, struct cm_place *place);
/*
 * The dial waits for its name no longer, if it does. A lookup without dials is not begun; what is under way is
 * left to itself.
 */
void resolver_leave(struct cm_resolver *resolver, struct cm_place *place);

/*
 * Next lookup that is done, in the order in which they came, or NULL. If rdma_cm was asked, its event is in
 * the channel by then. After resolver_answer(), resolver_next() gives its dials, one by one, and after NULL the
 * lookup is gone.
 */
struct cm_lookup *resolver_take(struct cm_resolver *resolver);
void resolver_answer(struct cm_resolver *resolver, struct cm_lookup *lookup, struct cm_names *out);
struct cm_place *resolver_next(struct cm_lookup *lookup);
bool resolver_has_answers(struct cm_resolver *resolver);
const char *resolver_text(int error);

#endif
