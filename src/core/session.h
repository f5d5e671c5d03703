/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session.h - one connection to one peer, as the data path sees it.
 *
 * A session lives in a slot of its node's table. Slots are never given back to the system, so a
 * stale handle can always be looked up; the reference (session_ref.h) tells that it is stale. From the moment
 * a slot is taken until it is freed the session belongs to one loop, and only that loop's thread
 * touches it, except for: the reference and the foreign_* counters (atomic, any thread), `conn` (the CM
 * thread's, see connection.h), what is constant after opening, and `info` (under the node's lock).
 *
 * Life, as the loop sees it:
 *   OPENING -> UP -> FLUSHING -> LEAVING -> RELEASED -> DRAINING -> DRAINED -> GONE -> free
 * Every way out leads through RELEASED; a session that was never up enters there from OPENING.
 */
#ifndef CORE_SESSION_H
#define CORE_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <sluice/sluice.h>

#include "core/connection.h"
#include "core/session_ref.h"
#include "pool/pool.h"

/* Where a handshake is (handshake.c); frames other than the one awaited are refused. */
enum session_handshake {
    HANDSHAKE_NONE,   /* nothing was agreed, or it is done */
    HANDSHAKE_HELLO,  /* dialer: to be sent; listener: awaited */
    HANDSHAKE_HELD,   /* listener: HELLO came before the connection was announced */
    HANDSHAKE_ANSWER, /* dialer: WELCOME or REFUSE awaited; listener: the application decides */
};

enum session_state {
    SESSION_FREE,
    SESSION_OPENING,  /* the CM thread connects; frames that come are held */
    SESSION_UP,       /* sends are accepted */
    SESSION_FLUSHING, /* hung up with a grace: what was accepted is still sent */
    SESSION_LEAVING,  /* BYE is posted, its completion awaited */
    SESSION_RELEASED, /* the CM thread was asked to disconnect */
    SESSION_DRAINING, /* QP in ERR, completions come back */
    SESSION_DRAINED,  /* QP destroyed; the CM thread destroys the id */
    SESSION_GONE,     /* last events, then the slot is free */
};

/* Who owns a message. */
enum msg_state {
    MSG_FREE,    /* the pool */
    MSG_APP,     /* the application */
    MSG_LOANED,  /* on loan to the application until its handler returns or it polls again */
    MSG_SENDING, /* the data path, for sending: mailbox, queue, device or waiting outcome */
    MSG_RECEIVE, /* the data path, for receiving: posted, held, or being put together */
};

/* msg->flags */
#define MSG_RX 1u        /* a receive buffer: of the size of a frame, and posted again */
#define MSG_SHARED 2u    /* it belongs to the loop's shared queue; session_id is its place there */
#define MSG_RESERVED 4u  /* its receive is no credit: posted again it is spare */
#define MSG_RETAINED 8u  /* the application's, and a credit of session_id is withheld for it */
#define MSG_VIEW 32u     /* its data lies in the coalesced frame it came with (coalesce.c) */
#define MSG_ESCORTED 16u /* next is the frame that announced or ended it, and goes back with it */
#define MSG_OPENED                                                                                 \
    64u /* a coalesced frame that is being taken apart, or in which lent messages lie */

/* What is sent, or was received: how post.c builds it, and which outcome it has. */
enum msg_kind {
    MSG_PLAIN,     /* a message */
    MSG_REQUEST,   /* client.c: its outcome is REPLY */
    MSG_REPLY,     /* client.c: no outcome, outside of the window */
    MSG_IOV,       /* iov.c: payload is a struct iov_msg, what is sent lies elsewhere */
    MSG_ONE_SIDED, /* one_sided.c: payload is a struct operation; its outcome is DONE */
};

/*
 * Messages a loop takes. SEND and FREE are embedded in their message, DEVICE_LOST and SRQ_LOW in the loop, the
 * others in the session.
 */
enum loop_msg {
    LOOP_MSG_WRITABLE_WAIT,
    LOOP_MSG_REQUESTS, /* another thread answered without a message, or gave requests up */
    LOOP_MSG_HANGUP,
    LOOP_MSG_ASK,
    LOOP_MSG_PREPARE,
    LOOP_MSG_APPLY,
    LOOP_MSG_ADOPT,
    LOOP_MSG_HANDSHAKE_ANSWER, /* the application answered a peer that has said HELLO */
    LOOP_MSG_DOWN,
    LOOP_MSG_DRAIN,
    LOOP_MSG_GONE,
    LOOP_MSG_LAST_WQE, /* a queue pair in ERR takes no more of the shared receives */
    LOOP_MSG_SESSION_COUNT,
    LOOP_MSG_SEND = LOOP_MSG_SESSION_COUNT,
    LOOP_MSG_DEVICE_LOST,
    LOOP_MSG_FREE,    /* a kept message, freed by another thread */
    LOOP_MSG_SRQ_LOW, /* few shared receives are left */
};

