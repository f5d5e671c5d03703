/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ring_bench.c - the software device's ring: its slots alone, and the whole way through
 * ibv_post_send() and ibv_poll_cq(), each beside the cache-line floor of the same minute.
 *
 * "slot" writes and reads the ring as ring.h lays down (payload, head, sequence word last; the
 * reader copies out) and does nothing else: what the device adds to it is the difference.
 * Two threads, pinned to two CPUs, both spinning.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "floor.h"
#include "shim.h"
#include "soft/object/ring.h"
#include "soft/soft.h"

struct rpc_pending {
    int cpu_a, cpu_b;
    struct floor_result floor;
    cpu_set_t before;
};

/* Measures the floor and pins the caller to its first CPU. */
static bool place_take(bench_state *state, struct rpc_pending *place) {
    if (sched_getaffinity(0, sizeof place->before, &place->before) != 0 ||
        !floor_two_cpus(&place->cpu_a, &place->cpu_b) ||
        floor_measure(place->cpu_a, place->cpu_b, &place->floor) != 0) {
        bench_skip(state, "needs two CPUs that are not busy");
        return false;
    }
    floor_pin(place->cpu_a);
    return true;
}

static void place_leave(const struct rpc_pending *place) {
    sched_setaffinity(0, sizeof place->before, &place->before);
}

/* ---- slots alone ----------------------------------------------------------------------------- */

struct slots {
    struct soft_ring ring[2]; /* there and back */
    _Alignas(128) _Atomic bool stop;
    size_t bytes;
    int cpu;
    bool echo;
};

struct cursor {
    unsigned index;
    uint32_t pos;
};

static void slot_write(struct soft_ring *ring, struct cursor *at, const void *data, size_t bytes,
                       uint32_t ack) {
    struct soft_slot *slot = &ring->slot[at->index];
    memcpy(slot->data, data, bytes);
    slot->ack = ack;
    slot->word = soft_word(SOFT_OP_SEND, SOFT_F_FIRST | SOFT_F_LAST, (unsigned)bytes);
    atomic_store_explicit(&slot->seq, ++at->pos, memory_order_release);
    at->index = soft_slot_next(at->index);
}

static bool slot_read(struct soft_ring *ring, struct cursor *at, void *data, size_t bytes) {
    struct soft_slot *slot = &ring->slot[at->index];
    if (atomic_load_explicit(&slot->seq, memory_order_acquire) != at->pos + 1)
        return false;
    memcpy(data, slot->data, bytes);
    at->pos++;
    at->index = soft_slot_next(at->index);
    return true;
}

static void *slot_side(void *arg) {
    struct slots *s = arg;
    uint8_t data[SOFT_SLOT_PAYLOAD] = {0};
    struct cursor in = {0}, out = {0};
    floor_pin(s->cpu);
    while (!atomic_load_explicit(&s->stop, memory_order_acquire)) {
        if (!slot_read(&s->ring[0], &in, data, s->bytes))
            continue;
        if (s->echo)
            slot_write(&s->ring[1], &out, data, s->bytes, in.pos);
        else if (in.pos % (SOFT_RING_SLOTS / 4) == 0)
            atomic_store_explicit(&s->ring[0].rx.acked, in.pos, memory_order_release);
    }
    return NULL;
}

static void slot_case(bench_state *state, void *arg, bool echo) {
    struct rpc_pending place;
    if (!place_take(state, &place))
        return;
    struct slots *s = aligned_alloc(4096, (sizeof *s + 4095) & ~(size_t)4095);
    if (!s)
        return;
    memset(s, 0, sizeof *s);
    s->bytes = *(const size_t *)arg;
    s->cpu = place.cpu_b;
    s->echo = echo;
    pthread_t thread;
    pthread_create(&thread, NULL, slot_side, s);
    uint8_t data[SOFT_SLOT_PAYLOAD] = {0};
    struct cursor in = {0}, out = {0};
    while (bench_next(state)) {
        if (!echo)
            while (out.pos - atomic_load_explicit(&s->ring[0].rx.acked, memory_order_acquire) ==
                   SOFT_RING_SLOTS)
                ;
        slot_write(&s->ring[0], &out, data, s->bytes, in.pos);
        if (echo)
            while (!slot_read(&s->ring[1], &in, data, s->bytes))
                ;
    }
    atomic_store_explicit(&s->stop, true, memory_order_release);
    pthread_join(thread, NULL);
    if (echo) {
        bench_counter(state, "one_way_ns", bench_ns(state) / 2);
        bench_floor(state, place.floor.p50_ns, 2);
    } else {
        bench_items(state, bench_iterations(state));
        bench_counter(state, "floor_ns", place.floor.p50_ns);
    }
    free(s);
    place_leave(&place);
}

