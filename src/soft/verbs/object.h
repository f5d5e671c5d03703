/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * object.h - the software device's objects behind the public verbs structs, and who may touch what.
 *
 * Locks, outermost first: control lock (engine.h) > cq->poll_lock > qp->lock > cq->ring_lock,
 * channel->lock. The data path (post, poll, notify) takes only the spin locks. They are held across no system
 * call that may wait: a doorbell is written, a process's memory is copied from or to, and a QP that ends asks for a
 * barrier. Each public struct is the first member of its object, and zero bytes follow it, as vendor
 * libraries look behind the public part.
 */
#ifndef SOFT_VERBS_OBJECT_H
#define SOFT_VERBS_OBJECT_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/engine.h"
#include "soft/fault/inject.h"
#include "soft/rc/ring.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"

#define SOFT_MAX_SGE 32 /* of any profile; what one has of it is said there */
#define SOFT_MAX_CQE (1 << 20)
#define SOFT_MAX_INLINE SOFT_SEGMENT_MAX
#define SOFT_MAX_MSG (1u << 31)
#define SOFT_MAX_QP_BLOCKS 64
#define SOFT_QP_BLOCK 1024
#define SOFT_MAX_REGIONS 256

/* ---- device and context ------------------------------------------------------------------------ */

struct soft_event_queue { /* events behind a semaphore eventfd; lock is a leaf */
    pthread_mutex_t lock;
    struct soft_event_node *head, **tail;
    struct soft_event_node *fetched; /* and not acked */
    pthread_cond_t acked;
};

struct soft_context {
    struct ibv_context ibv;
    uint8_t zero[64];
    uint32_t generation;
    _Atomic int users; /* PDs, CQs and channels */
    struct soft_event_queue async;
    struct soft_context *next; /* control lock; device_state.c */
    _Atomic uint32_t removed;  /* the device went away under it, for the n-th time */
};

struct soft_pd {
    struct ibv_pd ibv;
    uint8_t zero[64];
    uint32_t generation;
    _Atomic int users; /* MRs, MWs, QPs, SRQs */
    uint32_t number;   /* shown with keys: a key is good for QPs of its own PD only */
};

/* Memory that peers of the same uid can map: a sealed memfd. Guarded by the control lock. */
struct soft_region {
    uint8_t *addr;
    size_t bytes;
    int fd;
    uint32_t serial;
    bool writable; /* some registration lets peers write: they map it so */
};

struct soft_mr {
    struct ibv_mr ibv;
    uint8_t zero[64];
    uint32_t generation;
    uint64_t start, end; /* iova range */
    int64_t shift;       /* address = iova + shift */
    int access;
    int32_t region;         /* index of the region it lies in, -1: private memory */
    uint64_t region_offset; /* of start */
    uint32_t index;
    _Atomic uint32_t key;   /* 0 when deregistered */
    _Atomic int windows;    /* bound to it */
    struct soft_mw *window; /* it is the inside of one */
};

struct soft_recv_queue { /* RQ of a QP, or an SRQ's */
    uint8_t *entries;
    uint32_t stride, mask, max_wr, max_sge;
    uint32_t head, tail; /* free running */
};

/* Memory window, type 2: a key of its own inside an MR, given and taken by work requests. */
struct soft_mw {
    struct ibv_mw ibv;
    uint8_t zero[64];
    uint32_t generation;
    struct soft_mr as_mr; /* what the key table and the target path see while it is bound */
    struct soft_mr *mr;   /* NULL: not bound; the lock of the QP */
    /* A type 2 window serves the QP it was bound on. Changed under its lock, looked at by others. */
    struct soft_qp *_Atomic qp;
};

/* ---- shared receive queue */

struct soft_srq {
    struct ibv_srq ibv;
    uint8_t zero[64];
    uint32_t generation;
    soft_spin lock;
    _Atomic uint32_t posts; /* counts posts: QPs that wait for a receive look at it */
    _Atomic int users;
    uint32_t limit;
    struct soft_recv_queue rq;
};

