/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_foreign_test.c - descriptors that come from another process, and processes that come and
 * say nothing: whatever they pass and however many they are, no thread of ours waits, spins or dies
 * for it, and honest peers are served.
 */
#include "support/child.h"
#include "support/softverbs_hostile.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>

#include "common/sanitize.h"
#include "soft/cm/id.h"
#include "soft/control.h"
#include "soft/ipc/untrusted_fd.h"

/* ---- what is memory, what is a bell ---------------------------------------------------------------- */

static void refused_as_memory(int fd, size_t bytes) {
    must(fd >= 0);
    assert_false(soft_untrusted_fd_memory(fd, bytes));
    close(fd);
}

TEST(memory_that_could_fail_under_us_is_refused) {
    int good = hostile_shm_file(true, 8192, 0);
    assert_true(soft_untrusted_fd_memory(good, 8192));
    assert_false(soft_untrusted_fd_memory(good, 4096));
    assert_false(soft_untrusted_fd_memory(good, 8193));
    close(good);
    refused_as_memory(hostile_shm_file(false, 8192, 0), 8192);
    refused_as_memory(hostile_shm_file(true, 0, 0), 8192);
    refused_as_memory(hostile_shm_file(true, (size_t)1 << 50, 0), 8192);
    refused_as_memory(open("/dev/null", O_RDWR | O_CLOEXEC), 8192);
    refused_as_memory(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 8192);
    refused_as_memory(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 4096);
    refused_as_memory(eventfd(0, EFD_CLOEXEC), 0);
    refused_as_memory(epoll_create1(EPOLL_CLOEXEC), 0);
    refused_as_memory(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), 0);
    int pipes[2];
    must(pipe(pipes) == 0);
    refused_as_memory(pipes[0], 0);
    refused_as_memory(pipes[1], 0);
    /* Huge pages can run out when a hole is filled again. Not every kernel has them. */
    int huge = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (huge >= 0) {
        must(ftruncate(huge, 2 << 20) == 0 && fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        refused_as_memory(huge, 2 << 20);
    }
}

static void refused_as_bell(int fd) {
    must(fd >= 0);
    assert_false(soft_untrusted_fd_bell(fd));
    close(fd);
}

