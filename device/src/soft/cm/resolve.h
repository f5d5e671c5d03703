/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resolve.h - the route of an id whose address is resolved.
 */
#ifndef SOFT_CM_RESOLVE_H
#define SOFT_CM_RESOLVE_H

struct soft_cm_id;

/* Posts ROUTE_RESOLVED. 0 or an errno. Control lock held. */
int soft_cm_resolve_route_locked(struct soft_cm_id *id);
/* Posts ROUTE_RESOLVED for a resolution that was begun before. 0 or an errno. */
int soft_cm_route_found(struct soft_cm_id *id);

#endif