/* ---- completion -------------------------------------------------------------------------------- */

struct soft_comp_channel {
    struct ibv_comp_channel ibv;
    uint8_t zero[64];
    uint32_t generation;
    pthread_mutex_t lock;
    struct soft_cq **queue; /* ring of signalled CQs; a CQ has at most one event per arm */
    unsigned head, count, capacity;
};

struct soft_cq {
    union {
        struct ibv_cq ibv;
        struct ibv_cq_ex ibv_ex; /* made as one: begins the same */
    };
    uint8_t zero[64];
    uint32_t generation;
    uint32_t shm_index;
    soft_spin poll_lock;
    _Atomic uint32_t armed; /* 0, 1 any, 2 solicited only */
    _Atomic bool dead;      /* overrun: nothing goes in any more, its QPs go to ERR */
    struct soft_qp **qps;   /* QPs that complete here; under poll_lock */
    unsigned qp_count, qp_capacity, hot_count, cold_next;
    unsigned idle_polls;
    unsigned first; /* where the next poll begins: not 0 behind a QP that filled the last one */
    struct soft_qp *_Atomic warm; /* cold QPs that somebody posted sends to */
    unsigned fetched;             /* events handed out; under the channel's lock */
    /* completions that could not go straight to a poller */
    soft_spin ring_lock __attribute__((aligned(64)));
    _Atomic uint32_t ring_count;
    uint32_t ring_head;
    uint32_t ring_capacity; /* only grows */
    _Atomic uint32_t limit; /* what the application asked for; at most the capacity */
    _Atomic bool untold;    /* the ring has some for which nothing fired */
    struct ibv_wc *ring;
    struct soft_reader *reader; /* an extended one's; cq_ex.c */
};

/* ---- queue pairs ------------------------------------------------------------------------------- */

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

struct soft_rqe {
    uint64_t wr_id;
    uint32_t num_sge;
    uint32_t pad;
    struct ibv_sge sge[]; /* qp->rq.max_sge of them */
};

struct soft_pending_ring;
struct soft_peer;
struct soft_peer_region;
struct soft_key;
struct soft_ud;

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

