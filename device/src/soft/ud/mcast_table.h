/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mcast_table.h - which queue pairs are in which multicast group, and which process said so.
 *
 * Bounded in everything: a process brings up so many groups and members, those of other users together so many, and
 * some room is kept for our own. Control lock, except where marked.
 */
#ifndef SOFT_UD_MCAST_TABLE_H
#define SOFT_UD_MCAST_TABLE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soft_peer;

/*
 * Any thread. Numbers of the members, by their places: 0 where there is none. At most SOFT_UD_MEMBERS
 * (ud.h); returns how many places there are.
 */
unsigned soft_mcast_members(const union ibv_gid *gid, uint32_t *qpns);

/* peer: the one that told us of it; NULL: this process. False: no room. */
bool soft_mcast_table_add(const union ibv_gid *gid, uint32_t qpn, struct soft_peer *peer);
/* Only what that peer said of it. */
void soft_mcast_table_remove(const union ibv_gid *gid, uint32_t qpn, const struct soft_peer *peer);
void soft_mcast_table_forget(const struct soft_peer *peer); /* all that it said */
unsigned soft_mcast_table_count(const union ibv_gid *gid);  /* members */
/* Tells the peer of each member of this process. */
typedef void soft_mcast_tell(struct soft_peer *peer, const union ibv_gid *gid, uint32_t qpn);
void soft_mcast_table_tell_own(struct soft_peer *peer, soft_mcast_tell *tell);
void soft_mcast_table_clear(void);
void soft_mcast_table_forked(void);

#endif
