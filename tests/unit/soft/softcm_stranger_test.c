/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_stranger_test.c - a process of another user that takes names which a listener's address includes: it gets
 * none of the listener's connections. Needs root to become somebody else; says so loudly and skips where it cannot.
 */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/softcm.h"
#include "support/softverbs.h"
#include "support/skip.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "soft/cm/addr.h"
#include "soft/cm/port_name.h"
#include "soft/ipc/control_lock.h"

#define OTHER_UID 65534
#define THIRD_UID 65533

/* Another user's process that has the name, and listens. */
static pid_t squatter(uid_t uid, const char *address, uint16_t port) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
            _exit(1);
        child_ends_too();
        struct soft_cm_port_name name = {.ps = RDMA_PS_TCP, .port = port, .afonly = true};
        struct sockaddr_in addr = softcm_in(address, 0);
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        memcpy(&name.addr, &addr, sizeof addr);
        char text[SOFT_CM_NAME_BYTES];
        soft_cm_port_name_format(&name, 0, text);
        memcpy(sun.sun_path + 1, text, strlen(text));
        int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (bind(sock, (struct sockaddr *)&sun,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text))) != 0 ||
            listen(sock, 8) != 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid) {
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void needs_root(void) {
    if (geteuid() == 0)
        return;
    skip_with("needs root to run processes of other users");
}

TEST(a_more_exact_name_of_another_user_gets_nothing) {
    needs_root();
    struct ct_pair pair = {.active_channel = soft_create_event_channel(),
                           .passive_channel = soft_create_event_channel()};
    pair.listener = ct_id(pair.passive_channel);
    struct sockaddr_in any = softcm_in("0.0.0.0", 0);
    assert_int_equal(soft_bind_addr(pair.listener, (struct sockaddr *)&any), 0);
    assert_int_equal(soft_listen(pair.listener, 8), 0);
    pair.port = ntohs(soft_get_src_port(pair.listener));
    pid_t pid = squatter(OTHER_UID, "127.0.0.1", pair.port);
    pair.active = ct_connect(pair.active_channel, pair.port);
    pair.passive = ct_request(pair.passive_channel);
    assert_non_null(pair.passive);
    ct_pair_free(&pair);
    end(pid);
}

/* Nobody of our own, and two others: who was first cannot be told. */
TEST(a_port_that_other_users_dispute_is_refused) {
    needs_root();
    struct ct_pair pair = {.active_channel = soft_create_event_channel(),
                           .passive_channel = soft_create_event_channel()};
    pair.listener = ct_id(pair.passive_channel);
    pair.port = ct_listen(pair.listener, 8);
    assert_int_equal(soft_destroy_id(pair.listener), 0); /* the port is free */
    pair.listener = NULL;
    pid_t one = squatter(OTHER_UID, "127.0.0.1", pair.port);
    pid_t two = squatter(THIRD_UID, "0.0.0.0", pair.port);
    pair.active = ct_connect(pair.active_channel, pair.port);
    assert_int_not_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_REJECTED), 0);
    ct_pair_free(&pair);
    end(one);
    end(two);
}

/* ---- names without number --------------------------------------------------------------------------- */

#define CROWDS 8

/* As many names as a process may have open. */
static pid_t crowd(unsigned number) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit limit;
        (void)getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max < 2000 ? limit.rlim_max : 2000;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        for (unsigned i = 0;; i++) {
            struct sockaddr_un sun = {.sun_family = AF_UNIX};
            int n = snprintf(sun.sun_path + 1, sizeof sun.sun_path - 1, "crowd%d-%u-%u",
                             (int)getpid(), number, i);
            int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);
            if (sock < 0 ||
                bind(sock, (struct sockaddr *)&sun,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) != 0)
                break;
        }
        (void)!write(ready[1], "x", 1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static _Atomic bool begun, done;
static struct rdma_event_channel *channel;

static void takes_a_port(void) {
    struct rdma_cm_id *id = ct_id(channel);
    (void)ct_listen(id, 8);
    assert_int_equal(soft_destroy_id(id), 0);
}

static void is_refused(void) {
    struct rdma_cm_id *id = ct_connect(channel, 1); /* nobody listens there */
    assert_int_not_equal(ct_take(channel, RDMA_CM_EVENT_REJECTED), 0);
    assert_int_equal(soft_destroy_id(id), 0);
}

/* Each time anew: the numbers are given up with the last object. */
static void takes_numbers_and_finds_nobody(void) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    sv_connect(&e, 1); /* no process ever has that one */
    sv_close(&e);
}

static void joins_a_group(void) {
    struct sv_end e;
    union ibv_gid gid = {.raw = {0xff, 0x12, [15] = 1}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
    sv_open(&e, SV_OPTIONS(.type = IBV_QPT_UD));
    must(soft_modify_qp(e.qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    must(soft_attach_mcast(e.qp, &gid, 0) == 0);
    must(soft_detach_mcast(e.qp, &gid, 0) == 0);
    sv_close(&e);
}

/* Each has all names read. */
static const struct reader {
    const char *name;
    void (*reads)(void);
    bool with_channel;
} readers[] = {
    {"who takes a port", takes_a_port, true},
    {"a dial that is refused", is_refused, true},
    {"queue pair numbers", takes_numbers_and_finds_nobody, false},
    {"a multicast group", joins_a_group, false},
};

static void *run(void *arg) {
    const struct reader *reader = arg;
    atomic_store(&begun, true);
    reader->reads();
    atomic_store(&done, true);
    return NULL;
}

/* How long the engine would wait for its lock at most while a thread does that: the best of some tries. */
static uint64_t wait_meanwhile(const struct reader *reader) {
    uint64_t best = UINT64_MAX;
    channel = reader->with_channel ? soft_create_event_channel() : NULL;
    for (unsigned try = 0; try < 20; try++) {
        uint64_t longest = 0;
        pthread_t thread;
        atomic_store(&begun, false);
        atomic_store(&done, false);
        assert_int_equal(pthread_create(&thread, NULL, run, (void *)(uintptr_t)reader), 0);
        while (!atomic_load(&begun))
            sched_yield();
        while (!atomic_load(&done)) {
            uint64_t before = env_now(&env_default);
            soft_lock();
            soft_unlock();
            uint64_t took = env_now(&env_default) - before;
            longest = took > longest ? took : longest;
            sched_yield();
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        best = longest < best ? longest : best;
    }
    if (channel)
        soft_destroy_event_channel(channel);
    return best;
}

/* The least that reading all names takes. */
static uint64_t reading_takes(void) {
    uint64_t least = UINT64_MAX;
    static char text[65536];
    for (unsigned try = 0; try < 5; try++) {
        uint64_t before = env_now(&env_default);
        int fd = open("/proc/net/unix", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        while (read(fd, text, sizeof text) > 0)
            ;
        close(fd);
        uint64_t took = env_now(&env_default) - before;
        least = took < least ? took : least;
    }
    return least;
}

TEST(names_without_number_hold_up_only_who_reads_them) {
    pid_t crowds[CROWDS];
    for (unsigned i = 0; i < CROWDS; i++)
        crowds[i] = crowd(i);
    uint64_t reading = reading_takes();
    for (unsigned i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        uint64_t wait = wait_meanwhile(&readers[i]);
        print_message("    %s: a wait of %llu us, where reading takes %llu us\n", readers[i].name,
                      (unsigned long long)wait / 1000, (unsigned long long)reading / 1000);
        assert_true(2 * wait < reading);
    }
    for (unsigned i = 0; i < CROWDS; i++)
        end(crowds[i]);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
