/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_ud_process_test.c - datagrams between processes: of any user, one that is killed, one that is
 * stopped, one that scribbles over every ring it shares.
 */
#include "support/softverbs_datagram.h"

#include "support/softverbs_hostile.h"
#include "support/skip.h"

enum { GRH = 40, ECHOES = 200, SKIPPED = 77 };

/* Sends back what it gets, to where it came from. */
static void echo(int fd, unsigned count) {
    struct sv_end e;
    ud_open(&e, UD_OPTIONS(0));
    for (unsigned i = 0; i < 8; i++)
        must(sv_recv(&e, i * 4200, i * 4200, 4136) == 0);
    sv_tell(fd, e.qp->qp_num);
    struct ibv_ah *ah = NULL;
    for (unsigned i = 0; i < count; i++) {
        struct ibv_wc wc = sv_poll(e.rcq);
        must(wc.status == IBV_WC_SUCCESS);
        if (!ah)
            ah = soft_create_ah_from_wc(e.pd, &wc, (void *)(e.buf + wc.wr_id), 1);
        must(ah);
        ud_send(&e, ah, wc.src_qp, wc.wr_id + GRH, wc.byte_len - GRH);
        must(sv_recv(&e, wc.wr_id, wc.wr_id, 4136) == 0);
    }
    (void)sv_hear(fd);
    must(soft_destroy_ah(ah) == 0);
    sv_close(&e);
}

static void echo_child(int fd) {
    echo(fd, ECHOES);
}

static void other_user(int fd) {
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
        _exit(SKIPPED);
    echo(fd, ECHOES);
}

static void ask_all(void (*fn)(int fd)) {
    struct sv_end e;
    struct sv_child child = sv_fork(fn);
    ud_open(&e, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&e);
    uint32_t qpn = sv_hear(child.fd);
    for (unsigned i = 0; i < ECHOES; i++) {
        unsigned bytes = i * 37 % 4097;
        sv_fill(e.buf, bytes, i);
        must(sv_recv(&e, i, 8192, 4136) == 0);
        ud_send(&e, ah, qpn, 0, bytes);
        struct ibv_wc wc = sv_poll(e.rcq);
        sv_right(wc, wc.byte_len == bytes + GRH && wc.src_qp == qpn);
        sv_check(e.buf + 8192 + GRH, bytes, i);
    }
    sv_tell(child.fd, 1);
    assert_int_equal(sv_join(&child), 0);
    must(soft_destroy_ah(ah) == 0);
    sv_close(&e);
}

TEST(datagrams_go_between_processes) {
    ask_all(echo_child);
}

TEST(datagrams_go_between_users) {
    if (geteuid() != 0)
        skip_with("needs root to become another user");
    ask_all(other_user);
}

/* ---- death ------------------------------------------------------------------------------------------ */

static void sends_and_is_killed(int fd) {
    struct sv_end e;
    ud_open(&e, UD_OPTIONS(0));
    uint32_t qpn = sv_hear(fd);
    struct ibv_ah *ah = ud_ah(&e);
    must(sv_recv(&e, 1, 0, 64) == 0);
    ud_send(&e, ah, qpn, 0, 8);
    sv_tell(fd, e.qp->qp_num);
    (void)sv_hear(fd);
    for (unsigned i = 1; i < 10; i++)
        ud_send(&e, ah, qpn, 0, 8);
    sv_tell(fd, 1);
    for (;;)
        pause();
}

TEST(what_was_sent_before_a_death_arrives_and_nothing_waits_for_the_dead) {
    struct sv_end e;
    struct sv_child child = sv_fork(sends_and_is_killed);
    ud_open(&e, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&e);
    for (unsigned i = 0; i < 10; i++)
        must(sv_recv(&e, i, 0, 64) == 0);
    sv_tell(child.fd, e.qp->qp_num);
    uint32_t qpn = sv_hear(child.fd);
    must_data(sv_poll(e.rcq).wr_id ==
              0); /* so its ring is here; a datagram in one that was not offered is lost */
    sv_tell(child.fd, 1);
    (void)sv_hear(child.fd);
    ud_send(&e, ah, qpn, 0, 8);
    must(kill(child.pid, SIGKILL) == 0);
    must(sv_join(&child) == SIGKILL);
    for (unsigned i = 1; i < 10; i++)
        must_data(sv_poll(e.rcq).wr_id == i);
    for (unsigned i = 0; i < 500; i++)
        ud_send(&e, ah, qpn, 0, 8);
    sv_until(ud_ins(&e) == 0);
    ud_send(&e, ah, qpn, 0, 8);
    sv_until(ud_drops(&e, SOFT_DROP_NOBODY) > 0);
    must(soft_destroy_ah(ah) == 0);
    sv_close(&e);
}

static void stands_still(int fd) {
    struct sv_end e;
    ud_open(&e, UD_OPTIONS(0));
    must(sv_recv(&e, 1, 0, 4136) == 0);
    sv_tell(fd, e.qp->qp_num);
    must(sv_poll(e.rcq).status == IBV_WC_SUCCESS);
    sv_tell(fd, 1);
    for (;;)
        pause();
}

