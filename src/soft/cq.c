/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq.c - completion queues and completion channels.
 *
 * A poller makes the progress of its QPs itself and gets completions straight into its array; the
 * CQ's own ring holds only what somebody else produced (the engine, a poller of another CQ, a
 * flush). Polling drains that ring first and takes a QP's completions directly only when none of
 * them is waiting in the ring, so completions of one QP keep their order.
 *
 * Many QPs: those that had work lately are hot and looked at in every poll; of the others a few are
 * looked at per poll, round robin.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "soft/object.h"
#include "soft/soft.h"

#define COLD_PER_POLL 4
#define HOT_MIN 8          /* up to this many QPs are always hot */
#define COOL_AFTER 4096    /* polls between looks for QPs that went cold */

static _Atomic uint32_t next_board_index;

/* ---- completion channel ------------------------------------------------------------------------ */

struct ibv_comp_channel *soft_create_comp_channel(struct ibv_context *ctx) {
    if (soft_stale(soft_context_of(ctx))) {
        errno = EPERM;
        return NULL;
    }
    int refused = soft_refuse(ctx, FAULT_CALL_create_comp_channel);
    if (refused) {
        errno = refused;
        return NULL;
    }
    struct soft_channel *channel = calloc(1, sizeof *channel);
    if (!channel)
        return NULL;
    channel->capacity = 16;
    channel->queue = calloc(channel->capacity, sizeof *channel->queue);
    channel->ibv.fd = channel->queue ? eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC) : -1;
    if (channel->ibv.fd < 0) {
        int err = errno;
        free(channel->queue);
        free(channel);
        errno = err;
        return NULL;
    }
    channel->ibv.context = ctx;
    channel->generation = soft_generation_now;
    pthread_mutex_init(&channel->lock, NULL);
    atomic_fetch_add(&soft_context_of(ctx)->users, 1);
    return &channel->ibv;
}

int soft_destroy_comp_channel(struct ibv_comp_channel *ibchannel) {
    struct soft_channel *channel = soft_channel_of(ibchannel);
    if (soft_stale(channel))
        return EPERM;
    pthread_mutex_lock(&channel->lock);
    int busy = channel->ibv.refcnt;
    pthread_mutex_unlock(&channel->lock);
    if (busy)
        return EBUSY;
    atomic_fetch_sub(&soft_context_of(ibchannel->context)->users, 1);
    close(channel->ibv.fd);
    pthread_mutex_destroy(&channel->lock);
    free(channel->queue);
    free(channel);
    return 0;
}

static void channel_push(struct soft_channel *channel, struct soft_cq *cq) {
    pthread_mutex_lock(&channel->lock);
    if (channel->count == channel->capacity) {
        struct soft_cq **queue = calloc(2 * channel->capacity, sizeof *queue);
        if (!queue) { /* the event is lost only if memory is: poll still finds the completion */
            pthread_mutex_unlock(&channel->lock);
            return;
        }
        for (unsigned i = 0; i < channel->count; i++)
            queue[i] = channel->queue[(channel->head + i) % channel->capacity];
        free(channel->queue);
        channel->queue = queue;
        channel->head = 0;
        channel->capacity *= 2;
    }
    channel->queue[(channel->head + channel->count++) % channel->capacity] = cq;
    uint64_t one = 1;
    (void)!write(channel->ibv.fd, &one, sizeof one);
    pthread_mutex_unlock(&channel->lock);
}

int soft_get_cq_event(struct ibv_comp_channel *ibchannel, struct ibv_cq **cq, void **cq_context) {
    struct soft_channel *channel = soft_channel_of(ibchannel);
    if (soft_stale(channel)) {
        errno = EPERM;
        return -1;
    }
    for (;;) {
        uint64_t token;
        if (read(channel->ibv.fd, &token, sizeof token) != sizeof token)
            return -1;
        struct soft_cq *got = NULL;
        pthread_mutex_lock(&channel->lock);
        if (channel->count) {
            got = channel->queue[channel->head];
            channel->head = (channel->head + 1) % channel->capacity;
            channel->count--;
            got->fetched++;
        }
        pthread_mutex_unlock(&channel->lock);
        if (got) {
            *cq = &got->ibv;
            *cq_context = got->ibv.cq_context;
            return 0;
        } /* else its CQ was destroyed meanwhile: wait for the next */
    }
}