#define SOFT_REMOTE_ACCESS                                                                         \
    (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Somebody waits for the peer to leave memory here. */
struct soft_rkey_wait {
    uint32_t seen;     /* what the peer's word said, 0: nobody waits */
    uint32_t rkey;     /* of the window that was taken back, if it is one */
    uint64_t since_ns; /* 0: not asked yet */
};

/*
 * What a poller looks at without the lock, when there is nothing to do, comes first. Those fields are
 * written under the lock only; atomic (relaxed) because they are read without it.
 */
struct soft_qp {
    union {
        struct ibv_qp ibv;
        struct ibv_qp_ex ibv_ex; /* made as one: begins with the other */
    };
    uint8_t zero[64];

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
    _Atomic bool used_lately;     /* pollers': stays hot */
    _Atomic bool cold[2];         /* not in the hot part of its receive CQ, its send CQ */
    _Atomic bool need_tick;       /* the engine looks after it every millisecond */
    _Atomic uint32_t rx_word;     /* rx_pos last told in the ring's header */
    _Atomic uint32_t unretired;   /* work requests posted and not retired */
    /*
     * Receiving and sending have nothing out of the ordinary about them: the short ways are open.
     * Closed by whoever changes that (qp->lock), opened again by the next progress of the long way.
     */
    bool plain_rx, plain_tx;
    _Atomic uint64_t kick_ns;
    soft_spin lock;
    uint32_t generation;

    /* send queue */
    uint32_t tx_pos, tx_index;                   /* next slot to write */
    uint32_t tx_published;                       /* slots whose seq words are stored */
    uint32_t sq_free, sq_head, sq_next, sq_tail; /* freed <= retired <= to transmit <= posted */
    uint32_t sq_mask, sq_max_wr, sq_max_sge, max_inline;
    uint32_t sq_looked; /* no signalled one before it; awaited: the one that is due */
    bool sq_sig_all;
    struct soft_wqe *sq;
    struct soft_wqe_remote *sq_remote;
    struct ibv_sge *sq_sge;
    uint8_t *sq_inline;
    const _Atomic uint32_t *peer_recv_armed, *peer_send_armed;
    bool fence_free;
    struct soft_rkey_cache rkey_cache;

    /* receive queue */
    struct soft_recv_queue rq;
    struct soft_srq *srq;
    struct soft_rqe *srq_rqe; /* the shared receive this QP is filling */
    bool srq_taken;
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
    bool kick_wanted;                           /* ring the peer whatever its armed word says */
    bool one_sided_ring;                        /* there is one that may not have been executed */
    uint32_t remote_pd;

    /* life */
    enum ibv_qp_state state;
    bool sq_broken;                /* the wqe at sq_next carries the status that ends the QP */
    bool flushing;                 /* the ERR state began to flush */
    struct soft_rkey_wait leaving; /* ERR: the flush waits, so that nothing is written after it */
    bool opened;                   /* its peer had a right to memory here, since RESET */
    bool peer_gone;                /* process died, or nobody has the destination number */
    uint8_t give_up;               /* status the engine lost its patience with, else 0 */
    uint32_t stall_acked;
    uint64_t stall_since_ns;
    uint64_t down_since_ns;       /* soft_dropin: the peer is seen to be gone */
    struct soft_qp *warm_next[2]; /* on the CQs' warm lists; owned by who took cold away */
    unsigned cq_at[2];            /* place in the CQs' arrays; their poll_lock */
    struct soft_peer *peer;       /* our way to the destination; its list holds this QP */
    struct soft_peer *link_peer;  /* the connection that carried the tx ring */
    uint32_t tick_head;           /* sq_head at the last tick */
    struct soft_qp *peer_next, **peer_link;  /* peer's list of QPs; control lock */
    struct soft_pending_ring *pending_rings; /* rings offered before RTR; control lock */
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct soft_fault_qp fault;
    _Atomic uint32_t windows; /* bound on it */
    _Atomic bool fell;        /* iWARP: went to ERR, and its connection has not heard of it */
    uint64_t cm;              /* iWARP: the id that connects it, 0: none yet; control lock */
    bool stuck;               /* iWARP: a send was posted too early, and nothing goes any more */
    bool second;              /* iWARP: the listener's, which must hear before it speaks */
    uint32_t rq_flush_end;    /* the receives before it are flushed in ERR, those behind it wait */
    bool flush_late; /* iWARP: fell by itself, and the engine has not come to flush its receives */

    /* UC and UD */
    bool unreliable; /* constant: a send is done when it was handed over, or dropped */
    bool iwarp;      /* constant: the device is like iWARP; qp_iwarp.c */
    bool long_recv;  /* constant: posting a receive always takes the long way */
    bool rx_drop;    /* UC: the rest of the message is dropped too */
    bool impatient;  /* what could not be handed over for long enough may be dropped */
    uint32_t drops[SOFT_DROPS];
    struct soft_ud *ud; /* UD: ud.h; constant */

    struct soft_batch *batch; /* an extended one's; qp_ex.c */
};

/* Address handle: the addresses are copied into the work request that names it. */
struct soft_ah {
    struct ibv_ah ibv;
    uint8_t zero[64];
    uint32_t generation;
    union ibv_gid sgid, dgid;
    uint32_t tclass_flow; /* as in a GRH */
    uint8_t hop_limit, sl;
    bool reaches; /* this host has that address, or it is a group's */
};

#define soft_context_of(p) ((struct soft_context *)(p))
#define soft_pd_of(p) ((struct soft_pd *)(p))
#define soft_mr_of(p) ((struct soft_mr *)(p))
#define soft_cq_of(p) ((struct soft_cq *)(p))
#define soft_srq_of(p) ((struct soft_srq *)(p))
#define soft_mw_of(p) ((struct soft_mw *)(p))
#define soft_qp_of(p) ((struct soft_qp *)(p))
#define soft_ah_of(p) ((struct soft_ah *)(p))
#define soft_comp_channel_of(p) ((struct soft_comp_channel *)(p))

static inline struct soft_wqe_remote *soft_wqe_remote(struct soft_qp *qp,
                                                      const struct soft_wqe *wqe) {
    return &qp->sq_remote[wqe - qp->sq];
}

static inline void soft_drop(struct soft_qp *qp, enum soft_drop why) { /* qp->lock */
    qp->drops[why]++;
}

/* True when the object was inherited through fork(). */
#define soft_stale(obj) ((obj)->generation != soft_generation_now)

/* An errno a call on this context fails with, or 0. */
static inline int soft_refuse(const struct ibv_context *ctx, enum soft_fault_call call) {
    if (__builtin_expect(ld(((const struct soft_context *)ctx)->removed) != 0, 0))
        return EIO;
    return soft_fault_call(call);
}
static inline bool soft_removed(const struct ibv_context *ctx) {
    return __builtin_expect(ld(((const struct soft_context *)ctx)->removed) != 0, 0);
}

/* mr.c */
extern struct soft_mr *_Atomic soft_mr_table[SOFT_MAX_MR]; /* changes: control lock */
/* Any thread; NULL: no such key in this PD. */
static inline struct soft_mr *soft_mr_find(uint32_t key, const struct ibv_pd *pd) {
    struct soft_mr *mr = atomic_load_explicit(&soft_mr_table[key >> 16], memory_order_acquire);
    /* Acquire: its key may have been stored again, over what it stands for now. */
    return mr && atomic_load_explicit(&mr->key, memory_order_acquire) == key && mr->ibv.pd == pd
               ? mr
               : NULL;
}
/* The MR (or bound window) a peer's key names on this QP, or NULL. */
struct soft_mr *soft_mr_find_remote(uint32_t key, struct soft_qp *qp);
extern struct soft_key *soft_keys; /* own table */
int soft_keys_fd(void);            /* control lock; -1: no memory */
/* Address of [addr, addr+len) if mr covers it with these rights, else NULL. */
static inline uint8_t *soft_mr_range(const struct soft_mr *mr, uint64_t addr, uint64_t len,
                                     int access) {
    uint64_t offset = addr - mr->start,
             length = mr->end - mr->start; /* below start: a huge offset */
    if (offset > length || len > length - offset || (mr->access & access) != access)
        return NULL;
    return (uint8_t *)(uintptr_t)(addr + (uint64_t)mr->shift);
}
void soft_key_publish(const struct soft_mr *mr, uint32_t key); /* who registers or binds it */
int soft_mr_insert(struct soft_mr *mr);                        /* control lock */
void soft_mr_remove(struct soft_mr *mr);                       /* control lock */
/*
 * mr_rereg.c too; control lock. What it stands for; peers see it, if they may use it; after it nobody, here or
 * in a peer, touches memory through its key, which is nobody's until it is stored again.
 */
void soft_mr_describe(struct soft_mr *mr, void *addr, size_t length, uint64_t iova, int access);
void soft_mr_show(struct soft_mr *mr);
void soft_mr_withdraw(struct soft_mr *mr);
/* 0, or the errno of a registration that asks for what cannot be. Not with the control lock held. */
int soft_mr_check(const struct soft_pd *pd, void *addr, size_t length, uint64_t iova, int access);
void soft_mr_forked(void);
void soft_default_context_fork(
    bool begins); /* the fork waits until nobody is inside of default_context.c */
extern struct soft_region soft_regions[SOFT_MAX_REGIONS]; /* control lock */

/* ring_exchange.c */
int soft_ring_exchange_open(
    struct soft_qp *qp); /* at RTR: make rx, tell the peer. 0 or errno; control lock */
void soft_ring_exchange_close(
    struct soft_qp *qp); /* control lock; qp in no CQ's list or under its lock */
void soft_ring_exchange_on_message(struct soft_peer *peer, uint32_t type, const void *data,
                                   size_t bytes, int fd);
void soft_ring_exchange_on_peer_gone(struct soft_peer *peer);
void soft_ring_exchange_on_bell(struct soft_peer *peer);
void soft_ring_exchange_announce_regions(struct soft_peer *peer);
void soft_ring_exchange_region_added(int index);
void soft_ring_exchange_region_removed(int index);
void soft_ring_exchange_region_writable(int index);

void soft_ring_exchange_announce_keys(struct soft_peer *peer);

/* rdma_target.c: qp->lock */
bool soft_rdma_target_take(struct soft_qp *qp, struct soft_ring *ring, unsigned index, unsigned op,
                           unsigned flags, unsigned len);
enum soft_nak soft_rdma_target_execute(struct soft_qp *qp, unsigned op,
                                       const struct soft_reth *reth,
                                       const struct soft_atomic *atomic);
bool soft_rdma_target_transmit(struct soft_qp *qp); /* true: something was written */
/*
 * rkey_fence.c. No peer is inside memory that it reached through this QP, or through any of pd's QPs. Both wait, a bounded
 * time. The first without a lock; the second with the control lock, which it gives up meanwhile.
 */
void soft_rkey_fence_wait_qp(struct soft_qp *qp);
void soft_rkey_fence_wait(struct soft_pd *pd);
/* qp->lock: the same without waiting. Look, and ask again until the answer is another than INSIDE. */
enum soft_rkey_fence { SOFT_RKEY_FENCE_LEFT, SOFT_RKEY_FENCE_INSIDE, SOFT_RKEY_FENCE_STUCK };
void soft_rkey_fence_begin(struct soft_qp *qp); /* into qp->leaving */
struct soft_rkey_wait
soft_rkey_fence_begin_window(const struct soft_qp *qp); /* a window's entry was taken back */
enum soft_rkey_fence soft_rkey_fence_poll(const struct soft_qp *qp, struct soft_rkey_wait *inside);

/* mw.c */
struct ibv_mw *soft_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int soft_dealloc_mw(struct ibv_mw *mw);
int soft_mw_check(struct soft_qp *qp, const struct ibv_send_wr *wr);
enum ibv_wc_status soft_mw_bind(struct soft_qp *qp, const struct soft_wqe *wqe);
/* SEND_WITH_INV and LOCAL_INV: false while the peer is still inside; to be called again, until it sets the status. */
bool soft_mw_invalidate(struct soft_qp *qp, uint32_t rkey, enum ibv_wc_status *status);
bool soft_mw_invalidate_local(struct soft_qp *qp, struct soft_wqe *wqe);
void soft_mw_forget(struct soft_qp *qp); /* control lock: the QP is not what they were bound on */

/*
 * qp_iwarp.c: control lock. The connection comes about, INIT to RTS: 0 or an errno. It ends: what had arrived is
 * taken, then ERR and the flush.
 */
int soft_qp_up(struct soft_qp *qp, uint32_t remote_qpn, uint8_t responder_resources,
               uint8_t initiator_depth, bool listener);
void soft_qp_end(struct soft_qp *qp);
/* qp->lock: false: it spoke too early, and is in ERR now. */
bool soft_iwarp_may_speak(struct soft_qp *qp);
/* What an application may change, which is next to nothing. 0 or an errno. */
int soft_iwarp_modify(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask);
void soft_iwarp_flush(struct soft_qp *qp); /* control lock: the receives of one that fell */

/* qp.c, progress.c */
void soft_qp_to_error(struct soft_qp *qp);  /* control lock: and flushed */
struct soft_qp *soft_qp_find(uint32_t qpn); /* control lock */
void soft_qp_forked(void);
void soft_qp_fail(struct soft_qp *qp); /* qp->lock: enter ERR */
/*
 * This copy serves programs that were written for NICs and the system's librdmacm (dropin/), and count on
 * what no specification promises: a peer that is gone is reported after a NIC's timeouts and retries, not as
 * soon as it is seen; a port that nobody listens on is not refused at once; arming a CQ fires for completions
 * that were not taken; a poller without work gives its CPU away now and then; contexts that rdma_cm opened
 * stay open as long as the process. Constant.
 */
extern bool soft_dropin;
/* Makes all progress possible; completions go to the rings of their CQs. Takes qp->lock. */
void soft_qp_progress(struct soft_qp *qp);
/* One of many empty polls in a row, or what was taken is not told: lazy ack, kick; no lock. */
void soft_qp_idle(struct soft_qp *qp);
void soft_qp_flush_ack(struct soft_qp *qp);                /* qp->lock */
void soft_qp_acknowledge(uint32_t qpn);                    /* control lock: what was taken, now */
void soft_qp_kick(struct soft_qp *qp);                     /* ring the peer's bell */
bool soft_qp_timer_tick(struct soft_qp *qp, uint64_t now); /* engine; true: again */
extern struct soft_qp_block {
    uint32_t block;
    uint32_t next;
    struct soft_qp *_Atomic qps[SOFT_QP_BLOCK];
} * soft_qp_blocks[SOFT_MAX_QP_BLOCKS]; /* control lock */
extern unsigned soft_qp_block_count;
void soft_qp_timer_if_wanted(void);
void soft_qp_timer_want(void);
void soft_qp_timer_stop(void);
uint64_t soft_rnr_ns(unsigned code);            /* min_rnr_timer in nanoseconds */
extern _Atomic uint64_t soft_rnr;               /* times so far that a message found no receive */
void soft_qp_bell_receiver(struct soft_qp *qp); /* qp->lock */
void soft_qp_numbers_reset(void);               /* control lock */
void soft_qp_quiesce(void); /* control lock: waits until no QP lock holder from before is left */
int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* The same, but all of them or none. 0 or an errno. */
int soft_post_all(struct soft_qp *qp, struct ibv_send_wr *wr);
int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Posts *wr and what follows; on an error *wr is the first that was not posted. */
int soft_recv_push(struct soft_recv_queue *rq, struct ibv_recv_wr **wr);
void soft_srq_low(struct soft_srq *srq); /* the limit was reached: the event */
/* Before element dies: forgets its unfetched events, waits until the fetched ones are acked. */
void soft_async_drain(struct ibv_context *ctx, void *element);
int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* comp_channel.c */
void soft_comp_channel_push(struct soft_comp_channel *channel, struct soft_cq *cq);
/* Drops the CQ's events that nobody fetched; returns how many were. */
unsigned soft_comp_channel_forget(struct soft_comp_channel *channel, struct soft_cq *cq);

/* cq.c, poll.c, notify.c */
int soft_poll_cq(struct ibv_cq *cq, int ne, struct ibv_wc *wc);
int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);
bool soft_cq_push(struct soft_cq *cq, const struct ibv_wc *wc, bool solicited); /* false: full */
void soft_cq_signal(struct soft_cq *cq, bool solicited);
void soft_cq_overrun(struct soft_cq *cq);
void soft_cq_pollset_warm(struct soft_qp *qp);                  /* a send was posted to a cold QP */
int soft_cq_pop(struct soft_cq *cq, struct ibv_wc *wc, int ne); /* out of its ring */
/* cq_pollset.c: poll_lock held */
void soft_cq_pollset_take_warm(struct soft_cq *cq);
void soft_cq_pollset_warm_up(struct soft_cq *cq, unsigned at);
void soft_cq_pollset_cool(struct soft_cq *cq);
/* and without it */
int soft_cq_pollset_add(struct soft_cq *cq, struct soft_qp *qp);
void soft_cq_pollset_remove(struct soft_cq *cq, struct soft_qp *qp, bool purge);

/* device.c */
void soft_async_event(struct ibv_context *ctx, enum ibv_event_type type, void *element);
extern uint8_t soft_own_uuid[16];
extern struct soft_shm_page *soft_shm_page; /* NULL before the engine first started */

/* peer.c */
int soft_peer_start(void); /* control lock */
void soft_peer_stop(void);
void soft_peer_forked(void);

#endif
