/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * loop.h - one progress engine: a CQ, the sessions on it, and the one thread that may touch them.
 *
 * One code serves a library worker (its thread runs iteration after iteration) and an application's loop
 * (sluice_poll() runs them). One iteration, or turn, is one loop_progress(): it takes messages from the mailbox, polls
 * the CQ, delivers events, posts what is queued and returns how much it found. Events go to the session's handler or
 * into the caller's array; nothing is buffered in between: what does not fit into the array stays where
 * it came from (completions not looked at, outcomes, notices) until the next poll.
 *
 * Owner. A loop belongs to the thread whose token is in `owner`. A thread becomes the owner by
 * polling; sluice_close() takes a loop that no thread polls. The owner marks itself busy with plain
 * stores around whatever it does; a thread that takes over writes `owner`, makes every CPU of the process
 * pass a memory barrier (membarrier), and waits until no thread is busy. The owner, after it marked
 * itself busy, looks at `owner` again: one of the two sees the other, and the owner pays no fence.
 * Without membarrier both sides use a real fence.
 *
 * When a device is removed every holder must close its objects, whether the application polls or not. So
 * the CM thread takes the loops that no thread is inside of, for single turns (loop_assist). A thread that
 * wants to poll at that moment waits for the turn's end; its call does not report that.
 *
 * Structs of loops are never freed, so a thread that wakes a loop that was just closed touches
 * memory of a loop and nothing else.
 */
#ifndef DATAPATH_LOOP_LOOP_H
#define DATAPATH_LOOP_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <sluice/sluice.h>

#include "common/assert.h"
#include "base/barrier.h"
#include "base/epoll_source.h"
#include "base/stats.h"
#include "common/uncancelled.h"
#include "core/forked.h"
#include "core/mailbox.h"
#include "core/session.h"
#include "core/session_table.h"
#include "fabric/fast.h"

#define LOOP_WC_BATCH 32   /* completions polled at once */
#define LOOP_WR_BATCH 16   /* work requests posted at once */
#define LOOP_SGES 17u      /* of one of them, made of pieces: a header, and SLUICE_PIECES_MAX */
#define LOOP_LOANS_MAX 256 /* messages lent at once, and so events of one poll */
#define LOOP_MSGS_MAX 256  /* messages taken in one turn */
#define LOOP_WAKE_EVENT 1u /* sluice_wake() was called */
#define LOOP_WAKE_ALLOC_WAIT 2u /* there is something to do in `alloc_wait` */
#define LOOP_WAIT_SPIN_NS 50000u
#define LOOP_SHORT_SLEEP_NS 20000u /* a sleep that was not worth it */
#define LOOP_RATE_NS 1000000000ull /* over how long traffic is measured, at least */
#define LOOP_STALL_NS 1000000u     /* at work for longer without a look around: a stall */

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Plain totals, written to the node's statistics page now and then. */
struct loop_totals {
#define STATS_X(name, text) uint64_t name;
    STATS_LOOP_LIST(STATS_X)
#undef STATS_X
};

/* While the node is being closed: why events go nowhere, and that calls of the application are counted. */
#define LOOP_REVOKED 1u  /* the closing thread runs it */
#define LOOP_GIVEN_UP 2u /* sluice_close() returns, and a thread may still be inside */
#define LOOP_NOWHERE (LOOP_REVOKED | LOOP_GIVEN_UP)
#define LOOP_WATCHED 4u

enum loop_loan_end {
    LOAN_OUT,      /* it comes back */
    LOAN_RETAINED, /* the application made it its own */
    LOAN_REPLACED, /* it was sent on; msg is another buffer in its place */
    LOAN_PASSED,   /* it was sent on, and nothing takes its place */
};

struct loop_loan { /* a message in the application's hands until it returns or polls again */
    struct sluice_msg *msg;
    struct connection *conn;  /* that it came by */
    uint8_t what;             /* enum loop_loan_end; of one that is OUT the rest is not written */
    uint16_t flags;           /* the message's */
    uint64_t srq_slot;        /* of a shared buffer */
    struct sluice_msg *frame; /* that it lies in, or that goes back with it; or NULL */
};

