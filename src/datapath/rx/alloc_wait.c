/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * alloc_wait.c - sessions that wait for memory to send with, and how they learn that some came back.
 *
 * The node counts how often memory came back while a session waited (memory_back). A call that fails
 * reads the count, sets the pool's flag (pool_wait), tries once more, marks its loop or
 * its session, and reads the count again: if it moved, the wake may have passed before the mark was
 * there, and the loop is told to look all the same. A thread that returns memory looks at the pool's flag after
 * that, counts, and then tells the loops that are marked. So one of the two sees the other.
 *
 * The pool wakes when what came back may be enough (pool/waiters.c): a session that waits for a large buffer
 * is not woken for the small ones that come back one by one.
 *
 * Buffers that lie free in the caches of other loops are of no use to the waiting session. These loops are woken and
 * give them back in their next turn, and so does every thread at its next return of a buffer while a session
 * waits. Buffers of a loop that is not polled stay there until it is polled: in each class two
 * buffers, or a 256th of the memory, at most 1 MiB.
 *
 * Wakeups. The lock is for loops that are opened and closed meanwhile, and held for as many signals as there
 * are loops. A signal to a loop that is awake makes no system call.
 *
 * Owner: see alloc_wait.h.
 */
#include "datapath/rx/alloc_wait.h"

#include <errno.h>

#include "core/context.h"
#include "datapath/loop/events.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/message.h"

/* A loop that is not closed while the lock is held. */
static void tell(struct sluice_loop *l, uint32_t bits) {
    bool news = bits & (ALLOC_WAIT_CHECK | ALLOC_WAIT_FLUSH);
    if ((atomic_fetch_or(&l->alloc_wait, bits) & bits) == bits || !news)
        return;
    atomic_fetch_or(&l->wake, LOOP_WAKE_ALLOC_WAIT);
    wakeup_signal_flag(&l->mailbox.wakeup);
}

