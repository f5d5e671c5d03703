/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_size_test.c - every byte of messages from nothing to several MiB, from memory that the
 * peer maps (descriptors) and from private memory (a stream through the ring), with laps around the
 * ring by odd sizes and both directions at once.
 */
#include "support/softverbs.h"
#include "support/rows.h"
#include "soft/object/ring.h"

#define MIB (1024u * 1024u)

static struct sv_end a, b;

static void one_message(size_t bytes, size_t from, size_t to, uint32_t seed) {
    sv_fill(a.buf + from, bytes, seed);
    memset(b.buf + to, 0xcc, bytes + 8);
    assert_int_equal(sv_recv(&b, seed, to, bytes + 8), 0);
    assert_int_equal(sv_send(&a, seed, from, bytes, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc = sv_poll(b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.byte_len, bytes);
    must_data_equal(wc.wr_id, seed);
    sv_check(b.buf + to, bytes, seed);
    for (size_t i = 0; i < 8; i++)
        must_data_equal(b.buf[to + bytes + i], 0xcc);
    wc = sv_poll(a.scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.wr_id, seed);
}

struct memory {
    bool mapped;
};

static void every_size(void **state) {
    const bool mapped = ((const struct memory *)*state)->mapped;
    const size_t sizes[] = {0,     1,     8,       63,  64,          111,    112,  113,
                            224,   447,   448,     449, 896,         4095,   4096, 4097,
                            65535, 65536, 1048575, MIB, 4 * MIB + 3, 8 * MIB};
    struct sv_options o = SV_OPTIONS(.bytes = 9 * MIB, .mapped = mapped);
    sv_pair(&a, o, &b, o);
    if (mapped)
        sv_wait_mapped(&a);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        one_message(sizes[i], i % 5, i % 3 * 7, i);
    sv_unpair(&a, &b);
}

TEST(a_large_mapped_message_takes_one_slot) {
    struct sv_options o = SV_OPTIONS(.bytes = 2 * MIB, .mapped = true);
    sv_pair(&a, o, &b, o);
    sv_wait_mapped(&a);
    uint32_t before = sv_slots_written(&a);
    one_message(MIB, 1, 1, 3);
    assert_int_equal(sv_slots_written(&a) - before, 1);
    sv_unpair(&a, &b);
}

TEST(a_large_private_message_without_a_block_goes_many_times_around_the_ring) {
    struct sv_options o = SV_OPTIONS(.bytes = 2 * MIB);
    sv_pair(&a, o, &b, o);
    sv_only_ring(&a);
    uint32_t before = sv_slots_written(&a);
    one_message(MIB, 1, 1, 3);
    assert_true(sv_slots_written(&a) - before >= MIB / SOFT_SLOT_PAYLOAD);
    sv_unpair(&a, &b);
}

/* 16 pieces on both sides that do not fall together, some mapped and some private. */
TEST(large_messages_are_gathered_and_scattered) {
    struct sv_options o =
        SV_OPTIONS(.bytes = 2 * MIB, .mapped = true, .send_sge = 16, .recv_sge = 16);
    for (int mixed = 0; mixed < 2; mixed++) {
        sv_pair(&a, o, &b, o);
        sv_wait_mapped(&a);
        sv_only_ring(&a);
        uint8_t *private = malloc(200000);
        struct ibv_mr *mr = soft_reg_mr(a.pd, private, 200000, 0);
        struct ibv_sge from[16], to[16];
        size_t total = 0, at = 0;
        for (unsigned i = 0; i < 16; i++) {
            size_t n = 1000 * i + 17 * i * i;
            bool here = mixed && i == 9;
            from[i] = here ? (struct ibv_sge){(uintptr_t) private, (uint32_t)n, mr->lkey}
                           : sv_sge(&a, at, n);
            uint8_t *p = here ? private : a.buf + at;
            for (size_t k = 0; k < n; k++)
                p[k] = sv_byte(total + k, 4);
            total += n;
            at += n + 64;
        }
        for (unsigned i = 0; i < 16; i++)
            to[i] = sv_sge(&b, i * 100000, 1 + (total / 16));
        struct ibv_recv_wr recv = {.sg_list = to, .num_sge = 16}, *bad_recv;
        struct ibv_send_wr send = {.sg_list = from,
                                   .num_sge = 16,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        uint32_t before = sv_slots_written(&a);
        assert_int_equal(ibv_post_recv(b.qp, &recv, &bad_recv), 0);
        assert_int_equal(ibv_post_send(a.qp, &send, &bad), 0);
        struct ibv_wc wc = sv_poll(b.rcq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        must_data_equal(wc.byte_len, total);
        assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
        for (size_t i = 0; i < total; i++)
            must_data_equal(b.buf[i / to[0].length * 100000 + i % to[0].length], sv_byte(i, 4));
        if (mixed)
            assert_true(sv_slots_written(&a) - before >= total / SOFT_SLOT_PAYLOAD);
        else
            assert_uint_in_range(sv_slots_written(&a) - before, 2, SOFT_SPAN_MAX);
        assert_int_equal(soft_dereg_mr(mr), 0);
        free(private);
        sv_unpair(&a, &b);
    }
}

/* ---- streams: one thread at each end ----------------------------------------------------------- */

enum { STREAM_SLOTS = 16, STREAM_BYTES = 3000 };

struct stream {
    struct sv_end *e;
    unsigned messages;
    bool sends, receives;
    unsigned sent, completed, received;
};

static size_t stream_size(unsigned i) {
    return i % 11 == 0 ? 0 : i * 37 % (i % 5 == 0 ? STREAM_BYTES : 300);
}

static void stream_post_recv(struct stream *s, unsigned i) {
    must(sv_recv(s->e, i, (i % STREAM_SLOTS) * STREAM_BYTES, STREAM_BYTES) == 0);
}

static bool stream_turn(struct stream *s) {
    struct ibv_wc wc[8];
    const size_t half = STREAM_SLOTS * STREAM_BYTES;
    bool moved = false;
    while (s->sends && s->sent < s->messages && s->sent - s->completed < STREAM_SLOTS) {
        size_t at = half + s->sent % STREAM_SLOTS * STREAM_BYTES;
        sv_fill(s->e->buf + at, stream_size(s->sent), s->sent);
        /* one in four is signalled; the window moves by what is known to be over */
        must(sv_send(s->e, s->sent, at, stream_size(s->sent),
                     s->sent % 4 == 3 || s->sent == s->messages - 1 ? IBV_SEND_SIGNALED : 0) == 0);
        s->sent++;
        moved = true;
    }
    int n = ibv_poll_cq(s->e->scq, 8, wc);
    for (int i = 0; i < n; i++) {
        sv_right(wc[i], wc[i].wr_id + 1 > s->completed);
        s->completed = (unsigned)wc[i].wr_id + 1;
    }
    moved |= n > 0;
    n = ibv_poll_cq(s->e->rcq, 8, wc);
    for (int i = 0; i < n; i++) {
        sv_right(wc[i], wc[i].wr_id == s->received);
        must_data(wc[i].byte_len == stream_size(s->received));
        sv_check(s->e->buf + (s->received % STREAM_SLOTS) * STREAM_BYTES, wc[i].byte_len,
                 s->received);
        stream_post_recv(s, s->received + STREAM_SLOTS);
        s->received++;
    }
    return moved || n > 0;
}

static void *stream_run(void *arg) {
    struct stream *s = arg;
    unsigned turns = 0;
    uint64_t since = soft_now_ns();
    while ((s->sends && s->completed < s->messages) || (s->receives && s->received < s->messages))
        if (stream_turn(s))
            since = soft_now_ns();
        else
            sv_pause(&turns, since, "the stream stands still", __FILE__, __LINE__);
    return NULL;
}

/* must() may only be called on cmocka's thread: a thread of its own ends the process instead. */
static void *stream_thread(void *arg) {
    return stream_run(arg);
}

struct flow {
    bool both, mapped;
    unsigned messages;
};

static void a_stream(void **state) {
    const struct flow *flow = *state;
    struct sv_options o = SV_OPTIONS(.bytes = 2 * STREAM_SLOTS * STREAM_BYTES,
                                     .mapped = flow->mapped, .one_cq = false);
    sv_pair(&a, o, &b, o);
    struct stream at_a = {
        .e = &a, .messages = flow->messages, .sends = true, .receives = flow->both};
    struct stream at_b = {
        .e = &b, .messages = flow->messages, .sends = flow->both, .receives = true};
    for (unsigned i = 0; i < STREAM_SLOTS; i++) {
        stream_post_recv(&at_a, i);
        stream_post_recv(&at_b, i);
    }
    pthread_t thread;
    must_end_process = true; /* failures of either thread end the process with a message */
    assert_int_equal(pthread_create(&thread, NULL, stream_thread, &at_b), 0);
    stream_run(&at_a);
    pthread_join(thread, NULL);
    must_end_process = false;
    must_data_equal(at_a.completed, flow->messages);
    must_data_equal(at_b.received, flow->messages);
    if (flow->both)
        must_data_equal(at_a.received, flow->messages);
    sv_unpair(&a, &b);
}

/* A slot position is 32 bits and is used up after 2^32 slots. */
TEST(slot_positions_wrap_after_four_billion_slots) {
    struct sv_options o = SV_OPTIONS(.bytes = 2 * STREAM_SLOTS * STREAM_BYTES);
    sv_pair(&a, o, &b, o);
    sv_wait_linked(&a);
    sv_wait_linked(&b);
    struct soft_qp *qa = soft_qp_of(a.qp), *qb = soft_qp_of(b.qp);
    /* Both sides as they are after 2^32 - 100 slots, a whole number of laps and 4 before it. */
    const uint32_t pos = UINT32_MAX - 100;
    const unsigned index = pos % SOFT_RING_SLOTS;
    soft_lock();
    spin_lock(&qa->lock);
    qa->tx_pos = pos;
    st(qa->tx_published, pos);
    qa->tx_index = index;
    st(qa->tx_acked, pos);
    spin_unlock(&qa->lock);
    spin_lock(&qb->lock);
    st(qb->rx_pos, pos);
    st(qb->rx_told, pos);
    st(qb->rx_word, pos);
    st(qb->rx_index, index);
    struct soft_ring *ring = ld(qb->rx);
    for (unsigned i = 0; i < SOFT_RING_SLOTS; i++) /* what the last lap left */
        atomic_store(&ring->slot[(index + i) % SOFT_RING_SLOTS].seq, pos - SOFT_RING_SLOTS + i + 1);
    atomic_store(&ring->rx.acked, pos);
    spin_unlock(&qb->lock);
    soft_unlock();
    for (unsigned i = 0; i < 400; i++)
        one_message(i * 31 % 2000, 0, 0, i);
    sv_unpair(&a, &b);
}

TEST_CASES(ROW(every_size_arrives_from_memory_the_peer_maps, every_size, memory, .mapped = true),
           ROW(every_size_arrives_from_private_memory, every_size, memory, .mapped = false),
           ROW(odd_sizes_wrap_around_the_ring, a_stream, flow, .messages = 5000),
           ROW(both_directions_at_once, a_stream, flow, .both = true, .messages = 3000),
           ROW(descriptors_and_slots_alternate_in_order, a_stream, flow, .both = true,
               .mapped = true, .messages = 3000));
