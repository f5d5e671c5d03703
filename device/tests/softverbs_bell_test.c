/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_bell_test.c - bells of completion queues: given to whom, counted where, how many, until when; and peers that lie
 * about them, misuse them, or know nothing of them.
 */
#include "support/softverbs_hostile.h"
#include "support/softverbs_sleep.h"

#include <sys/resource.h>

#include "soft/ipc/shm_page.h"
#include "soft/object/cq.h"
#include "soft/rc/cq_bell.h"

static int bells_of(const struct ibv_qp *ibqp) {
    const struct soft_qp *qp = soft_qp_of(ibqp);
    soft_lock();
    int count = (ld(qp->bell_in) != NULL) + (qp->bell_out != NULL);
    soft_unlock();
    return count;
}

/* Another CQ of this word is armed: its thread is woken by the engine, which needs to hear. */
static void a_word_of_two_queues_rings_both(void **state) {
    struct soft_cq *cq = soft_cq_of(sleep_pair.b.rcq);
    int fd;
    (void)state;
    must(sleep_may(SLEEP_ON_BELLS, &fd));
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
    atomic_fetch_add(&soft_shm_page->cq[cq->shm_index].armed, 1);
    tcp_recv(&sleep_pair, 1, 0, 4096, 1);
    must(sv_send(&sleep_pair.a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(sleep_pair.b.channel), sleep_pair.b.rcq); /* by the engine */
    atomic_fetch_sub(&soft_shm_page->cq[cq->shm_index].armed, 1);
    (void)soft_sleep_end(sleep_pair.b.rcq);
    tcp_expect(sleep_pair.b.rcq, 1, IBV_WC_SUCCESS);
    assert_int_equal(sleep_armed_word(), 0);
}

/* A bell that nothing hears any more: the process's is rung. */
static void a_bell_that_is_gone_is_not_relied_on(void **state) {
    struct soft_qp *b = soft_qp_of(sleep_pair.b.qp);
    int fd;
    (void)state;
    must(sleep_may(SLEEP_ON_BELLS, &fd));
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
    must(shutdown(ld(b->bell_in)->fd, SHUT_RDWR) == 0);
    tcp_recv(&sleep_pair, 1, 0, 4096, 1);
    must(sv_send(&sleep_pair.a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(sleep_pair.b.channel), sleep_pair.b.rcq);
    (void)soft_sleep_end(sleep_pair.b.rcq);
    tcp_expect(sleep_pair.b.rcq, 1, IBV_WC_SUCCESS);
}

/* In whatever way the queue pair goes down, and a peer that is given none has none. */
static void a_bell_ends_with_its_queue_pair(void **state) {
    unsigned before = sv_fds();
    struct tcp_pair first = sleep_pair;
    int fd;
    (void)state;
    for (enum sv_down how = SV_TO_RESET; how < SV_DOWNS; how++) {
        sv_pair(&sleep_pair.a, sleep_options.o, &sleep_pair.b, sleep_options.o);
        assert_int_equal(bells_of(sleep_pair.b.qp), 0);
        sv_wait_linked(&sleep_pair.a);
        sv_until(sleep_has_bell(&sleep_pair.b, &sleep_pair.a));
        must(sleep_may(SLEEP_ON_BELLS, &fd));
        (void)soft_sleep_end(sleep_pair.b.rcq);
        sv_take_down(&sleep_pair.b, how);
        if (how == SV_TO_RESET)
            assert_int_equal(bells_of(sleep_pair.b.qp), 0);
        uint32_t index = soft_cq_of(sleep_pair.b.rcq)->shm_index;
        sv_unpair(&sleep_pair.a, &sleep_pair.b);
        assert_int_equal(atomic_load(&soft_shm_page->cq[index].armed), 0);
        sv_until(sv_fds() == before);
    }
    sleep_pair = first;
}

/* Queue pairs of these ends beside the one that they have. */
static void connect_more(struct ibv_qp **a, struct ibv_qp **b, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        a[i] = sv_qp(&sleep_pair.a);
        b[i] = sv_qp(&sleep_pair.b);
        struct sv_end of_a = sleep_pair.a;
        of_a.qp = a[i];
        sv_connect_qp(&sleep_pair.a, a[i], b[i]->qp_num);
        sv_connect_qp(&sleep_pair.b, b[i], a[i]->qp_num);
        sv_wait_linked(&of_a);
    }
}

static void destroy_more(struct ibv_qp **a, struct ibv_qp **b, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        must(soft_destroy_qp(a[i]) == 0);
        must(soft_destroy_qp(b[i]) == 0);
    }
}