void soft_ack_cq_events(struct ibv_cq *cq, unsigned int n) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += n;
    pthread_cond_broadcast(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

/* Drops the CQ's events that nobody fetched, with their tokens. */
static unsigned channel_forget(struct soft_channel *channel, struct soft_cq *cq) {
    pthread_mutex_lock(&channel->lock);
    unsigned kept = 0, count = channel->count;
    for (unsigned i = 0; i < count; i++) {
        struct soft_cq *at = channel->queue[(channel->head + i) % channel->capacity];
        if (at != cq)
            channel->queue[(channel->head + kept++) % channel->capacity] = at;
    }
    channel->count = kept;
    for (unsigned i = kept; i < count; i++) {
        uint64_t token;
        struct iovec iov = {.iov_base = &token, .iov_len = sizeof token};
        (void)!preadv2(channel->ibv.fd, &iov, 1, -1, RWF_NOWAIT);
    }
    channel->ibv.refcnt--;
    unsigned fetched = cq->fetched;
    pthread_mutex_unlock(&channel->lock);
    return fetched;
}

/* ---- completion queue -------------------------------------------------------------------------- */

struct ibv_cq *soft_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                              struct ibv_comp_channel *channel, int comp_vector) {
    if (soft_stale(soft_context_of(ctx)) || cqe < 1 || cqe > SOFT_MAX_CQE || comp_vector != 0) {
        errno = soft_stale(soft_context_of(ctx)) ? EPERM : EINVAL;
        return NULL;
    }
    int refused = soft_refuse(ctx, FAULT_CALL_create_cq);
    if (refused) {
        errno = refused;
        return NULL;
    }
    struct soft_cq *cq = aligned_alloc(64, (sizeof *cq + 63) & ~(size_t)63);
    if (!cq)
        return NULL;
    memset(cq, 0, sizeof *cq);
    cq->ring_capacity = (uint32_t)cqe;
    cq->ring = calloc((size_t)cqe, sizeof *cq->ring);
    if (!cq->ring) {
        free(cq);
        return NULL;
    }
    cq->ibv.context = ctx;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.cqe = cqe;
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    cq->generation = soft_generation_now;
    cq->board_index = atomic_fetch_add(&next_board_index, 1) % SOFT_BOARD_CQS;
    if (channel) {
        pthread_mutex_lock(&soft_channel_of(channel)->lock);
        channel->refcnt++;
        pthread_mutex_unlock(&soft_channel_of(channel)->lock);
    }
    atomic_fetch_add(&soft_context_of(ctx)->users, 1);
    return &cq->ibv;
}

static void disarm(struct soft_cq *cq) {
    if (atomic_exchange(&cq->armed, 0))
        atomic_fetch_sub(&soft_board->cq[cq->board_index].armed, 1);
}

int soft_destroy_cq(struct ibv_cq *ibcq) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (soft_stale(cq))
        return EPERM;
    spin_lock(&cq->poll_lock);
    unsigned users = cq->qp_count;
    spin_unlock(&cq->poll_lock);
    if (users)
        return EBUSY;
    disarm(cq);
    soft_async_drain(ibcq->context, ibcq);
    if (ibcq->channel) {
        unsigned fetched = channel_forget(soft_channel_of(ibcq->channel), cq);
        pthread_mutex_lock(&ibcq->mutex);
        while (ibcq->comp_events_completed < fetched)
            pthread_cond_wait(&ibcq->cond, &ibcq->mutex);
        pthread_mutex_unlock(&ibcq->mutex);
    }
    atomic_fetch_sub(&soft_context_of(ibcq->context)->users, 1);
    pthread_mutex_destroy(&ibcq->mutex);
    pthread_cond_destroy(&ibcq->cond);
    free(cq->qps);
    free(cq->ring);
    free(cq);
    return 0;
}

void soft_cq_signal(struct soft_cq *cq, bool solicited) {
    uint32_t armed = atomic_load(&cq->armed);
    if (armed == 0 || (armed == 2 && !solicited) || !cq->ibv.channel)
        return;
    if (atomic_exchange(&cq->armed, 0) == 0)
        return;
    atomic_fetch_sub(&soft_board->cq[cq->board_index].armed, 1);
    channel_push(soft_channel_of(cq->ibv.channel), cq);
}

bool soft_cq_push(struct soft_cq *cq, const struct ibv_wc *wc, bool solicited) {
    spin_lock(&cq->ring_lock);
    uint32_t count = ld(cq->ring_count);
    bool ok = count < cq->ring_capacity;
    if (ok) {
        uint32_t at = cq->ring_head + count;
        cq->ring[at >= cq->ring_capacity ? at - cq->ring_capacity : at] = *wc;
        atomic_store_explicit(&cq->ring_count, count + 1, memory_order_release);
    }
    spin_unlock(&cq->ring_lock);
    if (ok)
        soft_cq_signal(cq, solicited);
    return ok;
}

/* More completions than it was made for: the application asked for too small a CQ. */
void soft_cq_overrun(struct soft_cq *cq) {
    if (!atomic_exchange(&cq->dead, true))
        soft_async_event(cq->ibv.context, IBV_EVENT_CQ_ERR, &cq->ibv);
}

