/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp.h - queue pairs: their work requests, and the state of both ends. Their numbers are in qp_numbers.h.
 *
 * Owner: the QP's lock for what the data path sees; the control lock for numbers, links and transitions. The
 * order of locks is in device.h.
 */
#ifndef SOFT_OBJECT_QP_H
#define SOFT_OBJECT_QP_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>

#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/fault.h"
#include "soft/object/recv_queue.h"
#include "soft/object/ring.h"

#define SOFT_MAX_SGE 32 /* of any profile; what one has of it is said there */
#define SOFT_MAX_INLINE SOFT_SEGMENT_MAX
#define SOFT_MAX_MSG (1u << 31)

struct soft_batch;
struct soft_key;
struct soft_peer;
struct soft_peer_region;
struct soft_pending_ring;
struct soft_process_copy;
struct soft_queued;
struct soft_srq;
struct soft_ud;
struct soft_tcp;
struct soft_told;

struct soft_wqe { /* of any work request: half a cache line */
    uint64_t wr_id;
    uint32_t end; /* slot position behind its last slot, once transmitted */
    uint32_t imm;
    uint32_t total; /* payload bytes */
    uint32_t sent;  /* bytes already in the ring */
    union {
        uint64_t bits; /* all of these at once */
        struct {
            uint8_t opcode; /* enum ibv_wr_opcode */
            uint8_t flags;  /* enum ibv_send_flags, signaled resolved */
            uint8_t num_sge;
            uint8_t inlined; /* payload lies in the wqe's inline area */
            uint8_t status;  /* enum ibv_wc_status it will complete with once reached */
            bool waiting;    /* READ or atomic whose answer has not come yet */
            bool started;    /* part of it is in the ring */
            uint8_t pad;
        };
    };
};
#define SOFT_WQE_HELD (0xffffull << 32) /* bits: a status, or waiting */
_Static_assert(sizeof(struct soft_wqe) == 32, "wqe layout");

struct soft_wqe_remote { /* of one-sided ones, binds and invalidates */
    uint64_t addr, compare_add, swap;
    uint32_t rkey, bind_access;
    uint64_t bind_mw, bind_mr, bind_length;
};

/* A READ or atomic of the peer that this side answers through its own ring. */
struct soft_answer {
    const uint8_t *from; /* READ: what is left; NULL: value */
    uint32_t left;
    uint32_t key; /* by which it was asked for */
    uint64_t value;
};
#define SOFT_RD_ATOMIC 16

/* A thread waits for the peer to leave memory here: rc/rkey_fence.h. */
struct soft_rkey_wait {
    uint32_t seen;     /* the value of the peer's word then, 0: no wait */
    uint32_t rkey;     /* of the window that was taken back, if it is one */
    uint64_t since_ns; /* 0: not asked yet */
};

/* Why an unreliable message was dropped; counted where it happens. */
enum soft_drop {
    SOFT_DROP_NO_RECEIVE, /* none was posted */
    SOFT_DROP_TOO_LONG,   /* for the receive, or for the MTU */
    SOFT_DROP_QKEY,
    SOFT_DROP_NOBODY,   /* no such QP, or it is gone */
    SOFT_DROP_STATE,    /* the QP or the port is down, or the group was left */
    SOFT_DROP_NO_ROOM,  /* its receiver takes nothing for too long */
    SOFT_DROP_REFUSED,  /* UC: a remote key, range or right */
    SOFT_DROP_ON_DEMAND /* a fault plan's loss */
};
#define SOFT_DROPS 8

struct soft_rkey_cache {          /* see rkey_cache.h */
    const struct soft_key *entry; /* of the target's table; NULL: none was taken */
    uint64_t start, length;       /* what the key covers */
    uint8_t *base;                /* of start, for us */
    const struct soft_peer_region *region;
    const uint8_t *mapped; /* where the region was */
    uint32_t rkey, version, serial;
};

/*
 * The fields that a plain message touches, in either direction, lie in three cache lines, held by assertions below:
 * with many QPs the cache has lost them by the next one. Those that a poller reads without the lock, when idle, are in
 * the first. Those fields are written under the lock only; atomic (relaxed) because they are read without it.
 */
struct soft_qp {
    union {
        struct ibv_qp ibv;
        struct ibv_qp_ex ibv_ex; /* made as one: begins with the other */
    };
    uint8_t zero[64];

