/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * upcalls.h - what a folder asks of one beside or above it: each call once, with the thread that makes it and the
 * folder that answers. There are no others: includes point down, and so do all other calls.
 *
 * None is on the path of a message. node/node.c fills the table in; it is constant.
 */
#ifndef CORE_UPCALLS_H
#define CORE_UPCALLS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include <sluice/sluice.h>

#include "core/listener_end.h"
#include "core/session.h"

struct upcalls {
    /* ---- the connection manager asks the node: the CM thread ---- */

    /* A session for a request at a listener: a slot on a loop, not published yet. NULL: none to be had. */
    struct session *(*session_new)(sluice_node *n, const struct link_config *link);
    /*
     * A connection for the session that a dialer resumes, unknown to its loop yet, which takes it with its first message. NULL: there is
     * no such session; *busy: or it has another one coming, or there is no memory.
     */
    struct connection *(*session_resume)(sluice_node *n, const uint8_t id[16], bool *busy);
    /* A guest of the session with that id (datapath/session/guest.h), likewise. NULL: there is no such session; *busy: or no room for it. */
    struct session *(*session_join)(sluice_node *n, const uint8_t id[16], bool *busy);
    /* The peer of that session, which dialed and is the calling thread's, asks for such a guest. */
    void (*session_guest)(sluice_node *n, struct session *host);
    /* A listener lets go of the loops it named. */
    void (*listener_put_loops)(sluice_node *n, const struct link_config *link);
    /* The device is gone and no thread uses it: gives it back, with all memory registered on it. Once. */
    void (*device_put)(sluice_node *n);

    /* ---- the connection manager asks the data path: the CM thread ---- */

    /* A message of a connection for its loop. */
    void (*loop_post)(struct sluice_loop *l, struct connection *c, enum loop_msg verb);
    /* A queue pair in ERR takes no more of the loop's shared receives. */
    void (*loop_last_wqe)(struct sluice_loop *l, struct connection *c);
    /* The device is gone: once for each loop, under the node's lock. */
    void (*loop_device_lost)(struct sluice_loop *l);
    /* Then runs a loop that no thread polls for a moment. n->assist_lock is held. */
    void (*loop_assist)(struct sluice_loop *l);
    /* Few receives are left in the SRQ of this loop. */
    void (*loop_srq_low)(struct sluice_loop *l);

    /* ---- the data path asks the node: a loop's thread ---- */

    /* A session ended and its slot is free. */
    void (*session_ended)(sluice_node *n);

    /* ---- the data path asks the connection manager: a loop's thread ---- */

    /* Takes CQ and channel over, if a connecting call still uses them. False: they are the caller's. */
    bool (*connect_inherits)(sluice_node *n, struct ibv_cq *cq, struct ibv_comp_channel *channel);
    /* array, handlers: there is room in the caller's array; handlers may be called. */
    enum listener_news (*listener_next_end)(sluice_node *n, const struct sluice_loop *l, bool array,
                                            bool handlers, struct listener_end *out);
};

#endif
