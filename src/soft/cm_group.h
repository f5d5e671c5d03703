/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_group.h - multicast groups an id has joined: the join events. Data comes with UD QPs.
 */
#ifndef SOFT_CM_GROUP_H
#define SOFT_CM_GROUP_H

struct cm_id;
struct cm_group;

/* A fetched MULTICAST event counts on its group too; the id's ack mutex guards the count. */
void cm_group_count(struct cm_group *group);
void cm_group_uncount(struct cm_group *group);
/* The id is destroyed, nothing of it is unacknowledged. */
void cm_group_free_all(struct cm_id *id);

#endif
