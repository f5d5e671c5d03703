/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_namespace_test.c - processes that share a network and no PIDs, as the containers of a pod do: the kernel
 * calls each of them 0 to the other, and 1 to itself. Skips where a PID namespace cannot be had.
 */
#include "support/child.h"
#include "support/namespace.h"
#include "support/softverbs_hostile.h"

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "soft/control.h"
#include "soft/soft.h"

#define SKIPPED 77
#define PORT 18557
#define ROUNDS 300u
#define FILES 256u
#define CONNECTIONS 60u

/* Root may; anybody else where the kernel lets users have namespaces of their own. */
static bool leave_pids(void) {
    if (syscall(SYS_unshare, CLONE_NEWPID) == 0)
        return true;
    return namespace_as_user(CLONE_NEWPID, geteuid());
}

/* Runs `what` as the first process of a namespace, and tells the test who that is to everybody else. */
static void alone(int fd, void (*what)(int fd)) {
    int status;
    if (!leave_pids())
        _exit(SKIPPED);
    pid_t pid = child_fork();
    must(pid >= 0);
    if (pid == 0) {
        must(getpid() == 1);
        must(sv_hear(fd) == 1);
        what(fd);
        _exit(0);
    }
    sv_tell(fd, (uint32_t)pid);
    must(waitpid(pid, &status, 0) == pid);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* 0: there are no such namespaces here. */
static pid_t started(struct sv_child *child) {
    uint32_t pid = 0;
    if (recv(child->fd, &pid, sizeof pid, MSG_WAITALL) != sizeof pid) {
        int status = sv_join(child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), SKIPPED);
        return 0;
    }
    return (pid_t)pid;
}

/* ---- queue pairs -------------------------------------------------------------------------------- */

static void exchange(int fd, bool first) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.mapped = true));
    sv_tell(fd, e.qp->qp_num);
    uint32_t dest = sv_hear(fd);
    must(sv_to_init(&e) == 0);
    must(first || sv_hear(fd) == 2); /* the other's ring is offered before this one is at RTR */
    must(sv_to_rtr(&e, dest) == 0);
    if (first)
        sv_tell(fd, 2);
    must(sv_to_rts(&e) == 0);
    sv_barrier(fd);
    for (unsigned i = 0; i < ROUNDS; i++) {
        must(sv_recv(&e, i, 0, 8192) == 0);
        sv_fill(e.buf + 8192, i * 97 % 8192, i);
        must(sv_send(&e, i, 8192, i * 97 % 8192, IBV_SEND_SIGNALED) == 0);
        must(sv_poll(e.scq).status == IBV_WC_SUCCESS);
        struct ibv_wc wc = sv_poll(e.rcq);
        sv_right(wc, wc.byte_len == i * 97 % 8192);
        sv_check(e.buf, wc.byte_len, i);
        sv_barrier(fd); /* the next overwrites neither */
    }
    sv_close(&e);
}

static void first_alone(int fd) {
    exchange(fd, true);
}

static void second_alone(int fd) {
    exchange(fd, false);
}

static void left(int fd) {
    alone(fd, first_alone);
}

static void right(int fd) {
    alone(fd, second_alone);
}

static void begin(const struct sv_child *child, bool alone) {
    if (alone)
        sv_tell(child->fd, 1);
}