/* However many they are, and whichever of them goes first: the peer wakes the thread by any of them. */
static void one_bell_is_for_all_queue_pairs(void **state) {
    enum { MORE = 300 };
    struct ibv_qp *a[MORE], *b[MORE];
    const struct soft_bell *bell = ld(soft_qp_of(sleep_pair.b.qp)->bell_in);
    unsigned fds = sv_fds();
    connect_more(a, b, MORE);
    assert_int_equal(ld(soft_cq_of(sleep_pair.b.rcq)->bells), 1);
    assert_int_equal(sv_fds(), fds);
    assert_int_equal(bell->users, MORE + 1);
    for (unsigned i = 0; i < MORE; i += MORE / 4) {
        struct tcp_pair first = sleep_pair;
        assert_ptr_equal(ld(soft_qp_of(b[i])->bell_in), bell);
        assert_ptr_equal(soft_qp_of(a[i])->bell_out, soft_qp_of(sleep_pair.a.qp)->bell_out);
        sleep_pair.a.qp = a[i];
        sleep_pair.b.qp = b[i];
        struct sleeper s;
        tcp_recv(&sleep_pair, 1, 0, 4096, 1);
        sleeper_start(&s, state);
        soft_lock(); /* the engine could be first */
        must(sv_send(&sleep_pair.a, 0, 0, 512, 0) == 0);
        sleeper_join(&s);
        soft_unlock();
        assert_false(s.told);
        sleep_pair = first;
    }
    destroy_more(a, b, MORE);
    assert_int_equal(bell->users, 1);
    assert_int_equal(ld(soft_cq_of(sleep_pair.b.rcq)->bells), 1);
}

