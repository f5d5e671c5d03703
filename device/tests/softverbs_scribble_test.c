/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_scribble_test.c - a peer of our own user, connected like any other, that scribbles over
 * every page it shares (rings, its board, its key table, our regions), cuts off what it can, passes
 * odd descriptors and disappears in the middle. Whatever it does, this process ends with completions
 * for all it posted, and not a byte outside its buffers has changed.
 *
 * Everything random follows from one seed, which a failure prints; SLUICE_TEST_SEED sets it.
 */
#include "support/child.h"
#include "support/softverbs_hostile.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>

#include "common/sanitize.h"
#include "soft/ipc/peer_queue.h"
#include "soft/object/keys.h"
#include "soft/rc/requester.h"

/* SLUICE_TEST_LONG=1 is a search by hand, best with a seed of its own. */
static unsigned rounds(void) {
    const char *text = getenv("SLUICE_TEST_LONG");
    return text && *text && strcmp(text, "0") != 0 ? 40 : 12;
}
#define ALL_RIGHTS                                                                                 \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)

enum { RECVS = 8, SENDS = 8, STRIDE = 4096, ROOM = 1000, BYTES = 128 * 1024 };
enum { OPEN = 64 * 1024 }; /* what the peer may write lies behind this */
enum { GONE = 0xdead };

static uint64_t first_seed;

static uint64_t words64(uint64_t *seed) {
    return (uint64_t)hostile_nasty(seed) << 32 | hostile_nasty(seed);
}

/* ---- the peer ------------------------------------------------------------------------------------- */

static void over_a_ring(struct soft_ring *ring, uint64_t *seed) {
    if (!ring)
        return;
    _Atomic uint32_t *words = (_Atomic uint32_t *)(void *)ring;
    unsigned turns = hostile_random(seed) % 4 ? 1 + hostile_random(seed) % 8 : SOFT_RING_BYTES / 4;
    for (unsigned i = 0; i < turns; i++)
        atomic_store(&words[hostile_random(seed) % (SOFT_RING_BYTES / 4)], hostile_nasty(seed));
}

/* A slot with a sequence word that will be taken, and nonsense in it. */
static void into_the_next_slot(struct soft_qp *qp, uint64_t *seed) {
    struct soft_ring *ring = atomic_load(&qp->tx);
    if (!ring)
        return;
    uint32_t pos = qp->tx_pos++;
    struct soft_slot *slot = &ring->slot[pos % SOFT_RING_SLOTS];
    for (unsigned i = 0; i < SOFT_SLOT_PAYLOAD; i += 4) {
        uint32_t word = hostile_nasty(seed);
        memcpy(slot->data + i, &word, sizeof word);
    }
    slot->ack = hostile_random(seed) % 2 ? 0 : hostile_nasty(seed);
    slot->word = soft_word(1 + hostile_random(seed) % 9, hostile_random(seed) % 32,
                           hostile_random(seed) % 3 ? hostile_random(seed) % 460
                                                    : hostile_nasty(seed) & 0xffff);
    atomic_store(&slot->seq, pos + 1);
}

static void over_my_keys(struct sv_end *e, uint64_t *seed) {
    struct soft_key *key = &soft_keys[e->mr->rkey >> 16];
    if (hostile_random(seed) % 4)
        atomic_store(&key->key, hostile_random(seed) % 2 ? e->mr->rkey : hostile_nasty(seed));
    key->access = hostile_random(seed) % 2 ? ALL_RIGHTS : hostile_nasty(seed);
    key->start = hostile_random(seed) % 2 ? (uintptr_t)e->buf : words64(seed);
    key->length = hostile_random(seed) % 2 ? BYTES : words64(seed);
    key->offset = hostile_random(seed) % 2 ? 0 : words64(seed);
    key->region =
        hostile_random(seed) % 2 ? soft_mr_of(e->mr)->region : (int32_t)hostile_nasty(seed);
    key->pd = hostile_random(seed) % 2 ? soft_pd_of(e->pd)->number : hostile_nasty(seed);
}

static void over_my_board(uint64_t *seed) {
    _Atomic uint32_t *words = (_Atomic uint32_t *)(void *)soft_shm_page;
    for (unsigned i = 0; i < 64; i++)
        atomic_store(&words[hostile_random(seed) % (sizeof *soft_shm_page / 4)],
                     hostile_nasty(seed));
}

/* The victim's memory, where it registered it for us. */
static void over_their_region(struct soft_qp *qp, uint64_t *seed) {
    for (unsigned i = 0; i < SOFT_MAX_REGIONS; i++) {
        struct soft_peer_region *region = &qp->link_peer->regions[i];
        uint8_t *addr = (uint8_t *)(uintptr_t)atomic_load(&region->addr);
        if (addr && atomic_load(&region->writable) && region->bytes >= BYTES)
            addr[OPEN + hostile_random(seed) % (BYTES - OPEN)] = (uint8_t)hostile_random(seed);
    }
}