TEST(a_receiver_that_stands_still_holds_nobody_up_for_long) {
    struct sv_end e, other;
    struct sv_child child = sv_fork(stands_still);
    ud_open(&e, UD_OPTIONS(0));
    ud_open(&other, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&e);
    uint32_t qpn = sv_hear(child.fd);
    ud_send(&e, ah, qpn, 0, 8);
    (void)sv_hear(child.fd);
    int stopped = 0;
    must(kill(child.pid, SIGSTOP) == 0);
    must(waitpid(child.pid, &stopped, WUNTRACED) == child.pid &&
         WIFSTOPPED(stopped));          /* all of it */
    for (unsigned i = 0; i < 2000; i++) /* far more than a ring holds: one wait, and no second */
        ud_send(&e, ah, qpn, 0, 8);
    must(ud_drops(&e, SOFT_DROP_NO_ROOM) >= 2000 - SOFT_UD_SLOTS);
    must(sv_recv(&other, 5, 0, 64) == 0);
    ud_send(&e, ah, other.qp->qp_num, 0, 8);
    must_data(sv_poll(other.rcq).wr_id == 5);
    must(kill(child.pid, SIGKILL) == 0);
    must(sv_join(&child) == SIGKILL);
    must(soft_destroy_ah(ah) == 0);
    sv_close(&other);
    sv_close(&e);
}

/* ---- a hostile sender ------------------------------------------------------------------------------- */

static uint64_t first_seed = 20261121;

static void scribble(struct soft_ud_ring *ring, uint64_t *seed, uint32_t pos) {
    _Atomic uint32_t *words = (_Atomic uint32_t *)(void *)ring;
    for (unsigned i = 0; i < 64; i++)
        atomic_store(&words[hostile_random(seed) % (SOFT_UD_RING_BYTES / 4)], hostile_nasty(seed));
    for (unsigned i = 0; i < SOFT_UD_SLOTS; i++) { /* slots that will be taken, with any head */
        struct soft_ud_slot *slot = &ring->slot[(pos + i) % SOFT_UD_SLOTS];
        slot->head.len = (uint16_t)hostile_nasty(seed);
        slot->head.flags = (uint8_t)hostile_random(seed);
        slot->head.qkey = hostile_random(seed) % 4 ? UD_QKEY : hostile_nasty(seed);
        atomic_store(&slot->seq, pos + i + 1);
    }
}

static void scribbler(int fd) {
    struct sv_end e;
    uint64_t seed = first_seed;
    ud_open(&e, UD_OPTIONS(0));
    uint32_t qpn = sv_hear(fd);
    struct ibv_ah *ah = ud_ah(&e);
    ud_send(&e, ah, qpn, 0, 8);
    struct soft_ud *ud = soft_qp_of(e.qp)->ud;
    sv_until(ud_ways(&e) == 1);
    sv_tell(fd, e.qp->qp_num);
    (void)sv_hear(fd);
    soft_lock(); /* no ring comes or goes meanwhile */
    for (unsigned round = 0; round < 400; round++)
        scribble(ud->way[0]->ring, &seed,
                 round % 3 ? hostile_nasty(&seed) : ud->way[0]->pos + round * 7);
    for (unsigned i = 0; i < ud->in_count; i++) /* and the receiver's words of what comes to us */
        for (unsigned k = 0; k < 100; k++)
            atomic_store(&ud->in[i]->ring->rx.acked, hostile_nasty(&seed));
    soft_unlock();
    sv_tell(fd, 1);
    for (;;)
        pause();
}

TEST(a_peer_that_scribbles_over_its_rings_harms_nobody_else) {
    struct sv_end e, honest;
    struct sv_child child = sv_fork(scribbler);
    ud_open(&e, UD_OPTIONS(.bytes = 65536));
    ud_open(&honest, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&e), *own = ud_ah(&honest);
    must(sv_recv(&e, 1, 4096, 512) == 0);
    sv_tell(child.fd, e.qp->qp_num);
    must(sv_poll(e.rcq).status == IBV_WC_SUCCESS);
    uint32_t qpn = sv_hear(child.fd);
    ud_send(&e, ah, qpn, 0, 8); /* it has one of ours too */
    sv_tell(child.fd, 1);
    memset(e.buf, 0x33, 65536);
    for (unsigned i = 0; i < 20000; i++) {
        struct ibv_wc wc;
        int n = ibv_poll_cq(e.rcq, 1, &wc);
        must(n >= 0);
        if (n == 1)
            sv_right(wc, wc.byte_len <= 512);
        (void)sv_recv(&e, 1, 4096, 512);
        if (i % 100 == 0)
            ud_send(&e, ah, qpn, 0, 8);
    }
    (void)sv_hear(child.fd);
    for (size_t i = 0; i < 65536; i++)
        must_data((i >= 4096 && i < 4096 + 512) || e.buf[i] == 0x33);
    must(kill(child.pid, SIGKILL) == 0);
    must(sv_join(&child) == SIGKILL);
    sv_until(ud_ins(&e) == 0);
    struct ibv_wc wc;
    while (ibv_poll_cq(e.rcq, 1, &wc) == 1)
        ;
    ud_send(&honest, own, e.qp->qp_num, 0, 8);
    (void)sv_recv(&e, 2, 4096, 512);
    ud_send(&honest, own, e.qp->qp_num, 0, 8);
    must(sv_poll(e.rcq).src_qp == honest.qp->qp_num);
    must(soft_destroy_ah(ah) == 0 && soft_destroy_ah(own) == 0);
    sv_close(&honest);
    sv_close(&e);
}
