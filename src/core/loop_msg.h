/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* loop_msg.h - the messages that a loop takes, and of what each of them is a part. */
#ifndef CORE_LOOP_MSG_H
#define CORE_LOOP_MSG_H

enum loop_msg {
    /* of a session: session->to_loop */
    LOOP_MSG_WRITABLE_WAIT,
    LOOP_MSG_REQUESTS, /* another thread answered without a message, or gave requests up */
    LOOP_MSG_HANGUP,
    LOOP_MSG_GUEST_READY, /* of a guest, for the loop of its host; so is the next */
    LOOP_MSG_GUEST_LOST,
    LOOP_MSG_ASK_MOVE, /* a listener's is to move: the peer is asked for a connection */
    LOOP_MSG_MOVE,     /* this loop has it from now on */
    LOOP_MSG_SESSION_COUNT,

    /* of a connection: connection->to_loop */
    LOOP_MSG_ASK = LOOP_MSG_SESSION_COUNT,
    LOOP_MSG_PREPARE,
    LOOP_MSG_APPLY,
    LOOP_MSG_ADOPT,
    LOOP_MSG_HANDSHAKE_ANSWER, /* the application answered a peer that has said HELLO */
    LOOP_MSG_DOWN,
    LOOP_MSG_DRAIN,
    LOOP_MSG_GONE,
    LOOP_MSG_LAST_WQE, /* a queue pair in ERR takes no more of the shared receives */
    LOOP_MSG_CONNECTION_END,

    /* of a message */
    LOOP_MSG_SEND = LOOP_MSG_CONNECTION_END,
    LOOP_MSG_FREE, /* a kept message, freed by another thread */

    /* of the loop */
    LOOP_MSG_DEVICE_LOST,
    LOOP_MSG_SRQ_LOW, /* few shared receives are left */
    LOOP_MSG_COUNT,
};

#endif
