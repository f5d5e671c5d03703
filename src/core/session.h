/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session.h - the application's side of a connection: identity, order, window, outcomes.
 *
 * A session lives in a slot of its node's table. Slots are never given back to the system, so a
 * stale handle can always be looked up; the reference (session_ref.h) tells that it is stale. From the moment
 * a slot is taken until it is freed the session belongs to one loop, and only that loop's thread
 * touches it, except for: the reference and `foreign` (atomic, any thread), what is constant after opening, and `info` (under the node's lock).
 *
 * Life, as the loop sees it:
 *   OPENING -> UP -> FLUSHING -> LEAVING -> RELEASED -> DRAINING -> DRAINED -> GONE -> free
 *              UP, FLUSHING -> DOWN -> UP
 * Every way out leads through RELEASED; a session that was never up enters there from OPENING.
 */
#ifndef CORE_SESSION_H
#define CORE_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/sluice.h>

#include "common/assert.h"
#include "core/connection.h"
#include "core/loop_msg.h"
#include "core/session_move.h"
#include "core/session_ref.h"
#include "core/message.h"
#include "pool/pool.h"

enum session_state {
    SESSION_FREE,
    SESSION_OPENING, /* the CM thread connects; frames that come are held */
    SESSION_DOWN, /* its connection was lost, and another is awaited: sends are accepted (down.c) */
    SESSION_UP,   /* sends are accepted */
    SESSION_FLUSHING, /* hung up with a grace: what was accepted is still sent */
    SESSION_LEAVING,  /* BYE is posted, its completion awaited */
    SESSION_RELEASED, /* the CM thread was asked to disconnect */
    SESSION_DRAINING, /* QP in ERR, completions come back */
    SESSION_DRAINED,  /* QP destroyed; the CM thread destroys the id */
    SESSION_GONE,     /* last events, then the slot is free */
};

/* Events of the session itself that wait to be delivered. */
#define NOTICE_CONNECT 1u
#define NOTICE_UP 2u
#define NOTICE_HELD 4u /* frames wait to be looked at */
#define NOTICE_WRITABLE 8u
#define NOTICE_CLOSED 16u
#define NOTICE_DOWN 32u
#define NOTICE_RESUMED 64u
#define NOTICE_MOVED 128u

/* The limits for which another thread got EAGAIN. */
#define WAIT_WINDOW SLUICE_WAITS_WINDOW
#define WAIT_REQUEST_ID SLUICE_WAITS_REQUESTS
#define WAIT_MEMORY SLUICE_WAITS_MEMORY

struct msg_queue {
    struct sluice_msg *head, **tail;
};

/* The options of a session, defaults filled in. */
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
    uint64_t resume_ns; /* how long it may be without a connection; 0: not at all */
    uint32_t private_bytes;
    uint8_t private_data[SLUICE_PRIVATE_MAX];
};

/*
 * The window: messages that were accepted and have no outcome yet. Those of this loop's own thread are counted here,
 * those of other threads in the reference and in session_foreign. Owner: the loop; others read own_*.
 */
struct session_window {
    _Atomic uint64_t own_messages, own_bytes;
    uint64_t bytes; /* the limits */
    uint32_t messages;
    uint32_t foreign_taken; /* of those that the reference counts, what came out of the mailbox */
    bool waits_writable;    /* an EAGAIN was given: WRITABLE is owed */
    bool wants_signal;      /* it waits for sends that may have no completion */
};

/* Messages that were accepted and not wholly posted. Owner: the loop. */
struct session_tx {
    struct msg_queue queue;
    struct msg_queue replies; /* the same of replies, which wait for no credit */
    uint64_t message_max;
    uint64_t rndv_above;     /* larger messages go by rendezvous; never below frame_payload */
    uint64_t rpc_above;      /* the same of requests and replies */
    uint64_t alone_max;      /* but not up to here while nothing else is on its way; 0: always */
    uint32_t frame_payload;  /* bytes of a message in one frame */
    uint16_t open_bytes;     /* the same where the frame lies open for more: coalesce_open() */
    uint16_t coalesce_bound; /* larger messages have a frame of their own; 0: all have */
};

/* Frames and messages that arrived and were not delivered. Owner: the loop. */
struct session_rx {
    struct msg_queue held;      /* frames that came before UP, or while memory is short */
    struct sluice_msg *partial; /* message being put together from fragments */
    uint64_t partial_bytes;
    uint64_t partial_total; /* of the first one's header, and its type */
    struct sluice_msg
        *partial_reply; /* the first one itself, in the receive that was kept for it */
    uint8_t partial_type;
    uint64_t message_max; /* largest message the peer may send */
    bool held_pending;    /* the first held frame waits for its transfer, not for room */
    bool stopped;         /* nothing more is taken from this peer */
};