/* Shared receives of a loop. */
struct loop_srq {
    struct recv_queue queue;
    struct sluice_msg **all; /* every buffer of the queue, wherever it is, at its place */
    uint32_t *free_slots;
    uint32_t free_count, next_slot;
    struct qp_chunk **connections; /* by queue pair number, two times 12 bits */
    bool armed;                    /* SRQ_LOW will come */
    struct mpsc_queue_item low_node;
    _Atomic bool low_posted;
};

struct sluice_loop {
    /* hot */
    _Atomic(const void *) owner;
    _Atomic uint32_t send_busy, poll_busy;
    struct ibv_cq *cq;
    fabric_post_framed *post_framed; /* the fabric's */
    struct pool_cache *cache, *rx_cache;
    struct pool *pool, *rx_pool; /* messages of the application; what is received */
    struct sluice_node *node;
    uint32_t alloc_quick; /* constant: sizes from 1 up to that may be in the magazines of `cache` */
    uint32_t wc_next, wc_count;
    uint32_t wr_batch_max; /* sends posted at once: LOOP_WR_BATCH, or one */
    struct session *dirty, *notices, **notices_tail, *dying;
    struct session *late;      /* ats.c */
    struct cds_list_head acks; /* acks.c: connections that owe an acknowledgement, oldest first */
    struct msg_queue outcomes; /* messages whose SENT event is due */

    sluice_event *out; /* the caller's array */
    uint32_t out_count, out_max;
    uint32_t loan_count;
    _Atomic uint8_t closing; /* LOOP_REVOKED ... */
    bool defer_events;       /* being cared for: events wait for the thread that polls */
    bool lost;               /* the device is gone: once no QP is left, so is the CQ */
    bool unheard;            /* the same, and its listeners may have to be told of */
    bool totals_moved;       /* since they were published */
    bool flushes_twice;      /* constant: the device does (fabric.h) */
    bool unpacking;          /* the message being delivered is not the last of its frame */
    uint8_t uncancelled;     /* loop_uncancelled(): 0, or 1 more than the thread's state before */
    bool mixed;       /* the last poll had completions of many sessions that share receives */
    bool worked;      /* a turn found something since span_ns */
    uint32_t handled; /* handlers called since the poll began */
    uint64_t now_ns;  /* last time read */
    uint64_t span_ns; /* see loop_span(); 0: no span begun */
    uint64_t next_deadline_ns;
    uint64_t credits_check_ns; /* the same of credits.c */
    uint64_t acks_check_ns;    /* and of acks.c */
    uint64_t
        keepalive_check_ns; /* of keepalive.c: the next look at the sessions; UINT64_MAX: none */
    uint32_t lasts; /* queue pairs of which was heard that they take no more shared receives */
    bool crowded;   /* events other than messages found no room: they come first in the next turn */
    bool slow_progress; /* so slow that every turn looks at the clock */
    bool poll_once;     /* this poll may be the only turn for a long time */
    uint32_t retries;   /* sessions that wait for memory */
    uint32_t pin_waits; /* sessions whose end waits for a thread inside of a call */
    uint32_t downs;     /* sessions whose connection is down, and that still look for data */
    uint32_t leaving, arriving; /* sessions on their way to another loop, or to this: hand_over.c */
    uint32_t retired;           /* connections that are drained, and not freed yet */
    uint32_t settling;          /* sessions whose queue pair is done with the shared receives */
    uint32_t polls;             /* of the CQ */
    bool wc_short;              /* the last of them left nothing there */
    uint8_t wc_max, recv_max;   /* completions polled, receives posted at once */
    _Atomic uint32_t progress_count; /* written by the thread that runs it */
    _Atomic uint32_t drained_count;  /* the same: connections that are done with the device */
    _Atomic uint32_t calls; /* likewise: begun and ended, see loop_call_begin(); odd: inside */

