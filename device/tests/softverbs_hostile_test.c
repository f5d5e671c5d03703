/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_hostile_test.c - a peer that lies: it connects like anybody else and then scribbles
 * over everything it may write, or talks nonsense on the control socket. The other side must come
 * to an end (an error state, completions for everything posted), touch nothing outside the posted
 * buffers, and go on serving honest peers.
 */
#include "support/softverbs_hostile.h"

#include "soft/ipc/peer.h"
#include "soft/rc/requester.h"

#include <signal.h>

/* ---- scribbling over rings --------------------------------------------------------------------- */

enum { ROUNDS = 160, RECVS = 8, SENDS = 8, STRIDE = 2048, ROOM = 600 };

/* One lie into the ring the victim reads; its next slot is at `pos`. */
static void lie_in_slot(struct soft_ring *ring, uint32_t pos, uint64_t *seed) {
    struct soft_slot *slot = &ring->slot[pos % SOFT_RING_SLOTS];
    uint32_t kind = hostile_random(seed) % 8;
    for (unsigned i = 0; i < SOFT_SLOT_PAYLOAD; i += 4) {
        uint32_t word = hostile_nasty(seed);
        memcpy(slot->data + i, &word, sizeof word);
    }
    slot->ack = kind < 4 ? 0 : hostile_nasty(seed);
    slot->imm = hostile_nasty(seed);
    slot->word =
        kind == 7 ? hostile_nasty(seed)
                  : soft_word(1 + hostile_random(seed) % 10, hostile_random(seed) % 32,
                              kind % 2 ? hostile_random(seed) % 500 : hostile_nasty(seed) & 0xffff);
    atomic_store(&slot->seq, kind == 6 ? hostile_nasty(seed) : pos + 1);
}

/* What the victim believes about its own sends. */
static void lie_in_header(struct soft_ring *ring, uint64_t *seed) {
    switch (hostile_random(seed) % 6) {
    case 0:
        atomic_store(&ring->rx.acked, hostile_nasty(seed));
        break;
    case 1:
        atomic_store(&ring->rx.nak, (uint64_t)hostile_nasty(seed) << 32 | hostile_nasty(seed));
        break;
    case 2:
        atomic_store(&ring->rx.stalled, hostile_nasty(seed));
        break;
    case 3:
        atomic_store(&ring->rx.rnr_timer, hostile_nasty(seed));
        break;
    case 4:
        atomic_store(&ring->rx.down, hostile_nasty(seed));
        break;
    case 5:
        atomic_store(&ring->rx.access, hostile_nasty(seed));
        break;
    }
}

/* Everything at once, the parts that are fixed included. */
static void scribble(struct soft_ring *ring, uint64_t *seed) {
    for (size_t i = 0; i < SOFT_RING_BYTES / 4; i++)
        __atomic_store_n((uint32_t *)(void *)ring + i, hostile_nasty(seed), __ATOMIC_RELAXED);
}

static void attack(struct sv_end *e, unsigned round, uint64_t *seed) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    struct soft_ring *to = atomic_load(&qp->tx), *from = atomic_load(&qp->rx);
    spin_lock(&qp->lock); /* our own engine shall not correct us */
    uint32_t pos = qp->tx_pos;
    for (unsigned i = 0; i < 20; i++)
        switch (round % 4) {
        case 0: /* plausible but wrong */
            lie_in_slot(to, pos + i, seed);
            break;
        case 1: /* the victim's sends only */
            lie_in_header(from, seed);
            break;
        case 2: /* both */
            lie_in_slot(to, pos + i, seed);
            lie_in_header(from, seed);
            break;
        case 3:
            scribble(to, seed);
            scribble(from, seed);
            lie_in_slot(to, pos + i, seed);
            break;
        }
    spin_unlock(&qp->lock);
}

static void attacker(int fd) {
    uint64_t seed = sv_hear(fd);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct sv_end e;
        sv_open(&e, SV_OPTIONS(.mapped = round % 2 == 0));
        sv_meet(&e, fd);
        sv_wait_linked(&e);
        must(sv_hear(fd) == 1); /* the victim has work in both directions */
        attack(&e, round, &seed);
        for (unsigned i = 0; i < 50 && round % 2; i++) { /* and again while it looks */
            attack(&e, round, &seed);
            sched_yield();
        }
        if (round % 8 == 5) /* destroyed with a word about it, or silently */
            must(sv_to(&e, IBV_QPS_RESET) == 0);
        sv_tell(fd, 2);
        must(sv_hear(fd) == 3);
        sv_close(&e);
    }
}

static void post_receive(struct sv_end *e, unsigned i) {
    must(sv_recv(e, i, i * STRIDE, ROOM) == 0);
}