/* A message from the other end of that queue pair of b's wakes it, by the channel. */
static void the_channel_tells_of(struct ibv_qp *from, struct ibv_qp *to) {
    struct sv_end a = sleep_pair.a, b = sleep_pair.b;
    int fds[2];
    a.qp = from;
    b.qp = to;
    must(sv_recv(&b, 1, 0, 4096) == 0);
    (void)soft_sleep_begin(b.rcq, false, fds);
    must(ibv_req_notify_cq(b.rcq, 0) == 0);
    must(sv_send(&a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(b.channel), b.rcq);
    (void)soft_sleep_end(b.rcq);
    tcp_expect(b.rcq, 1, IBV_WC_SUCCESS);
}

/* Another pair, whose CQ shares its word, and is asked for a bell as if a thread slept on it. */
static void pair_and_ask(struct tcp_pair *p) {
    sv_pair(&p->a, sleep_options.o, &p->b, sleep_options.o);
    sv_wait_linked(&p->b);
    struct soft_cq *cq = soft_cq_of(p->b.rcq);
    soft_lock();
    cq->shares_word = true;
    cq->wants_bells = true;
    soft_bell_give(soft_qp_of(p->b.qp));
    cq->wants_bells = false;
    soft_unlock();
}

static bool has_peer_bell(const struct tcp_pair *p) {
    soft_lock();
    bool has = soft_qp_of(p->a.qp)->bell_out != NULL;
    soft_unlock();
    return has;
}

/* What the peer has been told before, it has heard: its ends are linked by messages that follow. */
static void wait_heard(void) {
    struct ibv_qp *a, *b;
    connect_more(&a, &b, 1);
    destroy_more(&a, &b, 1);
}

/* Asked again, with a word of its own. True: the peer has it. */
static bool is_given_bell(const struct tcp_pair *p) {
    struct soft_cq *cq = soft_cq_of(p->b.rcq);
    soft_lock();
    cq->shares_word = false;
    cq->wants_bells = true;
    soft_bell_give(soft_qp_of(p->b.qp));
    cq->wants_bells = false;
    bool given = ld(soft_qp_of(p->b.qp)->bell_in) != NULL;
    soft_unlock();
    wait_heard();
    return given && has_peer_bell(p);
}

/* Its peer has none, and wakes it by the engine. */
static void is_woken_without(const struct tcp_pair *p) {
    struct tcp_pair first = sleep_pair;
    assert_false(has_peer_bell(p));
    sleep_pair = *p;
    the_channel_tells_of(p->a.qp, p->b.qp);
    sleep_pair = first;
}

/* Both ends of a bell are this process's: there may be room for a bell, and none for the peer's end of it. Returns how many
 * of the peer's ends were refused. */
static unsigned leave_descriptors(unsigned more_ends) {
    enum { PAIRS = 32, EACH = 4 }; /* descriptors of a bell: both its ends, and its set */
    static struct tcp_pair pairs[PAIRS];
    struct rlimit before, limit;
    unsigned given = 0;
    must(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before;
    for (unsigned i = 0; i < PAIRS; i++)
        pair_and_ask(&pairs[i]); /* makes all but the bell */
    limit.rlim_cur = sv_fds() + PAIRS * EACH + 8 * more_ends;
    assert_true(limit.rlim_cur / 8 < 2 * PAIRS);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (given < PAIRS && is_given_bell(&pairs[given]))
        given++;
    must(setrlimit(RLIMIT_NOFILE, &before) == 0);
    unsigned left = (unsigned)limit.rlim_cur - sv_fds();
    assert_in_range(given, 1, limit.rlim_cur / 8);
    assert_true(given < PAIRS && left > 4);
    unsigned refused = (unsigned)bells_of(pairs[given].b.qp);
    is_woken_without(&pairs[given]);
    for (unsigned i = 0; i < PAIRS; i++)
        sv_unpair(&pairs[i].a, &pairs[i].b);
    return refused;
}

/* One in eight is for bells, though there are enough for one more. */
static void descriptors_are_left_for_others(void **state) {
    (void)state;
    assert_int_equal(leave_descriptors(0) + leave_descriptors(1), 1);
}

/* Its peer could ring the bell of another one. */
static void a_queue_that_shares_its_word_has_none(void **state) {
    struct tcp_pair other = sleep_pair;
    (void)state;
    pair_and_ask(&other);
    assert_int_equal(bells_of(other.b.qp), 0);
    is_woken_without(&other);
    sv_unpair(&other.a, &other.b);
}

/* As long as there are words left, each has its own. */
static void queues_share_a_word_only_when_all_are_taken(void **state) {
    static struct soft_cq cqs[SOFT_SHM_PAGE_CQS + 1];
    unsigned own = 0;
    (void)state;
    for (unsigned i = 0; i <= SOFT_SHM_PAGE_CQS; i++)
        soft_cq_take_word(&cqs[i]);
    for (unsigned i = 0; i <= SOFT_SHM_PAGE_CQS; i++)
        own += !cqs[i].shares_word;
    assert_in_range(own, SOFT_SHM_PAGE_CQS - 16, SOFT_SHM_PAGE_CQS - 1); /* this test has some */
    struct soft_cq *one = &cqs[SOFT_SHM_PAGE_CQS / 2];
    uint32_t word = one->shm_index;
    soft_cq_give_word(one);
    soft_cq_take_word(one);
    assert_int_equal(one->shm_index, word); /* the only one that is free */
    assert_false(one->shares_word);
    for (unsigned i = 0; i <= SOFT_SHM_PAGE_CQS; i++)
        soft_cq_give_word(&cqs[i]);
}

/* Counted from the arming to the moment it fires, and no longer: CQs of the same word rely on that. */
static void only_an_armed_queue_is_counted(void **state) {
    int fd;
    (void)state;
    must(sleep_may(SLEEP_ON_BELLS, &fd));
    assert_int_equal(sleep_armed_word(), 0);
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 1) == 0);
    assert_int_equal(sleep_armed_word(), 1 + SOFT_ARMED_BELLS);
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
    assert_int_equal(sleep_armed_word(), 1 + SOFT_ARMED_BELLS);
    soft_cq_signal(soft_cq_of(sleep_pair.b.rcq), false);
    assert_int_equal(sleep_armed_word(), 0);
    assert_ptr_equal(sv_cq_event(sleep_pair.b.channel), sleep_pair.b.rcq);
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
    must(soft_sleep_end(sleep_pair.b.rcq));
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
    assert_int_equal(sleep_armed_word(), 1);
    must(soft_cq_disarm(soft_cq_of(sleep_pair.b.rcq)));
    assert_int_equal(sleep_armed_word(), 0);
}