    uint64_t framed, framed_bytes; /* messages framed.h sent since they were added to the totals */

    struct loop_srq srq;
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    struct loop_totals totals;

    struct ibv_wc wc[LOOP_WC_BATCH];
    struct ibv_send_wr send_wr[LOOP_WR_BATCH];
    struct ibv_sge send_sge[LOOP_WR_BATCH][2];
    struct ibv_recv_wr recv_wr[LOOP_WR_BATCH];
    struct ibv_sge recv_sge[LOOP_WR_BATCH];
    struct loop_loan loans[LOOP_LOANS_MAX + 1]; /* one more for a handler's */

    /* idling */
    _Atomic uint8_t idle; /* sluice_idle, never DEFAULT; any thread writes it */
    bool cq_armed, fd_used;
    bool alone;   /* the process has one CPU: spinning takes it from the thread we wait for */
    bool traffic; /* messages went or came since it slept last: worth spinning for more */
    uint32_t spins;
    uint32_t unyielded;   /* alone: empty turns since the last yield */
    uint32_t yield_after; /* and so many before the next */
    uint64_t idle_since_ns;

    /* keepalive.c */
    uint64_t keepalive_step_ns; /* between two looks */
    uint64_t caught_ns;         /* what had arrived by then was taken from the CQ */
    uint64_t mark_ns, mark;     /* that will hold of mark_ns after so many completions */
    uint64_t stride_ns;         /* when the last 64 turns began */
    uint64_t keepalive_checks, keepalive_visits; /* so far; for tests */

    /* life */
    struct session *sessions;
    _Atomic uint32_t assigned; /* sessions and listeners that name this loop */
    _Atomic uint32_t listed;   /* listeners among them */
    uint64_t
        placed; /* when it got a session last, in sessions: under the lock of worker_select.c */
    /* traffic: sampled by the owner when it publishes, read by the thread that assigns a session */
    uint64_t sample_ns, sample_bytes;
    _Atomic uint64_t rate, rate_ns; /* bytes a second, and when that was found */
    struct ibv_comp_channel *channel;
    struct event_source source;     /* the channel in epoll_fd */
    int epoll_fd, timer_fd;         /* timer: only once the application asked for the descriptor */
    int sleep_fd[FABRIC_SLEEP_FDS]; /* the device's, in epoll_fd: fabric_sleep_begin(); or -1 */
    bool slept_short;               /* the last sleep: wait.c */
    struct ibv_cq *slept_on; /* which the device was told that the thread sleeps on; else NULL */
    int cq_size;
    uint32_t cq_used,
        cq_shares;  /* cq_share.h: entries that are set aside; connections that have some */
    uint32_t index; /* in the node and in its statistics page */
    int cpu;
    struct stats_loop *stats;
    struct sluice_loop *next; /* free list */

    struct ibv_sge iov_sge[LOOP_WR_BATCH][LOOP_SGES]; /* instead of send_sge: of iov.c */

    struct mpsc_queue_item device_lost_node;

    /* any thread */
    _Atomic uint32_t wake /* LOOP_WAKE_... */ __attribute__((aligned(64)));
    _Atomic uint32_t alloc_wait; /* ALLOC_WAIT_ARMED ... of alloc_wait.h */
    _Atomic uint32_t assist;     /* odd: the CM thread is in it, or tries to */
    struct mailbox mailbox;
#if ASSERTIONS
    const void *_Atomic
        inside; /* the token of the thread that is in it, as loop_enter() and so on know it */
#endif
};

/* ---- ownership ------------------------------------------------------------------------------- */

struct loop_thread {
    struct sluice_loop *current; /* the loop this thread polled last */
    uint64_t handle;             /* of the session it sent to last, whose slot that is */
    struct session *session;
};
extern __thread struct loop_thread loop_thread __attribute__((tls_model("initial-exec")));
extern const char loop_revoked; /* its address is the token of a loop that is closed or being so */

