/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_torn_test.c - a queue pair over TCP whose application writes its memory all the time while the peer READs it,
 * or while an answer, or the peer's WRITE, comes to it.
 *
 * What is promised is what InfiniBand promises: the READ succeeds, is as long as it was asked to be, and each of its
 * bytes is one that was there at some time; which of them belong together it does not say. The connection lives, and what is
 * asked next is right.
 */
#include "support/softverbs_tcp.h"

#include <stdatomic.h>

#include "support/rows.h"

#define AREA (1u << 20)
#define BEHIND 0xee /* what no writer writes */

static struct tcp_pair p;
static pthread_t writer;
static atomic_bool over;
static uint8_t *written;

struct how {
    bool crc;
    size_t bytes;
    unsigned reads, pieces;
    bool write; /* instead of a READ, where there is a choice */
};

/* Every byte changes from one round to the next, and is below BEHIND. That it is read meanwhile is meant. */
__attribute__((no_sanitize("thread"))) static void *write_always(void *bytes) {
    volatile uint8_t *to = written;
    for (unsigned round = 0; !atomic_load(&over); round++)
        for (size_t i = 0; i < *(const size_t *)bytes; i += 8)
            *(volatile uint64_t *)(to + i) = round % BEHIND * 0x0101010101010101u;
    return NULL;
}

static void begin_writing(uint8_t *to, size_t *bytes) {
    written = to;
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&writer, NULL, write_always, bytes), 0);
}

static int open_written(void **state) {
    struct how *how = *state;
    tcp_open(&p, &(struct tcp_options){.o = {.bytes = 2 * AREA}, .crc = how->crc});
    begin_writing(p.b.buf + AREA, &how->bytes);
    return 0;
}

/* The memory that it comes to. */
static int open_sink_written(void **state) {
    struct how *how = *state;
    tcp_open(&p, &(struct tcp_options){.o = {.bytes = 2 * AREA}, .crc = how->crc});
    sv_fill(p.a.buf, how->bytes, 3);
    sv_fill(p.b.buf + AREA, how->bytes, 3);
    begin_writing(how->write ? p.b.buf + AREA : p.a.buf, &how->bytes);
    return 0;
}

static void stop_writing(void) {
    if (!atomic_exchange(&over, true))
        pthread_join(writer, NULL);
}

static int shut(void **state) {
    (void)state;
    stop_writing();
    tcp_close(&p);
    return 0;
}

static void read_once(const struct how *how, uint64_t wr_id) {
    struct ibv_send_wr wr = {
        .wr_id = wr_id,
        .opcode = IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + AREA, .rkey = p.open->rkey}};
    assert_int_equal(tcp_post(&p, wr, 0, how->bytes, how->pieces), 0);
}

static void a_read_of_memory_that_changes_succeeds(void **state) {
    const struct how *how = *state;
    size_t bytes = how->bytes;
    for (unsigned i = 0; i < how->reads; i++) {
        memset(p.a.buf, BEHIND, bytes + 64);
        read_once(how, i);
        tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
        assert_null(memchr(p.a.buf, BEHIND, bytes));
        for (unsigned k = 0; k < 64; k++)
            must_data_equal(p.a.buf[bytes + k], BEHIND);
    }
    stop_writing();
    sv_fill(p.b.buf + AREA, bytes, 3);
    read_once(how, 1000);
    tcp_expect(p.a.scq, 1000, IBV_WC_SUCCESS);
    sv_check(p.a.buf, bytes, 3);
}

/* It comes, and the connection lives; what is there in the end is the application's doing. */
static void what_comes_to_memory_that_is_written_succeeds(void **state) {
    const struct how *how = *state;
    struct ibv_send_wr wr = {
        .opcode = how->write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + AREA, .rkey = p.open->rkey}};
    for (wr.wr_id = 0; wr.wr_id < how->reads; wr.wr_id++) {
        assert_int_equal(tcp_post(&p, wr, 0, how->bytes, how->pieces), 0);
        tcp_expect(p.a.scq, wr.wr_id, IBV_WC_SUCCESS);
    }
    stop_writing();
    memset(p.a.buf, 0, how->write ? 0 : how->bytes);
    sv_fill(how->write ? p.a.buf : p.b.buf + AREA, how->bytes, 4);
    assert_int_equal(tcp_post(&p, wr, 0, how->bytes, how->pieces), 0);
    tcp_expect(p.a.scq, wr.wr_id, IBV_WC_SUCCESS);
    read_once(how, 1000); /* what was written is there then, too */
    tcp_expect(p.a.scq, 1000, IBV_WC_SUCCESS);
    sv_check(p.a.buf, how->bytes, 4);
    assert_int_equal(sv_state(&p.b), IBV_QPS_RTS);
}

#define COMES(name, ...)                                                                           \
    ROW_WITH(open_sink_written, shut, what_comes_to_memory_that_is_written_succeeds__##name,       \
             what_comes_to_memory_that_is_written_succeeds, how, __VA_ARGS__)
#define READS(name, ...)                                                                           \
    ROW_WITH(open_written, shut, a_read_of_memory_that_changes_succeeds__##name,                   \
             a_read_of_memory_that_changes_succeeds, how, __VA_ARGS__)

TEST_CASES(READS(of_64_bytes, true, 64, 500, 1, false),
           READS(of_264_bytes, true, 264, 500, 2, false),
           READS(of_4_kib, true, 4096, 500, 1, false), READS(of_64_kib, true, 65536, 300, 4, false),
           READS(of_a_mib, true, AREA - 64, 100, 2, false),
           READS(of_64_kib_without_check_values, false, 65536, 100, 1, false),
           COMES(a_read_of_8_kib, true, 8192, 300, 1, false),
           COMES(a_read_of_64_kib, true, 65536, 200, 3, false),
           COMES(a_read_of_a_mib, true, AREA, 50, 1, false),
           COMES(a_write_of_64_kib, true, 65536, 200, 1, true),
           COMES(a_write_of_a_mib, true, AREA, 50, 1, true));