/* The two in namespaces of their own, or one of them in the test's. */
TEST(rc_connects_between_pid_namespaces) {
    static const struct {
        const char *name;
        void (*left)(int fd), (*right)(int fd);
        bool left_alone, right_alone;
    } rows[] = {{"siblings", left, right, true, true},
                {"the first is hidden", left, second_alone, true, false},
                {"the second is hidden", first_alone, right, false, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        print_message("  %s\n", rows[i].name);
        struct sv_child l = sv_fork(rows[i].left), r = sv_fork(rows[i].right);
        bool left_there = !rows[i].left_alone || started(&l);
        bool right_there = !rows[i].right_alone || started(&r);
        if (!left_there || !right_there)
            skip();
        begin(&l, rows[i].left_alone);
        begin(&r, rows[i].right_alone);
        sv_relay(&l, &r);
        must(sv_hear(l.fd) == 2);
        sv_tell(r.fd, 2);
        for (unsigned round = 0; round < ROUNDS + 1; round++)
            sv_relay(&l, &r);
        assert_int_equal(sv_join(&l), 0);
        assert_int_equal(sv_join(&r), 0);
    }
}

/* ---- names -------------------------------------------------------------------------------------- */

static int bind_port(struct rdma_cm_id *id, bool shared) {
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int on = 1;
    if (shared)
        must(soft_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    return soft_bind_addr(id, (struct sockaddr *)&addr) == 0 ? 0 : errno;
}

/* With and without the option, and then answers questions until it is told to go. */
static void takes_the_port(int fd) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = NULL;
    must(channel && soft_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    sv_tell(fd, (uint32_t)bind_port(id, sv_hear(fd) == 1));
    must(sv_hear(fd) == 3);
    must(soft_destroy_id(id) == 0);
    soft_destroy_event_channel(channel);
}

static void a_port_alone(int fd) {
    alone(fd, takes_the_port);
}

TEST(two_namespaces_share_a_port_that_both_want_to_share) {
    static const struct {
        bool shared;
        int second;
    } rows[] = {{true, 0}, {false, EADDRINUSE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sv_child child[2] = {sv_fork(a_port_alone), sv_fork(a_port_alone)};
        for (int k = 0; k < 2; k++)
            if (!started(&child[k]))
                skip();
        for (int k = 0; k < 2; k++) {
            sv_tell(child[k].fd, 1);
            sv_tell(child[k].fd, rows[i].shared ? 1 : 2);
            assert_int_equal(sv_hear(child[k].fd), k ? rows[i].second : 0);
        }
        for (int k = 0; k < 2; k++) {
            sv_tell(child[k].fd, 3);
            assert_int_equal(sv_join(&child[k]), 0);
        }
    }
}

TEST(each_has_a_control_socket_of_its_own) {
    struct sv_child child[2] = {sv_fork(a_port_alone), sv_fork(a_port_alone)};
    pid_t pid[2];
    for (int k = 0; k < 2; k++)
        if ((pid[k] = started(&child[k])) == 0)
            skip();
    for (int k = 0; k < 2; k++) {
        sv_tell(child[k].fd, 1);
        sv_tell(child[k].fd, 1);
        assert_int_equal(sv_hear(child[k].fd), 0);
    }
    for (int k = 0; k < 2; k++) {
        struct ucred who;
        int fd = soft_ctl_connect(pid[k], &who);
        assert_true(fd >= 0);
        assert_int_equal(who.pid, pid[k]);
        close(fd);
    }
    for (int k = 0; k < 2; k++) {
        sv_tell(child[k].fd, 3);
        assert_int_equal(sv_join(&child[k]), 0);
    }
}

/* ---- a bound ------------------------------------------------------------------------------------ */

static void calls_often(int fd) {
    int sock[CONNECTIONS];
    int shm_page = hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC);
    uint32_t qpn = sv_hear(fd), ended = 0;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        uint8_t answer[1024];
        struct hello hello = hostile_hello;
        hello.uuid[0] = (uint8_t)i; /* somebody else each time, as far as anybody can tell */
        sock[i] = hostile_greet(qpn, &hello, shm_page);
        must(recv(sock[i], answer, sizeof answer, 0) > 0);
    }
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct pollfd p = {.fd = sock[i], .events = POLLRDHUP};
        ended += poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP));
    }
    sv_tell(fd, ended);
    must(sv_hear(fd) == 4);
}

static void calls_often_alone(int fd) {
    alone(fd, calls_often);
}

/* With few descriptors: the caller learns its number, and it how many calls were ended. */
static void is_called(int fd) {
    struct rlimit few;
    struct sv_end e;
    must(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = FILES;
    must(setrlimit(RLIMIT_NOFILE, &few) == 0);
    sv_open(&e, SV_OPTIONS(.recvs = 1));
    sv_tell(fd, e.qp->qp_num);
    must(sv_hear(fd) == CONNECTIONS - FILES / 2 / 4); /* four of each */
    sv_close(&e);
}

static void is_called_alone(int fd) {
    alone(fd, is_called);
}

TEST(those_that_are_not_seen_have_half_of_the_descriptors) {
    struct sv_child caller = sv_fork(calls_often_alone), called = sv_fork(is_called_alone);
    if (!started(&caller) || !started(&called))
        skip();
    sv_tell(called.fd, 1);
    sv_tell(caller.fd, 1);
    sv_tell(caller.fd, sv_hear(called.fd));
    sv_tell(called.fd, sv_hear(caller.fd));
    assert_int_equal(sv_join(&called), 0);
    sv_tell(caller.fd, 4);
    assert_int_equal(sv_join(&caller), 0);
}