static void slot_round_trip(bench_state *state, void *arg) {
    slot_case(state, arg, true);
}
static void slot_stream(bench_state *state, void *arg) {
    slot_case(state, arg, false);
}

/* ---- through the verbs ----------------------------------------------------------------------- */

#define DEPTH 128
#define SIGNAL_EVERY 32
#define BUFFER 4096
#define MEMORY ((size_t)(DEPTH + 1) * BUFFER) /* receives, and one to send from */

struct end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_qp *qp;
    uint8_t *memory;
    struct ibv_mr *mr;
    unsigned unsignalled, in_flight;
};

static bool end_open(struct end *e) {
    memset(e, 0, sizeof *e);
    int count = 0;
    struct ibv_device **list = soft_get_device_list(&count);
    if (!list)
        return false;
    e->ctx = count > 0 ? soft_open_device(list[0]) : NULL;
    soft_free_device_list(list);
    if (!e->ctx || !(e->pd = soft_alloc_pd(e->ctx)) || !(e->memory = soft_mem_alloc(MEMORY)))
        return false;
    e->mr = soft_reg_mr(e->pd, e->memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
    e->send_cq = soft_create_cq(e->ctx, 2 * DEPTH, NULL, NULL, 0);
    e->recv_cq = soft_create_cq(e->ctx, 2 * DEPTH, NULL, NULL, 0);
    if (!e->mr || !e->send_cq || !e->recv_cq)
        return false;
    soft_cq_any_order(e->send_cq); /* as the library's are */
    soft_cq_any_order(e->recv_cq);
    struct ibv_qp_init_attr init = {.send_cq = e->send_cq,
                                    .recv_cq = e->recv_cq,
                                    .cap = {.max_send_wr = DEPTH,
                                            .max_recv_wr = DEPTH,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 64},
                                    .qp_type = IBV_QPT_RC};
    e->qp = soft_create_qp(e->pd, &init);
    return e->qp != NULL;
}

static void end_close(struct end *e) {
    if (e->qp)
        soft_destroy_qp(e->qp);
    if (e->send_cq)
        soft_destroy_cq(e->send_cq);
    if (e->recv_cq)
        soft_destroy_cq(e->recv_cq);
    if (e->mr)
        soft_dereg_mr(e->mr);
    if (e->memory)
        soft_mem_free(e->memory, MEMORY);
    if (e->pd)
        soft_dealloc_pd(e->pd);
    if (e->ctx)
        soft_close_device(e->ctx);
}

static bool end_recv(struct end *e, uint64_t slot) {
    struct ibv_sge sge = {(uintptr_t)e->memory + slot * BUFFER, BUFFER, e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    return ibv_post_recv(e->qp, &wr, &bad) == 0;
}

static bool end_connect(struct end *e, uint32_t peer_qpn) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .path_mtu = IBV_MTU_4096,
                               .dest_qp_num = peer_qpn,
                               .port_num = 1,
                               .ah_attr = {.is_global = 1, .port_num = 1},
                               .max_rd_atomic = 1,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = 1,
                               .timeout = 14,
                               .retry_cnt = 7,
                               .rnr_retry = 7};
    if (soft_modify_qp(e->qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        return false;
    for (uint64_t slot = 0; slot < DEPTH; slot++)
        if (!end_recv(e, slot))
            return false;
    attr.qp_state = IBV_QPS_RTR;
    if (soft_modify_qp(e->qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        return false;
    attr.qp_state = IBV_QPS_RTS;
    return soft_modify_qp(e->qp, &attr,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

/* Room in the send queue: sends complete SIGNAL_EVERY at a time. */
static bool end_has_room(struct end *e) {
    if (e->in_flight < DEPTH)
        return true;
    struct ibv_wc wc;
    if (ibv_poll_cq(e->send_cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
        e->in_flight -= SIGNAL_EVERY;
    return e->in_flight < DEPTH;
}

static bool end_send(struct end *e, size_t bytes) {
    struct ibv_sge sge = {(uintptr_t)e->memory + (size_t)DEPTH * BUFFER, (uint32_t)bytes,
                          e->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    if (bytes <= 64)
        wr.send_flags |= IBV_SEND_INLINE;
    if (++e->unsignalled == SIGNAL_EVERY) {
        e->unsignalled = 0;
        wr.send_flags |= IBV_SEND_SIGNALED;
    }
    e->in_flight++;
    return ibv_post_send(e->qp, &wr, &bad) == 0;
}

/* One message taken and its receive posted again: 1, 0 nothing there, -1 broken. */
static int end_take(struct end *e) {
    struct ibv_wc wc;
    int n = ibv_poll_cq(e->recv_cq, 1, &wc);
    if (n <= 0)
        return n;
    return wc.status == IBV_WC_SUCCESS && end_recv(e, wc.wr_id) ? 1 : -1;
}

struct pair {
    struct end a, b;
    _Alignas(128) _Atomic bool stop;
    size_t bytes;
    int cpu;
    bool echo;
};

static void *verbs_side(void *arg) {
    struct pair *p = arg;
    floor_pin(p->cpu);
    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        int n = end_take(&p->b);
        if (n < 0)
            break;
        if (n == 0 || !p->echo)
            continue;
        while (!end_has_room(&p->b))
            if (atomic_load_explicit(&p->stop, memory_order_acquire))
                return NULL;
        if (!end_send(&p->b, p->bytes))
            break;
    }
    return NULL;
}

static bool verbs_turn(struct pair *p) {
    while (!end_has_room(&p->a))
        ;
    if (!end_send(&p->a, p->bytes))
        return false;
    int n = 1;
    while (p->echo && (n = end_take(&p->a)) == 0)
        ;
    return n == 1;
}

static void verbs_case(bench_state *state, void *arg, bool echo) {
    struct rpc_pending place;
    if (!place_take(state, &place))
        return;
    struct pair *p = aligned_alloc(_Alignof(struct pair), sizeof *p);
    if (!p)
        return;
    memset(p, 0, sizeof *p);
    p->bytes = *(const size_t *)arg;
    p->cpu = place.cpu_b;
    p->echo = echo;
    pthread_t thread;
    bool good = end_open(&p->a) && end_open(&p->b) && end_connect(&p->a, p->b.qp->qp_num) &&
                end_connect(&p->b, p->a.qp->qp_num);
    if (good && pthread_create(&thread, NULL, verbs_side, p) == 0) {
        while (good && bench_next(state))
            good = verbs_turn(p);
        atomic_store_explicit(&p->stop, true, memory_order_release);
        pthread_join(thread, NULL);
        if (echo) {
            bench_counter(state, "one_way_ns", bench_ns(state) / 2);
            bench_floor(state, place.floor.p50_ns, 2);
        } else {
            bench_items(state, bench_iterations(state));
            bench_bytes(state, bench_iterations(state) * p->bytes);
            bench_counter(state, "floor_ns", place.floor.p50_ns);
        }
    }
    if (!good)
        bench_fail(state, "the software device cannot be used");
    end_close(&p->a);
    end_close(&p->b);
    free(p);
    place_leave(&place);
}

static void verbs_round_trip(bench_state *state, void *arg) {
    verbs_case(state, arg, true);
}
static void verbs_stream(bench_state *state, void *arg) {
    verbs_case(state, arg, false);
}

BENCH_SETUP {
    static size_t sizes[] = {8, 64, 4096};
    bench_register("ring/slot/round_trip/8", slot_round_trip, &sizes[0]);
    bench_register("ring/slot/round_trip/64", slot_round_trip, &sizes[1]);
    bench_register("ring/slot/stream/64", slot_stream, &sizes[1]);
    bench_register("ring/verbs/round_trip/8", verbs_round_trip, &sizes[0]);
    bench_register("ring/verbs/round_trip/64", verbs_round_trip, &sizes[1]);
    bench_register("ring/verbs/round_trip/4096", verbs_round_trip, &sizes[2]);
    bench_register("ring/verbs/stream/64", verbs_stream, &sizes[1]);
    bench_register("ring/verbs/stream/4096", verbs_stream, &sizes[2]);
}
