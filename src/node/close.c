/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * close.c - closing a node.
 *
 * Sessions get their grace. Then each worker ends its sessions that are left; loops that no thread polls are
 * revoked, and the closing thread runs them and drops their events. When no session is left, every object
 * on the device is destroyed, then the device is closed.
 *
 * The closing thread is one of its own: it waits for threads of the application that are inside of a handler or a
 * call, and those may never return. The caller of sluice_close() does not wait for them for longer than a second
 * after the grace. The log tells it what stays; from then on no handler and no log is called, and when
 * the last of those threads returns the closing thread finishes.
 *
 * Owner: the closing thread; of what stands below "waiting for it", its caller.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "cm/cm.h"
#include "cm/listen.h"
#include "base/aside_thread.h"
#include "base/barrier.h"
#include "common/uncancelled.h"
#include "datapath/loop/upward.h"
#include "datapath/loop/loop.h"
#include "datapath/loop/ownership.h"
#include "core/session_table.h"
#include "node/memory.h"
#include "node/node.h"
#include "node/stuck.h"
#include "node/workers.h"

#define GIVE_UP_NS                                                                                 \
    900000000ull /* behind the grace, when a thread of the application is in the way */
#define TOO_LONG_NS                                                                                \
    15000000000ull /* the same when none is, since a session ended: a device does not flush */
#define TELLING_PAUSE_NS 5000000

#define STEP_NS 1000000u /* between two looks at loops that may need to be revoked */

/* True for a loop that a worker's thread runs. The closing thread runs the others, and all in a test's node. */
static bool is_worker(const sluice_node *n, const struct sluice_loop *l) {
    for (uint32_t w = 0; w < n->worker_count; w++)
        if (l == n->workers[w].loop)
            return !n->manual;
    return false;
}

/* n->lock. Marks every loop of the application that no thread is inside of, or all; returns those not taken yet. */
static uint32_t mark_loops(sluice_node *n, bool all, struct sluice_loop *marked[STATS_LOOPS_MAX]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        struct sluice_loop *l = n->loops[i];
        if (!l || is_worker(n, l) || (loop_discards(l) & LOOP_REVOKED) ||
            (!all && !loop_is_revoked(l) && atomic_load(&l->poll_busy) != 0))
            continue;
        loop_revoke_begin(l);
        marked[count++] = l;
    }
    return count;
}

/*
 * Takes every loop of the application that no thread is inside of, or all of them. None is waited for: a thread that
 * does not return keeps its loop, and not the others. False: there are such.
 */
static bool revoke_loops(sluice_node *n, bool all) {
    struct sluice_loop *marked[STATS_LOOPS_MAX];
    bool done = true;
    pthread_mutex_lock(&n->lock);
    uint32_t count = mark_loops(n, all, marked);
    pthread_mutex_unlock(&n->lock);
    if (count > 0)
        barrier_everywhere();
    for (uint32_t i = 0; i < count; i++) {
        struct sluice_loop *l = marked[i];
        if (!loop_revoke_done(l)) {
            done = false;
            continue;
        }
        atomic_fetch_or(&l->closing, LOOP_REVOKED); /* this thread is the one that runs it now */
        l->out_max = l->out_count = 0;
        event_take_back(l);
    }
    return done;
}

/* Runs what this thread has revoked; returns how much it found. */
static unsigned run_revoked(sluice_node *n) {
    unsigned found = 0;
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        pthread_mutex_lock(&n->lock);
        struct sluice_loop *l = n->loops[i];
        pthread_mutex_unlock(&n->lock);
        if (l && (loop_discards(l) & LOOP_REVOKED))
            found += loop_progress(l);
    }
    if (n->manual)
        found += cm_progress(n->cm, 0);
    return found;
}

static void wait_step(sluice_node *n) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += STEP_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&n->lock);
    if (session_table_used_count(n->index) > 0)
        pthread_cond_timedwait(&n->changed, &n->lock, &until);
    pthread_mutex_unlock(&n->lock);
}

/* The real clock: a test's may stand still. */
static uint64_t real_now(void) {
    return env_now(&env_default);
}