    /* the pollers' line */
    struct soft_ring *_Atomic rx __attribute__((aligned(64))); /* we read, ours; NULL before RTR */
    struct soft_ring *_Atomic tx; /* ring we write, the peer's; NULL until it arrived */
    _Atomic uint32_t rx_index, rx_pos;
    _Atomic uint32_t rx_told;  /* rx_pos last told to the peer, in a slot or in the ring's header */
    _Atomic uint32_t tx_acked; /* slots of tx known consumed */
    _Atomic uint32_t due;      /* slot position that completes the oldest signalled send */
    _Atomic bool awaited;      /* there is one; see soft_find_due() */
    _Atomic bool backlog;      /* work requests are queued for room in tx */
    _Atomic bool attention;    /* something needs the lock: link, error, flush, backlog */
    _Atomic bool rx_stalled;   /* a message waits for a receive */
    _Atomic uint32_t empty_polls; /* pollers': since the last message; see qp_timer.c */
    _Atomic uint32_t unretired;   /* work requests posted and not retired */
    _Atomic uint32_t
        arrival; /* cq_arrivals.h: where it is listened to, and 1; 0: nowhere; written under poll_lock */
    _Atomic bool used_lately; /* pollers': stays hot */
    _Atomic bool cold[2];     /* not in the hot part of its receive CQ, its send CQ */
    /*
     * Receiving and sending have no special case pending: the short ways are open.
     * Closed by the thread that changes that (qp->lock), opened again by the next progress of the long way.
     */
    uint8_t plain_rx; /* SOFT_PLAIN ... */
    bool plain_tx;
    bool srq_taken;  /* srq_rqe is */
    bool sq_sig_all; /* constant */
    bool fence_free; /* of the peer, see requester.h */

    /* the requesters' */
    soft_spin lock __attribute__((aligned(64)));
    uint32_t generation;
    uint32_t tx_pos, tx_index;                   /* next slot to write */
    _Atomic uint32_t tx_published;               /* slots whose seq words are stored */
    uint32_t sq_free, sq_head, sq_next, sq_tail; /* freed <= retired <= to transmit <= posted */
    uint32_t sq_mask, sq_max_wr;
    uint32_t sq_looked;     /* no signalled one before it; awaited: the one that is due */
    struct soft_told *told; /* on our board, what peers read of it; never NULL */
    struct soft_wqe *sq;

    /* and what both have to know, which changes with the connection at most */
    struct soft_srq *srq __attribute__((aligned(64)));
    const _Atomic uint32_t *peer_recv_armed;
    struct ibv_pd *own_pd; /* as in ibv, which the application can write */
    struct ibv_cq *own_recv_cq, *own_send_cq;
    uint32_t own_qpn, dest_qpn;
    uint32_t max_inline, sq_max_sge;
    uint32_t srq_received; /* messages taken by shared receives */
    bool srq_busy;         /* the short way did not get its lock; the long way does not wait */

    _Atomic bool need_tick;   /* the engine looks after it every millisecond */
    _Atomic uint32_t rx_word; /* rx_pos last told in the ring's header */
    _Atomic uint64_t kick_ns;
    _Atomic uint64_t idle_ns;    /* pollers': since when */
    _Atomic uint32_t idle_acked; /* nothing but this is acknowledged */
    struct soft_wqe_remote *sq_remote;
    struct ibv_sge *sq_sge;
    uint8_t *sq_inline;
    const _Atomic uint32_t *peer_send_armed;
    struct soft_rkey_cache rkey_cache;

    /* receive queue */
    struct soft_recv_queue rq;
    struct soft_rqe *srq_rqe;  /* the shared receive this QP is filling */
    _Atomic uint32_t srq_seen; /* srq->posts when a receive was missing */
    bool last_wqe_told;
    bool rx_partial;    /* in the middle of a message */
    uint8_t rx_op;      /* of that message */
    uint64_t rx_offset; /* bytes of it already placed */
    uint8_t *rx_target; /* one-sided WRITE: where the next byte goes */
    uint32_t rx_left;   /* and how many are to come */
    uint32_t rx_key;    /* by which key */

    /* answers owed to the peer's READs and atomics, and answers expected */
    struct soft_answer answer[SOFT_RD_ATOMIC];
    uint32_t answer_head, answer_tail;
    uint32_t waiting;       /* READs and atomics of ours without answer */
    uint32_t wait_index;    /* sq index of the oldest of them */
    uint32_t wait_offset;   /* bytes of its answer already placed */
    uint32_t one_sided_end; /* slot position behind the last one-sided request in the ring */
    struct soft_rkey_wait sq_inside, rx_inside; /* an invalidation, posted or received, waits */
    struct soft_bell *_Atomic bell_in; /* rc/cq_bell.h: of its CQ, for this peer; or NULL */
    struct soft_peer_bell *bell_out;   /* and that of the peer's CQ, which it rings; or NULL */
    bool kick_wanted;                  /* ring the peer whatever its armed word says */
    bool asks_room;                    /* the receiver is to ring when there are free slots */
    unsigned polls_seen; /* of its CQs, by the engine when something waited for room */
    bool held_back;      /* ordered: a message waits for what is to be completed before it */
    bool one_sided_ring; /* there is one that may not have been executed */
    uint32_t remote_pd;
    int64_t look_in; /* bytes of mapped memory of a peer: rc/region_pages.h */
    uintptr_t looked_at;
    struct soft_process_copy *copy;   /* rc/process_copy.h: of the request at sq_next; or NULL */
    bool copies_here;                 /* what is given now is copied by this thread */
    uint8_t staged;                   /* blocks on their way, */
    uint16_t stage_first, stage_last; /* the oldest and the newest: rc/stage.h */

