/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_set.h - the sockets of a CQ's queue pairs, as an epoll set that tells which have something to read.
 *
 * A poller finds by it that something came on a quiet connection. The engine would tell it, but the engine runs late on
 * a machine whose CPUs are busy, and a thread that polls keeps a CPU busy.
 *
 * With more than a few sockets the set stands for all of them: they are a crowd. One system call tells a poll which to
 * read, and one gives them all to a thread that sleeps, or to the engine:
 *
 *     who is there for the CQ                  who reads the set
 *     a thread that polls                      its polls
 *     a thread that sleeps on the set          that thread, when it wakes (verbs/cq_sleep.c)
 *     a thread that armed the CQ and sleeps    the engine, as from the arming
 *     none for ten milliseconds                the engine, until it finds that the CQ was polled
 *
 * A queue pair of which nothing else is to be done is put aside then: neither polls nor the engine's ticks look at it.
 *
 * The control lock to add; the QP's lock to remove; the CQ's poll_lock to look.
 */
#ifndef SOFT_IWARP_CQ_SET_H
#define SOFT_IWARP_CQ_SET_H

#include <stdbool.h>
#include <sys/epoll.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"

/* Up to so many sockets are read in every poll, which is faster for each than asking the set first. */
#define SOFT_TCP_DIRECT 4u

/* The sets of both of its CQs stand for all of their sockets. */
static inline bool soft_tcp_in_crowd(const struct soft_qp *qp) {
    return ld(soft_cq_of(qp->ibv.recv_cq)->tcp_crowd) && ld(soft_cq_of(qp->ibv.send_cq)->tcp_crowd);
}

/* How often the CQ was polled, for comparing. */
unsigned soft_tcp_polls(const struct soft_cq *cq);

/* 0 or an errno. elsewhere: another CQ has it in its set, too. */
int soft_tcp_set_add(struct soft_cq *cq, int fd, struct soft_qp *qp, bool elsewhere);
/* Without the poll_lock: a poller that looks meanwhile has found the QP before, or does not find it any more. */
void soft_tcp_set_remove(struct soft_cq *cq, int fd, bool elsewhere);
#define SOFT_TCP_LOOK 64u
/* The QP's lock. The set tells when there is something to read, or of the connection's end alone. */
void soft_tcp_set_listen(struct soft_cq *cq, int fd, struct soft_qp *qp, bool reads);
/* poll_lock. The events of those that have something, up to so many, by data.ptr: they live while the poll_lock is held. */
unsigned soft_tcp_set_wait(struct soft_cq *cq, struct epoll_event ready[SOFT_TCP_LOOK]);
/* The descriptor, for a thread that sleeps on it, and the number of sockets; 0 and -1: there are none. */
unsigned soft_tcp_set_count(const struct soft_cq *cq, int *fd);
/* All that they complete is of this CQ. */
bool soft_tcp_set_is_whole(const struct soft_cq *cq);

/* poll_lock. The CQ is armed: the engine reads the set of a crowd, unless a thread sleeps on it. */
void soft_tcp_set_arm(struct soft_cq *cq);
/* poll_lock. A thread sleeps on the set from now on; it is awake. */
void soft_tcp_set_sleep(struct soft_cq *cq);
void soft_tcp_set_wake(struct soft_cq *cq);
/* The engine, or a thread that sleeps, reads the set of one of the QP's CQs: no polls make a turn that is due. */
bool soft_tcp_set_is_watched(const struct soft_qp *qp);

void soft_tcp_set_free(struct soft_cq *cq);
/* Engine thread, now and then: begins to look for sets that are not polled any more, if there are any. */
void soft_tcp_sets_if_wanted(void);
void soft_tcp_sets_stop(void);   /* control lock: the engine ends */
void soft_tcp_sets_forked(void); /* in a child of fork() */

#endif