/* Every file that is open here: nothing of it may get shorter or be written where it is not ours. */
static void cut_off_what_there_is(uint64_t *seed) {
    for (int fd = 3; fd < 256; fd++) {
        if (fcntl(fd, F_GET_SEALS) < 0)
            continue;
        (void)!ftruncate(fd, hostile_random(seed) % 2 ? 0 : 4096);
        (void)!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE);
    }
}

/* The queue pair's lock is given up meanwhile, where it is held, as its engine may wait for that with the other one. */
static void odd_messages(struct soft_qp *qp, bool quiet, uint64_t *seed) {
    uint32_t words[16];
    int fd = -1;
    switch (hostile_random(seed) % 5) {
    case 0:
        fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* of size 0, not sealed */
        break;
    case 1:
        fd = eventfd(0, EFD_CLOEXEC);
        break;
    case 2:
        fd = hostile_shm_file(true, 4096, 0);
        break;
    case 3:
        fd = hostile_shm_file(true, SOFT_RING_BYTES, SOFT_RING_MAGIC);
        break;
    }
    for (unsigned i = 0; i < 16; i++)
        words[i] = hostile_nasty(seed);
    words[0] %= 300; /* a region's index, often */
    static const size_t sizes[] = {0, 8, 24, 32, 16, 40};
    if (quiet)
        spin_unlock(&qp->lock);
    soft_lock();
    (void)soft_peer_send(qp->link_peer, hostile_random(seed) % 9, words,
                         sizes[hostile_random(seed) % 6], fd);
    soft_unlock();
    if (quiet)
        spin_lock(&qp->lock);
    if (fd >= 0)
        close(fd);
}

static void one_act(struct sv_end *e, bool quiet, uint64_t *seed) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    switch (hostile_random(seed) % 16) {
    case 0:
    case 1:
    case 2:
        into_the_next_slot(qp, seed);
        break;
    case 3:
        over_a_ring(atomic_load(&qp->tx), seed);
        break;
    case 4:
        over_a_ring(atomic_load(&qp->rx), seed);
        break;
    case 5:
    case 6:
    case 7:
        over_my_keys(e, seed);
        break;
    case 8:
        over_my_board(seed);
        break;
    case 9:
    case 10:
        over_their_region(qp, seed);
        break;
    case 11:
        cut_off_what_there_is(seed);
        break;
    case 12:
        odd_messages(qp, quiet, seed);
        break;
    case 13:
        soft_qp_kick(qp);
        break;
    default:
        sched_yield();
        break;
    }
}

static void peer(int fd) {
    uint64_t seed = (uint64_t)sv_hear(fd) << 32 | 1;
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.mapped = true, .bytes = BYTES));
    must(soft_dereg_mr(e.mr) == 0);
    e.mr = soft_reg_mr(e.pd, e.buf, BYTES, ALL_RIGHTS);
    must(e.mr);
    must(sv_to_init(&e) == 0);
    sv_tell(fd, e.qp->qp_num);
    sv_tell(fd, e.mr->rkey);
    sv_tell(fd, (uint32_t)((uintptr_t)e.buf >> 32));
    sv_tell(fd, (uint32_t)(uintptr_t)e.buf);
    uint32_t dest = sv_hear(fd);
    struct ibv_qp_attr attr = sv_attr(&e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = ALL_RIGHTS;
    must(soft_modify_qp(e.qp, &attr, SV_INIT_MASK) == 0);
    must(sv_to_rtr(&e, dest) == 0 && sv_to_rts(&e) == 0);
    sv_wait_linked(&e);
    must(sv_hear(fd) == 1);
    struct soft_qp *qp = soft_qp_of(e.qp);
    bool quiet = hostile_random(&seed) % 2;
    if (quiet)
        spin_lock(&qp->lock); /* its own engine shall not correct it */
    for (unsigned acts = hostile_random(&seed) % 4000; acts; acts--)
        one_act(&e, quiet, &seed);
    if (hostile_random(&seed) % 4 == 0) {
        if (quiet)
            spin_unlock(&qp->lock);
        (void)sv_to(&e, IBV_QPS_RESET); /* says goodbye, at least */
    }
    if (hostile_random(&seed) % 2)
        kill(getpid(), SIGKILL);
}

/* Runs one peer after the other, so that the victim need not fork while it has threads. */
static void nursery(int fd) {
    while (sv_hear(fd) == 1) {
        pid_t pid = child_fork();
        must(pid >= 0);
        if (pid == 0) {
            peer(fd);
            _exit(0);
        }
        int status;
        must(waitpid(pid, &status, 0) == pid);
        /* It may crash on its own rubbish; a failed check in it is a failure. */
        must(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        sv_tell(fd, GONE);
    }
}

/* ---- the victim ------------------------------------------------------------------------------------ */

struct victim {
    struct sv_end e;
    struct ibv_mr *open; /* the peer may read and write it */
    uint32_t rkey;
    uint64_t addr;
    unsigned sends, recvs;
    bool down, gone;
};

static void post_something(struct victim *v, uint64_t *seed) {
    struct ibv_sge sge = sv_sge(&v->e, RECVS * STRIDE, 8);
    struct ibv_send_wr wr = {.wr_id = 7,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {v->addr, v->rkey}},
                       *bad;
    static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND,
                                             IBV_WR_SEND,
                                             IBV_WR_RDMA_WRITE,
                                             IBV_WR_RDMA_READ,
                                             IBV_WR_ATOMIC_FETCH_AND_ADD,
                                             IBV_WR_RDMA_WRITE_WITH_IMM};
    wr.opcode = ops[hostile_random(seed) % 6];
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = v->addr;
        wr.wr.atomic.rkey = v->rkey;
    } else {
        sge.length = hostile_random(seed) % 20000;
    }
    must(ibv_post_send(v->e.qp, &wr, &bad) == 0);
    v->sends++;
}