static inline const void *loop_this_thread(void) {
    return &loop_thread;
}

static inline bool loop_is_owned(struct sluice_loop *l) {
    return atomic_load_explicit(&l->owner, memory_order_relaxed) == loop_this_thread();
}

/* The calling thread comes in, or goes; what other threads are asserted not to be. */
static inline void loop_note_inside(struct sluice_loop *l, bool inside) {
#if ASSERTIONS
    atomic_store(&l->inside, inside ? loop_this_thread() : NULL);
#else
    (void)l, (void)inside;
#endif
}

/*
 * No other thread is inside. A thread that calls from outside of every poll owns the loop, or has revoked it, or has
 * just made it.
 */
static inline void loop_assert_inside(struct sluice_loop *l) {
#if ASSERTIONS
    const void *inside = atomic_load(&l->inside);
    ASSERT(!inside || inside == loop_this_thread());
#else
    (void)l;
#endif
}

/* Whether events go nowhere. */
static inline unsigned loop_discards(const struct sluice_loop *l) {
    return atomic_load_explicit(&l->closing, memory_order_relaxed) & LOOP_NOWHERE;
}

static inline bool loop_is_closing(const struct sluice_loop *l) {
    return atomic_load_explicit(&l->closing, memory_order_relaxed) != 0;
}

/*
 * Around a call of the application that is none of the steady path, and around every one while the node is being
 * closed. False: for one of these reasons the call is not made any more. Either this sees GIVEN_UP, or the thread that
 * sets it sees that the call is being made.
 */
static inline bool loop_call_begin(struct sluice_loop *l, unsigned reasons) {
    atomic_fetch_add(&l->calls, 1);
    if (!(atomic_load(&l->closing) & reasons))
        return true;
    atomic_fetch_add(&l->calls, 1);
    return false;
}

static inline void loop_call_end(struct sluice_loop *l) {
    atomic_fetch_add(&l->calls, 1);
}

/*
 * Taken for good. A thread that is inside asks this and not whether the loop is its own: a thread that tries
 * to take the loop over is in `owner` for a moment, before it finds another thread inside.
 */
static inline bool loop_is_revoked(struct sluice_loop *l) {
    return atomic_load_explicit(&l->owner, memory_order_relaxed) == &loop_revoked;
}

/* True when the calling thread owns the loop and is now busy with it; loop_leave() must follow. */
static inline bool loop_enter(struct sluice_loop *l, bool *nested) {
    if (!loop_is_owned(l))
        return false;
    *nested = atomic_load_explicit(&l->poll_busy, memory_order_relaxed) != 0;
    if (*nested) /* in a handler: this thread's own poll is the busy one */
        return true;
    atomic_store_explicit(&l->send_busy, 1, memory_order_relaxed);
    barrier_here(); /* see the head of this file */
    if (likely(loop_is_owned(l))) {
        loop_note_inside(l, true);
        return true;
    }
    atomic_store_explicit(&l->send_busy, 0, memory_order_release);
    return false;
}

static inline void loop_leave(struct sluice_loop *l, bool nested) {
    if (!nested) {
        loop_note_inside(l, false);
        atomic_store_explicit(&l->send_busy, 0, memory_order_release);
    }
}

static inline bool loop_mark_polling(struct sluice_loop *l) {
    atomic_store_explicit(&l->poll_busy, 1, memory_order_relaxed);
    barrier_here();
    if (likely(loop_is_owned(l))) {
        loop_note_inside(l, true);
        return true;
    }
    atomic_store_explicit(&l->poll_busy, 0, memory_order_release);
    return false;
}

int loop_acquire_slow(struct sluice_loop *l);

/* For what only the session's own thread may do, that of `*l`. 0: loop_leave() must follow; ECLOSED; EINVAL: it is another thread's. */
int loop_enter_session(struct session *s, uint64_t id, struct sluice_loop **l, bool *nested);

