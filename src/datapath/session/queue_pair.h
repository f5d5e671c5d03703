/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * queue_pair.h - the queue pairs of sessions: how large they are, and how much inline data they have.
 *
 * The sizes that a device grants are known when it made a queue pair, not before: its attributes do not tell.
 */
#ifndef DATAPATH_SESSION_QUEUE_PAIR_H
#define DATAPATH_SESSION_QUEUE_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sluice_node;
struct connection;

/* Pieces of a request on the node's device. Any thread. */
uint32_t queue_pair_sges(const struct sluice_node *n);
/*
 * One with as much inline data as the device grants, at most what is wanted or a little more: init->cap says
 * how much. Fewer pieces (max_send_sge) where the device has no such entries. *extended: extended verbs can post to it.
 * NULL: errno. Any thread.
 */
struct ibv_qp *queue_pair_create(struct sluice_node *n, struct ibv_qp_init_attr *init,
                                 bool *extended);
/* Moves the queue pair to another state; false and errno when the device refuses. */
bool connection_modify(struct connection *c, struct ibv_qp_attr *attr, int mask);
/*
 * Bytes of inline data that a session has: as the last one was granted, or, before there was any, as one is granted
 * that is made for that, once. 0: none, or nothing could be made. Any thread that may wait for the device.
 */
uint32_t queue_pair_inline(struct sluice_node *n);

#endif