/* Whether a session has come nearer to its end since this was asked before. */
static bool some_ended(sluice_node *n, uint32_t *before) {
    uint32_t steps = 0u - session_table_used_count(n->index), last = *before;
    pthread_mutex_lock(&n->lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        if (n->loops[i])
            steps += atomic_load_explicit(&n->loops[i]->drained_count, memory_order_relaxed);
    pthread_mutex_unlock(&n->lock);
    *before = steps;
    return steps != last;
}

/* For how long sessions may take to end after the grace, as the closing thread sees it. */
struct patience {
    struct stuck stuck; /* its own looks */
    uint64_t look_ns, until_ns, extra_ns;
    uint32_t steps;
};

/*
 * Time counts while no session ends and no thread is in the way: a thread that is keeps its sessions, which end when it is
 * out.
 */
static bool is_patient(struct patience *patience, uint64_t real) {
    bool ended = some_ended(patience->stuck.n, &patience->steps);
    if (real >= patience->look_ns) {
        stuck_look(&patience->stuck);
        patience->look_ns = real + STUCK_LOOK_NS;
    }
    if (ended || stuck_any(&patience->stuck) || patience->until_ns == 0)
        patience->until_ns = real + patience->extra_ns;
    return real < patience->until_ns;
}

static void end_sessions(sluice_node *n, uint64_t grace_ns) {
    uint64_t limit = grace_ns > LINGER_NS ? grace_ns : LINGER_NS;
    uint64_t leave = node_leave_ns(n);
    uint64_t last = grace_ns > leave ? grace_ns : leave; /* of a farewell */
    uint64_t start = real_now(), now = env_now(&n->env);
    uint64_t due = last > UINT64_MAX - 1 - now ? UINT64_MAX - 1 : now + last;
    uint64_t revoke_all = limit > UINT64_MAX / 2 - start ? UINT64_MAX : start + limit;
    struct patience patience = {.stuck = {.n = n, .calls_over = true},
                                .extra_ns = leave + CLOSE_EXTRA_NS - LEAVE_NS};
    stuck_look(&patience.stuck);
    atomic_store(&n->close_deadline_ns, due);
    while (session_table_used_count(n->index) > 0) {
        uint64_t real = real_now();
        /* Again and again: a request that was being decided becomes a session only now. */
        node_hangup_all(n, grace_ns);
        revoke_loops(n, real >= revoke_all);
        if (real >= revoke_all && !is_patient(&patience, real)) {
            log_write(&n->log, SLUICE_LOG_ERROR, "%u sessions did not end; given up",
                      session_table_used_count(n->index));
            break;
        }
        if (run_revoked(n) == 0)
            wait_step(n);
    }
    const struct timespec step = {.tv_nsec = STEP_NS};
    while (!revoke_loops(n, true))
        nanosleep(&step, NULL);
}

static void close_loops(sluice_node *n) {
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        struct sluice_loop *l = n->loops[i];
        if (l)
            loop_close(l);
    }
}

/* From a handler the thread to be joined would be the caller's own. */
static bool in_handler(const sluice_node *n) {
    struct sluice_loop *l = loop_thread.current;
    bool nested = false;
    if (!l || l->node != n || !loop_enter(l, &nested))
        return false;
    loop_leave(l, nested);
    return nested;
}

/* What sessions held for messages came back, but for those that the application has, and no session is a peer's. */
static void assert_landed(const sluice_node *n) {
    if (!ASSERTIONS || session_table_used_count(n->index) > 0)
        return;
    uint64_t kept = 0;
    for (unsigned i = 0; i < LANDING_CHAINS; i++)
        for (const struct landing_peer *peer = n->landing_peers.chain[i]; peer; peer = peer->next) {
            ASSERT(peer->sessions == 0);
            kept += atomic_load(&peer->bytes);
        }
    ASSERT(atomic_load(&n->landing_bytes) <= kept); /* read last: they may be freed meanwhile */
}

struct closing {
    sluice_node *n;
    uint64_t grace_ns, start_ns;
    struct stuck stuck; /* the caller's */
};