    /* life */
    enum ibv_qp_state state;
    bool sq_broken;                /* the wqe at sq_next carries the status that ends the QP */
    bool flushing;                 /* the ERR state began to flush */
    struct soft_rkey_wait leaving; /* ERR: the flush waits, so that nothing is written after it */
    bool opened;                   /* its peer had a right to memory here, since RESET */
    bool peer_gone;                /* process died, or the destination number has no owner */
    uint8_t give_up;               /* status the engine lost its patience with, else 0 */
    uint32_t inside; /* a thread that revokes memory waits for it: rkey_fence.c; control lock */
    uint32_t stall_acked;
    uint64_t stall_since_ns;
    uint64_t down_since_ns;       /* soft_dropin: the peer is seen to be gone */
    struct soft_qp *warm_next[2]; /* the CQs' warm lists; of the thread that cleared cold */
    unsigned cq_at[2];            /* place in the CQs' arrays; their poll_lock */
    const struct soft_told *_Atomic heard;    /* on the peer's board, held by link_peer; or NULL */
    const struct soft_changes *heard_changes; /* there, of its lines; NULL: they are not counted */
    uint32_t heard_at;                        /* which of the 1,024 entries of these lines it is */
    struct soft_peer *peer;                 /* our way to the destination; its list holds this QP */
    struct soft_peer *link_peer;            /* the connection that carried the tx ring */
    uint32_t tick_head;                     /* sq_head at the last tick */
    struct soft_queued *link_waits;         /* LINK, while the peer's socket takes nothing */
    struct soft_qp *peer_next, **peer_link; /* peer's list of QPs; control lock */
    struct cds_list_head pending_rings;     /* rings offered before RTR; control lock */
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct soft_fault_qp fault;
    _Atomic uint32_t windows; /* bound on it */
    _Atomic bool fell;        /* iWARP: went to ERR, and its connection has not heard of it */
    uint64_t agreed;          /* the id that connects it within this host (agreed.h), 0: none */
    uint64_t cm; /* iWARP, or over TCP: the id that connects it, 0: none yet; control lock */
    bool stuck;  /* iWARP: a send was posted too early, and nothing goes any more */
    bool second; /* iWARP: the listener's, which must hear before it speaks */
    uint32_t rq_flush_end; /* the receives before it are flushed in ERR, those behind it wait */
    bool flush_late; /* iWARP: fell by itself, and the engine has not come to flush its receives */

    /* UC and UD */
    bool unreliable; /* constant: a send is done when it was handed over, or dropped */
    bool iwarp;      /* constant: the device is like iWARP; verbs/qp_iwarp.c */
    bool long_recv;  /* constant: posting a receive always takes the long way */
    bool rx_drop;    /* UC: the rest of the message is dropped too */
    bool impatient;  /* what could not be handed over for long enough may be dropped */
    uint32_t drops[SOFT_DROPS];
    struct soft_ud *ud;      /* UD: ud.h; constant */
    struct soft_tcp *tcp;    /* over a socket, not over rings: iwarp/qp_tcp.h; NULL: it is not */
    bool elsewhere;          /* UD, or over a socket: what comes does not come through its ring */
    _Atomic bool has_socket; /* for readers without a lock */
    _Atomic bool socket_due; /* a poller was told of its socket, and no turn was made since */
    bool ordered; /* constant: what a message acknowledges is complete before it; rc/order.h */
    bool early;   /* a send is complete when it was handed over, or dropped */

    struct cds_list_head order_link; /* rc/order.c */

    struct soft_batch *batch; /* an extended one's; qp_ex.c */
};

/* plain_rx: closed; open; open to pollers that keep the order (rc/order.h). */
enum { SOFT_NOT_PLAIN, SOFT_PLAIN, SOFT_PLAIN_IN_ORDER };

#define SOFT_QP_LINE(member) (offsetof(struct soft_qp, member) / 64)
_Static_assert(SOFT_QP_LINE(fence_free) == SOFT_QP_LINE(rx), "the pollers' line");
_Static_assert(SOFT_QP_LINE(sq) == SOFT_QP_LINE(rx) + 1 && SOFT_QP_LINE(lock) == SOFT_QP_LINE(sq),
               "the requesters' line");
_Static_assert(SOFT_QP_LINE(srq_received) == SOFT_QP_LINE(rx) + 2 &&
                   SOFT_QP_LINE(srq) == SOFT_QP_LINE(srq_received),
               "the connection's line");

#define soft_qp_of(p) ((struct soft_qp *)(p))

static inline struct soft_wqe_remote *soft_wqe_remote(struct soft_qp *qp,
                                                      const struct soft_wqe *wqe) {
    return &qp->sq_remote[wqe - qp->sq];
}

static inline void soft_drop(struct soft_qp *qp, enum soft_drop why) { /* qp->lock */
    spin_assert_held(&qp->lock);
    qp->drops[why]++;
}

#endif
