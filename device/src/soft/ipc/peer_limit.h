/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer_limit.h - how many peers there may be, and which one is closed for another.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_IPC_PEER_LIMIT_H
#define SOFT_IPC_PEER_LIMIT_H

#include <stdbool.h>

struct soft_peer;

void soft_peer_limit_same(const struct soft_peer *fresh);
void soft_peer_limit_ungreeted(void);
/* For a peer of another user or PID namespace: false if there are too many, and all are in use. */
bool soft_peer_limit_foreign(const struct soft_peer *fresh);
unsigned soft_peer_fd_limit(void); /* what this process may have open */

#endif
