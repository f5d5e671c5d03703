/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mcast.h - multicast groups: how each process learns which QPs of this host are in which (mcast_table.h).
 *
 * A process that uses groups, as a member or a sender, binds one of a fixed number of names and
 * asks the processes behind all the others; from then on they tell each other of every change. So each
 * process has the whole table, bounded in everything, and no memory that several processes can write. The
 * receiver checks at every datagram that its QP is in the group: a lie in the table only costs the liar's
 * peers a ring.
 *
 * Control lock, except where marked.
 */
#ifndef SOFT_UD_MCAST_H
#define SOFT_UD_MCAST_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_peer;

/* Any thread. False: the other processes have not been heard yet; they are being asked. */
bool soft_mcast_known(void);

void soft_mcast_on_message(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes);
void soft_mcast_on_peer_gone(struct soft_peer *peer);
void soft_mcast_if_wanted(void); /* engine thread, every turn */
void soft_mcast_once(void);      /* in a process, before all else */
void soft_mcast_stop(void);
void soft_mcast_forked(void);
bool soft_gid_is_group(const union ibv_gid *gid);

#endif