TEST(only_an_empty_datagram_socket_is_a_bell) {
    int pair[2], hears;
    refused_as_bell(eventfd(0, EFD_CLOEXEC));
    refused_as_bell(open("/dev/null", O_RDWR | O_CLOEXEC));
    refused_as_bell(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    refused_as_bell(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    refused_as_bell(pair[0]);
    refused_as_bell(pair[1]);
    int full =
        hostile_bell(&hears); /* what lies in it could be anything, and closing it closes that */
    hostile_say(hears, NULL, 0, &full, 1);
    refused_as_bell(full);
    close(hears);
    int good = hostile_bell(&hears);
    assert_true(soft_untrusted_fd_bell(good));
    assert_int_equal(send(hears, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL), -1); /* nor later */
    must(fcntl(good, F_SETFL, 0) == 0);
    int rings = 0;
    while (send(good, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
        rings++;
    assert_true(rings > 0 && errno == EAGAIN); /* full: said so, not waited */
    close(good);
    close(hears);
}

/* ---- what is slow to close -------------------------------------------------------------------------- */

#define SOON_NS 2000000000ull

TEST(a_descriptor_that_is_slow_to_close_holds_nobody_up) {
    int other[6];
    must(soft_close_device(sv_context()) == 0); /* threads that come with the first one are there */
    unsigned fds = hostile_fds();
    uint64_t start = soft_now_ns();
    for (unsigned i = 0; i < 6; i++) /* more than there are threads for one user */
        soft_untrusted_fd_close(hostile_lingering(&other[i]), soft_untrusted_fd_who(geteuid(), 1));
    assert_true(soft_now_ns() - start < SOON_NS);
    sv_until(sv_closers() == 4);
    for (unsigned i = 0; i < 6; i++)
        close(other[i]);
    sv_until(sv_closers() == 0);
    assert_int_equal(hostile_fds(), fds);
}

/*
 * Who closes or unmaps it last gives its pages back to the system, which takes as long as there are some. The threads of
 * this sender are busy, so what is left to them stays.
 */
TEST(much_memory_is_freed_by_a_thread) {
    enum { MUCH = 64 << 20 };
    int other[4];
    uint64_t who = soft_untrusted_fd_who(geteuid(), 1);
    for (unsigned i = 0; i < 4; i++)
        soft_untrusted_fd_close(hostile_lingering(&other[i]), who);
    sv_until(sv_closers() == 4);
    int little = hostile_shm_file(true, 4 << 20, 0), much = hostile_shm_file(true, MUCH, 0);
    int grows = hostile_shm_file(false, 4096, 0);
    must(fcntl(little, F_ADD_SEALS, F_SEAL_GROW) == 0);
    void *addr = mmap(NULL, MUCH, PROT_READ, MAP_SHARED, much, 0);
    must(addr != MAP_FAILED);
    soft_untrusted_fd_close(little, who);
    assert_int_equal(fcntl(little, F_GETFD), -1);
    soft_untrusted_fd_close(much, who);
    soft_untrusted_fd_close(grows, who);
    soft_untrusted_unmap(addr, MUCH, who);
    assert_int_equal(soft_untrusted_fd_pending(), 4 + 3);
    for (unsigned i = 0; i < 4; i++)
        close(other[i]);
    sv_until(soft_untrusted_fd_pending() == 0);
    sv_until(sv_closers() == 0);
    assert_int_equal(fcntl(much, F_GETFD), -1);
    assert_int_equal(msync(addr, 4096, MS_ASYNC), -1); /* nothing is mapped there */
}

#define MANY 300
#define SOMEBODY 4711
#define SOMEBODY_ELSE 4712

/* Whatever is stuck, and however much waits behind it: no call closes it itself, and others are served. */
TEST(a_user_whose_descriptors_do_not_close_burdens_himself) {
    int other[7], ends[2];
    char byte;
    must(soft_close_device(sv_context()) == 0);
    unsigned fds = hostile_fds();
    for (unsigned i = 0; i < 6; i++)
        soft_untrusted_fd_close(hostile_lingering(&other[i]), SOMEBODY);
    sv_until(sv_closers() == 4);
    assert_false(soft_untrusted_fd_burdened(SOMEBODY));
    for (unsigned i = 0; i < MANY; i++)
        soft_untrusted_fd_close(eventfd(0, EFD_CLOEXEC), SOMEBODY);
    soft_untrusted_fd_close(hostile_lingering(&other[6]),
                            SOMEBODY); /* this thread would wait for an hour */
    assert_true(soft_untrusted_fd_burdened(SOMEBODY));
    assert_false(soft_untrusted_fd_burdened(SOMEBODY_ELSE));
    must(pipe2(ends, O_CLOEXEC) == 0);
    soft_untrusted_fd_close(ends[1], SOMEBODY_ELSE);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* it was closed */
    close(ends[0]);
    sv_until(soft_untrusted_fd_pending() == MANY + 7);
    pid_t child = child_fork(); /* nor does fork() wait, or the child */
    must(child >= 0);
    if (child == 0)
        _exit(0);
    must(waitpid(child, NULL, 0) == child);
    for (unsigned i = 0; i < 7; i++)
        close(other[i]);
    assert_int_equal(hostile_fds(), fds);
    assert_false(soft_untrusted_fd_burdened(SOMEBODY));
}

static uint32_t victim_qpn;

/*
 * Each way one can come. The process exits right behind, which does not wait for anything: what it
 * has sent is then in nobody's hands but ours. We close ours before, or that would be the wait.
 */
static int slow;

static void in_a_greeting(int fd) {
    must(sv_hear(fd) == 1);
    hostile_say(hostile_dial(victim_qpn), &hostile_hello, sizeof hostile_hello, &slow, 1);
}

static void behind_nonsense(int fd) {
    must(sv_hear(fd) == 1);
    int sock = hostile_dial(victim_qpn);
    hostile_say(sock, "nonsense", 8, NULL, 0);
    for (unsigned i = 0; i < 70; i++)
        hostile_say(sock, NULL, 0, &slow, 1); /* an empty message: only its descriptor counts */
}

static void behind_a_greeting(int fd) {
    must(sv_hear(fd) == 1);
    int sock =
        hostile_greet(victim_qpn, &hostile_hello,
                      hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC));
    hostile_say(sock, NULL, 0, &slow, 1);
}

static void inside_a_bell(int fd) {
    must(sv_hear(fd) == 1);
    int sock = hostile_dial(victim_qpn), hears;
    int fds[2] = {hostile_bell(&hears),
                  hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC)};
    hostile_say(hears, NULL, 0, &slow, 1);
    hostile_say(sock, &hostile_hello, sizeof hostile_hello, fds, 2);
}

/* The bell that we hand out, as a datagram that carries it. */
static void through_the_bell(int fd) {
    int sock =
        hostile_greet(victim_qpn, &hostile_hello,
                      hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC));
    uint8_t answer[1024];
    struct soft_untrusted_fd_fds fds;
    bool cut;
    struct pollfd p = {.fd = sock, .events = POLLIN};
    must(poll(&p, 1, 20000) == 1);
    must(soft_untrusted_fd_recv(sock, answer, sizeof answer, &fds, &cut) > 0 && fds.count == 2);
    sv_tell(fd, 3);
    must(sv_hear(fd) == 1);
    hostile_say(fds.fd[0], "x", 1, &slow, 1);
}

static void to_the_control_socket(int fd) {
    struct ucred who;
    must(sv_hear(fd) == 1);
    hostile_say(soft_ctl_connect(getppid(), &who), "status", 6, &slow, 1);
}

TEST(a_peer_that_passes_slow_descriptors_holds_nobody_up) {
    void (*const ways[])(int) = {in_a_greeting, behind_nonsense,  behind_a_greeting,
                                 inside_a_bell, through_the_bell, to_the_control_socket};
    hostile_pair_open();
    unsigned fds = hostile_fds();
    victim_qpn = hostile_b.qp->qp_num;
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        int other;
        slow = hostile_lingering(&other);
        struct sv_child child = sv_fork(ways[i]);
        close(slow);
        if (ways[i] == through_the_bell)
            must(sv_hear(child.fd) == 3); /* it has the bell */
        soft_lock();                      /* the engine shall not be the quicker one */
        sv_tell(child.fd, 1);
        int status = sv_join(&child);
        uint64_t start = soft_now_ns();
        soft_unlock();
        assert_int_equal(status, 0);
        sv_until(sv_closers() > 0); /* somebody else closes it */
        hostile_still_serves(i);
        soft_lock(); /* and not the engine */
        soft_unlock();
        assert_true(soft_now_ns() - start < SOON_NS);
        close(other);
        sv_until(sv_closers() == 0);
        sv_until(hostile_fds() == fds);
    }
    hostile_pair_close();
}

