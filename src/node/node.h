/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * node.h - a node: one device, its memory, the CM thread, the workers and the loops. core/context.h has the fields that
 * other folders use.
 *
 * Owner: the thread that opens and closes it.
 */
#ifndef NODE_NODE_H
#define NODE_NODE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <sluice/sluice.h>

#include "base/cpus.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/stats.h"
#include "cm/cm.h"
#include "core/context.h"
#include "core/forked.h"
#include "datapath/loop/loop.h"
#include "node/cpu_plan.h"
#include "node/memory_budget.h"

/* sluice_open() with an environment of the caller's; manual: no threads are started. */
int node_open_env(sluice_node **out, const sluice_node_options *o, const struct sluice_env *env,
                  bool manual, sluice_error *e);

void node_close_device(sluice_node *n); /* the closing thread, or a sluice_open() that fails */

/* ---- options.c: checked, defaults filled in. 0 or EINVAL with *e. ---------------------------- */
int options_node(struct node_options *out, const sluice_node_options *o, sluice_error *e);
/* OK: the caller has the reference that out->keys is, see keyring.h. */
int options_link(struct link_config *out, sluice_node *n, const sluice_link_options *o,
                 bool dialing, sluice_error *e);

/* ---- sessions.c ------------------------------------------------------------------------------- */
/*
 * A slot filled with what the link asks for, on a loop, not published yet. Any thread. NULL: the
 * limit is reached, there is no memory, or every worker is drained.
 */
struct session *node_session(sluice_node *n, const struct link_config *link);
/* As node_session(); NULL: *drained says whether that is for want of a worker. */
struct session *node_session_make(sluice_node *n, const struct link_config *link, bool *drained);
/* A connection for the one with this id; else NULL, see core/upcalls.h. */
struct connection *node_session_resume(sluice_node *n, const uint8_t id[16], bool *busy);
/* Asks every session of the node to end within grace_ns. */
void node_hangup_all(sluice_node *n, uint64_t grace_ns);
/* A session ended and its slot is free: wakes sluice_close(). */
void node_session_ended(sluice_node *n);

#endif
