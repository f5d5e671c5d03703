/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * loop.c - a loop's life: its CQ, its epoll set, its cache, its place in the node.
 *
 * Owner: the thread that opens or closes it.
 */
#include "datapath/loop/loop.h"
#include "common/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "datapath/loop/upward.h"
#include "datapath/loop/cq_share.h"
#include "datapath/loop/ownership.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"
#include "datapath/session/reap.h"
#include "core/context.h"
#include "core/techniques.h"
#include "pool/quick.h"

/* ---- life ------------------------------------------------------------------------------------ */

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sluice_loop *free_loops;

void loops_fork(bool begins) {
    if (begins)
        pthread_mutex_lock(&free_lock);
    else
        pthread_mutex_unlock(&free_lock);
}

static struct sluice_loop *take_struct(void) {
    pthread_mutex_lock(&free_lock);
    struct sluice_loop *l = free_loops;
    if (l)
        free_loops = l->next;
    pthread_mutex_unlock(&free_lock);
    if (!l && !(l = aligned_alloc(_Alignof(struct sluice_loop), sizeof *l)))
        return NULL;
    memset(l, 0, sizeof *l);
    return l;
}

static void give_struct(struct sluice_loop *l) {
    atomic_store(&l->owner, &loop_revoked);
    pthread_mutex_lock(&free_lock);
    l->next = free_loops;
    free_loops = l;
    pthread_mutex_unlock(&free_lock);
}

/* ---- a loop without a device ------------------------------------------------------------------- */

static int poll_nothing(struct ibv_cq *cq, int max, struct ibv_wc *wc) {
    (void)cq, (void)max, (void)wc;
    return 0;
}

static int arm_nothing(struct ibv_cq *cq, int solicited) {
    (void)cq, (void)solicited;
    return 0;
}

/* Stands in for the CQ that was given back, so that the turn need not ask. */
static struct ibv_context no_context = {
    .ops = {.poll_cq = poll_nothing, .req_notify_cq = arm_nothing},
};
static struct ibv_cq no_cq = {.context = &no_context};

static void close_cq(struct sluice_loop *l) {
    const struct fabric_ops *fabric = l->node->fabric;
    if (l->cq == &no_cq)
        return;
    if (l->cq_armed)
        loop_drain_completions(l); /* an event that was never fetched must not count as unacked */
    srq_close(l);
    bool blocks = l->node->traits.connect_blocks;
    if (blocks) /* the descriptor may be there for longer */
        epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, l->channel->fd, NULL);
    if (!blocks || !l->node->upcalls->connect_inherits(l->node, l->cq, l->channel)) {
        int error = fabric->destroy_cq(l->cq);
        if (error != 0)
            log_write(&l->node->log, SLUICE_LOG_ERROR,
                      "a completion queue cannot be destroyed: errno %d", error);
        fabric->destroy_comp_channel(l->channel); /* its descriptor leaves the epoll set by that */
    }
    l->cq = &no_cq;
    l->channel = NULL;
    l->source.out = false;
    l->wc_next = l->wc_count = 0;
    l->sleep_fd[0] = l->sleep_fd[1] = -1; /* closed with it: left the set by that */
    l->slept_on = NULL;
    atomic_fetch_sub(&l->node->device_users, 1);
}

void loop_detach(struct sluice_loop *l) {
    loop_assert_inside(l);
    if (l->cq == &no_cq)
        return;
    for (struct session *s = l->sessions; s; s = s->next)
        for (const struct connection *c = session_connection(s); c; c = c->next)
            if (connection_has_qp(c))
                return;
    close_cq(l);
}

/* ---- open and close ------------------------------------------------------------------------------ */

