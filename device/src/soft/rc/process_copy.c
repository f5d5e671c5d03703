/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * process_copy.c - see process_copy.h.
 *
 * A place has one thread and at most one piece. `lock` guards the places; it is a leaf, but that finish() tries the lock of
 * a QP under it and lets go when that is taken. While a place's state is GIVEN its piece is the thread's alone; what it
 * belongs to (qp) is changed under both locks.
 */
#define _GNU_SOURCE
#include "soft/rc/process_copy.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>

#include "common/thread.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/rc/rkey_reach.h"

#define LATE_NS 10000000u /* who keeps a thread waiting for so long gets no other one meanwhile */
#define CALL_WAIT_NS                                                                               \
    80000000u /* of a call of the application, as for a peer that is inside of memory here */
#define FLUSH_WAIT_NS 1000000000u

enum state { NO_THREAD, STARTING, IDLE, GIVEN, OVER };

struct soft_process_copy {
    enum state state;
    bool ends;          /* the thread is to end when it has nothing to do */
    bool here;          /* there is no thread: the one that posted copies */
    bool claimed;       /* and has begun to: another one that posts leaves it alone */
    struct soft_qp *qp; /* NULL: it goes on without this */
    uint64_t since_ns, leave_ns;
    sem_t given;
    /* the piece */
    bool write, probes;
    pid_t pid;
    uint8_t uuid[16];
    uint64_t probe_at; /* where the process has its uuid */
    unsigned count;
    struct iovec iov[SOFT_MAX_SGE];
    uint8_t *addr;
    uint32_t bytes;
    enum process_copy_end end;
    uint8_t inlined[SOFT_MAX_INLINE];
};

static soft_spin lock;
static struct soft_process_copy places[PROCESS_COPY_THREADS];
static _Atomic bool wanted;

/* ---- the copy ------------------------------------------------------------------------------------- */

