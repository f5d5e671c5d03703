/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_many_test.c - thousands of queue pairs on one completion queue: what an idle one costs,
 * and that a poll looks at the active ones and at few others.
 */
#include "support/softverbs.h"
#include "soft/ipc/shm_layout.h"
#include "soft/object/attention.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/shm_page.h"
#include "soft/object/cq.h"
#include "soft/object/cq_lines.h"
#include "soft/rc/progress.h"

/* Both ends in this process: 4,000 QPs, half of them on each CQ; a tenth where each load is watched. */
#if defined(__SANITIZE_THREAD__)
#define PAIRS 200
#else
#define PAIRS 2000
#endif
#define IDLE_BYTES_MAX (20 * 1024)

struct many {
    struct sv_end a, b;
    struct ibv_qp *qa[PAIRS], *qb[PAIRS];
};

static struct ibv_qp *small_qp(struct sv_end *e) {
    struct ibv_qp_init_attr attr = {
        .send_cq = e->scq,
        .recv_cq = e->rcq,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = soft_create_qp(e->pd, &attr);
    must(qp);
    return qp;
}

/* Proportional set size: shared pages count once however often they are mapped. */
static uint64_t memory_used(void) {
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    must(f);
    char line[256];
    unsigned long kib = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %lu kB", &kib) == 1)
            break;
    fclose(f);
    must(kib > 0);
    return (uint64_t)kib * 1024;
}

static void open_pair(struct many *m, int i) {
    m->qa[i] = small_qp(&m->a);
    m->qb[i] = small_qp(&m->b);
    sv_connect_qp(&m->a, m->qa[i], m->qb[i]->qp_num);
    sv_connect_qp(&m->b, m->qb[i], m->qa[i]->qp_num);
}

static void open_many(struct many *m) {
    sv_open(&m->a, SV_OPTIONS(.mapped = true, .one_cq = true, .cqe = 8192));
    sv_open(&m->b, SV_OPTIONS(.mapped = true, .one_cq = true, .cqe = 8192));
    for (int i = 0; i < PAIRS; i++)
        open_pair(m, i);
    for (int i = 0; i < PAIRS; i++) {
        sv_until(atomic_load(&soft_qp_of(m->qa[i])->tx) != NULL);
        sv_until(atomic_load(&soft_qp_of(m->qb[i])->tx) != NULL);
    }
}

static void close_pair(struct many *m, int i) {
    if (m->qa[i]) {
        must(soft_destroy_qp(m->qa[i]) == 0);
        must(soft_destroy_qp(m->qb[i]) == 0);
    }
    m->qa[i] = m->qb[i] = NULL;
}

static void close_many(struct many *m) {
    for (int i = 0; i < PAIRS; i++)
        close_pair(m, i);
    sv_close(&m->a);
    sv_close(&m->b);
}

static void one_message(struct many *m, int i) {
    struct ibv_sge to = sv_sge(&m->b, 0, 64), from = sv_sge(&m->a, 0, 32);
    struct ibv_recv_wr rwr = {.wr_id = (uint64_t)i, .sg_list = &to, .num_sge = 1}, *rbad;
    struct ibv_send_wr swr = {.wr_id = (uint64_t)i,
                              .sg_list = &from,
                              .num_sge = 1,
                              .opcode = IBV_WR_SEND,
                              .send_flags = IBV_SEND_SIGNALED},
                       *sbad;
    must(ibv_post_recv(m->qb[i], &rwr, &rbad) == 0);
    must(ibv_post_send(m->qa[i], &swr, &sbad) == 0);
    struct ibv_wc wc = sv_poll(m->b.rcq);
    sv_right(wc, wc.wr_id == (uint64_t)i && wc.qp_num == m->qb[i]->qp_num);
    must(sv_poll(m->a.rcq).status == IBV_WC_SUCCESS);
}

static struct many many;
static unsigned fds_before, threads_before;

TEST(an_idle_connected_qp_is_small) {
    sv_open(&many.a, SV_OPTIONS(.mapped = true)); /* what is made once, by anybody, is made */
    sv_close(&many.a);
    fds_before = sv_fds();
    threads_before = sv_threads();
    uint64_t before = memory_used();
    open_many(&many);
    uint64_t each = (memory_used() - before) / (2 * PAIRS);
    print_message("    %lu bytes each\n", (unsigned long)each);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    must(each <= IDLE_BYTES_MAX); /* a sanitizer's own memory is not the device's */
#endif
}

TEST(every_one_of_them_is_served) {
    for (int i = 0; i < PAIRS; i++)
        one_message(&many, i);
}

/* However small the polls are: who is served in one waits until the others were. */
TEST(small_polls_serve_all_of_them_in_turn) {
    enum { ACTIVE = PAIRS / 2, EACH = 3, SMALL = 7 };
    static unsigned received[PAIRS];
    struct ibv_sge to = sv_sge(&many.b, 0, 64), from = sv_sge(&many.a, 0, 32);
    for (unsigned i = 0; i < ACTIVE; i++)
        for (unsigned k = 0; k < EACH; k++) {
            struct ibv_recv_wr rwr = {.wr_id = i, .sg_list = &to, .num_sge = 1}, *rbad;
            struct ibv_send_wr swr = {.wr_id = i,
                                      .sg_list = &from,
                                      .num_sge = 1,
                                      .opcode = IBV_WR_SEND,
                                      .send_flags = k + 1 < EACH ? 0 : IBV_SEND_SIGNALED},
                               *sbad;
            must(ibv_post_recv(many.qb[i], &rwr, &rbad) == 0);
            must(ibv_post_send(many.qa[i], &swr, &sbad) == 0);
        }
    unsigned total = 0, empty = 0;
    struct ibv_wc wc[SMALL];
    while (total < ACTIVE * EACH) {
        int n = ibv_poll_cq(many.b.rcq, SMALL, wc);
        must(n >= 0 && ++empty < 1000000);
        for (int i = 0; i < n; i++, total++) {
            sv_right(wc[i], wc[i].wr_id < ACTIVE);
            received[wc[i].wr_id]++;
        }
    }
    for (unsigned i = 0; i < ACTIVE; i++)
        must_data_equal(received[i], EACH);
    for (unsigned i = 0; i < ACTIVE; i++) /* the sends complete though nothing arrives there */
        must(sv_poll(many.a.rcq).status == IBV_WC_SUCCESS);
}

/* After a while without work a QP leaves the list that every poll looks at. */
TEST(a_poll_looks_at_the_active_ones) {
    struct soft_cq *cq = soft_cq_of(many.b.rcq);
    struct ibv_wc wc;
    for (int turn = 0; turn < 6; turn++) {
        for (int i = 0; i < 5000; i++)
            must(ibv_poll_cq(many.b.rcq, 1, &wc) == 0);
        for (int i = 0; i < 4; i++)
            one_message(&many, i * 3);
    }
    print_message("    %u of %u hot\n", cq->hot_count, cq->qp_count);
    must(cq->qp_count == PAIRS + 1);
    must(cq->hot_count <= 8);
}

/* Everybody is quiet: what is looked at in every poll, and what is not, is settled. */
static void be_quiet(void) {
    struct ibv_wc wc;
    for (int i = 0; i < 20000; i++)
        must(ibv_poll_cq(many.b.rcq, 1, &wc) == 0);
}

static void send_between(struct sv_end *from, struct ibv_qp *by, struct sv_end *to,
                         struct ibv_qp *at, int i, unsigned flags) {
    struct ibv_sge there = sv_sge(to, 0, 64), here = sv_sge(from, 0, 32);
    struct ibv_recv_wr rwr = {.wr_id = (uint64_t)i, .sg_list = &there, .num_sge = 1}, *rbad;
    struct ibv_send_wr swr = {.wr_id = (uint64_t)i,
                              .sg_list = &here,
                              .num_sge = 1,
                              .opcode = IBV_WR_SEND,
                              .send_flags = flags},
                       *sbad;
    must(ibv_post_recv(at, &rwr, &rbad) == 0);
    must(ibv_post_send(by, &swr, &sbad) == 0);
}

static void send_flagged(int i, unsigned flags) {
    send_between(&many.a, many.qa[i], &many.b, many.qb[i], i, flags);
}

static void send_to(int i) {
    send_flagged(i, IBV_SEND_SIGNALED);
}

/* By this many polls from now on. */
static void is_found(int i, unsigned polls) {
    struct ibv_wc wc[8];
    int n = 0;
    while (n == 0 && polls-- > 0)
        n = ibv_poll_cq(many.b.rcq, 8, wc);
    must(n == 1);
    sv_right(wc[0], wc[0].wr_id == (uint64_t)i);
    must(sv_poll(many.a.rcq).status == IBV_WC_SUCCESS);
}

/* The board says which of them it is. */
TEST(a_message_of_a_quiet_one_is_found_by_the_next_poll) {
    be_quiet();
    for (int i = 0; i < PAIRS; i += 7) {
        send_to(i);
        is_found(i, 1);
    }
}

static unsigned lines_due(const struct soft_cq *cq) {
    unsigned due = 0;
    for (unsigned i = 0; i < cq->arrival_lines; i++)
        due += cq->lines_due[i / 64] >> i % 64 & 1;
    return due;
}

/* Also of the board: at the lines that have changed, and at one in its turn. */
TEST(a_poll_looks_at_the_lines_that_have_changed) {
    const struct soft_cq *cq = soft_cq_of(many.b.rcq);
    struct ibv_wc wc;
    be_quiet();
    must(cq->arrival_lines > PAIRS / 32 && lines_due(cq) == 0);
    for (unsigned i = 0; i < 2 * cq->arrival_lines; i++) {
        unsigned turn = cq->line_turn;
        must(ibv_poll_cq(many.b.rcq, 1, &wc) == 0);
        must(cq->line_turn == (turn + 1) % cq->arrival_lines && lines_due(cq) == 0);
    }
}

/* One of two threads that count at once does so in vain, and a peer may count what it likes. */
TEST(what_is_not_counted_is_found_in_its_turn) {
    const struct soft_cq *cq = soft_cq_of(many.b.rcq);
    be_quiet();
    for (int i = 0; i < PAIRS; i += 37) {
        struct soft_told *told = soft_qp_of(many.qa[i])->told;
        uint32_t place = (uint32_t)(told - soft_shm_page->told);
        struct soft_changes *changes = &soft_shm_page->cq[soft_changes_at(place)].changes;
        _Atomic uint8_t *count = &changes->line[place / SOFT_TOLD_LINE % SOFT_GROUP_LINES];
        uint8_t before = atomic_load(count);
        send_to(i);
        must(atomic_exchange(count, before) != before);
        is_found(i, cq->arrival_lines);
    }
}

/* Both ends of the process's connection to itself are its peers. */
static void peers_count(struct soft_qp *qp, bool count) {
    soft_lock();
    qp->peer->counts_changes = qp->link_peer->counts_changes = count;
    soft_unlock();
}

/* It changes the words that it always did: all of its lines are looked at. */
TEST(an_earlier_version_need_not_count) {
    enum { SOME = 150 }; /* more than a few lines */
    struct soft_qp *qp = soft_qp_of(many.qb[0]);
    struct many now = many;
    peers_count(qp, false);
    sv_open(&many.a, SV_OPTIONS(.mapped = true, .one_cq = true));
    sv_open(&many.b, SV_OPTIONS(.mapped = true, .one_cq = true));
    for (int i = 0; i < SOME; i++) {
        open_pair(&many, i);
        if (i == 50)
            be_quiet(); /* and the CQ's arrays grow while it listens */
    }
    peers_count(qp, true);
    sv_until((be_quiet(), soft_cq_of(many.b.rcq)->arrival_count == SOME)); /* all have their peer */
    must(soft_cq_of(many.b.rcq)->line_groups[0].changes == NULL);
    for (int i = 0; i < SOME; i += 3) {
        struct soft_told *told = soft_qp_of(many.qa[i])->told;
        uint32_t place = (uint32_t)(told - soft_shm_page->told);
        send_to(i);
        for (unsigned w = 0; w < SOFT_GROUP_LINES / 8; w++)
            atomic_store(&soft_shm_page->cq[soft_changes_at(place)].changes.word[w], 0);
        is_found(i, 1);
    }
    for (int i = 0; i < SOME; i++)
        close_pair(&many, i);
    sv_close(&many.a);
    sv_close(&many.b);
    many = now;
}

/* Also where the poller had looked at it for long before its peer was there. */
TEST(one_that_waited_for_its_peer_is_listened_to) {
    struct soft_cq *cq = soft_cq_of(many.b.rcq);
    struct ibv_qp *a[4], *b[4];
    for (int i = 0; i < 4; i++) {
        a[i] = small_qp(&many.a);
        b[i] = small_qp(&many.b);
        sv_connect_qp(&many.b, b[i], a[i]->qp_num);
    }
    be_quiet();
    unsigned before = cq->arrival_count;
    for (int i = 0; i < 4; i++) {
        must(ld(soft_qp_of(b[i])->cold[0]));
        sv_connect_qp(&many.a, a[i], b[i]->qp_num);
        sv_until(atomic_load(&soft_qp_of(b[i])->tx) != NULL);
        sv_until(!ld(soft_qp_of(b[i])->attention)); /* the engine saw to it */
    }
    be_quiet();
    must(cq->arrival_count == before + 4);
    for (int i = 0; i < 4; i++) {
        must(!ld(soft_qp_of(b[i])->cold[0]));
        must(soft_destroy_qp(a[i]) == 0);
        must(soft_destroy_qp(b[i]) == 0);
    }
}

/* The sender does not wait for that completion, so its polls do not see the acknowledgement: they do not ring the peer for it. */
TEST(what_is_answered_rings_nobody) {
    const struct soft_qp *qa = soft_qp_of(many.qa[0]);
    struct ibv_wc wc[8];
    be_quiet();
    uint64_t kick_ns = ld(qa->kick_ns);
    send_flagged(0, 0);
    must(ibv_poll_cq(many.b.rcq, 8, wc) == 1);
    be_quiet(); /* acknowledges it */
    must(ld(qa->unretired) == 1);
    while (ld(qa->unretired) == 1)
        must(ibv_poll_cq(many.a.rcq, 8, wc) == 0);
    must(ld(qa->kick_ns) == kick_ns);
}

/* One that answers tells in its slots what it took: the header of its ring says that as well, when there is time. */
TEST(what_slots_tell_the_header_says_in_the_end) {
    struct soft_qp *qb = soft_qp_of(many.qb[2]);
    struct ibv_wc wc[8];
    be_quiet();
    uint32_t acked = atomic_load(&ld(qb->rx)->rx.acked);
    send_to(2);
    must(sv_poll(many.b.rcq).wr_id == 2);
    send_between(&many.b, many.qb[2], &many.a, many.qa[2], 2, IBV_SEND_SIGNALED);
    for (unsigned done = 0; done < 3;) { /* it, and both sends */
        done += (unsigned)ibv_poll_cq(many.a.rcq, 8, wc);
        done += (unsigned)ibv_poll_cq(many.b.rcq, 8, wc);
    }
    must(ld(qb->rx_pos) == acked + 1 && ld(qb->rx_told) == acked + 1);
    must(atomic_load(&ld(qb->rx)->rx.acked) == acked);
    while (atomic_load(&ld(qb->rx)->rx.acked) == acked)
        must(ibv_poll_cq(many.b.rcq, 8, wc) == 0);
}

/* A queue pair that is looked at seldom may have sent just before. It rings if nothing was answered by the next look. */
TEST(one_look_at_what_is_unanswered_rings_nobody) {
    struct soft_qp *qa = soft_qp_of(many.qa[1]);
    struct ibv_wc wc[8];
    be_quiet();
    uint64_t kick_ns = ld(qa->kick_ns);
    send_flagged(1, 0);
    st(qa->empty_polls, SOFT_KICK_AFTER);
    while (ld(qa->empty_polls) >= SOFT_KICK_AFTER)
        must(ibv_poll_cq(many.a.rcq, 8, wc) == 0);
    must(ld(qa->kick_ns) == kick_ns);
    unsigned polls = 0;
    while (ld(qa->kick_ns) == kick_ns)
        must(ibv_poll_cq(many.a.rcq, 8, wc) == 0 && polls++ < SOFT_KICK_AFTER + 2 * PAIRS);
    must(sv_poll(many.b.rcq).wr_id == 1);
}

/* Nor is what a board says believed: the message is seen later, and the others as ever. */
TEST(what_a_board_says_wrongly_costs_time_and_no_message) {
    be_quiet();
    struct ibv_wc wc[8];
    for (int i = 0; i < PAIRS; i += 31) {
        struct soft_told *told = soft_qp_of(many.qa[i])->told;
        uint8_t pos = atomic_load(&told->pos);
        send_to(i);
        atomic_store(&told->pos, i % 2 ? pos : (uint8_t)(pos + 100)); /* nothing; far too much */
        send_to(i + 1);
        bool seen[2] = {false, false};
        while (!seen[0] || !seen[1]) {
            int n = ibv_poll_cq(many.b.rcq, 8, wc);
            for (int k = 0; k < n; k++) {
                must(wc[k].status == IBV_WC_SUCCESS);
                must_data(wc[k].wr_id == (uint64_t)i || wc[k].wr_id == (uint64_t)i + 1);
                must_data(!seen[wc[k].wr_id - (uint64_t)i]);
                seen[wc[k].wr_id - (uint64_t)i] = true;
            }
        }
        for (int k = 0; k < 2; k++)
            must(sv_poll(many.a.rcq).status == IBV_WC_SUCCESS);
    }
}

/* What is not announced is found, too, where polls are small and others fill each of them. */
TEST(quiet_ones_have_their_turn_while_others_fill_every_poll) {
    struct soft_told *told = soft_qp_of(many.qa[0])->told;
    struct ibv_wc wc = {.wr_id = 1}, sent[8];
    be_quiet();
    uint8_t pos = atomic_load(&told->pos);
    send_to(0);
    atomic_store(&told->pos, pos);
    for (int i = 1, polls = 0; wc.wr_id != 0; polls++, i = i + 1 < PAIRS ? i + 1 : 1) {
        send_to(i);
        must(ibv_poll_cq(many.b.rcq, 1, &wc) >= 0 && polls < 20 * PAIRS);
        must(ibv_poll_cq(many.a.rcq, 8, sent) >= 0);
    }
    for (int i = 0; i < 20000; i++) {
        (void)ibv_poll_cq(many.b.rcq, 8, sent);
        (void)ibv_poll_cq(many.a.rcq, 8, sent);
    }
}

/* A thread that goes to sleep looks at none of a thousand that have nothing. One that needs to be looked at calls for it. */
TEST(arming_looks_at_those_that_have_something) {
    enum { MARKED = 10 };
    struct soft_cq *cq = soft_cq_of(many.b.rcq);
    struct ibv_wc wc[8];
    be_quiet();
    must(ibv_req_notify_cq(many.b.rcq, 0) == 0); /* what was called for before is done */
    (void)soft_cq_disarm(cq);
    for (int i = 1; i <= MARKED; i++)
        st(soft_qp_of(many.qb[i])->attention, true);
    send_to(0);
    must(ibv_req_notify_cq(many.b.rcq, 0) == 0);
    must(ld(cq->ring_count) == 1); /* it had come before */
    for (int i = 1; i <= MARKED; i++)
        must(ld(soft_qp_of(many.qb[i])->attention));
    soft_qp_attend(soft_qp_of(many.qb[1]));
    must(ibv_req_notify_cq(many.b.rcq, 0) == 0);
    for (int i = 1; i <= MARKED; i++)
        must(!ld(soft_qp_of(many.qb[i])->attention));
    (void)soft_cq_disarm(cq);
    must(ibv_poll_cq(many.b.rcq, 8, wc) == 1 && wc[0].wr_id == 0);
    must(sv_poll(many.a.rcq).status == IBV_WC_SUCCESS);
}

/* Its sends are, too, which a peer that does not poll leaves where they are. */
TEST(who_sleeps_on_many_is_looked_after) {
    struct ibv_wc wc;
    for (int i = 0; i < 20000;
         i++) /* what was sent before is acknowledged, and its completions are taken */
        must(ibv_poll_cq(many.a.rcq, 1, &wc) >= 0);
    be_quiet();
    for (int i = 0; i < PAIRS; i += PAIRS / 8) {
        send_to(i);
        must(ibv_req_notify_cq(many.a.rcq, 0) == 0);
        sv_until(ld(soft_qp_of(many.qa[i])->unretired) == 0);
        (void)soft_cq_disarm(soft_cq_of(many.a.rcq));
        struct ibv_wc received = sv_poll(many.b.rcq);
        sv_right(received, received.wr_id == (uint64_t)i);
        must(sv_poll(many.a.rcq).status == IBV_WC_SUCCESS);
    }
}

/* Their lines, too; and others come in their place. */
TEST(the_others_are_found_where_many_have_gone) {
    const struct soft_cq *cq = soft_cq_of(many.b.rcq);
    unsigned lines = cq->arrival_lines;
    for (int i = 0; i < PAIRS; i++)
        if (i / 50 % 2 == 0)
            close_pair(&many, i);
    must(cq->arrival_lines < lines * 3 / 4);
    for (int turn = 0; turn < 2; turn++) {
        be_quiet();
        for (int i = 0; i < PAIRS; i++)
            if (many.qa[i] && i % 5 == 0) {
                send_to(i);
                is_found(i, 1);
            }
        for (int i = 0; i < PAIRS; i++)
            if (!many.qa[i])
                open_pair(&many, i);
    }
}

TEST(they_go_without_a_trace) {
    const struct soft_cq *cq = soft_cq_of(many.b.rcq);
    must(sv_fds() < fds_before + 64); /* none per QP */
    for (int i = 0; i < PAIRS; i++)
        close_pair(&many, i);
    must(cq->arrival_lines == 0 && cq->line_group_count == 0);
    close_many(&many);
    must(sv_threads() == threads_before);
}