/* Tells one loop, or all. */
static void tell_loops(struct sluice_node *n, const struct sluice_loop *only, uint32_t bits) {
    pthread_mutex_lock(&n->wakeup_lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        if (n->loops[i] && (!only || n->loops[i] == only))
            tell(n->loops[i], bits);
    pthread_mutex_unlock(&n->wakeup_lock);
}

/* From the pool: any thread, none of its locks held. */
static void memory_is_back(void *arg) {
    struct sluice_node *n = arg;
    atomic_fetch_add(&n->memory_back, 1);
    pthread_mutex_lock(&n->wakeup_lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        if (n->loops[i] && (atomic_load(&n->loops[i]->alloc_wait) & ALLOC_WAIT_ARMED))
            tell(n->loops[i], ALLOC_WAIT_CHECK);
    pthread_mutex_unlock(&n->wakeup_lock);
}

void alloc_wait_open(struct sluice_node *n) {
    atomic_store(&n->memory_back, 0);
    pool_on_wake(n->pool, memory_is_back, n);
}

/* Those that have something; a starving process shall not wake its loops for nothing. */
static void ask_caches(struct sluice_node *n) {
    pthread_mutex_lock(&n->wakeup_lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        if (n->loops[i] && pool_cache_has(n->loops[i]->cache))
            tell(n->loops[i], ALLOC_WAIT_FLUSH);
    pthread_mutex_unlock(&n->wakeup_lock);
}

static int try_again(struct sluice_node *n, size_t bytes, struct sluice_msg **out, uint64_t *seen) {
    *seen = atomic_load(&n->memory_back);
    uint64_t came_back = pool_wait(n->pool, bytes);
    ask_caches(n);
    *out = message_get(n->pool, bytes);
    if (*out)
        return SLUICE_OK;
    if (errno == EMSGSIZE)
        return SLUICE_EMSGSIZE;
    return pool_may_return(n->pool, came_back) ? SLUICE_EAGAIN : SLUICE_ENOMEM;
}

int alloc_wait_get(struct sluice_node *n, size_t bytes, struct sluice_msg **out) {
    uint64_t seen;
    if (!context_call_begin(n))
        return SLUICE_ECLOSED;
    int status = try_again(n, bytes, out, &seen);
    struct sluice_loop *mine = loop_thread.current;
    if (mine && (!loop_is_owned(mine) || mine->pool != n->pool))
        mine = NULL;
    if (status == SLUICE_EAGAIN) {
        tell_loops(n, mine, ALLOC_WAIT_ARMED | ALLOC_WAIT_ALL);
        if (atomic_load(&n->memory_back) != seen)
            tell_loops(n, mine, ALLOC_WAIT_CHECK);
    }
    context_call_end(n);
    return status;
}

/* The loop's thread: the session waits since the count was `seen`. */
static void note_waiting(struct sluice_loop *l, struct session *s, uint64_t seen) {
    s->waits_memory = true;
    session_waits(s, WAIT_MEMORY);
    l->totals.alloc_stalls++;
    l->totals_moved = true;
    atomic_fetch_or(&l->alloc_wait, ALLOC_WAIT_ARMED);
    if (atomic_load(&l->node->memory_back) != seen)
        tell(l, ALLOC_WAIT_CHECK);
}

static int wait_on_session(sluice_session handle, uint64_t seen) {
    struct session *s = session_table_find(handle.id);
    if (!s)
        return SLUICE_ECLOSED;
    struct sluice_loop *l = atomic_load_explicit(&s->loop, memory_order_relaxed);
    bool nested;
    if (l && loop_enter(l, &nested)) {
        bool up = session_accepts(s) && !session_ref_hungup(&s->ref) &&
                  atomic_load_explicit(&s->id, memory_order_relaxed) == handle.id;
        if (up)
            note_waiting(l, s, seen);
        loop_leave(l, nested);
        return up ? SLUICE_EAGAIN : SLUICE_ECLOSED;
    }
    if (!session_ref_tryget(&s->ref, (uint32_t)handle.id, SESSION_REF_OPEN, 0))
        return SLUICE_ECLOSED;
    l = session_mail(s);
    /* Of several threads the last one's count stands: the thread that failed last found no memory either. */
    atomic_store_explicit(&s->foreign.memory_seen, seen, memory_order_relaxed);
    session_waits(s, WAIT_MEMORY);
    atomic_fetch_or_explicit(&s->foreign.waits, WAIT_MEMORY, memory_order_release);
    if (session_ref_set(&s->ref, SESSION_REF_WRITABLE_WAIT))
        loop_post(l, s, LOOP_MSG_WRITABLE_WAIT);
    session_ref_put(&s->ref);
    return SLUICE_EAGAIN;
}

int alloc_wait_get_for(sluice_session handle, size_t bytes, struct sluice_msg **out) {
    struct sluice_node *n = context_at((uint32_t)(handle.id >> 56));
    uint64_t seen;
    if (!context_call_begin(n))
        return SLUICE_ECLOSED; /* being closed: the session is about to end */
    int status = try_again(n, bytes, out, &seen);
    if (status == SLUICE_EAGAIN)
        status = wait_on_session(handle, seen);
    context_call_end(n);
    return status;
}

void alloc_wait_requested(struct sluice_loop *l, struct session *s) {
    note_waiting(l, s, atomic_load_explicit(&s->foreign.memory_seen, memory_order_relaxed));
}

void alloc_wait_again(struct sluice_loop *l) {
    loop_assert_inside(l);
    tell(l, ALLOC_WAIT_ARMED | ALLOC_WAIT_CHECK);
}

bool alloc_wait_pending(const struct sluice_loop *l) {
    return atomic_load(&l->alloc_wait) & ALLOC_WAIT_ALL;
}

unsigned alloc_wait_progress(struct sluice_loop *l) {
    loop_assert_inside(l);
    atomic_fetch_and(&l->wake, ~LOOP_WAKE_ALLOC_WAIT); /* first: what comes later sets it again */
    uint32_t bits = atomic_load(&l->alloc_wait), taken = ALLOC_WAIT_FLUSH;
    if (bits & ALLOC_WAIT_CHECK)
        taken |= ALLOC_WAIT_CHECK | ALLOC_WAIT_ARMED | ALLOC_WAIT_ALL;
    bits = atomic_fetch_and(&l->alloc_wait, ~taken) & taken;
    if (bits & ALLOC_WAIT_FLUSH)
        pool_cache_flush(l->cache);
    if (!(bits & ALLOC_WAIT_CHECK))
        return 0;
    unsigned count = 0;
    for (struct session *s = l->sessions; s; s = s->next) {
        if (!s->waits_memory && !(bits & ALLOC_WAIT_ALL))
            continue;
        s->waits_memory = false;
        session_waits_no_more(s, WAIT_MEMORY);
        if (session_accepts(s)) {
            event_notice(l, s, NOTICE_WRITABLE);
            count++;
        }
    }
    return count;
}