/* Events of the session itself that wait to be delivered. */
#define NOTICE_CONNECT 1u
#define NOTICE_UP 2u
#define NOTICE_HELD 4u /* frames wait to be looked at */
#define NOTICE_WRITABLE 8u
#define NOTICE_CLOSED 16u

/* What another thread was told EAGAIN for. */
#define WAIT_WINDOW SLUICE_WAITS_WINDOW
#define WAIT_REQUEST_ID SLUICE_WAITS_REQUESTS
#define WAIT_MEMORY SLUICE_WAITS_MEMORY

#define CREDITS_INITIAL 4u  /* credits every peer has at first; no more than CREDITS_MIN */
#define CREDITS_DEFAULT 32u /* that a peer may come to have */
#define CREDIT_RESERVE 2u   /* kept back for CREDIT and BYE, so that credits can always flow back */
#define SQ_RESERVE 3u       /* send queue entries kept back for CREDIT, BYE and the drain marker */

/* One posted send: which message ends with it, and what the window gets back. */
struct sq_entry {
    struct sluice_msg *msg; /* NULL: nothing to give back */
    uint64_t bytes;         /* payload of the message that ends here, and the flags below */
};
#define SQ_COUNTED (1ull << 63) /* a message ends here: the window shrinks */
#define SQ_FOREIGN (1ull << 62) /* it was accepted from another thread */
#define SQ_FAILED (1ull << 61)  /* never reached the device */
#define SQ_BEHIND (1ull << 60)  /* confirm.c: it ends with its own READ, or with one behind it */
#define SQ_WHAT_SHIFT 56        /* enum sq_what, 4 bits */
#define SQ_WHAT_MASK 15
#define SQ_BYTES ((1ull << SQ_WHAT_SHIFT) - 1)

/* Whose the entry is: who is told of its completion. */
enum sq_what {
    SQ_MESSAGE,   /* post.c: the message ends with it */
    SQ_RNDV,      /* rndv.c */
    SQ_ONE_SIDED, /* one_sided.c: a part of the operation, which has the message */
    SQ_IOV,       /* iov.c: likewise of a message made of pieces */
    SQ_REQUEST,   /* client.c: the message stays until the reply */
    SQ_COALESCED, /* coalesce.c: several messages end with it; bytes is made otherwise */
    SQ_CONFIRM,   /* confirm.c: what was posted before it is the peer's */
};

struct msg_queue {
    struct sluice_msg *head, **tail;
};

/* What keepalive.c remembers of a session, from look to look. */
struct keepalive {
    uint64_t interval_ns;      /* agreed; 0: not watched */
    uint64_t checked_ns;       /* the last look */
    uint64_t rx_ns, tx_ns;     /* the look that first saw the counts below */
    uint32_t rx_seen, tx_seen; /* frames received, frames posted */
    bool excused;              /* the silence was forgiven once, because the loop was away */
};

/* What a session was opened with, defaults filled in. */
struct link_config {
    sluice_handler handler;
    void *handler_arg, *arg;
    struct sluice_loop *loop;
    struct sluice_loop *const *loops; /* listener: its own copy; else NULL */
    struct keyring *keys;             /* NULL: no authentication; counted */
    bool dialing;                     /* given to sluice_dial() */
    uint32_t loop_count;
    uint32_t flags, window_messages, credits;
    uint32_t requests;  /* of mine in flight */
    uint32_t keepalive; /* units of 10 ms, 0 = off */
    uint32_t tos, ack_timeout;
    uint64_t window_bytes, timeout_ns;
    uint32_t private_bytes;
    uint8_t private_data[SLUICE_PRIVATE_MAX];
};

/* Receives posted ahead: a session's own, or those that the sessions of a loop share (srq.c). */
struct recv_queue {
    struct ibv_qp *qp;         /* own */
    struct ibv_srq *srq;       /* shared */
    struct sluice_msg *repost; /* buffers to be posted again */
    uint32_t posted;           /* receives the device has */
    uint32_t spare;            /* of these: neither a credit nor reserved for a reply */
    uint32_t spare_max;        /* more are not posted again */
    uint32_t depth;            /* receives it can hold */
    /* own, where a device is silent in ERR: those posted lately, in order, the last of which it has */
    struct sluice_msg **trail;
    uint32_t trail_next;
};