/* Reads the peer's uuid from its own memory: allowed, and really that process? */
static bool probe(const struct soft_process_copy *c) {
    uint8_t uuid[16];
    struct iovec local = {uuid, sizeof uuid},
                 remote = {(void *)(uintptr_t)c->probe_at, sizeof uuid};
    return c->pid > 0 &&
           process_vm_readv(c->pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof uuid &&
           memcmp(uuid, c->uuid, sizeof uuid) == 0;
}

static enum process_copy_end why(ssize_t got) {
    if (got < 0 && errno == ESRCH)
        return PROCESS_COPY_DEAD;
    return got < 0 && errno == EPERM ? PROCESS_COPY_CLOSED : PROCESS_COPY_FAULT;
}

static enum process_copy_end copy(const struct soft_process_copy *c) {
    struct iovec local[SOFT_MAX_SGE], *iov = local;
    unsigned n = c->count;
    memcpy(local, c->iov, n * sizeof *local);
    uint8_t *addr = c->addr;
    for (size_t left = c->bytes; left;) {
        struct iovec remote = {addr, left};
        ssize_t got = c->write ? process_vm_writev(c->pid, iov, n, &remote, 1, 0)
                               : process_vm_readv(c->pid, iov, n, &remote, 1, 0);
        if (got <= 0)
            return why(got);
        left -= (size_t)got;
        addr += got;
        while (n && (size_t)got >= iov->iov_len) {
            got -= (ssize_t)iov->iov_len;
            iov++;
            n--;
        }
        if (n && got) {
            iov->iov_base = (uint8_t *)iov->iov_base + got;
            iov->iov_len -= (size_t)got;
        }
    }
    return PROCESS_COPY_DONE;
}

/* ---- the threads ---------------------------------------------------------------------------------- */

/* Lock held: nothing is left to do. */
static void rest(struct soft_process_copy *c) {
    c->qp = NULL;
    c->state = c->here ? NO_THREAD : IDLE;
}

/* The QP's lock is held. What this thread is to copy, if it is one that posted; of several only one gets it. */
static struct soft_process_copy *claim(const struct soft_qp *qp) {
    struct soft_process_copy *c = qp->copy;
    spin_lock(&lock);
    bool mine = c && c->here && c->state == GIVEN && !c->claimed;
    if (mine)
        c->claimed = true;
    spin_unlock(&lock);
    return mine ? c : NULL;
}

/* The QP's lock is held. What this thread copies next. */
static struct soft_process_copy *go_on(struct soft_qp *qp, bool here) {
    struct sink sink = {.cq = NULL};
    struct soft_ring *ring = ld(qp->tx);
    if (ring)
        rkey_reach_end(ring);
    qp->copies_here = here;
    soft_progress_locked(qp, &sink);
    qp->copies_here = false;
    soft_qp_flush_ack(qp);
    struct soft_process_copy *next = here ? claim(qp) : NULL;
    spin_unlock(&qp->lock);
    return next;
}

static struct soft_process_copy *finish(struct soft_process_copy *c, enum process_copy_end end) {
    bool here = c->here;
    for (;; sched_yield()) {
        spin_lock(&lock);
        struct soft_qp *qp = c->qp;
        bool mine = qp && spin_try(&qp->lock);
        if (mine) {
            c->end = end;
            c->state = OVER;
        } else if (!qp) {
            rest(c);
        }
        spin_unlock(&lock);
        if (mine)
            return go_on(qp, here);
        if (!qp)
            return NULL;
    }
}

static struct soft_process_copy *run(struct soft_process_copy *c) {
    return finish(c, c->probes && !probe(c) ? PROCESS_COPY_CLOSED : copy(c));
}

static void *copier(void *arg) {
    struct soft_process_copy *c = arg;
    for (;;) {
        spin_lock(&lock);
        if (c->state == STARTING)
            c->state = IDLE;
        bool given = c->state == GIVEN, ends = c->state == IDLE && c->ends;
        if (ends)
            c->state = NO_THREAD;
        spin_unlock(&lock);
        if (ends)
            return NULL;
        if (given)
            (void)run(c);
        else
            while (sem_wait(&c->given) != 0 && errno == EINTR)
                ;
    }
}

void soft_process_copy_if_wanted(void) {
    soft_assert_locked();
    if (!atomic_load_explicit(&wanted, memory_order_relaxed))
        return;
    atomic_store(&wanted, false);
    struct soft_process_copy *c = NULL;
    spin_lock(&lock);
    for (unsigned i = 0; i < PROCESS_COPY_THREADS && !c; i++)
        if (places[i].state == NO_THREAD)
            c = &places[i];
    if (c) {
        c->state = STARTING;
        c->ends = c->here = false;
    }
    spin_unlock(&lock);
    if (!c)
        return;
    (void)sem_init(&c->given, 0, 0);
    if (thread_start_detached("sluice-copy", copier, c) == 0)
        return;
    spin_lock(&lock);
    c->state = NO_THREAD;
    spin_unlock(&lock);
}

void soft_process_copy_stop(void) {
    spin_lock(&lock);
    for (unsigned i = 0; i < PROCESS_COPY_THREADS; i++)
        if (places[i].state != NO_THREAD && !places[i].here) {
            places[i].ends = true;
            sem_post(&places[i].given);
        }
    spin_unlock(&lock);
}

/* ---- giving and taking ----------------------------------------------------------------------------- */

/* Lock held. A place for this process, or NULL; its thread may be missing. */
static struct soft_process_copy *place_for(pid_t pid, bool here, uint64_t now) {
    struct soft_process_copy *idle = NULL, *bare = NULL;
    unsigned taken = 0;
    bool late = false;
    for (unsigned i = 0; i < PROCESS_COPY_THREADS; i++) {
        struct soft_process_copy *c = &places[i];
        if (c->state == IDLE && !c->ends)
            idle = c;
        else if (c->state == NO_THREAD)
            bare = c;
        bool same = c->state == GIVEN && c->pid == pid;
        taken += same;
        late |= same && now - c->since_ns > LATE_NS;
    }
    if (late || taken >= PROCESS_COPY_OF_ONE)
        return NULL;
    if (here && bare) {
        bare->here = true;
        return bare;
    }
    if (!idle && bare && !atomic_exchange(&wanted, true))
        soft_engine_wake();
    return idle;
}

/* Lock held. */
static void take_over(struct soft_process_copy *c, const struct process_piece *piece) {
    c->write = piece->write;
    c->count = piece->count;
    memcpy(c->iov, piece->iov, piece->count * sizeof *piece->iov);
    if (piece->inlined) {
        memcpy(c->inlined, piece->iov[0].iov_base, piece->iov[0].iov_len);
        c->iov[0].iov_base = c->inlined;
    }
    c->addr = piece->addr;
    c->bytes = piece->bytes;
}

bool soft_process_copy_give(struct soft_qp *qp, const struct process_piece *piece) {
    const struct soft_peer *peer = qp->link_peer;
    uint64_t now = soft_now_ns();
    spin_assert_held(&qp->lock);
    spin_lock(&lock);
    struct soft_process_copy *c = place_for(peer->pid, qp->copies_here, now);
    if (c) {
        take_over(c, piece);
        c->pid = peer->pid;
        c->probes = ld(peer->reach) == PROCESS_UNKNOWN;
        c->probe_at = peer->probe_at;
        memcpy(c->uuid, peer->uuid, sizeof c->uuid);
        c->since_ns = now;
        c->leave_ns = 0;
        c->claimed = false;
        c->qp = qp;
        c->state = GIVEN;
        if (!c->here)
            sem_post(&c->given);
    }
    spin_unlock(&lock);
    qp->copy = c;
    return c != NULL;
}

void soft_process_copy_here(struct soft_qp *qp) {
    struct soft_process_copy *c = claim(qp);
    if (!c)
        return;
    spin_unlock(&qp->lock);
    while (c)
        c = run(c);
    spin_lock(&qp->lock);
}

enum process_copy_end soft_process_copy_take(struct soft_qp *qp, uint32_t *bytes) {
    struct soft_process_copy *c = qp->copy;
    spin_assert_held(&qp->lock);
    spin_lock(&lock);
    enum process_copy_end end = c->state == OVER ? c->end : PROCESS_COPY_UNDER_WAY;
    *bytes = c->bytes;
    if (end != PROCESS_COPY_UNDER_WAY)
        rest(c);
    spin_unlock(&lock);
    if (end == PROCESS_COPY_UNDER_WAY)
        return end;
    qp->copy = NULL;
    if (end == PROCESS_COPY_CLOSED)
        st(qp->link_peer->reach, PROCESS_CLOSED);
    else if (end != PROCESS_COPY_DEAD)
        st(qp->link_peer->reach, PROCESS_REACHED);
    return end;
}

/* The QP's lock. It goes on without its thread, if there still is one. */
static void part(struct soft_qp *qp) {
    struct soft_process_copy *c = qp->copy;
    spin_lock(&lock);
    if (c->state == OVER)
        rest(c);
    else
        c->qp = NULL;
    spin_unlock(&lock);
    qp->copy = NULL;
}

/* The QP's lock. */
static bool under_way(const struct soft_qp *qp) {
    if (!qp->copy)
        return false;
    spin_lock(&lock);
    bool is = qp->copy->state == GIVEN;
    spin_unlock(&lock);
    return is;
}

bool soft_process_copy_leave(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    if (!qp->copy)
        return true;
    if (under_way(qp)) {
        uint64_t now = soft_now_ns();
        if (qp->copy->leave_ns == 0)
            qp->copy->leave_ns = now;
        if (now - qp->copy->leave_ns < FLUSH_WAIT_NS)
            return false;
    }
    part(qp);
    return true;
}

void soft_process_copy_wait(struct soft_qp *qp) {
    uint64_t deadline = soft_now_ns() + CALL_WAIT_NS;
    for (bool over = false; !over; sched_yield()) {
        spin_lock(&qp->lock);
        over = !under_way(qp) || soft_now_ns() >= deadline;
        if (over && qp->copy)
            part(qp);
        spin_unlock(&qp->lock);
    }
}

static bool uses(const struct soft_process_copy *c, uintptr_t from, size_t bytes) {
    for (unsigned i = 0; c->state == GIVEN && i < c->count; i++) {
        uintptr_t at = (uintptr_t)c->iov[i].iov_base;
        if (at < from + bytes && from < at + c->iov[i].iov_len)
            return true;
    }
    return false;
}

static bool in_use(const void *addr, size_t bytes) {
    bool any = false;
    spin_lock(&lock);
    for (unsigned i = 0; i < PROCESS_COPY_THREADS && !any; i++)
        any = uses(&places[i], (uintptr_t)addr, bytes);
    spin_unlock(&lock);
    return any;
}

void soft_process_copy_wait_memory(const void *addr, size_t bytes) {
    soft_assert_locked();
    if (!in_use(addr, bytes))
        return;
    soft_unlock();
    uint64_t deadline = soft_now_ns() + CALL_WAIT_NS;
    while (in_use(addr, bytes) && soft_now_ns() < deadline)
        sched_yield();
    soft_lock();
}

/* ---- fork ------------------------------------------------------------------------------------------ */

void soft_process_copy_fork(bool begins) {
    if (begins)
        spin_lock(&lock);
    else
        spin_unlock(&lock);
}

/* The threads are the parent's, and so is what they copy. */
void soft_process_copy_forked(void) {
    for (unsigned i = 0; i < PROCESS_COPY_THREADS; i++) {
        places[i].state = NO_THREAD;
        places[i].qp = NULL;
    }
    atomic_store(&wanted, false);
    soft_process_copy_fork(false); /* of this thread, as in the parent */
}