/* Makes the calling thread the owner, polling. 0, ECLOSED, or EINVAL: polled elsewhere. */
static inline int loop_acquire(struct sluice_loop *l) {
    if (unlikely(!loop_is_owned(l) || atomic_load_explicit(&l->poll_busy, memory_order_relaxed)))
        return loop_acquire_slow(l);
    loop_thread.current = l;
    return likely(loop_mark_polling(l)) ? SLUICE_OK : loop_acquire_slow(l);
}

/*
 * The thread that polls: it is not cancelled before loop_unmark_polling(). Once something takes more than messages do; before
 * the first handler, so that a handler is never left halfway.
 */
static inline void loop_uncancelled(struct sluice_loop *l) {
    loop_assert_inside(l);
    if (l->uncancelled == 0)
        l->uncancelled = (uint8_t)(1 + uncancelled_begin());
}

/* Before a handler is called. */
static inline void loop_handled(struct sluice_loop *l) {
    l->handled++;
    loop_uncancelled(l);
}

/* After loop_uncancelled(): what the thread's state was before. */
static inline int loop_cancel_state(const struct sluice_loop *l) {
    return l->uncancelled - 1;
}

void loop_unmark_uncancelled(struct sluice_loop *l);

/* No longer polling; still the owner. */
static inline void loop_unmark_polling(struct sluice_loop *l) {
    loop_note_inside(l, false);
    if (unlikely(l->uncancelled != 0)) {
        loop_unmark_uncancelled(l);
        return;
    }
    atomic_store_explicit(&l->poll_busy, 0, memory_order_release);
}

/*
 * For the closing thread: takes loops for good. It calls _begin for each, then barrier_everywhere(), once for all of
 * them; a loop is taken when _done says so: its owner is out of every call. Until then _done wakes a poller that
 * sleeps, which finds the loop taken; it waits for one in a handler.
 */
void loop_revoke_begin(struct sluice_loop *l);
bool loop_revoke_done(struct sluice_loop *l);
/* All of it, of one loop, waiting. */
void loop_revoke(struct sluice_loop *l);

/*
 * For the CM thread, when the device is gone: runs the loop for a moment in place of a thread that
 * does not poll. No event is delivered: what there is to tell waits for the next poll. Does nothing
 * if a thread is inside. n->assist_lock is held, so that the loop is not closed meanwhile.
 */
void loop_assist(struct sluice_loop *l);

/* ---- life ------------------------------------------------------------------------------------ */

/* 0 or a negative status with *e filled in. */
int loop_open(struct sluice_loop **out, struct sluice_node *node, int cpu, sluice_error *e);
/* The CPU of the loop's figures, -1: none of its own. For the thread that opens it, before other threads know it. */
void loop_set_cpu(struct sluice_loop *l, int cpu);
/* Seized or owned by the caller, and without sessions. */
void loop_close(struct sluice_loop *l);
/* The owner, after DEVICE_LOST: gives the CQ back as soon as no session has a QP any more. */
void loop_detach(struct sluice_loop *l);

_Static_assert(LOOP_MSG_COUNT <= WAKEUP_VERBS, "the wakeup carries them");

static inline bool forked_loop(const struct sluice_loop *l) {
    return __builtin_expect(forked_bits() != 0, 0) && l && forked_node(l->node);
}

/* Tells it that the device is gone. Once; the CM thread. */
void loop_device_lost(struct sluice_loop *l);

/* Hands a message of a session to its loop. Any thread. */
static inline void loop_post(struct sluice_loop *l, struct session *s, enum loop_msg verb) {
    mailbox_post(&l->mailbox, &s->to_loop[verb], (uint32_t)verb, s->slot, session_generation(s));
}

/* Hands a message of a connection to its loop. Any thread. */
static inline void loop_post_connection(struct sluice_loop *l, struct connection *c,
                                        enum loop_msg verb) {
    mailbox_post(&l->mailbox, &c->to_loop[verb - LOOP_MSG_SESSION_COUNT], (uint32_t)verb, c->slot,
                 connection_generation(c));
}

