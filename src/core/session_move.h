/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_move.h - how far a session is on its way to another connection (datapath/session/move.c).
 *
 * Owner: the session's loop.
 */
#ifndef CORE_SESSION_MOVE_H
#define CORE_SESSION_MOVE_H

#include <stdbool.h>
#include <stdint.h>

struct session;

enum session_move_step {
    MOVE_NONE,
    MOVE_QUIETS, /* what it has begun over its connection is awaited */
    MOVE_SAID,   /* SWITCH was sent: until that is done, and the peer's has come */
    MOVE_DRAINS, /* its connection is retired */
    MOVE_CONFIRMS /* over the other one: the peer's first frame is awaited, and nothing numbered sent before */
};

struct session_move {
    struct session *guest; /* has the other connection, which is up; or NULL */
    uint8_t step;          /* enum session_move_step */
    bool heard, told;      /* the peer's SWITCH has come; the peer's device has mine */
    bool silent;           /* the application is not told that it is up again */
    bool asks, tells;      /* MOVE is to be sent; a frame that says that it is on this connection */
    bool lingers;          /* hung up, and its grace is over: it has a little more */
    bool late;        /* its time was over when the loop looked again, and it has a little more */
    bool leaves;      /* it waits until it can be handed over to the guest's loop */
    uint32_t said_at; /* the place of mine in the send queue, and one more */
    uint32_t sent, acked; /* the numbers of the connection that was left */
    uint64_t due_ns;      /* it is done by then, or given up */
};

#endif
