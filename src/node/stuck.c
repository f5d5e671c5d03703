/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* stuck.c - looking at threads that may be in the way of closing, see stuck.h. Owner: the thread that looks. */
#include "node/stuck.h"

#include "base/aside_thread.h"
#include "base/barrier.h"
#include "core/session_table.h"
#include "node/node.h"
#include "datapath/loop/loop.h"

#define TELL_NS 2000000000ull /* for a thread to be run that says what there is to say */

static void look_at(struct stuck_place *place, bool inside, uint32_t moves) {
    place->looks = inside && moves == place->moves ? place->looks + 1 : 0;
    place->moves = moves;
}

static bool is_stuck(const struct stuck_place *place) {
    return place->looks >= STUCK_LOOKS;
}

/* None begins while the node is closing, so that only the last to return changes the number of those inside. */
static void look_at_calls(struct stuck *s) {
    uint32_t inside = atomic_load(&s->n->callers);
    look_at(&s->calls, inside > 0 && !atomic_load(&s->calls_over), inside);
}

/* One that is stuck keeps the last from leaving, however many lines others write. */
static void look_at_log(struct stuck *s) {
    look_at(&s->log, atomic_load(&s->n->log.inside) > 0, atomic_load(&s->n->log.rests));
}

static uint32_t moves_of(const struct sluice_loop *l) {
    return atomic_load(&l->progress_count) + atomic_load(&l->calls);
}

/* n->lock. From the next call of the application's on each shows, if the loop moves at all before it. */
static void watch_loops(struct stuck *s) {
    bool any = false;
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        if (s->loops[i].of != s->n->loops[i]) /* another one has its place */
            s->loops[i] = (struct stuck_place){.of = s->n->loops[i]};
        if (s->n->loops[i] && !s->loops[i].watched) {
            atomic_fetch_or(&s->n->loops[i]->closing, LOOP_WATCHED);
            any = true;
        }
    }
    if (any)
        barrier_everywhere();
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        if (s->n->loops[i] && !s->loops[i].watched) {
            s->loops[i].watched = true;
            s->loops[i].first = moves_of(s->n->loops[i]);
        }
}

/*
 * In a call of the application's; or perhaps in one from before it was watched, if it has not moved since. One that is elsewhere
 * is at its own work, which may take long where it has thousands of sessions to end.
 */
static bool is_calling(const struct sluice_loop *l, const struct stuck_place *place) {
    return (atomic_load(&l->calls) & 1) ||
           (atomic_load(&l->poll_busy) && moves_of(l) == place->first);
}

void stuck_look(struct stuck *s) {
    sluice_node *n = s->n;
    look_at_calls(s);
    look_at_log(s);
    pthread_mutex_lock(&n->lock);
    watch_loops(s);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        struct sluice_loop *l = n->loops[i];
        if (!l) {
            s->loops[i] = (struct stuck_place){0};
            continue;
        }
        look_at(&s->loops[i], is_calling(l, &s->loops[i]), moves_of(l));
        wakeup_signal_flag(&l->mailbox.wakeup);
    }
    pthread_mutex_unlock(&n->lock);
}

bool stuck_any(const struct stuck *s) {
    bool any = is_stuck(&s->calls) || is_stuck(&s->log);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        any |= is_stuck(&s->loops[i]);
    return any;
}

/* ---- no more calls ----------------------------------------------------------------------------- */

void stuck_forbid_calls(struct stuck *s) {
    sluice_node *n = s->n;
    pthread_mutex_lock(&n->lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        if (!n->loops[i])
            continue;
        atomic_fetch_or(&n->loops[i]->closing, LOOP_GIVEN_UP);
        s->loops[i].last = atomic_load(&n->loops[i]->calls);
    }
    pthread_mutex_unlock(&n->lock);
}

/* One that has not moved since it is watched may be in a call from before. */
static bool may_be_calling(struct sluice_loop *l, const struct stuck_place *place) {
    uint32_t call = atomic_load(&l->calls);
    return !is_stuck(place) && (((call & 1) && call == place->last) ||
                                (atomic_load(&l->poll_busy) && moves_of(l) == place->first));
}

bool stuck_calls_over(const struct stuck *s) {
    sluice_node *n = s->n;
    bool over = true;
    pthread_mutex_lock(&n->lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        if (n->loops[i] && may_be_calling(n->loops[i], &s->loops[i]))
            over = false;
    pthread_mutex_unlock(&n->lock);
    return over;
}

void stuck_forbid_log(struct stuck *s) {
    atomic_store(&s->n->log.quiet, true);
    s->log.last = atomic_load(&s->n->log.rests);
}

bool stuck_log_over(const struct stuck *s) {
    return is_stuck(&s->log) || atomic_load(&s->n->log.inside) == 0 ||
           atomic_load(&s->n->log.rests) != s->log.last;
}

/* ---- saying so --------------------------------------------------------------------------------- */

/* Collects the facts for the log while the locks are held; the log is called without: it may want a handler's lock. */
static void find(struct stuck *s) {
    sluice_node *n = s->n;
    struct stuck_news *news = &s->news;
    pthread_mutex_lock(&n->lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        if (!is_stuck(&s->loops[i]))
            continue;
        uint32_t w = 0;
        while (w < n->worker_count && n->workers[w].loop != n->loops[i])
            w++;
        news->workers[w % WORKERS_MAX] |= w < n->worker_count;
        news->polls |= w == n->worker_count;
    }
    pthread_mutex_unlock(&n->lock);
    news->calls = is_stuck(&s->calls) ? s->calls.moves : 0;
    news->nobody = !stuck_any(s);
    news->sessions = session_table_used_count(n->index);
}

static void tell(void *arg) {
    struct stuck *s = arg;
    const struct stuck_news *news = &s->news;
    for (uint32_t w = 0; w < WORKERS_MAX; w++)
        if (news->workers[w])
            log_write(&s->n->log, SLUICE_LOG_ERROR,
                      "closing gives up: a handler of worker %u does not return", w);
    if (news->polls)
        log_write(&s->n->log, SLUICE_LOG_ERROR,
                  "closing gives up: a handler in a thread's sluice_poll() does not return");
    if (news->calls > 0)
        log_write(&s->n->log, SLUICE_LOG_ERROR,
                  "closing gives up: %u calls in other threads do not return", news->calls);
    if (news->nobody)
        log_write(&s->n->log, SLUICE_LOG_ERROR,
                  "closing gives up: it takes too long, and no call is in the way");
    log_write(&s->n->log, SLUICE_LOG_ERROR,
              "%u sessions, their memory and the device stay until that is over", news->sessions);
    atomic_store(&s->telling, false);
}

/* That thread's own end, which touches nothing of the node. */
static void nothing(void *arg) {
    (void)arg;
}

void stuck_tell(struct stuck *s) {
    if (is_stuck(&s->log))
        return; /* the thread inside may hold a lock that this needs */
    find(s);
    atomic_store(&s->telling, true);
    struct aside *aside = aside_start("sluice-close", tell, nothing, s);
    if (!aside)
        atomic_store(&s->telling, false);
    uint64_t until = env_now(&env_default) + TELL_NS;
    while (aside) {
        uint64_t now = env_now(&env_default);
        if (aside_wait(aside, now + STUCK_LOOK_NS))
            return;
        stuck_look(s);
        if (is_stuck(&s->log) || now >= until) {
            (void)aside_leave(aside);
            return;
        }
    }
}
