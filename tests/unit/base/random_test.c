/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * random_test.c - where the system gives no random numbers no nonce is made up: nodes do not open, dials
 * fail and requests are refused, and say why. What there is instead of getrandom(2) is used.
 */
#include "support/child.h"
#include "support/pair.h"
#include "support/wait.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WHY "no random numbers"

static _Atomic bool dry;

static bool random_until_dry(void *arg, void *out, size_t bytes) {
    memset(out, 0, bytes);
    return !atomic_load(&dry) && pair_random(arg, out, bytes);
}

static const struct sluice_env dry_env = {.now_ns = pair_now, .random_bytes = random_until_dry};

static int open_node(sluice_node **out, sluice_error *e) {
    const sluice_node_options o = {.size = sizeof o,
                                   .device = pair_env_or("SLUICE_DEVICE", "soft"),
                                   .workers = SLUICE_NO_WORKERS};
    return node_open_env(out, &o, &dry_env, true, e);
}

/* One of the two sides has that environment. */
static void open_pair(struct pair *p, bool listens) {
    sluice_error e = {0};
    atomic_store(&dry, false);
    pair_open(p, PAIR_NODE(), PAIR_LINK());
    struct side *side = listens ? &p->a : &p->b;
    sluice_close(side->node, 0);
    assert_int_equal(open_node(&side->node, &e), 0);
    assert_int_equal(sluice_loop_open(side->node, &side->loop, &e), 0);
    if (listens)
        pair_listen(p, PAIR_LINK());
    pair_connect(p, PAIR_LINK());
    atomic_store(&dry, true);
}

static void expect_failed_dial(struct pair *p) {
    pair_dial(p, PAIR_LINK());
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    sluice_session_info info = pair_info(event.session);
    assert_int_equal(event.reason, SLUICE_REASON_DEVICE_ERROR);
    assert_non_null(strstr(info.close_text, WHY));
    pair_close(p);
}

TEST(a_dial_without_random_numbers_fails) {
    struct pair p;
    open_pair(&p, false);
    expect_failed_dial(&p);
}

TEST(a_request_without_random_numbers_is_refused) {
    struct pair p;
    open_pair(&p, true);
    expect_failed_dial(&p);
}

TEST(a_node_without_random_numbers_does_not_open) {
    sluice_node *n = NULL;
    sluice_error e = {0};
    atomic_store(&dry, true);
    assert_int_equal(open_node(&n, &e), SLUICE_EDEVICE);
    assert_non_null(strstr(e.text, WHY));
}

/* ---- the system's ---------------------------------------------------------------------------- */

static bool refuse_getrandom(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* What a process of its own finds; 77: it can have no filter. */
static int without_getrandom(bool file) {
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint8_t a[32], b[32], zero[32] = {0};
        const struct rlimit none = {0, 0};
        if (!refuse_getrandom() || (!file && setrlimit(RLIMIT_NOFILE, &none) != 0))
            _exit(77);
        memset(a, 1, sizeof a);
        memset(b, 1, sizeof b);
        bool good = env_default.random_bytes(NULL, a, sizeof a) &&
                    env_default.random_bytes(NULL, b, sizeof b);
        if (file)
            _exit(good && memcmp(a, b, sizeof a) != 0 && memcmp(a + 16, zero, 16) != 0 ? 0 : 1);
        _exit(!good && memcmp(a, zero, sizeof a) == 0 ? 0 : 1);
    }
    return wait_exit(child);
}

TEST(without_getrandom_the_file_is_read) {
    int found = without_getrandom(true);
    if (found == 77)
        skip();
    assert_int_equal(found, 0);
}

TEST(without_either_no_number_is_made_up) {
    int found = without_getrandom(false);
    if (found == 77)
        skip();
    assert_int_equal(found, 0);
}
