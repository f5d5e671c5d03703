/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * guarded_copy_test.c - a copy from or to memory that is gone fails and nothing else happens; and every fault and signal
 * that is not such a copy's goes where it would have gone. What ends a process is tried in a child.
 */
#include "support/child.h"
#include "support/test.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/guarded_copy.h"

#define PAGE ((size_t)4096)

static uint8_t *two_pages; /* of which the second is not there */

static int map(void **state) {
    (void)state;
    two_pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return two_pages == MAP_FAILED || mprotect(two_pages + PAGE, PAGE, PROT_NONE) != 0;
}

TEST(copies_fail_where_memory_is_gone_and_only_there) {
    static uint8_t there[2 * PAGE], back[2 * PAGE];
    guarded_copy_arm(); /* in each test: cmocka sets handlers of its own before it */
    for (size_t i = 0; i < sizeof there; i++)
        there[i] = (uint8_t)(i * 7);
    for (size_t bytes = 0; bytes <= PAGE; bytes += bytes < 300 ? 1 : 97) {
        uint8_t *last = two_pages + PAGE - bytes;
        assert_true(copy_guarded_to(last, there, bytes));
        assert_true(copy_guarded_from(back, last, bytes));
        assert_memory_equal(back, there, bytes);
        assert_false(copy_guarded_to(last + 1, there, bytes + (bytes == 0)));
        assert_false(copy_guarded_from(back, last + 1, bytes + (bytes == 0)));
    }
}

/* The registers of the caller are what they were: a fault may be anywhere. */
TEST(the_caller_goes_on_as_if_nothing_was) {
    uint64_t a = (uint64_t)rand(), b = a * 3, c = a ^ 5, d = a + 9, e = a << 3, f = ~a, g = a * a;
    double x = (double)a, y = x / 3;
    guarded_copy_arm();
    for (unsigned i = 0; i < 1000; i++) {
        bool done = copy_guarded_to(two_pages + PAGE - i % 64, &a, sizeof a);
        assert_int_equal(done, i % 64 >= sizeof a);
        a += i, b += a, c ^= b, d += c, e ^= d, f += e, g ^= f;
        x += y, y += x / 2;
    }
    volatile uint64_t all = a ^ b ^ c ^ d ^ e ^ f ^ g;
    volatile double both = x + y;
    assert_true(all != 0 || both > 0);
}

/* ---- what is not a copy's -------------------------------------------------------------------------- */

static sigjmp_buf out;
static volatile sig_atomic_t heard;

static void leave(int number) {
    heard = number;
    siglongjmp(out, 1);
}

static void leave_informed(int number, siginfo_t *info, void *context) {
    (void)context;
    heard = info->si_addr == two_pages + PAGE + 5 ? number : -1;
    siglongjmp(out, 1);
}

static void touch(size_t at) {
    *(volatile uint8_t *)(two_pages + at) = 1;
}

TEST(a_fault_of_the_program_goes_to_its_handler) {
    struct sigaction before, plain = {.sa_handler = leave},
                             informed = {.sa_sigaction = leave_informed, .sa_flags = SA_SIGINFO};
    for (int i = 0; i < 4; i++) { /* and again, over a handler that is this one's already */
        assert_int_equal(sigaction(SIGSEGV, i % 2 ? &informed : &plain, &before), 0);
        guarded_copy_arm();
        guarded_copy_arm();
        heard = 0;
        if (sigsetjmp(out, 1) == 0)
            touch(PAGE + 5);
        assert_int_equal(heard, SIGSEGV);
        assert_false(copy_guarded_to(two_pages + PAGE, "x", 1));
        assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    }
}

/* In a child: how it ended. */
static int end_of(void (*fn)(void)) {
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        alarm(20);
        fn();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void faults(void) {
    guarded_copy_arm();
    touch(PAGE);
}

static void is_sent_one(void) {
    guarded_copy_arm();
    kill(getpid(), SIGBUS);
    pause();
}

static void ignores_one(void) {
    signal(SIGSEGV, SIG_IGN);
    guarded_copy_arm();
    kill(getpid(), SIGSEGV);
    _exit(copy_guarded_to(two_pages + PAGE, "x", 1) ? 1 : 7);
}

static void faults_and_ignores(void) {
    signal(SIGSEGV, SIG_IGN);
    guarded_copy_arm();
    touch(PAGE);
}

static void touches_other_memory(void *arg) {
    (void)arg;
    touch(PAGE + 1);
}

static void faults_elsewhere_in_a_copy(void) {
    guarded_copy_arm();
    guarded_run(touches_other_memory, NULL, two_pages, PAGE);
}

/* A handler that passes on to what was there before it, which is ours, over which we are set again. */
static struct sigaction theirs;

static void passes_on(int number, siginfo_t *info, void *context) {
    theirs.sa_sigaction(number, info, context);
}

static void goes_round(void) {
    const struct sigaction passing = {.sa_sigaction = passes_on, .sa_flags = SA_SIGINFO};
    guarded_copy_arm();
    sigaction(SIGSEGV, &passing, &theirs);
    guarded_copy_arm();
    touch(PAGE);
}

TEST(what_ends_a_program_still_does) {
    static const struct {
        void (*fn)(void);
        int by, status;
    } ends[] = {{faults, SIGSEGV, 0},
                {is_sent_one, SIGBUS, 0},
                {ignores_one, 0, 7},
                {faults_and_ignores, SIGSEGV, 0},
                {faults_elsewhere_in_a_copy, SIGSEGV, 0},
                {goes_round, SIGSEGV, 0}};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* the sanitizers have handlers of their own, which end it in another way */
#endif
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
        int status = end_of(ends[i].fn);
        print_message("%u: %#x\n", i, (unsigned)status);
        if (ends[i].by)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == ends[i].by);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == ends[i].status);
    }
}

int main(void) {
    return tests_run(map, NULL);
}
