/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer_internal.h - the fields of a peer, for the files that need them; others use the calls of peer.h only. Control
 * lock unless said.
 */
#ifndef SOFT_IPC_PEER_INTERNAL_H
#define SOFT_IPC_PEER_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <urcu/list.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/shm_layout.h"

struct soft_bell;
struct soft_key;
struct soft_peer_bell;
struct soft_qp;
struct soft_shm_page;

#define SOFT_WIRE_MAGIC 0x53465731u /* "SFW1" */
#define SOFT_WIRE_VERSION 4u
/*
 * Messages that may wait for a peer which does not read: so many, and some for each reference, of which a connection has a few. A
 * process that ends ten thousand connections at once says so of each.
 */
#define SOFT_PEER_QUEUE 8192u
#define SOFT_PEER_QUEUE_PER_REF 4u
#define SOFT_PEER_BLOCKS 16

struct soft_wire { /* head of a message */
    uint32_t type, bytes;
};

/* A region of the peer's that is mapped here, read-only unless peers may write some of it. */
struct soft_peer_region {
    const uint8_t *_Atomic addr; /* NULL: not there; read by pollers that hold a QP of this peer */
    _Atomic size_t bytes;
    _Atomic bool writable;
    _Atomic uint32_t serial; /* the peer's: which region of that index is mapped */
    int fd;                  /* while it is mapped: rc/region_pages.h; changes as addr does */
};

struct soft_peer {
    struct soft_watch socket, death, bell; /* bell: our end of what the peer rings us with */
    struct cds_list_head link;             /* soft_peers */
    _Atomic unsigned refs;
    _Atomic bool own; /* of our user, as of when it was met; else nothing of ours is shared */
    _Atomic bool has_memory; /* it was given our keys or regions, and may be inside of them */
    bool alive, greeted;     /* greeted: its HELLO arrived */
    bool doomed;             /* it does not read: the engine is about to drop it */
    _Atomic uint8_t fences;  /* enum soft_fences: what it does */
    bool takes_bells;        /* of CQs: rc/cq_bell.h */
    bool counts_changes;     /* of the lines of its board */
    bool fence_free;         /* both sides can order memory with membarrier: no fence per post */
    uid_t uid;
    pid_t pid;
    uid_t told_uid; /* by what it said; `uid` is of when it began to listen, or connected */
    uint8_t uuid[16];
    uint32_t blocks[SOFT_PEER_BLOCKS]; /* qpn blocks known to be its */
    unsigned block_count;
    int bell_out; /* the socket we ring it with; -1 until HELLO; closed with the last reference */
    struct soft_bell *bells_in;       /* those of our CQs that it was given: rc/cq_bell.h */
    struct soft_peer_bell *bells_out; /* and those of its CQs that we have */
    _Atomic uint64_t
        reminded_ns; /* when sends that stay unanswered rang it last: rc/qp_timer.c; any thread */
    struct soft_shm_page *shm_page;
    const struct soft_key *_Atomic keys; /* its key table; NULL: other uid, or not there yet */
    bool keys_sent;
    _Atomic uint8_t reach; /* enum process_reach */
    uint64_t probe_at;     /* where its uuid lies in its memory; set before `keys` */
    struct soft_qp *qps;
    uint64_t region_bytes;       /* of all its regions that are mapped */
    unsigned linked_qps;         /* that write rings of it */
    unsigned pending_rings;      /* that it offered, and QPs keep */
    struct cds_list_head out;    /* what the socket did not take yet */
    unsigned out_count, out_fds; /* messages that wait, and descriptors with them */
    unsigned out_room;           /* so many may wait: for as many references as there ever were */
    struct soft_timer out_retry;
    _Atomic uint64_t in_vain_ns; /* until then no call waits for it: rkey_fence.c */
    _Atomic uint8_t region_sent[SOFT_MAX_REGIONS]; /* enum region_state of my regions there */
    struct soft_peer_region regions[SOFT_MAX_REGIONS];
    _Atomic uint32_t staged; /* blocks that lead to it: rc/stage.h; any thread */
    /* mcast.c */
    bool group_peer;                   /* it wants to know of groups */
    uint32_t group_sent, group_acked;  /* our last number it was told, and has confirmed */
    uint32_t group_count, group_joins; /* groups it brought up, members it has */
};

enum region_state { REGION_UNSENT = 0, REGION_SENT = 1, REGION_READY = 2 };

#endif
