/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * upcalls.h - what the engine and the connections between processes ask of the folders above them: each call once, with
 * the thread that makes it and the locks that it holds. There are no others in ipc/; what queue pairs ask is object/upcalls.h.
 *
 * None is on the path of a message. soft/upcalls.c fills the table in; it is constant.
 */
#ifndef SOFT_IPC_UPCALLS_H
#define SOFT_IPC_UPCALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_peer;

struct soft_upcalls {
    /* ---- the engine starts and stops: the thread that opens, or closes, the device; the lock of its life ---- */

    /* Before the first start of a process. Control lock. */
    void (*once)(void);
    /* Before each start. No other lock. */
    void (*starts)(void);
    /* It is to run: peers can be met from now on. 0 or -errno. Control lock. */
    int (*peers_begin)(void);
    /* It runs. Control lock. */
    void (*started)(void);
    /* Its thread has ended. No other lock. */
    void (*thread_ended)(void);
    /* The peers are there still. Control lock. */
    void (*stops)(void);
    /* Then all peers end; also where its thread did not start. Control lock. */
    void (*peers_end)(void);
    /* The first thing of that, and the last. */
    void (*peers_stop)(void);
    void (*peers_stopped)(void);
    /* Nothing is left but the engine's own. Control lock. */
    void (*stopped)(void);

    /* ---- the engine's thread, the control lock ---- */

    /* In each turn, behind the events, before the timers. */
    void (*turn)(void);

    /* ---- fork: the thread that forks ---- */

    /* begins: before any lock is taken. Else after all are free, in the parent and in the child. */
    void (*fork_outside)(bool begins);
    /* begins: all locks are held. Else they are held still, in the parent. */
    void (*fork_inside)(bool begins);
    /* The child: of another process from now on. The locks are held still. */
    void (*forked)(void);

    /* ---- a peer: the control lock, on the engine's thread or that of a call ---- */

    /* It has said who it is, and will hear what we say. */
    void (*peer_greeted)(struct soft_peer *peer);
    /* A message that is not of the greeting; what came with it, or NULL: -1 afterwards if it is kept. */
    void (*peer_said)(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                      int *file);
    void (*peer_rang)(struct soft_peer *peer);
    /* Its stores may be seen in another order from now on. Threads that counted on their order are done on return. */
    void (*peer_unordered)(struct soft_peer *peer);
    /* known: more than a stranger that we asked for nothing. */
    void (*peer_gone)(struct soft_peer *peer, bool known);
    /* The last reference is gone; any thread, perhaps no lock. */
    void (*peer_free)(struct soft_peer *peer);
};

extern const struct soft_upcalls soft_upcalls;

#endif