/* Requests; each table is NULL until it is needed, and stays until the slot is free. Owner: the loop. */
struct session_rpc {
    _Atomic(struct rpc_client *) client; /* client.c: of mine, without a reply */
    _Atomic(struct rpc_server *) server; /* server.c: of the peer's, not answered yet */
    bool answers;                        /* server.c: codes wait to be posted */
    uint16_t cancels;                    /* client.c: CANCEL frames that wait */
};

/* landing.c: memory held for messages that are not there yet. Owner: the loop. */
struct session_landing {
    uint64_t bytes, ns;        /* how many, and since when the next one is to become whole */
    struct landing_peer *peer; /* whose it is; constant from UP on. NULL: no memory for it */
    uint32_t begun,
        found; /* messages in frames that were held before they had memory, and have it */
};

/* How it ends. Owner: the loop; reason and vendor are read by others under the node's lock. */
struct session_close {
    uint64_t deadline_ns;  /* of FLUSHING, LEAVING, DRAINING, renewing, a nudge; 0 none */
    uint64_t leave_end_ns; /* of LEAVING: when it is over, whatever moved */
    uint32_t leave_head;   /* of the send queue, at the last look */
    uint32_t silent_looks; /* in a row */
    uint32_t looks_most;   /* so many in a row are one that is gone */
    uint32_t bye_index;    /* in the send queue */
    bool bye_posted, hungup, reason_provisional;
    bool waits_for_pins; /* CLOSED waits for a thread that is inside */
    sluice_reason reason;
    uint32_t vendor;
};

/* down.c and replay.c: a session whose connection was lost. Owner: the loop, but for what resumable.c has. */
struct session_resume {
    struct connection
        *draining; /* was lost: until it is drained, it is not known what arrived over it */
    struct connection
        *kept; /* was lost, and has frames to be sent again; others behind it: kept_next */
    uint32_t acked, sent; /* what the peer has at least and at most, of all that was sent */
    uint64_t down_ns, up_again_ns; /* since when it is down; for how long it was */
    uint64_t deadline_ns;          /* it is over then; 0: it is not down */
    uint64_t hangup_ns;            /* hung up: the end of its grace; 0: it was not */
    uint64_t retry_ns,
        pause_ns;   /* dialer: when it dials again, 0: it does; the pause before that */
    uint64_t count; /* how often it was */
    bool failed;    /* fence.c: an operation has ended with an error over the last one */
    bool fences;    /* the same: what is accepted before DOWN is told is behind an operation */
    bool waits; /* the same: it is up, and nothing is sent before the application has been told */
    uint32_t behind;      /* the same: of those that come next from other threads, so many are */
    uint32_t features;    /* of its first connection, and so of all; constant while it is up */
    bool again;           /* of these: large messages are announced again */
    bool another;         /* it has had more connections than one */
    sluice_reason reason; /* of the loss */
    uint32_t vendor;
    bool listed,
        coming;     /* resumable.c, under its lock: it can be found; a connection comes for it */
    uint8_t id[16]; /* the same */
    struct session *next; /* the same */
};

/* Fields that other threads write for the loop. Any thread; next to the reference, which they write too. */
struct session_foreign {
    _Atomic uint64_t bytes;        /* accepted from them and without outcome */
    _Atomic uint32_t waits;        /* WAIT_WINDOW ... of them, since the loop looked */
    _Atomic uint64_t memory_seen;  /* of WAIT_MEMORY, see alloc_wait.c */
    _Atomic uint64_t hangup_grace; /* smallest asked for since the loop looked */
};

struct session {
    /* Every message, in either direction, reads this line. The publisher sets loop and id, not make_session(). */
    _Atomic(struct sluice_loop *) loop; /* NULL while the slot is free */
    _Atomic uint64_t id;                /* the handle */
    uint8_t state;                      /* enum session_state */
    bool dirty;
    uint16_t framed_end; /* plain messages of fewer bytes may be framed (framed.h) */
    uint16_t tokens;     /* and so many of them; 0: what is in the way must be looked at first */
    uint8_t plain_rx; /* SESSION_RX_...: what is in the way of a plain message (receive_plain.h) */
    sluice_handler handler;
    void *arg;
    struct connection *connection; /* session_connection(); its own loop writes it */
    struct session_window window;  /* its limits begin another line */

