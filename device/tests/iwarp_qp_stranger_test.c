/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_stranger_test.c - a queue pair over TCP that agreed on immediate data and atomics with a peer who means it no good:
 * whatever that says is refused with a Terminate, changes no memory and makes nobody wait.
 */
#include "support/softverbs_tcp_peer.h"

#include "soft/iwarp/qp_tcp.h"
#include "soft/iwarp/terminate.h"
#include "support/iwarp.h"
#include "support/rows.h"

static struct tcp_peer p;

static int open_plain(void **state) {
    (void)state;
    tcp_peer_open(&p, &(struct tcp_options){.extended = true});
    return 0;
}

static int open_impatient(void **state) {
    (void)state;
    tcp_peer_open(&p, &(struct tcp_options){.o = {.finite_rnr = true}, .extended = true});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_peer_close(&p);
    return 0;
}

static struct iwarp_atomic add_one(void) {
    return (struct iwarp_atomic){.kind = IWARP_FETCH_AND_ADD,
                                 .id = 5,
                                 .stag = p.open->rkey,
                                 .offset = (uintptr_t)p.open->addr,
                                 .value = 1};
}

/* Appends a frame. Returns where the next one goes. */
static size_t put(size_t at, uint8_t opcode, uint32_t msn, const void *payload, size_t bytes) {
    struct iwarp_ddp ddp = tcp_peer_message(&p, opcode);
    if (!iwarp_opcode_tagged(opcode))
        ddp.msn = msn;
    return at + iwarp_frame(p.frame + at, &ddp, payload, bytes);
}

static size_t put_atomic(size_t at, uint32_t msn, const struct iwarp_atomic *atomic) {
    uint8_t bytes[IWARP_ATOMIC_BYTES];
    iwarp_atomic_put(bytes, atomic);
    return put(at, IWARP_ATOMIC_REQUEST, msn, bytes, sizeof bytes);
}

static void ends(size_t said, unsigned refusal) {
    tcp_peer_say(&p, p.frame, said);
    tcp_peer_expect_end(&p, refusal);
    tcp_peer_flushed_from(&p, 0);
}

/* ---- one message ----------------------------------------------------------------------------------------- */

struct malformed {
    uint8_t opcode;
    size_t bytes;
    unsigned refusal;
};

static void a_message_of_another_length_ends_it(void **state) {
    const struct malformed *m = *state;
    ends(put(0, m->opcode, 1, p.payload, m->bytes), m->refusal);
}

struct wrong {
    uint32_t key; /* added */
    uint64_t offset;
    size_t flip; /* this byte of the request is changed, for 0xff; 0: none */
    unsigned refusal;
};

static void an_atomic_ends_it(void **state) {
    const struct wrong *wrong = *state;
    struct iwarp_atomic atomic = add_one();
    uint8_t bytes[IWARP_ATOMIC_BYTES];
    atomic.stag += wrong->key;
    atomic.offset += wrong->offset;
    iwarp_atomic_put(bytes, &atomic);
    if (wrong->flip)
        bytes[wrong->flip] ^= 0xff;
    memset(p.e.buf + TCP_PEER_TARGET, 0xee, 65536);
    ends(put(0, IWARP_ATOMIC_REQUEST, 1, bytes, sizeof bytes), wrong->refusal);
    for (unsigned i = 0; i < 65536; i++)
        assert_int_equal(p.e.buf[TCP_PEER_TARGET + i], 0xee);
}

/* ---- many ------------------------------------------------------------------------------------------------ */

#define PLAIN(name) TEST_WITH(open_plain, shut, name)

/* None of its answers was read, and no more than the depth were done. */
PLAIN(a_flood_of_atomics_ends_it) {
    size_t at = 0;
    struct iwarp_atomic atomic = add_one();
    uint64_t *word = (uint64_t *)(void *)(p.e.buf + TCP_PEER_TARGET);
    *word = 0;
    for (uint32_t i = 1; i <= 100; i++)
        at = put_atomic(at, i, &atomic);
    ends(at, IWARP_OPERATION_STREAM);
    assert_in_range(*word, 4, 99);
}

TEST_WITH(open_impatient, shut, immediate_data_without_a_receive_ends_it) {
    size_t at = 0;
    static const uint8_t immediate[IWARP_IMMEDIATE_BYTES] = {1, 2, 3, 4};
    for (uint32_t i = 0; i < TCP_PEER_RECEIVES + 2; i++)
        at = put(at, i % 2 ? IWARP_SEND_IMMEDIATE : IWARP_IMMEDIATE, i + 1, immediate, 8);
    tcp_peer_say(&p, p.frame, at);
    for (unsigned i = 0; i < TCP_PEER_RECEIVES; i++)
        tcp_expect(p.e.rcq, i, IBV_WC_SUCCESS);
    tcp_peer_expect_end(&p, IWARP_UNTAGGED_NO_BUFFER);
    tcp_wait_down(&p.e);
}