static void take(struct victim *v) {
    struct ibv_wc wc[16];
    int n = ibv_poll_cq(v->e.scq, 16, wc);
    must(n >= 0 && (unsigned)n <= v->sends);
    v->sends -= (unsigned)n;
    for (int i = 0; i < n; i++)
        v->down |= wc[i].status != IBV_WC_SUCCESS;
    n = ibv_poll_cq(v->e.rcq, 16, wc);
    must(n >= 0 && (unsigned)n <= v->recvs);
    v->recvs -= (unsigned)n;
    for (int i = 0; i < n; i++) {
        must(wc[i].wr_id < RECVS);
        v->down |= wc[i].status != IBV_WC_SUCCESS;
    }
}

static void live_through(struct victim *v, int fd, uint64_t *seed) {
    uint64_t since = soft_now_ns();
    while (!v->down || v->sends || v->recvs || !v->gone) {
        if (!v->down && v->sends < SENDS)
            post_something(v, seed);
        take(v);
        uint32_t word;
        if (!v->gone && recv(fd, &word, sizeof word, MSG_DONTWAIT) == sizeof word) {
            must(word == GONE);
            v->gone = true;
            since = soft_now_ns();
        }
        /* What only receives may not notice that nobody is there any more. */
        if (v->gone && !v->down && soft_now_ns() - since > 50000000) {
            must(sv_to(&v->e, IBV_QPS_ERR) == 0);
            v->down = true;
        }
        must(soft_now_ns() - since < SV_DEADLINE_NS);
    }
}

static void one_round(int fd, uint64_t *seed) {
    struct victim v = {.recvs = RECVS};
    struct sv_end *e = &v.e;
    sv_open(e, SV_OPTIONS(.mapped = true, .bytes = BYTES, .sends = SENDS, .recvs = RECVS));
    v.open = soft_reg_mr(e->pd, e->buf + OPEN, BYTES - OPEN, ALL_RIGHTS);
    must(v.open);
    memset(e->buf, 0x77, BYTES);
    sv_tell(fd, 1);
    sv_tell(fd, hostile_random(seed));
    uint32_t dest = sv_hear(fd);
    v.rkey = sv_hear(fd);
    v.addr = (uint64_t)sv_hear(fd) << 32;
    v.addr |= sv_hear(fd);
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = ALL_RIGHTS;
    must(soft_modify_qp(e->qp, &attr, SV_INIT_MASK) == 0);
    for (unsigned i = 0; i < RECVS; i++)
        must(sv_recv(e, i, i * STRIDE, ROOM) == 0);
    must(sv_to_rtr(e, dest) == 0 && sv_to_rts(e) == 0);
    sv_tell(fd, e->qp->qp_num);
    sv_wait_linked(e);
    sv_tell(fd, 1);
    live_through(&v, fd, seed);
    for (unsigned i = 0; i < RECVS; i++) /* not a byte between the receives */
        for (unsigned k = ROOM; k < STRIDE; k++)
            must(e->buf[i * STRIDE + k] == 0x77);
    must(soft_destroy_qp(e->qp) == 0);
    e->qp = NULL;
    must(soft_dereg_mr(v.open) == 0);
    sv_close(e);
}

static int say_seed(void **state) {
    (void)state;
    print_message("    SLUICE_TEST_SEED=%llu\n", (unsigned long long)first_seed);
    return 0;
}

TEST_WITH(say_seed, NULL, a_peer_that_scribbles_and_dies_harms_nobody) {
#ifdef SANITIZE_THREAD
    skip(); /* the peer races with its own engine on purpose */
#endif
    uint64_t seed = first_seed;
    struct sv_child child = sv_fork(nursery);
    hostile_pair_open();
    unsigned fds = hostile_fds(), threads = sv_threads(), end = rounds();
    for (unsigned round = 0; round < end; round++) {
        one_round(child.fd, &seed);
        if (round % 8 == 0)
            hostile_still_serves(round);
    }
    sv_tell(child.fd, 0);
    assert_int_equal(sv_join(&child), 0);
    sv_until(hostile_fds() == fds - 1);
    sv_until(sv_threads() == threads);
    assert_true(tasks_busy(100) < 50);
    hostile_pair_close();
}

int main(void) {
    const char *text = getenv("SLUICE_TEST_SEED");
    first_seed = text ? strtoull(text, NULL, 10) : 20240229;
    return tests_run(NULL, NULL);
}