static int open_watch(struct sluice_loop *l) {
    int flags = fcntl(l->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(l->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        event_source_open(&l->source, l->epoll_fd, l->channel->fd, l->channel) != 0)
        return -errno;
    return wakeup_add_to(&l->mailbox.wakeup, l->epoll_fd, &l->mailbox);
}

static int open_device(struct sluice_loop *l, const struct fabric_ops *fabric) {
    int error;
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll_fd < 0)
        return -errno;
    l->channel = fabric->create_comp_channel(l->node->context);
    if (!l->channel) {
        error = -errno;
        goto close_epoll;
    }
    l->cq = fabric->create_cq(l->node->context, cq_share_entries(l->node), l, l->channel, 0);
    if (!l->cq) {
        error = -errno;
        goto destroy_channel;
    }
    l->cq_size = l->cq->cqe;
    if ((error = wakeup_open(&l->mailbox.wakeup, fabric, true)) != 0)
        goto destroy_cq;
    if ((error = open_watch(l)) != 0)
        goto close_wakeup;
    return 0;

close_wakeup:
    wakeup_close(&l->mailbox.wakeup);
destroy_cq:
    fabric->destroy_cq(l->cq);
destroy_channel:
    fabric->destroy_comp_channel(l->channel);
close_epoll:
    close(l->epoll_fd);
    return error ? error : -EIO;
}

/* A place in the node's list, which is also the one in its statistics page. */
static bool enlist(struct sluice_loop *l) {
    sluice_node *n = l->node;
    bool found = false;
    pthread_mutex_lock(&n->lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX && !found; i++)
        if (!n->loops[i]) {
            l->index = i;
            pthread_mutex_lock(&n->wakeup_lock);
            n->loops[i] = l;
            pthread_mutex_unlock(&n->wakeup_lock);
            found = true;
        }
    pthread_mutex_unlock(&n->lock);
    return found;
}

/* Under assist_lock too: the CM thread may be looking at it. */
static void delist(struct sluice_loop *l) {
    pthread_mutex_lock(&l->node->assist_lock);
    pthread_mutex_lock(&l->node->lock);
    pthread_mutex_lock(&l->node->wakeup_lock);
    l->node->loops[l->index] = NULL;
    pthread_mutex_unlock(&l->node->wakeup_lock);
    pthread_mutex_unlock(&l->node->lock);
    pthread_mutex_unlock(&l->node->assist_lock);
}

static void loop_clear_stats(struct sluice_loop *l);