struct session {
    /* sending: what every send touches */
    _Atomic(struct sluice_loop *) loop; /* NULL while the slot is free */
    _Atomic uint64_t id;                /* the handle */
    struct ibv_qp *qp;
    struct pool *pool, *rx_pool; /* of the node */
    struct sq_entry *sq;
    uint32_t sq_head, sq_tail, sq_mask, sq_limit;
    uint32_t sq_quick; /* sq_limit, or 0: nothing is posted but as a batch */
    uint8_t state;     /* enum session_state */
    uint8_t handshake; /* enum session_handshake */
    bool dirty, waits_writable, waits_memory, stalled;
    bool update_due;   /* credits are returned even if they are few */
    bool answers;      /* server.c: codes wait to be posted */
    uint16_t cancels;  /* client.c: CANCEL frames that wait */
    bool blocked;      /* rndv.c waits for credits or room in the send queue */
    bool wants_signal; /* send.c: the window waits for sends that may have no completion */
    uint32_t tx_credits;
    uint32_t unsignalled, signal_every;
    uint32_t coalesce_bound; /* larger messages have a frame of their own; 0: all have */

    uint32_t tx_sequence, rx_sequence __attribute__((aligned(64)));
    uint32_t rx_updated;    /* rx_sequence when the last frame was posted */
    uint32_t rx_unreported; /* receives posted again and not told to the peer yet */
    uint32_t rx_granted;    /* frames the peer may still send */
    uint32_t frame_payload, inline_max;
    uint32_t window_messages, tx_credits_max;
    _Atomic uint64_t own_messages, own_bytes; /* accepted here, no outcome yet; read by others */
    uint64_t window_bytes, message_max;
    uint64_t rndv_above;      /* larger messages go by rendezvous; never below frame_payload */
    struct msg_queue queue;   /* accepted, not posted or not wholly posted */
    struct msg_queue replies; /* the same of replies, which wait for no credit */

    /* receiving */
    sluice_handler handler __attribute__((aligned(64)));
    void *handler_arg, *arg;
    struct recv_queue *rq;               /* its own, or the loop's */
    uint32_t repost_count, repost_batch; /* buffers of its frames that are to be posted again */
    uint32_t rx_missing;                 /* buffers that could not be replaced for want of memory */
    uint32_t credits_granted; /* credits the peer has, wherever they are just now; see credits.c */
    uint32_t credits_low;     /* below so many rx_granted the peer wants more */
    uint32_t credits;         /* the most it will ever have */
    uint32_t frame_bytes;     /* of one receive buffer */
    uint64_t rx_message_max;  /* largest message the peer may send */
    uint32_t rx_controls;     /* CREDIT and ALIVE frames: what rx_sequence does not count */
    struct msg_queue held;    /* frames that came before UP, or while memory is short */
    struct sluice_msg *partial; /* message being put together from fragments */
    uint64_t partial_bytes;
    struct recv_queue own; /* unused where they are shared */

    /* any thread */
    session_ref ref __attribute__((aligned(64)));
    _Atomic uint64_t foreign_bytes;
    _Atomic bool
        accessed; /* the device says that the peer accessed what it may not: the CM thread */
    _Atomic uint32_t foreign_waits; /* WAIT_WINDOW ... of other threads, since the loop looked */
    _Atomic uint64_t memory_seen;   /* of WAIT_MEMORY, see alloc_wait.c */
    _Atomic uint64_t hangup_grace;  /* smallest asked for since the loop looked */

