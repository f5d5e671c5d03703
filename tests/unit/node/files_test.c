/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * files_test.c - a process that may open no more files dials a listener that is there and well: it is told
 * that it is its own limit that is in the way, and once there are files again the same dial succeeds.
 */
#include "support/child.h"
#include "support/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN_VAIN_NS                                                                                 \
    3000000000ull /* of asking for all of its time there are more than four seconds */

static struct {
    pid_t pid;
    char address[64];
} listener;

/* A process that only listens, until it is killed. */
static void start_listener(void) {
    int port, ends[2];
    assert_int_equal(pipe(ends), 0);
    listener.pid = child_fork();
    assert_true(listener.pid >= 0);
    if (listener.pid == 0) {
        struct pair p;
        pair_open_side(&p.a, PAIR_NODE());
        pair_listen(&p, PAIR_LINK());
        port = sluice_listener_port(p.listener);
        if (write(ends[1], &port, sizeof port) != sizeof port)
            _exit(1);
        for (;;) {
            cm_progress(p.a.node->cm, 0);
            sluice_event event;
            (void)sluice_poll(p.a.loop, &event, 1, 0);
            sched_yield();
        }
    }
    assert_int_equal(read(ends[0], &port, sizeof port), sizeof port);
    close(ends[0]);
    close(ends[1]);
    snprintf(listener.address, sizeof listener.address, "%s:%d",
             pair_env_or("SLUICE_TEST_HOST", "127.0.0.1"), port);
}

static void stop_listener(void) {
    kill(listener.pid, SIGKILL);
    assert_int_equal(waitpid(listener.pid, NULL, 0), listener.pid);
}

static sluice_event dial(struct side *side, const char *address) {
    sluice_event event = {0};
    sluice_error e = {0};
    const sluice_link_options o = {.size = sizeof o, .loop = side->loop, .flags = SLUICE_ONCE};
    if (sluice_dial(side->node, address, &o, &side->session, &e) != 0)
        fail_msg("%s", e.text);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    for (;;) {
        cm_progress(side->node->cm, 0);
        if (sluice_poll(side->loop, &event, 1, 0) == 1)
            return event;
        assert_true(env_now(&env_default) < limit);
        sched_yield();
    }
}

/* Every number of files that may be missing, from all to none. */
TEST(a_dial_without_files_says_so) {
    struct side side;
    struct rlimit before;
    unsigned failed = 0, left = 0;
    start_listener();
    pair_open_side(&side, PAIR_NODE());
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (;; left++) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        close(fd); /* the lowest that is free */
        struct rlimit few = {(rlim_t)fd + left, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        sluice_event event = dial(&side, listener.address);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (event.type == SLUICE_UP)
            break;
        sluice_session_info info = {.size = sizeof info};
        assert_int_equal(event.type, SLUICE_CLOSED);
        assert_int_equal(sluice_session_get_info(event.session, &info), 0);
        if (event.reason != SLUICE_REASON_DEVICE_ERROR || event.vendor != EMFILE ||
            !strstr(info.close_text, strerror(EMFILE)))
            fail_msg("%u files: %s (%s), vendor %u", left, sluice_reason_text(event.reason),
                     info.close_text, event.vendor);
        failed++;
        assert_true(left < 64);
    }
    assert_true(failed > 0);
    sluice_close(side.node, 0);
    stop_listener();
}

/* What needs a descriptor before anybody can be asked: the addresses of this host, and names. */
TEST(what_cannot_be_looked_up_without_files_says_so) {
    static const char *const addresses[] = {"192.0.2.77:1", "[2001:db8::77]:1", "nobody.invalid:1"};
    struct side side;
    struct rlimit before;
    pair_open_side(&side, PAIR_NODE());
    assert_int_equal(dial(&side, "nobody.invalid:1").reason, SLUICE_REASON_ADDRESS);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        close(fd);
        struct rlimit none = {(rlim_t)fd, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        sluice_event event = dial(&side, addresses[i]);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        sluice_session_info info = {.size = sizeof info};
        assert_int_equal(event.type, SLUICE_CLOSED);
        assert_int_equal(sluice_session_get_info(event.session, &info), 0);
        if (event.reason != SLUICE_REASON_DEVICE_ERROR || event.vendor != EMFILE ||
            !strstr(info.close_text, strerror(EMFILE)))
            fail_msg("%s: %s (%s), vendor %u", addresses[i], sluice_reason_text(event.reason),
                     info.close_text, event.vendor);
    }
    sluice_close(side.node, 0);
}

int main(void) {
    /* Who asked on and on for what is missing here would not be back before the test's limit. */
    setenv("SLUICE_SOFT_CM_TIMEOUT_MS", "600000", 1);
    return tests_run(NULL, NULL);
}
