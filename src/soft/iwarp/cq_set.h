/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_set.h - which queue pairs over sockets of a CQ have something to read: an epoll set that its pollers ask now and then.
 *
 * So a poller finds what came on a quiet connection by itself. The engine would tell it, but gets its turn late on a machine
 * whose CPUs are busy, and busy they are where somebody polls. A CQ without such a queue pair has no set.
 *
 * Control lock and the QP's lock to add and remove; the CQ's poll_lock to look.
 */
#ifndef SOFT_IWARP_CQ_SET_H
#define SOFT_IWARP_CQ_SET_H

struct soft_cq;
struct soft_qp;

int soft_tcp_set_add(struct soft_cq *cq, int fd, struct soft_qp *qp); /* 0 or an errno */
/* The QP's lock will do: whoever looks has found it before, or does not any more. */
void soft_tcp_set_remove(struct soft_cq *cq, int fd);
#define SOFT_TCP_LOOK 64u
/* Makes those hot that have something, and marks their turn as due. Returns how many; they live while the poll_lock is held. */
unsigned soft_tcp_set_look(struct soft_cq *cq, struct soft_qp *due[SOFT_TCP_LOOK]);
void soft_tcp_set_free(struct soft_cq *cq);

#endif
