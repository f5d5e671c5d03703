/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_end.h - the end of a queue pair over a socket, by this end, the peer or TCP; and sockets that outlive their queue
 * pair.
 *
 * A socket is closed when the peer's end of the stream was read, or after a second: closing it with unread bytes would
 * reset the connection, and the last bytes that were sent might not arrive.
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
    struct soft_qp *qp;        /* NULL: the socket is read until the peer ends, then closed */
    bool stranger;             /* qp NULL: no queue pair ever had it */
    struct cds_list_head link; /* qp NULL */
    uint64_t cm;               /* qp NULL: the id whose connection it was, 0: none */
};

/* qp->lock. This end ends the stream with the refusal of qp->tcp->rx. */
void soft_tcp_refuse(struct soft_qp *qp, struct sink *sink);
/* qp->lock. Sends the Terminate, if the socket takes it at once, and moves the QP to ERR. */
void soft_tcp_terminate(struct soft_qp *qp, const struct iwarp_terminate *terminate);
/* qp->lock. The peer, or TCP, has ended the stream: the oldest incomplete request gets that status. */
void soft_tcp_lost(struct soft_qp *qp, struct sink *sink, enum ibv_wc_status status);
/* qp->lock. The socket is not read now: its CQs' sets are to tell of its end alone. True: that is among these events. */
bool soft_tcp_is_unread(const struct soft_qp *qp);
bool soft_tcp_ends_unread(struct soft_qp *qp, uint32_t events);
/* qp->lock: called when the QP enters ERR. */
void soft_tcp_down(struct soft_qp *qp);
/* Control lock, qp->lock: takes the socket from the queue pair, to read and close it. */
void soft_tcp_leave(struct soft_qp *qp);

/*
 * Control lock. Reads a socket that no queue pair has until the peer ends, and closes it. Of more than 64 such sockets
 * the oldest is closed at once.
 */
void soft_tcp_read_away(int fd);

void soft_tcp_on_event(struct soft_watch *watch, uint32_t events);
void soft_tcp_stop(void);   /* control lock: the engine ends, so these sockets are closed at once */
void soft_tcp_forked(void); /* in a child of fork(), where these sockets are closed already */

#endif