static int ring_pop(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = 0;
    spin_lock(&cq->ring_lock);
    uint32_t count = ld(cq->ring_count);
    while (n < ne && count) {
        wc[n++] = cq->ring[cq->ring_head];
        cq->ring_head = cq->ring_head + 1 == cq->ring_capacity ? 0 : cq->ring_head + 1;
        count--;
    }
    st(cq->ring_count, count);
    spin_unlock(&cq->ring_lock);
    return n;
}

/* ---- the CQ's queue pairs ---------------------------------------------------------------------- */

/* Which of a QP's two CQs this is. */
static inline unsigned role(const struct soft_cq *cq, const struct soft_qp *qp) {
    return soft_cq_of(qp->ibv.recv_cq) == cq ? 0 : 1;
}

static inline void set(struct soft_cq *cq, unsigned i, struct soft_qp *qp) {
    cq->qps[i] = qp;
    qp->cq_at[role(cq, qp)] = i;
}

static inline void swap(struct soft_cq *cq, unsigned i, unsigned j) {
    struct soft_qp *qp = cq->qps[i];
    set(cq, i, cq->qps[j]);
    set(cq, j, qp);
}

int soft_cq_add_qp(struct soft_cq *cq, struct soft_qp *qp) {
    int rc = 0;
    struct soft_qp **old = NULL, **grown = NULL;
    unsigned capacity = 0;
    for (;;) { /* memory is allocated outside the lock that pollers take */
        spin_lock(&cq->poll_lock);
        if (cq->qp_count < cq->qp_capacity)
            break;
        if (grown && capacity > cq->qp_count) {
            if (cq->qp_count)
                memcpy(grown, cq->qps, cq->qp_count * sizeof *grown);
            old = cq->qps;
            cq->qps = grown;
            cq->qp_capacity = capacity;
            grown = NULL;
            break;
        }
        capacity = cq->qp_capacity ? 2 * cq->qp_capacity : 8;
        spin_unlock(&cq->poll_lock);
        free(grown);
        grown = calloc(capacity, sizeof *grown);
        if (!grown)
            return ENOMEM;
    }
    /* new ones start hot */
    cq->qp_count++;
    set(cq, cq->qp_count - 1, qp);
    swap(cq, cq->qp_count - 1, cq->hot_count++);
    spin_unlock(&cq->poll_lock);
    free(old);
    free(grown);
    return rc;
}

static void warm_up(struct soft_cq *cq, unsigned i) {
    st(cq->qps[i]->cold[role(cq, cq->qps[i])], false);
    swap(cq, i, cq->hot_count++);
}

/* Those that wait for an acknowledgement, or had something lately, stay. */
static void cool_down(struct soft_cq *cq) {
    cq->idle_polls = 0;
    if (cq->qp_count <= HOT_MIN)
        return;
    for (unsigned i = 0; i < cq->hot_count;) {
        struct soft_qp *qp = cq->qps[i];
        if (ld(qp->used_lately) || ld(qp->unretired)) {
            st(qp->used_lately, false);
            i++;
            continue;
        }
        swap(cq, i, --cq->hot_count);
        atomic_store(&qp->cold[role(cq, qp)], true);
        if (ld(qp->unretired)) /* posted meanwhile, and did not see the flag */
            soft_cq_warm(qp);
    }
}

/* Any thread. Whoever takes the flag away owns the list entry. */
static void warm_one(struct soft_cq *cq, struct soft_qp *qp) {
    unsigned r = role(cq, qp);
    if (!atomic_exchange(&qp->cold[r], false))
        return;
    struct soft_qp *head = atomic_load(&cq->warm);
    do
        qp->warm_next[r] = head;
    while (!atomic_compare_exchange_weak(&cq->warm, &head, qp));
}

void soft_cq_warm(struct soft_qp *qp) {
    warm_one(soft_cq_of(qp->ibv.recv_cq), qp);
    if (qp->ibv.send_cq != qp->ibv.recv_cq)
        warm_one(soft_cq_of(qp->ibv.send_cq), qp);
}

/* poll_lock held. */
static void take_warm(struct soft_cq *cq) {
    struct soft_qp *qp = atomic_exchange(&cq->warm, NULL);
    while (qp) {
        unsigned r = role(cq, qp);
        struct soft_qp *next = qp->warm_next[r];
        if (qp->cq_at[r] >= cq->hot_count)
            swap(cq, qp->cq_at[r], cq->hot_count++);
        qp = next;
    }
}