/* Sets what needs neither memory nor the device. */
static void prepare(struct sluice_loop *l, sluice_node *n, int cpu) {
    l->node = n;
    l->pool = n->pool;
    l->rx_pool = n->rx_pool;
    l->post_framed = n->fabric->get_post_framed(&n->device_attr);
    l->wc_max = n->options.without & WITHOUT_WC_BATCH ? 1 : LOOP_WC_BATCH;
    l->recv_max = n->options.without & WITHOUT_WC_BATCH ? 1 : LOOP_WR_BATCH;
    l->cpu = cpu;
    atomic_store_explicit(&l->idle, (uint8_t)n->options.idle, memory_order_relaxed);
    l->timer_fd = l->sleep_fd[0] = l->sleep_fd[1] = -1;
    l->next_deadline_ns = UINT64_MAX;
    l->sample_ns = loop_clock(l);
    l->keepalive_check_ns = UINT64_MAX;
    l->credits_check_ns = UINT64_MAX;
    l->acks_check_ns = UINT64_MAX;
    l->notices_tail = &l->notices;
    l->wr = (struct ibv_send_wr){.sg_list = &l->sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    l->wr_batch_max = n->options.without & WITHOUT_WR_BATCH ? 1 : LOOP_WR_BATCH;
    l->alone = ownership_one_cpu();
    recv_queue_prepare(l);
    msg_queue_init(&l->outcomes);
    CDS_INIT_LIST_HEAD(&l->acks);
    mpsc_queue_init(&l->mailbox.queue);
    ownership_init();
}

/* It is in the node's list: its part of the statistics page is its own from here on. */
static void show(struct sluice_loop *l, int cpu) {
    l->stats = &l->node->stats.page->loops[l->index];
    loop_clear_stats(l);
    loop_set_cpu(l, cpu);
    atomic_store_explicit(&l->stats->drained, 0, memory_order_relaxed);
    atomic_store_explicit(&l->stats->idle, l->node->options.idle, memory_order_relaxed);
    atomic_store_explicit(&l->stats->in_use, 1, memory_order_relaxed);
}

static int open_loop(struct sluice_loop **out, sluice_node *n, int cpu, sluice_error *e) {
    if (atomic_load(&n->device_lost))
        return error_set(e, SLUICE_EDEVICE, SLUICE_REASON_DEVICE_REMOVED, 0, DEVICE_LOST_TEXT);
    struct sluice_loop *l = take_struct();
    if (!l)
        return error_set(e, SLUICE_ENOMEM, 0, ENOMEM, "no memory for a loop");
    prepare(l, n, cpu);
    int status = SLUICE_ENOMEM, error = open_device(l, n->fabric);
    if (error != 0) {
        char why[200];
        limits_error_text(why, sizeof why, -error);
        status = error_set(e, error == -EMFILE || error == -ENFILE ? SLUICE_ELIMIT : SLUICE_EDEVICE,
                           0, -error, "a loop cannot be opened: %s", why);
        goto give_struct;
    }
    if (!(l->cache = pool_cache_open(n->pool))) {
        error_set(e, SLUICE_ENOMEM, 0, ENOMEM, "no memory for a loop");
        goto close_device;
    }
    uint64_t quick = pool_quick_bytes(l->cache), most = n->options.message_bytes_max;
    l->alloc_quick = (uint32_t)(quick < most ? quick : most);
    if (!(l->rx_cache = pool_cache_open(n->rx_pool))) {
        error_set(e, SLUICE_ENOMEM, 0, ENOMEM, "no memory for a loop");
        goto close_cache;
    }
    if (!enlist(l)) {
        status = error_set(e, SLUICE_ELIMIT, 0, 0, "a node has at most %d loops", STATS_LOOPS_MAX);
        goto close_rx_cache;
    }
    srq_open(l);
    l->flushes_twice = n->traits.flushes_twice;
    show(l, cpu);
    atomic_fetch_add(&n->device_users, 1);
    *out = l;
    return SLUICE_OK;

close_rx_cache:
    pool_cache_close(l->rx_cache);
close_cache:
    pool_cache_close(l->cache);
close_device:
    wakeup_close(&l->mailbox.wakeup);
    n->fabric->destroy_cq(l->cq);
    n->fabric->destroy_comp_channel(l->channel);
    close(l->epoll_fd);
give_struct:
    give_struct(l);
    return status;
}

void loop_set_cpu(struct sluice_loop *l, int cpu) {
    int numa = cpu >= 0 ? cpu_numa_node(cpu) : -1;
    atomic_store_explicit(&l->stats->cpu, cpu, memory_order_relaxed);
    atomic_store_explicit(&l->stats->numa, numa, memory_order_relaxed);
}

int loop_open(struct sluice_loop **out, sluice_node *n, int cpu, sluice_error *e) {
    pthread_mutex_lock(&n->assist_lock); /* the device does not go meanwhile */
    int status = open_loop(out, n, cpu, e);
    pthread_mutex_unlock(&n->assist_lock);
    return status;
}

/* What sessions count on their loop is nothing without any. Those that were given up count for ever. */
static void assert_forgotten(const struct sluice_loop *l) {
    if (!ASSERTIONS || l->sessions)
        return;
    ASSERT(!l->dirty && !l->notices && !l->dying && !l->outcomes.head);
    ASSERT(l->retries == 0 && l->pin_waits == 0);
    ASSERT(l->downs == 0 && l->settling == 0);
    ASSERT(l->leaving == 0 && l->arriving == 0);
    ASSERT(l->totals.sessions == 0 && l->totals.retained == 0);
    ASSERT(l->cq_shares == 0);
    ASSERT(l->cq_used == l->srq.queue.depth * (l->srq.queue.srq != NULL));
}

void loop_close(struct sluice_loop *l) {
    loop_assert_inside(l);
    event_take_back(l);
    session_reap(l);
    assert_forgotten(l);
    loop_publish(l);
    atomic_store_explicit(&l->stats->in_use, 0, memory_order_relaxed);
    delist(l);
    close_cq(l); /* and the shared receives: their buffers go through the cache */
    srq_free(l);
    pool_cache_close(l->rx_cache);
    pool_cache_close(l->cache);
    loop_publish_memory(l); /* what its caches counted is the pool's now */
    wakeup_close(&l->mailbox.wakeup);
    if (l->timer_fd >= 0)
        close(l->timer_fd);
    close(l->epoll_fd);
    give_struct(l);
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void loop_clear_stats(struct sluice_loop *l) {
#define STATS_X(name, text) atomic_store_explicit(&l->stats->name, 0, memory_order_relaxed);
    STATS_LOOP_LIST(STATS_X)
#undef STATS_X
    wakeup_publish(&l->mailbox.wakeup, &l->stats->wakeup); /* it is as new as the loop */
    for (int p = 0; p < STATS_POOLS; p++)
        for (int i = 0; i < STATS_CLASSES; i++) {
            atomic_store_explicit(&l->stats->buffers[p][i].gets, 0, memory_order_relaxed);
            atomic_store_explicit(&l->stats->buffers[p][i].puts, 0, memory_order_relaxed);
        }
}

const struct loop_totals *loop_totals(struct sluice_loop *l) {
    l->totals.posts += l->framed;
    l->totals.send_wrs += l->framed;
    l->totals.frames_sent += l->framed;
    l->totals.messages_sent += l->framed;
    l->totals.bytes_sent += l->framed_bytes;
    l->framed = l->framed_bytes = 0;
    return &l->totals;
}

/* By the time read last, which is that of this turn or of one not long ago. */
static void sample_rate(struct sluice_loop *l) {
    uint64_t passed = l->now_ns - l->sample_ns;
    if (l->now_ns < l->sample_ns || passed < LOOP_RATE_NS)
        return;
    uint64_t bytes = l->totals.bytes_sent + l->totals.bytes_received;
    double rate = (double)(bytes - l->sample_bytes) * 1e9 / (double)passed;
    atomic_store_explicit(&l->rate, (uint64_t)rate, memory_order_relaxed);
    atomic_store_explicit(&l->rate_ns, l->now_ns, memory_order_relaxed);
    l->sample_ns = l->now_ns;
    l->sample_bytes = bytes;
    loop_publish_memory(l);
}

void loop_publish(struct sluice_loop *l) {
    loop_assert_inside(l);
    const struct loop_totals *totals = loop_totals(l);
    sample_rate(l);
#define STATS_X(name, text)                                                                        \
    atomic_store_explicit(&l->stats->name, totals->name, memory_order_relaxed);
    STATS_LOOP_LIST(STATS_X)
#undef STATS_X
    wakeup_publish(&l->mailbox.wakeup, &l->stats->wakeup);
    /* The pool's own count: whichever loop stores it last stores the truth. */
    atomic_store_explicit(&l->node->stats.page->memory_bytes,
                          pool_bytes(l->pool) + pool_bytes(l->rx_pool), memory_order_relaxed);
    pool_cache_show(l->cache, l->stats->buffers[STATS_SEND]);
    pool_cache_show(l->rx_cache, l->stats->buffers[STATS_RECEIVE]);
    l->totals_moved = false;
}

void loop_publish_memory(struct sluice_loop *l) {
    struct stats_memory *memory = l->node->stats.page->memory;
    pool_show(l->pool, &memory[STATS_SEND]);
    pool_show(l->rx_pool, &memory[STATS_RECEIVE]);
}

uint64_t loop_clock(struct sluice_loop *l) {
    loop_assert_inside(l);
    return l->now_ns = env_now(&l->node->env);
}