static void close_all(struct closing *c) {
    sluice_node *n = c->n;
    while (atomic_load(&n->callers) > 0) {
        if (n->manual)
            cm_progress(n->cm, 0);
        sched_yield();
    }
    atomic_store(&c->stuck.calls_over, true);
    cm_unlisten_all(n->cm);
    end_sessions(n, c->grace_ns);
    workers_stop(n);
    close_loops(n);
    assert_landed(n);
    cm_close(n->cm);
    regcache_lazy_close(&n->regcache);
    regions_close(&n->regions);
    node_memory_close(n);
    landing_peers_close(&n->landing_peers); /* after the buffers, which count to them */
    node_close_device(n);
}

/* No thread uses the node any more: its slot may have a new node. */
static void close_end(sluice_node *n) {
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->wakeup_lock);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->assist_lock);
    atomic_store(&n->state, NODE_CLOSED);
}

/* ---- waiting for it ---------------------------------------------------------------------------- */

/* The node's place is not given away while a thread still speaks of it. */
static void run_close(void *arg) {
    struct closing *c = arg;
    const struct timespec pause = {.tv_nsec = TELLING_PAUSE_NS};
    close_all(c);
    while (atomic_load(&c->stuck.telling))
        nanosleep(&pause, NULL);
}

static void end_close(void *arg) {
    struct closing *c = arg;
    close_end(c->n);
    free(c);
}

static uint64_t later(uint64_t at, uint64_t by) {
    return by > UINT64_MAX - 1 - at ? UINT64_MAX : at + by;
}

static void look_until(struct closing *c, bool (*is_so)(const struct stuck *s)) {
    while (!is_so(&c->stuck)) {
        const struct timespec pause = {.tv_nsec = STUCK_LOOK_NS};
        nanosleep(&pause, NULL);
        stuck_look(&c->stuck);
    }
}

/*
 * From here on no function of the application is called. Running calls are waited for, except those of stuck threads:
 * a thread that the log does not name is out when the caller returns. True: it is closed all the same.
 */
static bool give_up(struct closing *c, struct aside *aside) {
    stuck_forbid_calls(&c->stuck);
    look_until(c, stuck_calls_over);
    if (aside_wait(aside, 0))
        return true;
    stuck_tell(&c->stuck);
    stuck_forbid_log(&c->stuck);
    look_until(c, stuck_log_over);
    return aside_leave(aside);
}

/* False: it is not closed, and the caller is to go. */
static bool wait_while_useful(struct closing *c, struct aside *aside) {
    uint64_t grace_over = later(c->start_ns, c->grace_ns), ended = grace_over;
    uint32_t steps = 0;
    bool closed = aside_wait(aside, grace_over);
    while (!closed) {
        stuck_look(&c->stuck);
        uint64_t now = real_now();
        if (some_ended(c->n, &steps))
            ended = now;
        if (now >= later(ended, TOO_LONG_NS) ||
            (now >= later(grace_over, GIVE_UP_NS) && stuck_any(&c->stuck)))
            return false;
        closed = aside_wait(aside, now + STUCK_LOOK_NS);
    }
    return true;
}

static void wait_closed(struct closing *c, struct aside *aside) {
    if (wait_while_useful(c, aside) || give_up(c, aside))
        end_close(c);
}

void sluice_close(sluice_node *n, uint64_t grace_ns) {
    UNCANCELLED;
    if (!n || forked_node(n))
        return;
    if (in_handler(n)) {
        log_write(&n->log, SLUICE_LOG_ERROR, "sluice_close() must not be called from a handler");
        return;
    }
    uint32_t open = NODE_OPEN;
    if (!atomic_compare_exchange_strong(&n->state, &open, NODE_CLOSING))
        return;
    struct closing closing = {
        .n = n, .grace_ns = grace_ns, .start_ns = real_now(), .stuck = {.n = n}};
    struct closing *c = n->manual ? NULL : malloc(sizeof *c);
    struct aside *aside = NULL;
    if (c) {
        *c = closing;
        stuck_look(&c->stuck);
        aside = aside_start("sluice-close", run_close, end_close, c);
    }
    if (aside) {
        wait_closed(c, aside);
    } else { /* without a thread it takes as long as it takes */
        free(c);
        close_all(&closing);
        close_end(n);
    }
}
