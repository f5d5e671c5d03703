/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * worker_select.h - which loop gets a new session.
 *
 * The decision itself is a pure function. A session gets its loop when it is made, and keeps it unless the application, or a worker that
 * is drained, moves it (guests.h).
 *
 * Any thread: the dialing ones and the CM thread. A decision is counted (`assigned`) before the
 * next decision is made.
 */
#ifndef NODE_WORKER_SELECT_H
#define NODE_WORKER_SELECT_H

#include <stdbool.h>
#include <stdint.h>

struct cm_listener;
struct link_config;
struct sluice_loop;
struct sluice_node;

/*
 * load = sessions * WORKER_SELECT_SESSION_BYTES + bytes per second
 *
 * A session weighs as much as 4 MiB/s: it may begin to send at any time, so a worker must not be given
 * all of them only because they are silent. With that weight the sessions a node has at most by default,
 * 4096, weigh as much (17 GB/s) as the traffic of a port that runs at 137 Gbit/s, about all that one
 * worker can move: a worker is full when it has either, and in between both count.
 */
#define WORKER_SELECT_SESSION_BYTES (4ull << 20)

#define WORKER_SELECT_NO_NUMA (-1) /* not pinned, no NIC, or a machine without such nodes */

struct worker_candidate {
    int numa;
    bool drained;
    uint32_t sessions;
    uint64_t bytes; /* moved in the last second */
    uint64_t turn;  /* grows with every session placed: the smaller, the longer ago it got one */
};

/*
 * The index of the candidate that gets a session, or -1: all are drained. Those on the device's NUMA node
 * come first; if the node of a candidate or of the device is not known it counts as near. Others get a session only if
 * none of the near ones is open. Among equals the lowest load decides, then the one that got none for longest.
 */
int worker_select_pick(const struct worker_candidate *list, uint32_t count, int device_numa);

/*
 * The loop for a session of this link, which counts from now on; NULL: every worker is drained. A slot
 * is taken already, so that the node's loops are there. The link's own loop; or of its loops the one with the fewest
 * sessions; or else a worker.
 */
struct sluice_loop *worker_select_loop(struct sluice_node *n, const struct link_config *link);

/* The worker that a session would get now; NULL: every one is drained. */
struct sluice_loop *worker_select_worker(struct sluice_node *n);

/* The loops a listener names stay open until it lets them go. */
void worker_select_hold(const struct link_config *link);
void worker_select_release(struct sluice_node *n, const struct link_config *link);

/* Finds out where the device is and makes the plan; when the device is open. 0 or -EINVAL: plan.why. */
int worker_select_plan(struct sluice_node *n);
/* Finds out where the workers are; once, when they are there. */
void worker_select_open(struct sluice_node *n);
/* A fork waits until no thread is inside: before it, and on both sides after it. */
void worker_select_fork(bool begins);
/* The number in a sysfs file, or WORKER_SELECT_NO_NUMA. */
int worker_select_read_numa(const char *path);

#endif
