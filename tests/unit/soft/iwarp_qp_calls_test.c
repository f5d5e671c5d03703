/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_calls_test.c - how many system calls the work of a queue pair over TCP takes: whatever is asked for at once goes at
 * once. All threads are counted.
 */
#include "support/softverbs_tcp.h"

#include <stdatomic.h>
#include <sys/syscall.h>

#include "support/rows.h"

#define AREA (1u << 20)

static struct tcp_pair p;
static atomic_uint calls, bytes_sent;

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags) {
    ssize_t n = syscall(SYS_sendmsg, fd, msg, flags);
    atomic_fetch_add(&calls, n > 0);
    atomic_fetch_add(&bytes_sent, n > 0 ? (unsigned)n : 0);
    return n;
}

struct reads {
    bool crc;
    unsigned bytes, count, most; /* of a READ; of them; calls for each, with its request */
};

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

static void the_answer_to_a_read_takes_few_calls(void **state) {
    const struct reads *r = *state;
    tcp_open(&p, &(struct tcp_options){.o = {.bytes = 2 * AREA}, .crc = r->crc, .extended = true});
    struct ibv_send_wr wr = {
        .wr_id = 1,
        .opcode = IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + AREA, .rkey = p.open->rkey}};
    sv_fill(p.b.buf + AREA, r->bytes, 5);
    atomic_store(&calls, 0);
    atomic_store(&bytes_sent, 0);
    for (unsigned i = 0; i < r->count; i++) {
        assert_int_equal(tcp_post(&p, wr, 0, r->bytes, 1), 0);
        tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    }
    sv_check(p.a.buf, r->bytes, 5);
    assert_true(atomic_load(&bytes_sent) > r->bytes * r->count);
    assert_in_range(atomic_load(&calls), 2 * r->count, r->most * r->count);
}

#define READS(name, ...)                                                                           \
    ROW_WITH(NULL, shut, the_answer_to_a_read_takes_few_calls__##name,                             \
             the_answer_to_a_read_takes_few_calls, reads, __VA_ARGS__)

int main(void) {
    const struct CMUnitTest tests[] = {
        READS(of_8_kib, true, 8192, 50, 3),
        READS(of_64_kib, true, 65536, 50, 4),
        READS(of_a_mib, true, AREA, 20, 20),
        READS(of_a_mib_without_check_values, false, AREA, 20, 20),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
