/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * agreed.h - the process at the other end of a queue pair that a connection of the cm was agreed for.
 *
 * A request and its answer travel over the control connection of two processes, and say the numbers of the two queue
 * pairs. So that connection leads to the other queue pair, and no name has to: any user can take names
 * (qpn_directory.h). A number that a peer tells counts for the connection it was told in and for no other one.
 */
#ifndef SOFT_CM_AGREED_H
#define SOFT_CM_AGREED_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soft_cm_id;
struct soft_peer;
struct soft_qp;

/* The id connects that queue pair; 0 and numbers of no queue pair of this process are ignored. Control lock. */
void soft_cm_agreed_note(const struct soft_cm_id *id, uint32_t local_qpn);
/*
 * The attributes for RTR that the application asks for, which it may use itself, in any thread, before it accepts: nothing
 * else says then which queue pair the id is for. So they name the id, in the alternate path, which RTR has no use for
 * unless its mask says so.
 */
void soft_cm_agreed_tell(const struct soft_cm_id *id, struct ibv_qp_attr *attr);

/* The process agreed with to have the other end that the attributes name. Held, or NULL: there is none. Control lock. */
struct soft_peer *soft_cm_agreed_peer(const struct soft_qp *qp, const struct ibv_qp_attr *attr,
                                      int mask);
/* The queue pair's connection is with that process, as far as it has come. Control lock. */
bool soft_cm_agreed_with(const struct soft_qp *qp, const struct soft_peer *peer);

#endif
