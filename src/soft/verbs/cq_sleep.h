/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_sleep.h - a thread that sleeps on what its CQ's queue pairs are told by, itself.
 *
 * A thread that sleeps on its completion channel is woken by the engine, which was woken by a socket or by a peer's bell:
 * two threads get a CPU one after the other for one message. A thread that sleeps on the CQ's sets as well, of sockets
 * (iwarp/cq_set.h) and of bells (rc/qp_bell.h), is woken by these. The engine does not watch those sockets meanwhile, and peers
 * ring the queue pairs' own bells. Only up to some tens of sockets, each of which is looked at for each sleep.
 *
 * Owner: the CQ's poll_lock, and inside it the QPs'; a queue pair looks at `asleep` under its own lock.
 */
#ifndef SOFT_VERBS_CQ_SLEEP_H
#define SOFT_VERBS_CQ_SLEEP_H

#include <stdbool.h>

#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"

/* A thread reads its socket when something comes. The listener's end before its first frame: the CM has to hear of that. */
static inline bool soft_tcp_has_sleeper(const struct soft_qp *qp) {
    return ld(soft_cq_of(qp->ibv.recv_cq)->asleep) && (!qp->tcp->listens || qp->tcp->heard);
}

#endif
