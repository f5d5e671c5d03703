/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stuck.h - finds threads in the way of closing: threads of the application that are inside of a handler, of the log or
 * of a call, and do not return.
 *
 * A thread counts as stuck after several looks in a row found a thread inside and no progress in
 * between. Looks are counted and not time, so that no thread counts as stuck because the machine stood still. A loop is
 * inside while it calls the application. What it does by itself may take long; only before it first moves can that not be told
 * from a call, so the first look is made at the beginning of the close.
 *
 * Owner: the caller of sluice_close(); the closing thread has looks of its own. What they read is atomic, and the
 * loops are there: n->lock.
 */
#ifndef NODE_STUCK_H
#define NODE_STUCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "node/node.h"

#define STUCK_LOOK_NS 20000000ull /* between two looks, at least */
#define STUCK_LOOKS 25u           /* so often nothing moved: half a second */

struct stuck_place {
    const void *of; /* a loop's place: that loop */
    uint32_t moves; /* at the last look */
    uint32_t looks; /* in a row that found a thread inside and no moves */
    bool watched;   /* a loop is: */
    uint32_t first; /* its moves then; what has moved since shows its calls */
    uint32_t last;  /* its call, or the log's rests, when there were to be no more */
};

struct stuck_news {
    bool workers[WORKERS_MAX]; /* a handler of these */
    bool polls;                /* one in a thread's sluice_poll() */
    bool nobody;
    uint32_t calls, sessions;
};

struct stuck {
    struct sluice_node *n;
    _Atomic bool calls_over; /* the closing thread: no thread is inside of a call any more */
    struct stuck_place loops[STATS_LOOPS_MAX], calls, log;
    struct stuck_news news;
    _Atomic bool telling; /* a thread says what there is: the node and this stay meanwhile */
};

/* Looks, and wakes the loops: a thread that sleeps makes another turn; a stuck one does not. */
void stuck_look(struct stuck *s);
/* True: some thread is in the way. */
bool stuck_any(const struct stuck *s);
/* No handler, nor key_lookup, is called from now on; those that are running go on. */
void stuck_forbid_calls(struct stuck *s);
/* They have returned, but for those that are stuck. */
bool stuck_calls_over(const struct stuck *s);
/* The log is not called from now on; whether its calls have returned, but for stuck ones. */
void stuck_forbid_log(struct stuck *s);
bool stuck_log_over(const struct stuck *s);
/*
 * Logs which threads are stuck, and what stays. On a thread of its own, as the log may not return: it may need a lock
 * that a stuck thread holds. If a thread is stuck in the log nothing is logged.
 */
void stuck_tell(struct stuck *s);

#endif