/* ---- running: the owner only ----------------------------------------------------------------- */

/* A fork waits until no thread is inside: before it, and on both sides after it. */
void loops_fork(bool begins);
/* A worker's thread: turns until the loop is revoked. */
void loop_run(struct sluice_loop *l);
/* The rest of sluice_poll(), once the loop is claimed. */
int loop_poll(struct sluice_loop *l, sluice_event *events, int max, uint64_t wait_ns);
int loop_fd(struct sluice_loop *l);
void loop_awake(struct sluice_loop *l);            /* as it is when it does not sleep */
int loop_drain_completions(struct sluice_loop *l); /* fetches and acknowledges CQ events; errno */
uint64_t loop_clock(struct sluice_loop *l);        /* reads the clock */
void loop_publish(struct sluice_loop *l);          /* totals to the statistics page */
/* The totals, with what framed.h sent. */
const struct loop_totals *loop_totals(struct sluice_loop *l);
void loop_publish_memory(struct sluice_loop *l); /* and what the pools count */

/*
 * How long a turn takes, without a clock per turn. A span lies between two looks at the clock, at most
 * 64 turns apart, and counts if any of them found something: it is as long as the slowest of these
 * turns, and the others are quick or the loop is overloaded anyway. Handlers count, and so does what a
 * thread that polls does between two polls if there was work for it. Rest does not: a span ends before
 * the loop sleeps and a new one begins when it is awake.
 */
static inline void loop_span_begin(struct sluice_loop *l) { /* the clock has just been read */
    l->span_ns = l->now_ns;
    l->worked = false;
}

static inline void loop_span(struct sluice_loop *l) { /* likewise: ends one and begins the next */
    if (l->worked && l->span_ns != 0 && l->now_ns > l->span_ns) {
        uint64_t took = l->now_ns - l->span_ns;
        if (took > l->totals.longest_busy_ns)
            l->totals.longest_busy_ns = took;
        if (took > LOOP_STALL_NS) {
            l->totals.stalls++;
            l->totals_moved = true;
        }
    }
    loop_span_begin(l);
}

static inline uint8_t loop_idle(const struct sluice_loop *l) {
    return atomic_load_explicit(&l->idle, memory_order_relaxed);
}
/* From any thread and at once: a loop that sleeps is woken. DEFAULT is the node's. The loop is open. */
void loop_set_idle(struct sluice_loop *l, sluice_idle idle);

/* Something is due at this time at the latest. */
static inline void loop_deadline(struct sluice_loop *l, uint64_t due_ns) {
    if (due_ns < l->next_deadline_ns)
        l->next_deadline_ns = due_ns;
}

/* The session has something to post at the end of the turn. */
static inline void loop_dirty(struct sluice_loop *l, struct session *s) {
    session_assert_mine(s, l);
    if (!s->dirty) {
        s->dirty = true;
        s->dirty_next = l->dirty;
        l->dirty = s;
    }
}

/* The session waits for memory: it is looked at again after a pause. True: it did not wait before. */
static inline bool loop_retry(struct sluice_loop *l, struct session *s) {
    session_assert_mine(s, l);
    bool first = !s->retry;
    s->retry = true;
    l->retries += first;
    return first;
}

/* Enters a message among the loans; loan_count is counted by the caller. */
static inline struct loop_loan *loop_loan_begin(struct sluice_loop *l, struct sluice_msg *msg) {
    struct loop_loan *loan = &l->loans[l->loan_count];
    loan->msg = msg;
    loan->conn = msg->owner;
    loan->what = LOAN_OUT;
    msg->state = MSG_LOANED;
    msg->loan.index = l->loan_count;
    return loan;
}

/* Whether an event of this session could be delivered now. */
static inline bool loop_room(const struct sluice_loop *l, const struct session *s) {
    return (s->handler && likely(!l->defer_events)) || loop_discards(l) ||
           (l->out_count < l->out_max && l->loan_count < LOOP_LOANS_MAX);
}

#endif
