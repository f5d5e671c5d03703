/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * quiet.h - the peer has ended a connection: DISCONNECTED comes behind the completions that came before it.
 *
 * On a NIC a message takes microseconds to be a completion, and the end of a connection goes through both kernels and
 * takes a hundred times as long. So a program whose one thread sleeps on completions, while another waits for events of
 * connections, has looked at the last completion when it hears of the end, and frees what belongs to the connection.
 * Here both threads are woken at the same time. So the event waits, where the connection's queue pair has a completion
 * channel, until nothing lies untaken in its CQs and a little longer, for what the program makes of what it took; and at
 * most SLUICE_SOFT_CM_END_MS, as a program may take no completions at all.
 *
 * Owner: control lock for everything.
 */
#ifndef SOFT_CM_QUIET_H
#define SOFT_CM_QUIET_H

struct soft_cm_id;

/* DISCONNECTED, by the peer: now, or when the program has taken what came before. */
void soft_cm_quiet_end(struct soft_cm_id *id);
/* If it was not told yet: now. */
void soft_cm_quiet_tell(struct soft_cm_id *id);

#endif
