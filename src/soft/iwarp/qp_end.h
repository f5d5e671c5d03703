/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_end.h - how a queue pair over a socket ends, by whose doing ever; and the sockets that outlive theirs.
 *
 * A socket is closed when the peer's end was read, or after a second: closed with bytes unread it would be reset, and
 * what was said last might not arrive.
 *
 * Owner: the QP's lock; the control lock for sockets.
 */
#ifndef SOFT_IWARP_QP_END_H
#define SOFT_IWARP_QP_END_H

#include <infiniband/verbs.h>
#include <urcu/list.h>

#include "soft/ipc/engine.h"
#include "soft/iwarp/terminate.h"

struct sink;
struct soft_qp;

struct soft_tcp_socket {
    struct soft_watch watch;
    struct soft_timer timer;
    struct soft_qp *qp;        /* NULL: it is read away */
    bool stranger;             /* then: no queue pair ever had it */
    struct cds_list_head link; /* then */
    uint64_t cm;               /* then: whose connection it was, 0: nobody's */
};

/* qp->lock, and a sink. This end refuses what came, or has waited for too long. */
void soft_tcp_refuse(struct soft_qp *qp, struct sink *sink);
/* qp->lock: the peer is told, if the socket takes it at once, and the QP is in ERR. */
void soft_tcp_terminate(struct soft_qp *qp, const struct iwarp_terminate *terminate);
/* qp->lock. The peer, or TCP, has ended it: the oldest request that is not done has that status. */
void soft_tcp_lost(struct soft_qp *qp, struct sink *sink, enum ibv_wc_status status);
/* qp->lock: its QP enters ERR. */
void soft_tcp_down(struct soft_qp *qp);
/* Control lock, qp->lock: the socket is not the queue pair's any more. */
void soft_tcp_leave(struct soft_qp *qp);

/*
 * Control lock. The same of a socket that no queue pair has: it is read away and closed. Of more than 64 the oldest is closed
 * at once.
 */
void soft_tcp_read_away(int fd);

void soft_tcp_on_event(struct soft_watch *watch, uint32_t events);
void soft_tcp_stop(void);   /* control lock: the engine ends, and with it what it would wait for */
void soft_tcp_forked(void); /* its sockets are closed */

#endif
