/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* thread_test.c - threads of the library leave signals to the application's, but for their own faults. */
#define _GNU_SOURCE
#include "common/thread.h"
#include "support/child.h"
#include "support/wait.h"
#include "support/emulated.h"

#include "support/test.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct look {
    sigset_t mask;
    char name[16];
    _Atomic bool named; /* the name is given from outside */
};

static void *look(void *arg) {
    struct look *look = arg;
    pthread_sigmask(SIG_SETMASK, NULL, &look->mask);
    while (!atomic_load(&look->named))
        sched_yield();
    pthread_getname_np(pthread_self(), look->name, sizeof look->name);
    return NULL;
}

TEST(signals_are_the_applications_and_faults_are_not_hidden) {
    skip_emulated("HAS SIGNALS OF ITS OWN");
    struct look seen = {0};
    sigset_t before, after;
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(thread_start(&thread, "sluice-thread15", look, &seen), 0);
    atomic_store(&seen.named, true);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    pthread_join(thread, NULL);
    assert_memory_equal(&before, &after, sizeof(unsigned long)); /* the words that a kernel has */
    assert_string_equal(seen.name, "sluice-thread15");
    for (int signal = 1; signal < SIGRTMAX; signal++)
        switch (signal) {
        case SIGKILL:
        case SIGSTOP:
            break;
        case SIGSEGV:
        case SIGBUS:
        case SIGILL:
        case SIGFPE:
        case SIGTRAP:
        case SIGSYS:
            assert_false(sigismember(&seen.mask, signal));
            break;
        default:
            if (signal > 31 && signal < SIGRTMIN)
                break; /* the C library's own */
            assert_true(sigismember(&seen.mask, signal));
        }
}

/* A crash reporter in a process whose library thread goes wrong. */
static void report(int signal) {
    _exit(signal == SIGSEGV ? 42 : 1);
}

static void *fault(void *arg) {
    return (void *)(uintptr_t) * (volatile char *)arg;
}

TEST(a_fault_in_it_reaches_the_applications_handler) {
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, report);
        void *forbidden = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (forbidden == MAP_FAILED || thread_start_detached("sluice-fault", fault, forbidden) != 0)
            _exit(2);
        for (;;)
            pause();
    }
    assert_int_equal(wait_exit(pid), 42);
}
