/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mcast.h - multicast groups an id has joined, and what becomes of its QP by it.
 */
#ifndef SOFT_CM_MCAST_H
#define SOFT_CM_MCAST_H

struct soft_cm_id;
struct cm_group;

/* A fetched MULTICAST event counts on its group too; the id's ack mutex guards the count. */
void soft_cm_mcast_count(struct cm_group *group);
void soft_cm_mcast_uncount(struct cm_group *group);
/*
 * A join's event is fetched: the QP on the id enters the group, unless the id joined to send only. 0, or -1
 * and errno. No lock held.
 */
int soft_cm_mcast_attach(struct cm_group *group);
void soft_cm_mcast_detach_all(struct soft_cm_id *id); /* its QP is about to go. No lock held */
void soft_cm_mcast_lost(void);                        /* port or device are down. Control lock */
/* The id is destroyed, nothing of it is unacknowledged. */
void soft_cm_mcast_free_all(struct soft_cm_id *id);

#endif