/* Those that expect it, have one, are another's, or are none; and what is no bell, or no such message. */
static void a_bell_that_is_none_is_not_taken(void **state) {
    struct soft_qp *a = soft_qp_of(sleep_pair.a.qp);
    const uint32_t from = sleep_pair.b.qp->qp_num, to = sleep_pair.a.qp->qp_num;
    struct soft_peer_bell *had = a->bell_out;
    int pair[2], pipes[2];
    (void)state;
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && pipe(pipes) == 0);
    const struct {
        uint32_t from, to;
        size_t bytes;
        int file;
        bool has, closed; /* has: it has one that is heard; closed: what came is a bell, at least */
    } lies[] = {{from, to, 8, pair[0], true, true},
                {from, to, 8, pipes[0], false, false},
                {from, to, 8, -1, false, false},
                {from, to, 12, pair[0], false, false},
                {from, to, 4, pair[0], false, false},
                {from + 1, to, 8, pair[0], false, true},
                {from, to ^ 0x800, 8, pair[0], false, true}};
    soft_lock();
    for (unsigned i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        const uint32_t msg[3] = {lies[i].from, lies[i].to};
        int given = lies[i].file < 0 ? -1 : dup(lies[i].file), file = given;
        a->bell_out = lies[i].has ? had : NULL;
        soft_bell_on_message(a->link_peer, msg, lies[i].bytes, file < 0 ? NULL : &file);
        assert_int_equal(file, lies[i].closed ? -1 : given);
        assert_ptr_equal(a->bell_out, lies[i].has ? had : NULL);
        assert_int_equal(given >= 0 && fcntl(given, F_GETFD) == -1, lies[i].closed);
        if (file >= 0)
            close(file);
    }
    a->bell_out = had;
    soft_unlock();
    for (unsigned i = 0; i < 2; i++) {
        close(pair[i]);
        close(pipes[i]);
    }
}

/* That was of a CQ which is no more: another has its word by now, and another bell. */
static void a_bell_that_nothing_hears_makes_way(void **state) {
    struct soft_qp *a = soft_qp_of(sleep_pair.a.qp), *b = soft_qp_of(sleep_pair.b.qp);
    const uint32_t msg[] = {sleep_pair.b.qp->qp_num, sleep_pair.a.qp->qp_num};
    unsigned fds = sv_fds();
    int pair[2];
    (void)state;
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    must(shutdown(ld(b->bell_in)->fd, SHUT_RDWR) == 0);
    soft_lock();
    const struct soft_peer_bell *had = a->bell_out;
    int file = dup(pair[0]);
    soft_bell_on_message(a->link_peer, msg, sizeof msg, &file);
    assert_ptr_not_equal(a->bell_out, had);
    assert_int_equal(a->bell_out->users, 1);
    assert_null(a->bell_out->next);
    soft_unlock();
    must(sv_send(&sleep_pair.a, 0, 0, 512, 0) == 0);
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(sv_fds(), fds);
}