/* ---- who comes and says nothing --------------------------------------------------------------------- */

#define CALLERS 400 /* more than may wait without a greeting */

static bool hung_up(int sock) {
    struct pollfd p = {.fd = sock, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1;
}

static unsigned how_many_hung_up(const int *sock) {
    unsigned n = 0;
    for (unsigned i = 0; i < CALLERS; i++)
        n += hung_up(sock[i]);
    return n;
}

/* In the ordinary run of things there is nothing that anybody else would have to close. */
TEST(honest_peers_need_no_thread_for_it) {
    unsigned threads = sv_threads(), started = soft_untrusted_fd_closers();
    for (unsigned i = 0; i < 3; i++) {
        hostile_pair_open();
        assert_int_equal(sv_threads(), threads + 1); /* the engine */
        hostile_pair_close();
    }
    assert_int_equal(soft_untrusted_fd_closers(), started);
}

TEST(of_those_who_never_greet_the_oldest_go) {
    hostile_pair_open();
    unsigned fds = hostile_fds();
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    must(soft_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    must(soft_bind_addr(id, (struct sockaddr *)&addr) == 0 && soft_listen(id, 8) == 0);
    char name[SOFT_CM_NAME_BYTES];
    soft_cm_port_name_format(&soft_cm_id_of(id)->port.taken, 0, name);
    unsigned before = hostile_fds();
    int sock[CALLERS];
    for (unsigned i = 0; i < CALLERS; i++) /* on either kind of name */
        sock[i] = i % 2 ? hostile_dial_name(name) : hostile_dial(hostile_b.qp->qp_num);
    sv_until(how_many_hung_up(sock) == CALLERS - 256);
    for (unsigned i = 0; i < 2; i++) { /* in what order two names are served is open */
        assert_true(hung_up(sock[i]));
        assert_false(hung_up(sock[CALLERS - 1 - i]));
    }
    assert_true(hostile_fds() <= before + CALLERS + 256);
    hostile_still_serves(1);
    for (unsigned i = 0; i < CALLERS; i++)
        close(sock[i]);
    sv_until(hostile_fds() == before);
    must(soft_destroy_id(id) == 0);
    soft_destroy_event_channel(channel);
    sv_until(hostile_fds() == fds);
    hostile_pair_close();
}

static void greets_often(int fd) {
    int sock[40],
        shm_page = hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC);
    for (unsigned i = 0; i < 40; i++) {
        uint8_t answer[1024];
        sock[i] = hostile_greet(victim_qpn, &hostile_hello, shm_page);
        must(recv(sock[i], answer, sizeof answer, 0) > 0);
    }
    for (unsigned i = 0; i < 40; i++)
        must(hung_up(sock[i]) == (i < 32)); /* eight are more than anybody needs */
    sv_tell(fd, 1);
    must(sv_hear(fd) == 2);
}

TEST(one_process_has_few_connections) {
    hostile_pair_open();
    unsigned fds = hostile_fds();
    victim_qpn = hostile_b.qp->qp_num;
    struct sv_child child = sv_fork(greets_often);
    assert_int_equal(sv_hear(child.fd), 1);
    assert_true(hostile_fds() <= fds + 1 + 8 * 4); /* of each: socket, pidfd, two bells */
    hostile_still_serves(1);
    sv_tell(child.fd, 2);
    assert_int_equal(sv_join(&child), 0);
    sv_until(hostile_fds() == fds);
    hostile_pair_close();
}

/* ---- no descriptor left ----------------------------------------------------------------------------- */

static void calls_and_waits(int fd) {
    int sock[8];
    for (unsigned i = 0; i < 8; i++)
        sock[i] = hostile_dial(victim_qpn);
    sv_tell(fd, 1);
    must(sv_hear(fd) == 2);
    for (unsigned i = 0; i < 8; i++)
        close(sock[i]);
}

TEST(callers_that_cannot_be_accepted_do_not_make_it_spin) {
    hostile_pair_open();
    unsigned fds = hostile_fds();
    victim_qpn = hostile_b.qp->qp_num;
    struct sv_child child = sv_fork(calls_and_waits);
    struct rlimit limit, none;
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = 3;
    must(setrlimit(RLIMIT_NOFILE, &none) == 0);
    assert_int_equal(sv_hear(child.fd), 1);
    unsigned busy = tasks_busy(300);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    print_message("    %u %% of a CPU\n", busy);
    assert_true(busy < 33);
    sv_until(hostile_fds() == fds + 1 + 8); /* accepted after all */
    hostile_still_serves(1);
    sv_tell(child.fd, 2);
    assert_int_equal(sv_join(&child), 0);
    sv_until(hostile_fds() == fds);
    hostile_pair_close();
}
