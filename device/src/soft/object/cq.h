/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq.h - completion queues: arming and firing, and the ring of completions that could not go straight to a poller.
 *
 * Owner: the poll lock for the list of QPs, the ring lock for the ring; the armed word is atomic.
 */
#ifndef SOFT_OBJECT_CQ_H
#define SOFT_OBJECT_CQ_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"

struct soft_arrivals;
struct soft_line_group;
struct soft_qp;
struct soft_reader;
struct soft_tcp_set;

#define SOFT_MAX_CQE (1 << 20)

/* The memory of the receive's lkey that a poller met last; soft_mr_epoch tells whether the lkey is still valid. */
struct soft_reach {
    const struct ibv_pd *pd;
    uint32_t lkey, epoch;
    uint64_t start, bytes;
    int64_t shift;
    bool guarded; /* the program's own memory, which it may unmap */
};

/*
 * One QP of a CQ, and where its next message will be seen. With many QPs a poller mostly looks only there,
 * so that it needs none of the QP's own lines; a wrong place is corrected when the poller looks at the whole
 * QP.
 */
struct soft_polled {
    struct soft_qp *qp;
    const _Atomic uint32_t *seq;
    uint32_t want;
};

#define SOFT_OWING 256u

/* How a CQ is armed: one of the former two, and whether the thread sleeps on bells as well, which the page counts. */
enum { SOFT_ARMED_ANY = 1, SOFT_ARMED_SOLICITED = 2, SOFT_ARMED_WITH_BELLS = 4 };

struct soft_cq {
    union {
        struct ibv_cq ibv;
        struct ibv_cq_ex ibv_ex; /* made as one: begins the same */
    };
    uint8_t zero[64];
    uint32_t generation;
    uint32_t shm_index;
    soft_spin poll_lock;
    _Atomic uint32_t armed;     /* 0: it is not; SOFT_ARMED_ANY ... */
    bool any_order;             /* constant: completions need not be in the order of rc/order.h */
    _Atomic bool dead;          /* overrun: nothing goes in any more, its QPs go to ERR */
    struct soft_polled *polled; /* QPs that complete here; under poll_lock */
    unsigned look_next;         /* of many: where the next poll begins to look at them as a whole */
    unsigned qp_count, qp_capacity, hot_count,
        cold_next; /* from hot_count on: cold, or listened to */
    _Atomic unsigned
        idle_polls; /* since cold ones were looked for last; poll_lock, read by others as well */
    bool filled;    /* the last poll; crowd: those that it left have their turn first */
    unsigned first; /* where the next poll begins: not 0 behind a QP that filled the last one */
    struct soft_arrivals *arrivals;  /* cq_arrivals.h: the QPs that are listened to; poll_lock */
    const _Atomic uint64_t **boards; /* where, by line */
    unsigned arrival_lines, arrival_capacity, arrival_next;
    struct soft_line_group *line_groups; /* cq_lines.h */
    uint64_t *lines_due;                 /* a bit each */
    unsigned line_group_count, line_turn;
    unsigned arrival_count; /* QPs that are listened to, or put aside: the last ones of polled[] */
    _Atomic bool
        attended; /* some QP needs attention, or has sends that wait for room; of verbs/notify.c */
    _Atomic uint32_t
        watch_round; /* armed while it listened to many: the tick that looks at all; rc/qp_timer.c */
    _Atomic bool called;  /* some QP needs attention: all are looked at soon */
    unsigned sweep;       /* how many are left of these */
    unsigned lulls;       /* polls in a row in which none of them had anything */
    unsigned owing_count; /* how many were noted since it was looked at, the last in */
    bool owing_lost,
        owing_known;            /* some were forgotten; none since the last round of looks began */
    unsigned unlooked;          /* polls since some of the cold ones were looked at, */
    unsigned cold_polls;        /* since this round of looks began, */
    unsigned round_polls;       /* and in the last one */
    uint32_t owing[SOFT_OWING]; /* places of those that gave messages: their peers may not know */
    struct soft_qp *_Atomic warm; /* cold QPs with newly posted sends */
    unsigned fetched;             /* events handed out; under the channel's lock */
    struct soft_reach reach;      /* poll_lock */
    /* completions that could not go straight to a poller */
    soft_spin ring_lock __attribute__((aligned(64)));
    _Atomic uint32_t ring_count;
    uint32_t ring_head;
    uint32_t ring_capacity; /* only grows */
    _Atomic uint32_t limit; /* what the application asked for; at most the capacity */
    _Atomic bool untold;    /* the ring has some for which nothing fired */
    struct ibv_wc *ring;
    struct soft_reader *reader;           /* an extended one's; cq_ex.c */
    struct soft_tcp_set *_Atomic tcp_set; /* iwarp/cq_set.h; NULL: it has had no socket */
    _Atomic unsigned tcp_looks;           /* poll_lock, read by others as well */
    _Atomic unsigned tcp_arms;            /* how often it was armed; poll_lock, read by others */
    _Atomic bool tcp_crowd;               /* more than a few sockets: the set stands for all */
    _Atomic bool sockets_hot;             /* some of the hot part may be put aside */
    struct soft_qp *tcp_due[64];          /* of a crowd: they have something to read; poll_lock */
    unsigned tcp_due_next, tcp_due_count;
    _Atomic bool asleep;      /* a thread sleeps on these sockets itself; cq_sleep.c */
    _Atomic bool unfinished;  /* a poller's turn ended by its limit: soft_sleep_unfinished() */
    bool on_bells;            /* the next arming is with bells; poll_lock */
    bool shares_word;         /* another CQ has the same armed word; constant */
    _Atomic bool wants_bells; /* rc/cq_bell.h: threads sleep on it */
    _Atomic int bell_set;     /* the descriptor and 1; 0: none */
    _Atomic unsigned bells;   /* in it */
};

#define soft_cq_of(p) ((struct soft_cq *)(p))

/* poll_lock. Peers get their acknowledgements when all QPs are looked at. */
static inline void soft_cq_owing_lost(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    cq->owing_lost = true;
    cq->owing_known = false;
}

bool soft_cq_push(struct soft_cq *cq, const struct ibv_wc *wc, bool solicited); /* false: full */
void soft_cq_signal(struct soft_cq *cq, bool solicited);
bool soft_cq_disarm(struct soft_cq *cq);   /* whether it was armed */
uint32_t soft_armed_count(uint32_t armed); /* what one armed so is in the page's word */
/* Its word on the page: one that no other CQ has, if there is one. Any thread. */
void soft_cq_take_word(struct soft_cq *cq);
void soft_cq_give_word(const struct soft_cq *cq);
void soft_cq_words_forked(void);
void soft_cq_overrun(struct soft_cq *cq);
void soft_cq_purge(struct soft_cq *cq, uint32_t qp_num); /* its completions go out of the ring */
int soft_cq_pop(struct soft_cq *cq, struct ibv_wc *wc, int ne); /* out of its ring; -1: not now */

/*
 * A lock that a poller needs and another thread has: waits 50 us. If it has it still, it may have lost its
 * CPU, for a time slice: false, the poll takes nothing and the next one tries again. Only an armed CQ is waited for
 * until the lock is free, as its owner sleeps if it is told that there is nothing.
 */
bool soft_cq_wait(struct soft_cq *cq, soft_spin *lock);

static inline bool soft_cq_lock(struct soft_cq *cq, soft_spin *lock) {
    return __builtin_expect(spin_try(lock), 1) || soft_cq_wait(cq, lock);
}

#endif
