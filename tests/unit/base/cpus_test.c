/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* cpus_test.c - two nodes never get the same CPU, and a killed one gives its CPU back. */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpus.h"

static cpu_set_t allowed;
static int allowed_count;

/* Claims of this process only: a node running beside the test must not change the result. */
static char prefix[64];

static int setup(void **state) {
    (void)state;
    snprintf(prefix, sizeof prefix, "sluice-cpus-test-%d-", (int)getpid());
    cpu_claim_prefix = prefix;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return -1;
    allowed_count = CPU_COUNT(&allowed);
    return 0;
}

TEST(claims_are_distinct_allowed_and_end) {
    struct cpu_claim claims[CPU_SETSIZE + 1];
    cpu_set_t got;
    CPU_ZERO(&got);
    for (int i = 0; i < allowed_count; i++) {
        assert_int_equal(cpu_claim_any(&claims[i]), 0);
        assert_true(claims[i].cpu >= 0);
        assert_true(CPU_ISSET(claims[i].cpu, &allowed));
        assert_false(CPU_ISSET(claims[i].cpu, &got));
        CPU_SET(claims[i].cpu, &got);
        assert_true(fcntl(claims[i].fd, F_GETFD) & FD_CLOEXEC);
    }
    struct cpu_claim none;
    assert_int_equal(cpu_claim_any(&none), 0);
    assert_int_equal(none.cpu, -1);
    assert_int_equal(none.fd, -1);
    cpu_claim_release(&none); /* harmless */

    int cpu = claims[0].cpu;
    cpu_claim_release(&claims[0]);
    assert_int_equal(claims[0].cpu, -1);
    assert_int_equal(cpu_claim_any(&claims[0]), 0);
    assert_int_equal(claims[0].cpu, cpu); /* the only free one */
    for (int i = 0; i < allowed_count; i++)
        cpu_claim_release(&claims[i]);
}

TEST(a_fixed_cpu_is_validated) {
    struct cpu_claim claim, second;
    assert_int_equal(cpu_claim_fixed(&claim, -1), -EINVAL);
    assert_int_equal(cpu_claim_fixed(&claim, 1 << 20), -EINVAL);
    assert_int_equal(cpu_claim_fixed(&claim, CPU_SETSIZE - 1), -EINVAL);
    assert_int_equal(claim.cpu, -1);
    assert_int_equal(claim.fd, -1);

    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    assert_int_equal(cpu_claim_fixed(&claim, cpu), 0);
    assert_int_equal(claim.cpu, cpu);
    assert_true(claim.fd >= 0);
    /* The user's word counts more than another claim. */
    assert_int_equal(cpu_claim_fixed(&second, cpu), 0);
    assert_int_equal(second.cpu, cpu);
    assert_int_equal(second.fd, -1);
    cpu_claim_release(&second);
    /* ... but nobody gets it unasked. */
    if (allowed_count > 1) {
        assert_int_equal(cpu_claim_any(&second), 0);
        assert_int_not_equal(second.cpu, cpu);
        cpu_claim_release(&second);
    }
    cpu_claim_release(&claim);
}

TEST(a_killed_process_gives_its_cpu_back) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (int i = 0; i < allowed_count; i++) {
            struct cpu_claim claim;
            if (cpu_claim_any(&claim) != 0 || claim.cpu < 0)
                _exit(1);
        }
        char byte = 1;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(2);
    }
    char byte;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    struct cpu_claim claim;
    assert_int_equal(cpu_claim_any(&claim), 0);
    assert_int_equal(claim.cpu, -1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(cpu_claim_any(&claim), 0);
    assert_true(claim.cpu >= 0);
    cpu_claim_release(&claim);
}

struct narrow {
    int cpu, result;
    struct cpu_claim claim, second;
    cpu_set_t after;
    int16_t other; /* another CPU; -1: there is none */
    struct cpu_claim named, unnamed;
};

static void *claim_narrowly(void *arg) {
    struct narrow *n = arg;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(n->cpu, &mask);
    n->result = -pthread_setaffinity_np(pthread_self(), sizeof mask, &mask);
    if (n->result == 0)
        n->result = cpu_claim_any(&n->claim);
    if (n->result == 0)
        n->result = cpu_claim_any(&n->second);
    if (n->result == 0 && n->other >= 0) {
        n->result = cpu_claim_of(&n->unnamed, &n->other, 1, 0);
        if (n->result == 0)
            n->result = cpu_claim_of(&n->named, &n->other, 1, 1);
    }
    sched_getaffinity(0, sizeof n->after, &n->after);
    return NULL;
}

TEST(affinity_limits_the_choice) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        struct narrow n = {.cpu = cpu, .other = -1};
        for (int16_t at = 0; at < CPU_SETSIZE; at++)
            if (at != cpu && CPU_ISSET(at, &allowed))
                n.other = at;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, claim_narrowly, &n), 0);
        pthread_join(thread, NULL);
        assert_int_equal(n.result, 0);
        assert_int_equal(CPU_COUNT(&n.after), 1);
        assert_true(CPU_ISSET(cpu, &n.after));
        assert_int_equal(n.claim.cpu, cpu);
        assert_int_equal(n.second.cpu, -1);
        if (n.other >= 0) { /* the mask holds for what is found, not for what the user names */
            assert_int_equal(n.unnamed.cpu, -1);
            assert_int_equal(n.named.cpu, n.other);
            cpu_claim_release(&n.named);
        }
        cpu_claim_release(&n.claim);
    }
}

int main(void) {
    return tests_run(setup, NULL);
}