    struct session_tx tx;
    struct session_rx rx;
    struct pool *pool;
    void *handler_arg;

    /* Any thread writes this line. */
    session_ref ref __attribute__((aligned(64)));
    struct session_foreign foreign;
    _Atomic(struct sluice_loop *) mail; /* session_mail() */

    /* Life: the loop's lists, and what the application was told. */
    uint32_t slot __attribute__((aligned(64))); /* constant */
    struct session *dirty_next;
    struct session *notice_next;
    struct session *next, **link; /* the loop's list */
    struct session *dying_next;
    struct sluice_node *node;
    struct pool *rx_pool;
    uint64_t host_id;       /* a guest (datapath/session/guest.h): the handle of its host; else 0 */
    _Atomic bool has_guest; /* from before there is one until after its end */
    _Atomic bool let_go;    /* a guest: its host has done with it */
    _Atomic(struct sluice_loop *) wanted; /* listener: that its next guest is to be on; or NULL */
    uint64_t dial_end_ns; /* dialer: it is to be up by then; UINT64_MAX: at any time */
    uint32_t outcomes;    /* that wait to be delivered */
    uint8_t notices;
    bool waits_memory;
    bool over;  /* CLOSED was delivered: free as soon as no thread is inside */
    bool known; /* the application has its handle */
    bool noticed, attached, adopted, announced, retry;
    struct session_close close;
    struct session_rpc rpc;
    struct session_landing landing;
    struct session_resume resume;
    struct session_move move;
    struct rndv *rndv; /* rndv.c: large messages in both directions; NULL until it is needed */
    _Atomic uint32_t shown_waits; /* WAIT_WINDOW ...: of EAGAIN whose event is not noticed yet */
    _Atomic bool reads, atomics;  /* one_sided.c: it could do them when it was up last */
    struct mpsc_queue_item to_loop[LOOP_MSG_SESSION_COUNT];

    struct link_config link_config;
    sluice_peer peer;
    struct { /* for sluice_session_get_info(): under the node's lock */
        uint64_t message_bytes_max;
        uint32_t eager_bytes, credits;
        uint32_t close_code;
        char close_text[124];
        uint32_t key_id, tries;
        uint64_t keepalive_ns;
        int32_t cm_event, cm_status, wc_status;
        uint32_t shared, transport;
        uint64_t resumed, down_ns_total, moved;
        uint32_t up;
    } info;
} __attribute__((aligned(64)));

#define SESSION_LINE(member) (offsetof(struct session, member) / 64)
_Static_assert(offsetof(struct session, window.bytes) == 64,
               "a message finds all it needs of the session in one line");
_Static_assert(offsetof(struct session, ref) % 64 == 0 &&
                   SESSION_LINE(foreign.hangup_grace) == SESSION_LINE(ref) &&
                   SESSION_LINE(slot) > SESSION_LINE(ref),
               "what other threads write shares no line with what the loop writes");

/* What it sends and receives over now. Its own loop. */
static inline struct connection *session_connection(const struct session *s) {
    return s->connection;
}

/* session_connection() for a thread that has pinned it: it may be an earlier one soon. */
static inline struct connection *session_connection_seen(const struct session *s) {
    return __atomic_load_n(&s->connection, __ATOMIC_RELAXED);
}

/* session.plain_rx */
enum {
    SESSION_RX_ANY,   /* it must be looked at */
    SESSION_RX_PLAIN, /* nothing is */
    SESSION_RX_ACKS,  /* nothing but that it is to be acknowledged */
};

/* Its own loop, and who makes or ends it. */
static inline void session_set_connection(struct session *s, struct connection *c) {
    __atomic_store_n(&s->connection, c, __ATOMIC_RELAXED);
}

/* Whose mailbox gets what is for it: the loop that owns it, or is about to. The caller has pinned it. */
static inline struct sluice_loop *session_mail(const struct session *s) {
    return atomic_load_explicit(&s->mail, memory_order_relaxed);
}

/* No loop waits for its next guest any more. Whose it was may be closed from now on. */
static inline struct sluice_loop *session_unwant(struct session *s) {
    return atomic_exchange(&s->wanted, NULL);
}

/* False: another one is wanted already. */
static inline bool session_want(struct session *s, struct sluice_loop *to) {
    struct sluice_loop *none = NULL;
    return atomic_compare_exchange_strong(&s->wanted, &none, to);
}