static bool is_hung_up(void) {
    struct soft_qp *b = soft_qp_of(sleep_pair.b.qp);
    int fd;
    if (sleep_may(SLEEP_ON_BELLS, &fd))
        (void)soft_sleep_end(sleep_pair.b.rcq);
    spin_lock(&b->lock);
    bool gone = b->peer_gone;
    spin_unlock(&b->lock);
    return gone;
}

/* Which may be anything, and wait when it is closed. */
static void a_peer_that_rings_with_a_descriptor_is_hung_up_on(void **state) {
    unsigned before = sv_fds();
    int file = memfd_create("odd", MFD_CLOEXEC);
    (void)state;
    hostile_say(soft_qp_of(sleep_pair.a.qp)->bell_out->fd, "", 1, &file, 1);
    close(file);
    sv_until(is_hung_up());
    sv_until(sv_fds() < before); /* what it rang with, and the connection */
}

static void an_earlier_version_is_given_none(void **state) {
    struct tcp_pair first = sleep_pair;
    (void)state;
    soft_lock();
    soft_qp_of(sleep_pair.b.qp)->peer->takes_bells = false;
    soft_unlock();
    sv_pair(&sleep_pair.a, sleep_options.o, &sleep_pair.b, sleep_options.o);
    sv_wait_linked(&sleep_pair.b);
    soft_lock();
    soft_cq_of(sleep_pair.b.rcq)->wants_bells = true;
    soft_bell_give(soft_qp_of(sleep_pair.b.qp));
    soft_unlock();
    assert_int_equal(bells_of(sleep_pair.b.qp), 0);
    sv_unpair(&sleep_pair.a, &sleep_pair.b);
    sleep_pair = first;
}

static int copies[3]; /* its bell, the peer's, and the set */

static void has_no_copies(int fd) {
    (void)fd;
    for (unsigned i = 0; i < 3; i++)
        must(fcntl(copies[i], F_GETFD) == -1);
}

static void a_forked_child_keeps_no_bells(void **state) {
    sv_until(sleep_has_bell(&sleep_pair.a, &sleep_pair.b));
    copies[0] = ld(soft_qp_of(sleep_pair.b.qp)->bell_in)->fd;
    copies[1] = soft_qp_of(sleep_pair.b.qp)->bell_out->fd;
    copies[2] = soft_bells_set(soft_cq_of(sleep_pair.b.rcq));
    struct sv_child child = sv_fork(has_no_copies);
    assert_int_equal(sv_join(&child), 0);
    struct sleeper s;
    tcp_recv(&sleep_pair, 1, 0, 4096, 1);
    sleeper_start(&s, state);
    soft_lock(); /* the engine could be first */
    must(sv_send(&sleep_pair.a, 0, 0, 512, 0) == 0);
    sleeper_join(&s);
    soft_unlock();
    assert_false(s.told);
}

static enum sleep_way bells = SLEEP_ON_BELLS;

TEST_CASES(SLEEP_TEST(a_word_of_two_queues_rings_both, bells),
           SLEEP_TEST(a_bell_that_is_gone_is_not_relied_on, bells),
           SLEEP_TEST(a_bell_ends_with_its_queue_pair, bells),
           SLEEP_TEST(one_bell_is_for_all_queue_pairs, bells),
           SLEEP_TEST(descriptors_are_left_for_others, bells),
           SLEEP_TEST(a_queue_that_shares_its_word_has_none, bells),
           SLEEP_TEST(queues_share_a_word_only_when_all_are_taken, bells),
           SLEEP_TEST(only_an_armed_queue_is_counted, bells),
           SLEEP_TEST(a_bell_that_is_none_is_not_taken, bells),
           SLEEP_TEST(a_bell_that_nothing_hears_makes_way, bells),
           SLEEP_TEST(a_peer_that_rings_with_a_descriptor_is_hung_up_on, bells),
           SLEEP_TEST(an_earlier_version_is_given_none, bells),
           SLEEP_TEST(a_forked_child_keeps_no_bells, bells));
