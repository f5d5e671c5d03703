/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * upcalls.h - what floors of the device ask of the floors above them, about a queue pair whose connection begins or ends:
 * each call once, with the locks that are held. All other calls go down, but for those that tests/linking/layers.sh names.
 *
 * None is on the path of a message: posting, polling and progress call directly. soft/upcalls.c fills the table in; it is
 * constant.
 */
#ifndef SOFT_OBJECT_UPCALLS_H
#define SOFT_OBJECT_UPCALLS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soft_mr;
struct soft_peer;
struct soft_profile;
struct soft_qp;

struct soft_object_upcalls {
    /* The profile that the environment's fault plan asks for; NULL: none. Once in a process; any thread, no lock. */
    const struct soft_profile *(*profile_of_plan)(void);

    /* ---- of rc/ and verbs/ about iWARP's ways ---- */

    /* It is over TCP, and went to ERR: its socket ends. qp->lock. */
    void (*tcp_down)(struct soft_qp *qp);
    /* It is over TCP, and this window was taken back while the peer read it: none of its bytes is sent from now on. qp->lock. */
    void (*tcp_cut_off)(struct soft_qp *qp, const struct soft_mr *window);

    /* Its CQ's set reports these events of its socket: qp_engine.h. Control lock. */
    bool (*tcp_event)(struct soft_qp *qp, uint32_t events, bool unpolled);

    /* ---- of the connection manager; the control lock ---- */

    /* The listener's end over TCP, of the id with that number: the dialer's first frame is here. qp->lock as well. */
    void (*tcp_heard)(uint64_t id);
    /* The socket of the id with that number was closed. answered: the peer ended as well. */
    void (*tcp_closed)(uint64_t id, bool answered);
    /* It moves to RTR with a number that stands for a connection over TCP: 0 or an errno; ENOENT: it stands for none. */
    int (*tcp_attach)(struct soft_qp *qp, uint32_t qpn);
    /* It is like iWARP, and is in ERR, or as good as destroyed. */
    void (*iwarp_down)(const struct soft_qp *qp);
    /* It is like iWARP, and is to be destroyed: waits for an answer of its connection, and gives the lock up meanwhile. */
    void (*iwarp_settle)(const struct soft_qp *qp);
    /* The process that has the other end which the attributes name, by agreement. Held, or NULL. */
    struct soft_peer *(*agreed_peer)(const struct soft_qp *qp, const struct ibv_qp_attr *attr,
                                     int mask);
    /* Its connection is with that process. */
    bool (*agreed_with)(const struct soft_qp *qp, const struct soft_peer *peer);
};

extern const struct soft_object_upcalls soft_object_upcalls;

#endif