/* The loop whose thread works on it is its own, or is about to be (hand_over.c). */
static inline void session_assert_mine(const struct session *s, const struct sluice_loop *l) {
    const struct sluice_loop *owner = atomic_load_explicit(&s->loop, memory_order_relaxed);
    ASSERT(owner == l || (!owner && session_mail(s) == l));
    (void)s, (void)l;
}

/* What is sent is accepted. */
static inline bool session_accepts(const struct session *s) {
    return s->state == SESSION_UP || (s->state == SESSION_DOWN && s->resume.hangup_ns == 0);
}

/* A message of another thread comes while it is down: it may have been given before the loss (fence.c). */
static inline void session_mark_behind(struct session *s, struct sluice_msg *msg) {
    if (s->resume.behind == 0)
        return;
    s->resume.behind--;
    msg->flags |= MSG_BEHIND;
}

/* It is about to have a connection: its first one, or another one. */
static inline bool session_opens(const struct session *s) {
    return s->state == SESSION_OPENING || s->state == SESSION_DOWN;
}

/* From now on something has to be looked at before a plain message is sent, and when one arrives. */
static inline void session_disturb(struct session *s) {
    s->tokens = 0;
    s->plain_rx = SESSION_RX_ANY;
}

/* From here on no frame of its peer is delivered. */
static inline void session_stop(struct session *s) {
    s->rx.stopped = true;
    session_disturb(s);
}

/* Large messages wait for credits or for room in the send queue. */
static inline void session_block(struct session *s) {
    session_connection(s)->sq.blocked |= SQ_WAITS;
    session_disturb(s);
}

/* Nothing is in the way of a plain message that arrives, but that it may have to be acknowledged. */
static inline bool session_receives_plain(const struct session *s) {
    const struct connection *c = session_connection(s);
    return s->state == SESSION_UP && s->announced && !s->rx.stopped && !s->rx.held.head &&
           !c->handshake && !s->tx.queue.head && !c->credits.returned && !s->rpc.cancels &&
           (c->sq.blocked & ~SQ_ACKS) == 0;
}

/* One step of its life: the states that may follow each are in the table. */
static inline void session_set_state(struct session *s, enum session_state state) {
    static const uint16_t next[] = {
        [SESSION_FREE] = 1u << SESSION_OPENING,
        [SESSION_OPENING] = 1u << SESSION_UP | 1u << SESSION_LEAVING | 1u << SESSION_RELEASED,
        [SESSION_DOWN] = 1u << SESSION_UP | 1u << SESSION_RELEASED,
        [SESSION_UP] = 1u << SESSION_FLUSHING | 1u << SESSION_RELEASED | 1u << SESSION_DOWN,
        [SESSION_FLUSHING] = 1u << SESSION_LEAVING | 1u << SESSION_RELEASED | 1u << SESSION_DOWN,
        [SESSION_LEAVING] = 1u << SESSION_RELEASED,
        [SESSION_RELEASED] = 1u << SESSION_DRAINING | 1u << SESSION_DRAINED,
        [SESSION_DRAINING] = 1u << SESSION_DRAINED,
        [SESSION_DRAINED] = 1u << SESSION_GONE,
        [SESSION_GONE] = 1u << SESSION_FREE,
    };
    ASSERT(next[s->state] >> state & 1);
    (void)next;
    s->state = (uint8_t)state;
    session_disturb(s);
}

/* Records the limit of an EAGAIN for sluice_session_get_info(); off the steady path of a message. */
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

static inline struct connection *connection_of_conn(struct cm_conn *conn) {
    return (struct connection *)(void *)((char *)conn - offsetof(struct connection, cm));
}

/* The CM thread may read it at the moment of connection_set_session(): either of the two lives until it has taken what follows. */
static inline struct session *session_of_conn(struct cm_conn *conn) {
    return __atomic_load_n(&connection_of_conn(conn)->session, __ATOMIC_RELAXED);
}

/* Its loop, which is also that of both sessions. */
static inline void connection_set_session(struct connection *c, struct session *s) {
    __atomic_store_n(&c->session, s, __ATOMIC_RELAXED);
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

/* The session's frames are kept until the peer has acknowledged them. */
static inline bool connection_keeps(const struct connection *c) {
    return c->sq.follow & SQ_ACKS;
}

/* One that is or was the device's, of which there may be completions. */
static inline bool connection_has_qp(const struct connection *c) {
    return c->qp || c->drain.ended;
}

static inline bool connection_takes_receives(const struct connection *c) {
    return c->qp && c->session->state < SESSION_DRAINING;
}

#endif