    /* life */
    struct session *dirty_next __attribute__((aligned(64)));
    struct session *notice_next;
    struct session *next, **link; /* the loop's list */
    struct session *dying_next;
    struct sluice_node *node;
    uint32_t slot;
    uint32_t cq_share; /* entries of the CQ set aside for it */
    uint8_t notices;
    bool known; /* the application has its handle */
    bool noticed, attached, adopted, announced, hungup, bye_posted, reason_provisional, retry,
        recv_stopped;
    bool held_pending;   /* the first held frame waits for its transfer, not for room */
    bool waits_for_pins; /* CLOSED waits for a thread that is inside */
    bool confirms;       /* confirm.c: a completion says only that this side has sent something */
    bool confirm_owed;   /* something was sent that a READ is wanted behind */
    bool probe_known;    /* the byte that the peer has named */
    uint8_t confirms_flying;
    uint32_t probe_rkey;
    uint32_t sent_tail; /* entries before it were sent */
    uint64_t probe_address;
    bool renewing; /* OPENING: the queue pair is being drained, for the next try's */
    uint8_t drain_extensions;
    uint32_t lasts_seen; /* the loop's, when that was given or the drain began */
    uint8_t down_polls;  /* the connection is down; polls until that is acted upon */
    uint32_t bye_index, outcomes, acked;
    uint32_t
        foreign_taken; /* of the messages the reference counts, those that came out of the mailbox */
    uint32_t sq_depth;
    uint64_t deadline_ns; /* of FLUSHING, LEAVING, DRAINING, renewing, a nudge; 0 none */
    uint64_t nudge_ns;    /* handshake.c: to the next nudge */
    struct keepalive keepalive;
    /* landing.c: held for messages that are not there yet; how often one went on, as it was at landing_ns */
    uint64_t landing_bytes, landing_ns;
    uint32_t landing_moves, landing_seen;
    struct sluice_msg *headers; /* registered memory for the headers of fragments */
    /* each NULL until it is needed; given back when the queue pair is gone */
    _Atomic(struct rpc_client *)
        rpc_client; /* client.c: of mine, without a reply; until the slot is
                                            free, as the next */
    _Atomic(struct rpc_server *) rpc_server; /* server.c: of the peer's, not answered yet */
    struct rndv *rndv;                       /* rndv.c: large messages in both directions */
    /* credits.c and retain.c */
    uint32_t retained; /* messages of the peer the application keeps; for a moment one too few */
    uint32_t withheld_due;       /* credits still to be withheld for some of them; likewise */
    uint32_t rx_reserved;        /* receives set aside for replies */
    uint32_t credits_seen;       /* rx_sequence when credits_checked_ns was */
    uint32_t recall, returned;   /* credits the peer was asked to keep; or that I was; 0: none */
    uint64_t credits_checked_ns; /* when it was looked at last */
    bool heard;                  /* the queue pair can receive: frames may have come */
    bool qp_ended;      /* drain.c: the QP is gone, its completions are still to be polled */
    bool last, settled; /* it takes no more shared receives; their completions were polled */
    uint32_t last_poll; /* the poll before that was known */
    _Atomic uint32_t published_retained, published_credits; /* for any thread */
    _Atomic uint32_t shown_waits; /* WAIT_WINDOW ...: of EAGAIN whose event is not noticed yet */
    /* one_sided.c: its work requests that are not complete; of them those that READ, and the large */
    uint32_t one_sided, one_sided_reads, one_sided_large;
    uint32_t frameless; /* work requests posted so far that were no frames */
    uint32_t send_sges; /* pieces of memory one send can be made of */
    struct mpsc_queue_item to_loop[LOOP_MSG_SESSION_COUNT];
    struct mpsc_queue_item to_cm[CM_MSG_SESSION_COUNT];

    struct link_config link_config;
    sluice_peer peer;
    /* why it ended: the loop's, read by others under the node's lock */
    sluice_reason reason;
    uint32_t vendor;
    struct {
        uint64_t message_bytes_max;
        uint32_t eager_bytes, credits;
        uint32_t close_code;
        char close_text[124];
        uint32_t key_id, tries;
        uint64_t keepalive_ns;
        int32_t cm_event, cm_status, wc_status;
        uint32_t shared;
    } info;

    struct cm_conn conn;
} __attribute__((aligned(64)));

/* What EAGAIN was for, as sluice_session_get_info() tells it; off the steady path of a message. */
static inline void session_waits(struct session *s, uint32_t what) {
    atomic_fetch_or_explicit(&s->shown_waits, what, memory_order_relaxed);
}

static inline void session_waits_no_more(struct session *s, uint32_t what) {
    atomic_fetch_and_explicit(&s->shown_waits, ~what, memory_order_relaxed);
}

/* Of the session's handle. While a message of it is posted, or a thread is inside, it does not move. */
static inline uint32_t session_generation(struct session *s) {
    return session_ref_generation(atomic_load_explicit(&s->ref, memory_order_relaxed));
}

static inline struct session *session_of_conn(struct cm_conn *conn) {
    return (struct session *)(void *)((char *)conn - offsetof(struct session, conn));
}

static inline void msg_queue_init(struct msg_queue *queue) {
    queue->head = NULL;
    queue->tail = &queue->head;
}

static inline void msg_queue_push(struct msg_queue *queue, struct sluice_msg *msg) {
    msg->next = NULL;
    *queue->tail = msg;
    queue->tail = &msg->next;
}

static inline struct sluice_msg *msg_queue_pop(struct msg_queue *queue) {
    struct sluice_msg *msg = queue->head;
    if (msg && !(queue->head = msg->next))
        queue->tail = &queue->head;
    return msg;
}

/* One that is or was the device's, of which there may be completions. */
static inline bool session_has_qp(const struct session *s) {
    return s->qp || s->qp_ended;
}

static inline bool session_takes_receives(const struct session *s) {
    return s->qp && s->state < SESSION_DRAINING;
}

#endif
