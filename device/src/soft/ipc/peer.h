/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer.h - the control connection between two processes that use the software device.
 *
 * Names. A process is found by abstract unix sockets, so the kernel removes
 * their names with the process however it dies, and no file is ever left:
 *   qpn block  - 1,024 queue pair numbers belong to the process that bound the block's name
 *   cm port    - bound by a listening rdma_cm_id: (port space, address, port)
 * Connecting to any of them reaches its owner's process; SO_PEERCRED says which process that is, so
 * a known peer is reused and one SOCK_SEQPACKET connection carries all control messages of a pair
 * of processes (HELLO, ring and region descriptors, cm messages). For a process of another PID namespace
 * SO_PEERCRED says pid 0: such a process is known by the uuid of its HELLO, and may have more connections.
 *
 * Trust. The kernel vouches for uid and pid of the other side. Peers of the same uid may map each
 * other's registered memory. Bytes of a message are hostile: handlers get a private copy, lengths
 * exact, and must check every value.
 *
 * All calls with the control lock held (engine.h). Owner: the engine.
 */
#ifndef SOFT_IPC_PEER_H
#define SOFT_IPC_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <urcu/list.h>

#include "soft/ipc/engine.h"

enum soft_msg_type {
    SOFT_MSG_HELLO = 1,
    SOFT_MSG_LINK = 2,      /* here is the ring you write when you send to my QP */
    SOFT_MSG_UNLINK = 3,    /* my QP is gone or in error */
    SOFT_MSG_REGION = 4,    /* here is a memory region of mine */
    SOFT_MSG_REGION_OK = 5, /* your region is mapped here */
    SOFT_MSG_REGION_DROP = 6,
    SOFT_MSG_KEYS = 7,       /* here is my key table (same uid only) */
    SOFT_MSG_UD_RING = 8,    /* here is the ring I write when I send to your UD QP */
    SOFT_MSG_UD_OK = 9,      /* I read it */
    SOFT_MSG_UD_REFUSE = 10, /* I do not: there is no such QP, or not any more */
    SOFT_MSG_UD_CLOSE = 11,  /* I write it no more */
    SOFT_MSG_GROUP_ASK = 12, /* which of your QPs are in multicast groups? */
    SOFT_MSG_GROUP_JOIN = 13,
    SOFT_MSG_GROUP_LEAVE = 14,
    SOFT_MSG_GROUP_OK = 15, /* all you said up to here is known */
    SOFT_MSG_FENCE = 16,    /* my stores may not be visible to you any more: use fences */
    SOFT_MSG_FENCE_OK = 17, /* they are in, and threads without a fence are done */
    SOFT_MSG_QP_BELL = 18,  /* here is the bell of my QP: of earlier versions, and not taken */
    SOFT_MSG_CQ_BELL = 19,  /* here is the bell of my QP's CQ */
    SOFT_MSG_TYPES,         /* so far */
    SOFT_MSG_CM_FIRST = 32, /* 32..63 belong to the cm (wire.h) */
    SOFT_MSG_CM_LAST = 63,
};
#define SOFT_MSG_BYTES_MAX 1024

extern uint8_t soft_own_uuid[16];
/* A random number of this process, in names that no other process of any namespace may have. */
uint64_t soft_peer_own_number(void);

struct soft_peer; /* fields in peer_internal.h; the cm needs only these calls */

bool soft_peer_alive(const struct soft_peer *peer);
/* Its connection still leads to it, as far as this process can know. */
bool soft_peer_usable(const struct soft_peer *peer);
uid_t soft_peer_uid(const struct soft_peer *peer);
pid_t soft_peer_pid(const struct soft_peer *peer);
/* A reference keeps the struct (not the connection) alive. */
struct soft_peer *soft_peer_hold(struct soft_peer *peer);
void soft_peer_release(struct soft_peer *peer);

/*
 * The process behind an abstract name (abstract_socket.h), connecting if it is not known yet.
 * Returns 0 and a held peer, or -errno: ECONNREFUSED no process has that name, EMFILE, EAGAIN its
 * accept queue is full for the moment.
 */
int soft_peer_by_name(const char *name, struct soft_peer **peer);
/* soft_peer_by_name() only for our own user's: else -EPERM; *who is the owner of the name, which gets no greeting. */
struct ucred;
int soft_peer_own_by_name(const char *name, struct ucred *who, struct soft_peer **peer);

/* A socket that connected to one of our names (abstract_socket.h): its process will greet. */
void soft_peer_accepted(int fd);

/* The engine's: it starts, it stops, it is a fork's child. */
int soft_peer_start(void);
void soft_peer_stop(void);
void soft_peer_forked(void);

extern struct cds_list_head soft_peers; /* newest first */
/* Takes a peer out of service and tells links and cm; the struct lives on while it is held. */
void soft_peer_drop(struct soft_peer *peer);

#endif