/* RFC 7306 has it without a WRITE; it tells of one of nothing. */
PLAIN(immediate_data_alone_tells_of_nothing_written) {
    static const uint8_t immediate[IWARP_IMMEDIATE_BYTES] = {1, 2, 3, 4, 5};
    tcp_peer_say(&p, p.frame, put(0, IWARP_IMMEDIATE, 1, immediate, 8));
    struct ibv_wc wc = sv_poll(p.e.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(wc.byte_len, 0);
    assert_memory_equal(&wc.imm_data, immediate, 4);
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void post_one_sided(enum ibv_wr_opcode opcode) {
    struct ibv_sge sge = sv_sge(&p.e, 3 * 65536, 8);
    struct ibv_send_wr *bad, wr = {.wr_id = 7,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma.rkey = IWARP_END_STAG};
    assert_int_equal(ibv_post_send(p.e.qp, &wr, &bad), 0);
}

struct answer {
    enum ibv_wr_opcode asked;
    bool read; /* answered as a READ */
    uint32_t id;
};

static void another_answer_than_the_oldest_asks_for_ends_it(void **state) {
    const struct answer *a = *state;
    uint8_t bytes[IWARP_ATOMIC_RESPONSE_BYTES];
    memset(p.e.buf + 3 * 65536, 0xee, 8);
    if (a->asked != IBV_WR_SEND)
        post_one_sided(a->asked);
    iwarp_atomic_response_put(bytes, &(struct iwarp_atomic_response){.id = a->id});
    if (a->read) {
        struct iwarp_ddp ddp = {.opcode = IWARP_READ_RESPONSE, .last = true};
        tcp_peer_say(&p, p.frame, iwarp_frame(p.frame, &ddp, bytes, 8));
    } else {
        tcp_peer_say(&p, p.frame, put(0, IWARP_ATOMIC_RESPONSE, 1, bytes, sizeof bytes));
    }
    tcp_peer_expect_end(&p, IWARP_DDP_CATASTROPHIC);
    tcp_peer_flushed_from(&p, 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(p.e.buf[3 * 65536 + i], 0xee);
}

PLAIN(where_an_answer_goes_may_go_away) {
    uint8_t bytes[IWARP_ATOMIC_RESPONSE_BYTES] = {0};
    post_one_sided(IBV_WR_ATOMIC_FETCH_AND_ADD);
    memset(p.e.buf + 3 * 65536, 0xee, 8);
    assert_int_equal(soft_dereg_mr(p.e.mr), 0);
    p.e.mr = NULL;
    tcp_peer_say(&p, p.frame, put(0, IWARP_ATOMIC_RESPONSE, 1, bytes, sizeof bytes));
    tcp_expect(p.e.scq, 7, IBV_WC_LOC_PROT_ERR);
    tcp_peer_flushed_from(&p, 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(p.e.buf[3 * 65536 + i], 0xee);
    p.e.mr = soft_reg_mr(p.e.pd, p.e.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
}

/* ---- anything -------------------------------------------------------------------------------------------- */

#define STRANGERS 80u

static size_t put_random(size_t at, uint32_t *seed, uint32_t msn[IWARP_QUEUES]) {
    uint8_t body[IWARP_ATOMIC_BYTES] = {0};
    uint8_t opcode = (uint8_t)(iwarp_random(seed) % 16);
    struct iwarp_ddp ddp = tcp_peer_message(&p, opcode);
    struct iwarp_atomic atomic = add_one();
    struct iwarp_read read = {.bytes = iwarp_random(seed) % 3000,
                              .source_stag = p.open->rkey,
                              .source_offset = atomic.offset};
    size_t bytes = iwarp_random(seed) % 300;
    if (opcode == IWARP_ATOMIC_REQUEST) {
        atomic.kind = iwarp_random(seed) & 1 ? IWARP_COMPARE_AND_SWAP : IWARP_FETCH_AND_ADD;
        atomic.offset += iwarp_random(seed) % 8 ? 8 * (iwarp_random(seed) % 8000) : 1;
        iwarp_atomic_put(body, &atomic);
        bytes = IWARP_ATOMIC_BYTES;
    } else if (opcode == IWARP_READ_REQUEST) {
        iwarp_read_put(body, &read);
        bytes = IWARP_READ_BYTES;
    } else if (iwarp_opcode_immediate(opcode)) {
        bytes = IWARP_IMMEDIATE_BYTES;
    }
    if (!iwarp_opcode_tagged(opcode))
        ddp.msn = msn[ddp.queue]++;
    if (iwarp_random(seed) % 8 == 0)
        ddp.last = false;
    if (iwarp_random(seed) % 16 == 0)
        body[iwarp_random(seed) % sizeof body] ^= 0x80;
    if (iwarp_random(seed) % 16 == 0)
        ddp.stag ^= 1u << iwarp_random(seed) % 32;
    if (iwarp_random(seed) % 16 == 0)
        ddp.offset += iwarp_random(seed) % 70000;
    return at + iwarp_frame(p.frame + at, &ddp, bytes <= sizeof body ? body : p.payload, bytes);
}

/* Frames that are nearly right. The connection ends, soon after the peer's end at the latest, and no other memory changed. */
TEST(whatever_a_stranger_says_comes_to_an_end) {
    uint32_t seed = 4711;
    for (unsigned i = 0; i < STRANGERS; i++) {
        uint32_t msn[IWARP_QUEUES] = {1, 1, 1, 1};
        size_t at = 0;
        (void)open_impatient(NULL);
        memset(p.e.buf + TCP_PEER_LARGE, 0xee, TCP_PEER_TARGET - TCP_PEER_LARGE);
        memset(p.e.buf + 2 * TCP_PEER_TARGET, 0xee, 65536);
        post_one_sided(i & 1 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD);
        for (unsigned k = 1 + iwarp_random(&seed) % 12; k > 0; k--)
            at = put_random(at, &seed, msn);
        tcp_peer_say(&p, p.frame, at);
        shutdown(p.fd, SHUT_WR);
        tcp_wait_down(&p.e);
        for (size_t k = TCP_PEER_LARGE; k < TCP_PEER_TARGET; k++)
            assert_int_equal(p.e.buf[k], 0xee);
        for (size_t k = 2 * TCP_PEER_TARGET; k < 2 * TCP_PEER_TARGET + 65536; k++)
            assert_int_equal(p.e.buf[k], 0xee);
        tcp_peer_close(&p);
    }
}

#define LENGTH(name, ...)                                                                          \
    ROW_WITH(open_plain, shut, name, a_message_of_another_length_ends_it, malformed, __VA_ARGS__)
#define ATOMIC(name, ...) ROW_WITH(open_plain, shut, name, an_atomic_ends_it, wrong, __VA_ARGS__)
#define ANSWER(name, ...)                                                                          \
    ROW_WITH(open_plain, shut, name, another_answer_than_the_oldest_asks_for_ends_it, answer,      \
             __VA_ARGS__)

TEST_CASES(LENGTH(short_immediate_data, IWARP_IMMEDIATE, 7, IWARP_OPERATION_OTHER),
           LENGTH(long_immediate_data, IWARP_IMMEDIATE_SOLICITED, 9, IWARP_UNTAGGED_TOO_LONG),
           LENGTH(a_short_atomic, IWARP_ATOMIC_REQUEST, 51, IWARP_OPERATION_OTHER),
           LENGTH(a_long_atomic, IWARP_ATOMIC_REQUEST, 56, IWARP_UNTAGGED_TOO_LONG),
           LENGTH(a_short_answer, IWARP_ATOMIC_RESPONSE, 11, IWARP_OPERATION_OTHER),
           ATOMIC(an_unknown_key, .key = 1, .refusal = IWARP_REMOTE_STAG),
           ATOMIC(a_key_of_another_index, .key = 1u << 16, .refusal = IWARP_REMOTE_STAG),
           ATOMIC(a_word_that_is_askew, .offset = 4, .refusal = IWARP_OPERATION_OTHER),
           ATOMIC(a_word_behind_the_end, .offset = 65536, .refusal = IWARP_REMOTE_STAG),
           ATOMIC(a_word_in_front_of_it, .offset = -8ull, .refusal = IWARP_REMOTE_STAG),
           ATOMIC(a_mask, .flip = 30, .refusal = IWARP_OPERATION_OPCODE),
           ATOMIC(another_kind, .flip = 3, .refusal = IWARP_OPERATION_OPCODE),
           ANSWER(an_answer_to_nothing, IBV_WR_SEND, false, 0),
           ANSWER(an_answer_to_another, IBV_WR_ATOMIC_FETCH_AND_ADD, false, 1),
           ANSWER(an_atomics_answer_to_a_read, IBV_WR_RDMA_READ, false, 0),
           ANSWER(a_reads_answer_to_an_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, true, 0));