/* Every posted work request completes once; returns when both queues are empty and the QP is down. */
static void live_through(struct sv_end *e, int fd) {
    unsigned sends = 0, recvs = RECVS;
    bool told = false, hangs_up = false, down = false;
    uint64_t since = soft_now_ns();
    while (!down || sends || recvs) {
        struct ibv_wc wc[16];
        while (!down && sends < SENDS) {
            must(sv_send(e, 7, RECVS * STRIDE, 700, IBV_SEND_SIGNALED) == 0);
            sends++;
        }
        if (!told) {
            sv_tell(fd, 1);
            told = true;
        }
        int n = ibv_poll_cq(e->scq, 16, wc);
        must(n >= 0 && (unsigned)n <= sends);
        for (int i = 0; i < n; i++)
            down |= wc[i].status != IBV_WC_SUCCESS;
        sends -= (unsigned)n;
        n = ibv_poll_cq(e->rcq, 16, wc);
        must(n >= 0 && (unsigned)n <= recvs);
        for (int i = 0; i < n; i++) {
            must(wc[i].wr_id < RECVS);
            if (wc[i].status == IBV_WC_SUCCESS)
                must(wc[i].byte_len <= ROOM || wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM);
            down |= wc[i].status != IBV_WC_SUCCESS;
            if (down)
                recvs--;
            else
                post_receive(e, (unsigned)wc[i].wr_id);
        }
        uint32_t word;
        if (!hangs_up && recv(fd, &word, sizeof word, MSG_DONTWAIT) == sizeof word) {
            must(word == 2);
            hangs_up = true;
            since = soft_now_ns();
        }
        /* An attack may do no harm at all; then the victim ends it itself. */
        if (!down && hangs_up && soft_now_ns() - since > 20000000) {
            must(sv_to(e, IBV_QPS_ERR) == 0);
            down = true;
        }
        must(soft_now_ns() - since < SV_DEADLINE_NS);
    }
    while (!hangs_up)
        hangs_up = sv_hear(fd) == 2;
    sv_stays_empty(e->scq, e->rcq);
}

TEST(scribbled_rings_end_in_an_error_and_nowhere_else) {
    struct sv_child child = sv_fork(attacker);
    struct ibv_context *ctx = sv_context(); /* the engine lives through all rounds */
    sv_tell(child.fd, 20240229);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct sv_end e;
        sv_open(&e, SV_OPTIONS(.sends = SENDS, .recvs = RECVS));
        memset(e.buf, 0x77, e.o.bytes);
        for (unsigned i = 0; i < RECVS; i++)
            post_receive((sv_to_init(&e), &e), i);
        sv_tell(child.fd, e.qp->qp_num);
        uint32_t dest = sv_hear(child.fd);
        must(sv_to_rtr(&e, dest) == 0 && sv_to_rts(&e) == 0);
        sv_barrier(child.fd);
        sv_wait_linked(&e);
        live_through(&e, child.fd);
        for (unsigned i = 0; i < RECVS; i++) /* not a byte between the receives */
            for (unsigned k = ROOM; k < STRIDE; k++)
                assert_int_equal(e.buf[i * STRIDE + k], 0x77);
        sv_tell(child.fd, 3);
        sv_close(&e);
    }
    assert_int_equal(sv_join(&child), 0);
    assert_int_equal(soft_close_device(ctx), 0);
}

/* ---- a bell that cannot be rung ------------------------------------------------------------------ */

/* Sleeps on its CQ for show, never listens, and makes every descriptor it has a blocking one. */
static void deaf(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.channel = true));
    sv_meet(&e, fd);
    sv_wait_linked(&e);
    must(sv_hear(fd) == 1); /* the other one is linked too: that took this engine's answer */
    must(ibv_req_notify_cq(e.rcq, 0) == 0);
    soft_lock(); /* for ever: its engine hears nothing */
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        const int bells[] = {peer->bell.fd, peer->bell_out};
        const uint64_t full = UINT64_MAX - 1;
        for (unsigned i = 0; i < 2; i++) {
            if (bells[i] < 0) /* a second connection, not greeted yet */
                continue;
            (void)!write(bells[i], &full, sizeof full); /* for whoever counts in it */
            must(fcntl(bells[i], F_SETFL, 0) == 0);
        }
    }
    sv_tell(fd, 1);
    for (;;)
        pause();
}

static void rings_the_deaf(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    sv_meet(&e, fd);
    sv_wait_linked(&e);
    sv_tell(fd, 1);
    must(sv_hear(fd) == 1);
    struct soft_qp *qp = soft_qp_of(e.qp);
    for (unsigned i = 0; i < 64; i++) /* each post rings, as the peer claims to sleep */
        must(sv_send(&e, i, 0, 8, 0) == 0);
    for (unsigned i = 0; i < 5000; i++) {
        spin_lock(&qp->lock);
        soft_qp_kick(qp);
        spin_unlock(&qp->lock);
    }
    struct ibv_context *ctx = sv_context(); /* our engine and its lock are free */
    must(soft_close_device(ctx) == 0);
    sv_tell(fd, 2);
    must(sv_hear(fd) == 3); /* the deaf one is dead */
    must(sv_poll(e.scq).status == IBV_WC_RETRY_EXC_ERR);
    sv_close(&e);
}

