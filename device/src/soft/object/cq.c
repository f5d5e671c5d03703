/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq.c - completion queues: the words that say whether they are armed, arming and firing, and the ring of completions that could not go straight into a poller's
 * array. Creation is verbs/cq.c, polling verbs/poll.c, the list of the CQ's QPs cq_pollset.c.
 *
 * Owner: the ring lock for the ring; the armed word is atomic.
 */
#include "soft/object/cq.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/object/async_event.h"
#include "soft/object/comp_channel.h"

/* ---- armed words ------------------------------------------------------------------------------- */

static pthread_mutex_t words_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t words[SOFT_SHM_PAGE_CQS]; /* how many CQs have each */
static uint32_t next_word;

void soft_cq_take_word(struct soft_cq *cq) {
    pthread_mutex_lock(&words_lock);
    uint32_t best = next_word;
    for (uint32_t i = 0; i < SOFT_SHM_PAGE_CQS && words[best] > 0; i++) {
        uint32_t at = i < SOFT_CHANGES_FIRST ? (next_word + i) % SOFT_CHANGES_FIRST : i;
        best = words[at] < words[best] ? at : best;
    }
    next_word = (best + 1) % SOFT_CHANGES_FIRST; /* lines behind that are written with each send */
    cq->shm_index = best;
    cq->shares_word = words[best]++ > 0;
    pthread_mutex_unlock(&words_lock);
}

void soft_cq_give_word(const struct soft_cq *cq) {
    pthread_mutex_lock(&words_lock);
    ASSERT(words[cq->shm_index] > 0);
    words[cq->shm_index]--;
    pthread_mutex_unlock(&words_lock);
}

void soft_cq_words_forked(void) {
    pthread_mutex_init(&words_lock, NULL); /* another thread may have had it */
    memset(words, 0, sizeof words);
}

/* ---- arming and firing ------------------------------------------------------------------------- */

uint32_t soft_armed_count(uint32_t armed) {
    return armed & SOFT_ARMED_WITH_BELLS ? 1 + SOFT_ARMED_BELLS : 1;
}

bool soft_cq_disarm(struct soft_cq *cq) {
    uint32_t armed = atomic_exchange(&cq->armed, 0);
    if (armed != 0)
        atomic_fetch_sub(&soft_shm_page->cq[cq->shm_index].armed, soft_armed_count(armed));
    return armed != 0;
}

void soft_cq_signal(struct soft_cq *cq, bool solicited) {
    uint32_t armed = atomic_load(&cq->armed);
    if (armed == 0 || ((armed & SOFT_ARMED_SOLICITED) && !solicited) || !cq->ibv.channel)
        return;
    if (!soft_cq_disarm(cq))
        return;
    st(cq->untold, false);
    soft_comp_channel_push(soft_comp_channel_of(cq->ibv.channel), cq);
}

bool soft_cq_push(struct soft_cq *cq, const struct ibv_wc *wc, bool solicited) {
    spin_lock(&cq->ring_lock);
    uint32_t count = ld(cq->ring_count);
    ASSERT(count <= cq->ring_capacity && cq->ring_head < cq->ring_capacity);
    bool ok = count < cq->ring_capacity;
    if (ok) {
        uint32_t at = cq->ring_head + count;
        cq->ring[at >= cq->ring_capacity ? at - cq->ring_capacity : at] = *wc;
        atomic_store_explicit(&cq->ring_count, count + 1, memory_order_release);
        st(cq->untold, true); /* until it fires */
    }
    spin_unlock(&cq->ring_lock);
    soft_fence(); /* partner: notify.c, soft_req_notify_cq(), which looks at the ring when it has armed */
    if (ok)
        soft_cq_signal(cq, solicited);
    return ok;
}

/* More completions than it was made for: the application asked for too small a CQ. */
void soft_cq_overrun(struct soft_cq *cq) {
    if (!atomic_exchange(&cq->dead, true))
        soft_async_event(cq->ibv.context, IBV_EVENT_CQ_ERR, &cq->ibv);
}

bool soft_cq_wait(struct soft_cq *cq, soft_spin *lock) {
    if (soft_spin_wait_briefly(lock))
        return true;
    if (atomic_load(&cq->armed) == 0)
        return false;
    soft_spin_wait(lock);
    return true;
}

static struct ibv_wc *ring_next(const struct soft_cq *cq, struct ibv_wc *wc) {
    return ++wc == cq->ring + cq->ring_capacity ? cq->ring : wc;
}

/* Most queue pairs that are destroyed have none there, and thousands of others may have: those in front of the first stay. */
void soft_cq_purge(struct soft_cq *cq, uint32_t qp_num) {
    spin_lock(&cq->ring_lock);
    uint32_t left = ld(cq->ring_count), kept;
    struct ibv_wc *from = cq->ring + cq->ring_head;
    while (left > 0 && from->qp_num != qp_num) {
        from = ring_next(cq, from);
        left--;
    }
    kept = ld(cq->ring_count) - left;
    for (struct ibv_wc *to = from; left > 0; left--, from = ring_next(cq, from)) {
        if (from->qp_num == qp_num)
            continue;
        *to = *from;
        to = ring_next(cq, to);
        kept++;
    }
    st(cq->ring_count, kept);
    spin_unlock(&cq->ring_lock);
}

/* Takes up to ne completions out of the ring. */
int soft_cq_pop(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = 0;
    if (!soft_cq_lock(cq, &cq->ring_lock))
        return -1;
    uint32_t count = ld(cq->ring_count);
    while (n < ne && count) {
        wc[n++] = cq->ring[cq->ring_head];
        cq->ring_head = cq->ring_head + 1 == cq->ring_capacity ? 0 : cq->ring_head + 1;
        count--;
    }
    st(cq->ring_count, count);
    if (count == 0)
        st(cq->untold, false);
    spin_unlock(&cq->ring_lock);
    return n;
}
