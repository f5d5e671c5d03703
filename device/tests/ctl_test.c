/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ctl_test.c - the control socket: commands from another process, who may ask, hostile bytes, clients
 * that do not read, a bound on their number.
 */
#include "support/fault.h"

#include <fcntl.h>

#include "soft/control/ctl.h"
#include "soft/control.h"
#include "soft/object/device.h"

static int dial(pid_t pid) {
    struct ucred who;
    return soft_ctl_connect(pid, &who);
}

/* The last packet's first byte, and the whole answer; 0: the connection ended. */
static char hear(int fd, char *answer, size_t size) {
    static char packet[SOFT_CTL_PACKET];
    size_t at = 0;
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        must(poll(&ready, 1, 30000) == 1);
        ssize_t got = recv(fd, packet, sizeof packet, 0);
        if (got <= 0)
            return 0;
        must(at + (size_t)got < size);
        memcpy(answer + at, packet + 1, (size_t)got - 1);
        at += (size_t)got - 1;
        answer[at] = '\0';
        if (packet[0] != '+')
            return packet[0];
    }
}

static char ask(int fd, const char *text, char *answer, size_t size) {
    must(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
    return hear(fd, answer, size);
}

static char answer[1 << 20];

static void commander(int fd) {
    pid_t pid = (pid_t)sv_hear(fd);
    int c = dial(pid);
    must(c >= 0);
    must(ask(c, "status", answer, sizeof answer) == '=');
    must(strstr(answer, "device sluice_soft0, port up, contexts 2, rules 0\n"));
    must(strstr(answer, "qp#1 number 0x") && strstr(answer, "qp#2 number 0x"));
    must(strstr(answer, "state RTS"));
    must(ask(c, "plan qp=1 send=2 status=GENERAL_ERR", answer, sizeof answer) == '=');
    sv_tell(fd, 1);
    must(sv_hear(fd) == 2);
    must(ask(c, "log", answer, sizeof answer) == '=');
    must(!strcmp(answer, "qp#1 send 2: status GENERAL_ERR (line 1)\n"));
    must(ask(c, "clear", answer, sizeof answer) == '=');
    must(ask(c, "status", answer, sizeof answer) == '=' && strstr(answer, "rules 0\n"));
    must(ask(c, "device remove order=fatal-only", answer, sizeof answer) == '=');
    must(ask(c, "device remove", answer, sizeof answer) == '!');
    must(ask(c, "status", answer, sizeof answer) == '=' && strstr(answer, "sluice_soft0 removed,"));
    close(c);
}

static unsigned long long rnr_told(int fd) {
    unsigned long long count = ~0ull;
    must(ask(fd, "status", answer, sizeof answer) == '=');
    const char *at = strstr(answer, "\nrnr ");
    must(at && sscanf(at, "\nrnr %llu\n", &count) == 1);
    must(count == atomic_load(&soft_rnr));
    return count;
}

/* What finds a receive counts nothing, what finds none counts once. */
TEST(messages_that_find_no_receive_are_counted_and_shown) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    sv_wait_linked(&a);
    int fd = dial(getpid());
    must(fd >= 0);
    unsigned long long before = rnr_told(fd);
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(sv_send(&a, 1, 0, 8, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(b.rcq).status == IBV_WC_SUCCESS);
    must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
    must(rnr_told(fd) == before);
    for (unsigned i = 1; i <= 3; i++) {
        struct ibv_wc wc;
        must(sv_send(&a, 1 + i, 0, 8, IBV_SEND_SIGNALED) == 0);
        for (unsigned polls = 0; polls < 100; polls++) /* once for each message, however often */
            must(ibv_poll_cq(b.rcq, 1, &wc) == 0);
        must(rnr_told(fd) == before + i);
        must(sv_recv(&b, 1 + i, 0, 64) == 0);
        must(sv_poll(b.rcq).wr_id == 1 + i);
        must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
    }
    must(rnr_told(fd) == before + 3);
    close(fd);
    sv_unpair(&a, &b);
}

TEST(another_process_gives_a_plan_reads_the_log_and_removes_the_device) {
    FAULT_NO_FORK();
    struct sv_child child = sv_fork(commander);
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    sv_tell(child.fd, (uint32_t)getpid());
    must(sv_hear(child.fd) == 1);
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    must(sv_send(&a, 2, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_GENERAL_ERR);
    sv_tell(child.fd, 2);
    assert_int_equal(fault_async(a.ctx), IBV_EVENT_DEVICE_FATAL);
    assert_int_equal(sv_join(&child), 0);
    sv_unpair(&a, &b);
    assert_true(dial(getpid()) < 0); /* the socket goes with the device */
}

TEST(wrong_requests_are_refused_with_a_reason) {
    struct ibv_context *ctx = sv_context();
    int c = dial(getpid());
    must(c >= 0);
    static const struct {
        const char *text, *reason;
    } bad[] = {
        {"frobnicate", "commands are"},
        {" ", "commands are"},
        {"status now", "commands are"},
        {"plan", "line 1, column 1: the plan is empty"},
        {"plan qp=1 send=1 los", "line 1, column 13: 'los' means nothing here"},
        {"device", "knows no"},
        {"device explode", "knows no"},
        {"device remove;device=restore", "one action"},
        {"device remove\nqp=* send=* loss", "one action"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char kind = ask(c, bad[i].text, answer, sizeof answer);
        if (kind != '!' || (!strstr(answer, bad[i].reason) && strcmp(bad[i].text, "device")))
            fail_msg("'%s': '%c' '%s'", bad[i].text, kind, answer);
    }
    must(send(c, "log\0x", 5, MSG_NOSIGNAL) == 5);
    assert_int_equal(hear(c, answer, sizeof answer), '!');
    static char big[SOFT_CTL_REQUEST + 100];
    memset(big, 'x', sizeof big);
    must(send(c, big, sizeof big, MSG_NOSIGNAL) == sizeof big);
    assert_int_equal(hear(c, answer, sizeof answer), '!');
    assert_string_equal(answer, "the request is too long");
    assert_false(soft_fault_active());
    close(c);
    must(soft_close_device(ctx) == 0);
}

TEST(hostile_bytes_and_clients_that_do_not_read_hurt_nobody) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    must(sv_recv(&b, 1, 0, 64) == 0); /* once there and back: both sides have all they open */
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    int first = dial(getpid());
    must(first >= 0 && ask(first, "status", answer, sizeof answer) == '=');
    unsigned fds = sv_fds() - 2; /* both ends of this one */
    close(first);
    uint32_t seed = 99;
    int c = -1;
    for (int i = 0; i < 2000; i++) {
        if (c < 0)
            c = dial(getpid());
        uint8_t bytes[64];
        for (size_t k = 0; k < sizeof bytes; k++) {
            seed = seed * 1664525 + 1013904223;
            bytes[k] = (uint8_t)(seed >> 24);
        }
        if (i % 3 == 0)
            memcpy(bytes, "plan ", 5);
        if (i % 3 == 1)
            memcpy(bytes, "status\n", 7);
        ssize_t rc = c < 0 ? -1 : send(c, bytes, i % 64 + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (rc < 0 || i % 50 == 49) { /* never read; goes in the middle of it */
            if (c >= 0)
                close(c);
            c = -1;
        }
    }
    if (c >= 0)
        close(c);
    /* Descriptors are not taken. */
    c = dial(getpid());
    must(c >= 0);
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {.iov_base = "status", .iov_len = 6};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cmsg), &c, sizeof c);
    must(sendmsg(c, &msg, 0) == 6);
    assert_int_equal(hear(c, answer, sizeof answer), '=');
    close(c);
    sv_until(sv_fds() == fds);
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    sv_unpair(&a, &b);
}

TEST(too_many_clients_end_the_oldest) {
    struct ibv_context *ctx = sv_context();
    int c[12];
    for (int i = 0; i < 12; i++) {
        c[i] = dial(getpid());
        must(c[i] >= 0);
        assert_int_equal(ask(c[i], "log", answer, sizeof answer), '=');
    }
    assert_int_equal(hear(c[0], answer, sizeof answer), 0);
    assert_int_equal(ask(c[11], "log", answer, sizeof answer), '=');
    for (int i = 0; i < 12; i++)
        close(c[i]);
    must(soft_close_device(ctx) == 0);
}

static void stranger(int fd) {
    pid_t pid = (pid_t)sv_hear(fd);
    must(setresuid(65534, 65534, 65534) == 0);
    int c = dial(pid);
    must(c >= 0);
    (void)!send(c, "device remove", 13, MSG_NOSIGNAL);
    must(hear(c, answer, sizeof answer) == 0);
}

TEST(another_user_is_not_heard) {
    FAULT_NO_FORK();
    if (geteuid() != 0)
        skip(); /* cannot become somebody else */
    struct sv_child child = sv_fork(stranger);
    struct ibv_context *ctx = sv_context();
    sv_tell(child.fd, (uint32_t)getpid());
    assert_int_equal(sv_join(&child), 0);
    assert_false(atomic_load(&soft_device_gone));
    must(soft_close_device(ctx) == 0);
}

static void child_of_a_user(int fd) {
    (void)fd;
    must(dial(getpid()) < 0);
    struct ibv_context *ctx = sv_context();
    int c = dial(getpid());
    must(c >= 0);
    must(ask(c, "status", answer, sizeof answer) == '=' && strstr(answer, "contexts 1,"));
    close(c);
    must(soft_close_device(ctx) == 0);
}

TEST(a_forked_child_has_a_socket_of_its_own) {
    FAULT_NO_FORK();
    struct ibv_context *ctx = sv_context();
    int c = dial(getpid());
    must(ask(c, "status", answer, sizeof answer) == '=');
    struct sv_child child = sv_fork(child_of_a_user);
    assert_int_equal(sv_join(&child), 0);
    assert_int_equal(ask(c, "status", answer, sizeof answer), '=');
    close(c);
    must(soft_close_device(ctx) == 0);
}
