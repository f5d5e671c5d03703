/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_set.h - which queue pairs of a CQ have something to read from their sockets: an epoll set that the CQ's pollers
 * ask now and then.
 *
 * So a poller finds by itself that something came on a quiet connection. The engine would tell it, but the engine runs
 * late on a machine whose CPUs are busy, and a thread that polls keeps a CPU busy. A CQ without such a queue pair has
 * no set.
 *
 * The control lock to add; the QP's lock to remove; the CQ's poll_lock to look.
 */
#ifndef SOFT_IWARP_CQ_SET_H
#define SOFT_IWARP_CQ_SET_H

struct soft_cq;
struct soft_qp;

int soft_tcp_set_add(struct soft_cq *cq, int fd, struct soft_qp *qp); /* 0 or an errno */
/* Without the poll_lock: a poller that looks meanwhile has found the QP before, or does not find it any more. */
void soft_tcp_set_remove(struct soft_cq *cq, int fd);
#define SOFT_TCP_LOOK 64u
/* Which have something to read, up to so many; returns how many. They live while the poll_lock is held. */
unsigned soft_tcp_set_ready(struct soft_cq *cq, struct soft_qp *ready[SOFT_TCP_LOOK]);
/*
 * Makes the queue pairs hot that have something to read, and marks them for the poller. Returns how many are in due[];
 * they live while the poll_lock is held.
 */
unsigned soft_tcp_set_look(struct soft_cq *cq, struct soft_qp *due[SOFT_TCP_LOOK]);
void soft_tcp_set_free(struct soft_cq *cq);

#endif