TEST(a_bell_that_cannot_be_rung_holds_nobody_up) {
    struct sv_child bad = sv_fork(deaf), good = sv_fork(rings_the_deaf);
    sv_introduce(&bad, &good);
    assert_int_equal(sv_hear(good.fd), 1);
    sv_tell(bad.fd, 1);
    assert_int_equal(sv_hear(bad.fd), 1);
    sv_tell(good.fd, 1);
    assert_int_equal(sv_hear(good.fd), 2);
    kill(bad.pid, SIGKILL);
    sv_join(&bad);
    sv_tell(good.fd, 3);
    assert_int_equal(sv_join(&good), 0);
}

/* ---- nonsense on the control socket ------------------------------------------------------------ */

static void greetings_that_lie(uint32_t qpn) {
    int good = hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC);
    int open_board = hostile_shm_file(false, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC);
    int small = hostile_shm_file(true, 64, SOFT_SHM_PAGE_MAGIC);
    int strange = hostile_shm_file(true, sizeof(struct soft_shm_page), 0x1234);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct hello hello = hostile_hello;
    close(hostile_greet(qpn, &hello, open_board)); /* could be truncated under us */
    close(hostile_greet(qpn, &hello, small));
    close(hostile_greet(qpn, &hello, strange));
    close(hostile_greet(qpn, &hello, null));
    hello.magic ^= 1;
    close(hostile_greet(qpn, &hello, good));
    hello = hostile_hello;
    hello.version++;
    close(hostile_greet(qpn, &hello, good));
    hello = hostile_hello;
    hello.bytes = UINT32_MAX;
    close(hostile_greet(qpn, &hello, good));
    int sock = hostile_dial(qpn), many[16];
    for (unsigned i = 0; i < 16; i++)
        many[i] = good;
    for (unsigned count = 0; count <= 16; count++)
        hostile_say(sock, &hostile_hello, sizeof hostile_hello, many, count);
    close(sock);
    sock = hostile_greet(qpn, &hostile_hello, good); /* twice */
    int fds[2] = {null, good};
    hostile_say(sock, &hostile_hello, sizeof hostile_hello, fds, 2);
    close(sock);
    close(null);
    close(strange);
    close(small);
    close(open_board);
    close(good);
}

/* A ring for a pair that is connected to somebody else, and for one that waits. */
static void rings_for_strangers(uint32_t qpn) {
    struct {
        uint32_t type, bytes, from_qpn, to_qpn, recv_cq, send_cq, pd, zero;
    } link = {SOFT_MSG_LINK, 24, qpn ^ 1, qpn, UINT32_MAX, UINT32_MAX, 0, 0};
    int good = hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC);
    for (unsigned row = 0; row < 4; row++) {
        int sock = hostile_greet(qpn, &hostile_hello, good);
        int fd = hostile_shm_file(row != 1, row == 2 ? 4096 : SOFT_RING_BYTES, SOFT_RING_MAGIC);
        const uint32_t fixed[4] = {SOFT_RING_MAGIC, row == 3 ? 1u << 30 : SOFT_RING_SLOTS,
                                   link.from_qpn, link.to_qpn};
        must(pwrite(fd, fixed, sizeof fixed, 0) == sizeof fixed);
        hostile_say(sock, &link, sizeof link, &fd, 1);
        hostile_say(sock, &link, sizeof link, NULL, 0);
        close(fd);
        close(sock);
    }
    close(good);
}

static uint32_t victim_qpn;

static void babbler(int fd) {
    uint64_t seed = 4711;
    uint32_t waiting = sv_hear(fd);
    greetings_that_lie(victim_qpn);
    rings_for_strangers(victim_qpn);
    rings_for_strangers(waiting);
    hostile_noise(victim_qpn, &seed);
    hostile_noise(waiting, &seed);
}

TEST(nonsense_on_the_control_socket_harms_nobody) {
    hostile_pair_open();
    hostile_still_serves(1);
    struct sv_end waits; /* in INIT: a ring may come early */
    sv_open(&waits, SV_OPTIONS());
    assert_int_equal(sv_to_init(&waits), 0);
    unsigned fds = hostile_fds();
    victim_qpn = hostile_b.qp->qp_num;
    struct sv_child child = sv_fork(babbler);
    sv_tell(child.fd, waits.qp->qp_num);
    for (unsigned i = 0; i < 20; i++)
        hostile_still_serves(i);
    assert_int_equal(sv_join(&child), 0);
    hostile_still_serves(99);
    sv_close(&waits); /* a ring it may hold goes with it */
    sv_until(hostile_fds() <= fds);
    hostile_pair_close();
}