void soft_cq_remove_qp(struct soft_cq *cq, struct soft_qp *qp, bool purge) {
    spin_lock(&cq->poll_lock);
    take_warm(cq); /* so that no list points to it any more */
    for (unsigned i = 0; i < cq->qp_count; i++) {
        if (cq->qps[i] != qp)
            continue;
        if (i < cq->hot_count) {
            swap(cq, i, --cq->hot_count);
            i = cq->hot_count;
        }
        swap(cq, i, --cq->qp_count);
        break;
    }
    st(qp->cold[role(cq, qp)], false);
    if (purge) {
        spin_lock(&cq->ring_lock);
        uint32_t count = ld(cq->ring_count), kept = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct ibv_wc *from = &cq->ring[(cq->ring_head + i) % cq->ring_capacity];
            if (from->qp_num != qp->ibv.qp_num)
                cq->ring[(cq->ring_head + kept++) % cq->ring_capacity] = *from;
        }
        st(cq->ring_count, kept);
        spin_unlock(&cq->ring_lock);
    }
    spin_unlock(&cq->poll_lock);
}

/* ---- polling ----------------------------------------------------------------------------------- */

/* Completions go to wc, or with wc NULL to the rings. poll_lock held. */
static int progress_all(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = 0;
    if (__builtin_expect(ld(cq->warm) != NULL, 0))
        take_warm(cq);
    for (unsigned i = 0; i < cq->hot_count; i++) {
        struct soft_qp *qp = cq->qps[i];
        if (soft_qp_has_work(qp)) {
            n += soft_qp_progress(qp, wc ? cq : NULL, wc ? wc + n : NULL, ne - n);
            st(qp->used_lately, true);
            if (wc && n == ne)
                break;
        } else {
            soft_qp_idle(qp);
        }
    }
    unsigned cold = cq->qp_count - cq->hot_count;
    for (unsigned k = 0; k < COLD_PER_POLL && k < cold && (!wc || n < ne); k++) {
        if (cq->cold_next < cq->hot_count || cq->cold_next >= cq->qp_count)
            cq->cold_next = cq->hot_count;
        unsigned i = cq->cold_next++;
        if (soft_qp_has_work(cq->qps[i]) || ld(cq->qps[i]->unretired)) {
            struct soft_qp *qp = cq->qps[i];
            st(qp->used_lately, true);
            warm_up(cq, i);
            n += soft_qp_progress(qp, wc ? cq : NULL, wc ? wc + n : NULL, ne - n);
        }
    }
    return n;
}

int soft_poll_cq(struct ibv_cq *ibcq, int ne, struct ibv_wc *wc) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (__builtin_expect(soft_stale(cq), 0))
        return -EPERM;
    if (ne <= 0)
        return 0;
    spin_lock(&cq->poll_lock);
    int n = 0;
    if (atomic_load_explicit(&cq->ring_count, memory_order_acquire))
        n = ring_pop(cq, wc, ne);
    if (n < ne)
        n += progress_all(cq, wc + n, ne - n);
    /* what an engine pushed while we looked belongs before nothing of ours: next poll */
    if (++cq->idle_polls >= COOL_AFTER)
        cool_down(cq);
    spin_unlock(&cq->poll_lock);
    return n;
}

/*
 * After the arming: what another thread posted before it could see the armed word is found here,
 * what it posts later it gives to the engine itself.
 */
static void look_after(struct soft_cq *cq) {
    bool outstanding = false;
    spin_lock(&cq->poll_lock);
    for (unsigned i = 0; i < cq->qp_count; i++) {
        struct soft_qp *qp = cq->qps[i];
        if (ld(qp->unretired) || soft_qp_has_work(qp)) {
            st(qp->need_tick, true);
            outstanding = true;
        }
    }
    spin_unlock(&cq->poll_lock);
    if (outstanding)
        soft_tick_want();
}

/*
 * What has arrived by now is moved into the ring first, as on a device, where it would lie in the
 * CQ already and not fire; then the CQ is armed and the peers' view of it is ordered before
 * whatever the caller polls next.
 */
int soft_req_notify_cq(struct ibv_cq *ibcq, int solicited_only) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (soft_stale(cq))
        return EPERM;
    spin_lock(&cq->poll_lock);
    for (unsigned i = 0; i < cq->qp_count; i++) {
        if (soft_qp_has_work(cq->qps[i]))
            soft_qp_progress(cq->qps[i], NULL, NULL, 0);
        soft_qp_idle(cq->qps[i]);
    }
    uint32_t want = solicited_only ? 2 : 1, old = atomic_load(&cq->armed);
    if (old == 0) {
        atomic_store(&cq->armed, want);
        atomic_fetch_add(&soft_board->cq[cq->board_index].armed, 1);
    } else if (old == 2 && want == 1) {
        atomic_store(&cq->armed, 1);
    }
    spin_unlock(&cq->poll_lock);
    if (!soft_own_fence_free() ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
        soft_fence();
    look_after(cq);
    return 0;
}
