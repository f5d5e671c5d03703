/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * node_memory_test.c - a node's memory on a device that locks what is registered, as NICs do: what is
 * refused or told when it opens and while it runs, that both pools have their helper, and that the
 * statistics page shows what the pools count. The device is made up; its limits are this process's.
 */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/test.h"
#include "support/wait.h"

#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/topology.h"
#include "support/fake_memory.h"
#include "support/pool_stats.h"
#include "node/memory.h"
#include "node/node.h"
#include "pool/internal.h"

static struct cpu_plan plan_made;
static struct memory_budget need_made;
static struct sluice_node made;
static sluice_error why;

/* ---- what the node says, by level ------------------------------------------------------------------- */

static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static char told[8192]; /* "level text\n", one after the other */

static void tell(int level, const char *text, void *arg) {
    assert_ptr_equal(arg, &made);
    pthread_mutex_lock(&told_lock);
    size_t at = strlen(told);
    snprintf(told + at, sizeof told - at, "%d %s\n", level, text);
    pthread_mutex_unlock(&told_lock);
}

/* How often it was told, at this level. */
static int times_told(int level, const char *what) {
    int count = 0;
    pthread_mutex_lock(&told_lock);
    for (char *line = told, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = 0;
        count += line[0] == '0' + level && strstr(line, what) != NULL;
        *end = '\n';
    }
    pthread_mutex_unlock(&told_lock);
    return count;
}

static int setup(void **state) {
    fake_reset(state);
    told[0] = 0;
    unsetenv("SLUICE_HUGE_PAGES");
    return 0;
}

static int open_memory(const sluice_node_options *o) {
    sluice_node_options mine = *o;
    mine.log = tell;
    mine.log_arg = &made;
    memset(&made, 0, sizeof made);
    memset(&plan_made, 0, sizeof plan_made);
    memset(&need_made, 0, sizeof need_made);
    made.plan = &plan_made;
    made.memory_budget = &need_made;
    pthread_mutex_init(&made.lock, NULL);
    pthread_mutex_init(&made.wakeup_lock, NULL);
    made.fabric = &fake_fabric;
    made.pd = &fake_pd;
    made.plan->arena_numa = CPU_PLAN_NO_NUMA;
    snprintf(made.choice.device, sizeof made.choice.device, "made_0");
    assert_int_equal(options_node(&made.options, &mine, &why), 0);
    made.log.name = made.options.name;
    made.log.sink = made.options.log;
    made.log.arg = made.options.log_arg;
    return node_memory_open(&made, &why);
}

static void close_memory(void) {
    node_memory_close(&made);
    assert_int_equal(fake.mapped, 0);
    assert_int_equal(fake.registered, 0);
}

/* ---- the limit on locked memory ------------------------------------------------------------------- */

/* A process that may lock 1 MiB. */
static int locked_in_child(void) {
    struct rlimit limit = {MIB, MIB};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && seteuid(65534) != 0))
        return 77;
    const sluice_node_options *o = SLUICE_NODE(.sessions_max = 100);
    if (open_memory(o) != SLUICE_ENOMEM ||
        !strstr(why.text, "100 sessions x 4 x 8256 bytes need 3225 KiB, RLIMIT_MEMLOCK is 1024") ||
        !strstr(why.text, "ulimit -l 1048576") || fake.registered != 0)
        return 1;
    /* Where nobody chose a number there are as many as fit, and a word on what will go wrong. */
    if (open_memory(SLUICE_NODE(.name = "x")) != 0)
        return 2;
    if (made.options.sessions_max != MIB / (4 * 8256))
        return 3;
    if (times_told(SLUICE_LOG_WARNING, "memory_bytes_max is 1048576 KiB, but only 1024 KiB may") !=
        1)
        return 4;
    /* Each pool tells, once, when it is refused more; the limit, the need and the remedy are named. */
    struct pool *const pools[] = {made.pool, made.rx_pool};
    static const char *const remedies[] = {"ulimit -l 786432", "ulimit -l 262144"};
    fake.fail_reg = 1;
    for (int i = 0; i < 2; i++) {
        if (pool_get(pools[i], NULL, 3 * MIB) || pool_get(pools[i], NULL, 3 * MIB))
            return 5;
        if (times_told(SLUICE_LOG_WARNING, remedies[i]) != 1)
            return 6;
    }
    if (times_told(SLUICE_LOG_WARNING,
                   "KiB cannot be registered: the limit on locked memory is 1024 "
                   "KiB (RLIMIT_MEMLOCK)") != 2)
        return 7;
    close_memory();
    /* None at all. */
    if (open_memory(o = SLUICE_NODE(.sessions_max = 1)) != SLUICE_ENOMEM ||
        why.reason != SLUICE_REASON_NO_MEMORY ||
        !strstr(why.text, "4 KiB cannot be registered: the limit on locked memory is 1024 KiB"))
        return 8;
    return 0;
}

#define MEMORY_TEST(name) TEST_WITH(setup, NULL, name)

MEMORY_TEST(a_device_that_locks_is_held_to_the_limit) {
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        int result = locked_in_child();
        if (result != 0 && result != 77)
            fprintf(stderr, "step %d: %s\n%s", result, why.text, told);
        _exit(result);
    }
    int status = wait_exit(child);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

/* ---- what is told --------------------------------------------------------------------------------- */

MEMORY_TEST(memory_that_cannot_be_had_at_all_is_told_with_the_reason) {
    fake.fail_alloc = 1;
    assert_int_equal(open_memory(SLUICE_NODE(.name = "x")), SLUICE_ENOMEM);
    assert_int_equal(why.os_errno, ENOMEM);
    assert_non_null(strstr(why.text, "KiB cannot be registered: "));
    assert_int_equal(fake.registered, 0);
}

MEMORY_TEST(too_few_huge_pages_are_told_once_a_pool_and_do_no_harm) {
    struct limits limits;
    limits_read(&limits, "");
    setenv("SLUICE_HUGE_PAGES", "2M", 1);
    assert_int_equal(open_memory(SLUICE_NODE(.memory_bytes_max = 4096 * MIB)), 0);
    if (memory_budget_huge_free(&limits, 21, -1) <
        2048) /* the made up device has none in any case */
        assert_int_equal(times_told(SLUICE_LOG_INFO, "memory_bytes_max is 2048 pages of 2048 KiB"),
                         1);
    assert_int_equal(times_told(SLUICE_LOG_WARNING, "raise hugepages-2048kB/nr_hugepages by 1536"),
                     1);
    assert_int_equal(times_told(SLUICE_LOG_WARNING, "raise hugepages-2048kB/nr_hugepages by 512"),
                     1);
    close_memory();
    /* Neither part has room for a page of a GiB: those of 2 MiB are tried, and that is said. */
    setenv("SLUICE_HUGE_PAGES", "1G", 1);
    told[0] = 0;
    assert_int_equal(open_memory(SLUICE_NODE(.name = "x")), 0);
    assert_int_equal(times_told(SLUICE_LOG_INFO,
                                "pages of 1048576 KiB are larger than either part of"
                                " memory_bytes_max, 786432 and 262144 KiB"),
                     1);
    assert_int_equal(times_told(SLUICE_LOG_WARNING, "on pages of 2048 KiB, others serve"), 2);
    assert_int_equal(times_told(SLUICE_LOG_WARNING, "1048576"), 0);
    close_memory();
}

/* In a process of its own: a hard limit cannot be raised again. */
static void speak_of_few(void) {
    const struct rlimit limit = {1000, 1000};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(open_memory(SLUICE_NODE(.sessions_max = 500)), 0);
    /* A NIC takes none for its peers. */
    assert_int_equal(times_told(SLUICE_LOG_INFO, "500 sessions with as many processes need"), 0);
    close_memory();
    made.traits.files_per_peer = true;
    assert_int_equal(node_memory_open(&made, &why), 0);
    assert_int_equal(times_told(SLUICE_LOG_INFO, "500 sessions with as many processes need"), 1);
    close_memory();
}

MEMORY_TEST(few_descriptors_are_spoken_of) {
    int status = 0;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 1000)
        skip();
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        speak_of_few();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static rlim_t files_after_opening(rlim_t before, uint32_t sessions) {
    struct rlimit limit;
    assert_int_equal(open_memory(SLUICE_NODE(.sessions_max = sessions)), 0);
    close_memory();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = before;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    made.traits.files_per_peer = true;
    assert_int_equal(node_memory_open(&made, &why), 0);
    close_memory();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_cur;
}

/* As many as sessions may need, or as there may be; else as many as there were. */
MEMORY_TEST(descriptors_are_asked_for_where_sessions_need_them) {
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 2000)
        skip();
    rlim_t files = files_after_opening(900, 500);
    assert_in_range(files, before.rlim_max < 4000 ? before.rlim_max : 4000, before.rlim_max);
    assert_int_equal(files_after_opening(2000, 50), 2000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- helpers and figures ---------------------------------------------------------------------------- */

static struct pool_buffer *take(struct pool *pool, size_t bytes, int count) {
    struct pool_buffer *chain = NULL;
    while (count-- > 0) {
        struct pool_buffer *msg = pool_get(pool, NULL, bytes);
        assert_non_null(msg);
        msg->next = chain;
        chain = msg;
    }
    return chain;
}

static void compare(struct pool *pool) {
    struct stats_memory *shown = aligned_alloc(_Alignof(struct stats_memory), sizeof *shown);
    struct pool_stats f;
    assert_non_null(shown);
    memset(shown, 0, sizeof *shown);
    pool_get_stats(pool, &f);
    pool_show(pool, shown);
    const struct {
        uint64_t is, shown;
    } list[] = {
        {f.bytes, shown->bytes},
        {f.bytes_max, shown->bytes_max},
        {f.kind[HUGEPAGES_SMALL], shown->ordinary},
        {f.kind[HUGEPAGES_TRANSPARENT], shown->transparent},
        {f.kind[HUGEPAGES_2M], shown->huge_2m},
        {f.kind[HUGEPAGES_1G], shown->huge_1g},
        {f.numa_bound, shown->numa_bound},
        {f.huge_missed, shown->huge_missed},
        {f.grown_ahead, shown->grown_ahead},
        {f.grown_on_demand, shown->grown_on_demand},
        {f.alloc_waits, shown->alloc_waits},
        {f.alloc_wakeups, shown->alloc_wakeups},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].is != list[i].shown)
            fail_msg("figure %zu: %llu, shown %llu", i, (unsigned long long)list[i].is,
                     (unsigned long long)list[i].shown);
    assert_true(f.kind[HUGEPAGES_2M] > 0 && f.huge_missed > 0 && f.grown_ahead > 0);
    assert_true(f.grown_on_demand > 0 && f.alloc_waits > 0 && f.alloc_wakeups > 0);
    assert_int_equal(shown->numa, made.plan->arena_numa);
    assert_true(f.numa_bound == 0 || f.numa_bound == f.bytes);
    free(shown);
}

/* Both pools: their arenas are added ahead of need, by a helper, and everything is on the page. */
MEMORY_TEST(both_pools_grow_ahead_and_show_their_figures) {
    hwloc_topology_t topology = topology_here();
    hwloc_obj_t node = topology ? hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, 0) : NULL;
    setenv("SLUICE_HUGE_PAGES", "2M", 1);
    fake.huge_2m = 4 * MIB;
    assert_int_equal(open_memory(SLUICE_NODE(.memory_bytes_max = 128 * MIB)), 0);
    close_memory();
    fake.huge_2m = 4 * MIB;
    made.plan->arena_numa = node ? (int)node->os_index : CPU_PLAN_NO_NUMA;
    assert_int_equal(node_memory_open(&made, &why), 0);
    struct pool *const pools[] = {made.pool, made.rx_pool};
    for (int i = 0; i < 2; i++) {
        struct pool_stats f;
        fake.last_thread = 0;
        struct pool_buffer *low = take(pools[i], 60000, 20); /* less than 1 MiB of 2 is left */
        pool_grow_settle(pools[i]);
        pool_get_stats(pools[i], &f);
        assert_int_equal(f.grown_ahead, 1);
        assert_int_equal(f.bytes, 6 * MIB);
        assert_true(fake.last_thread != pthread_self());
        struct pool_buffer *burst = take(pools[i], MIB, 8); /* as fast as it goes */
        assert_true(fake.last_thread != pthread_self());
        pool_wait(pools[i], MIB);
        fake_put_all(pools[i], NULL, burst);
        fake_put_all(pools[i], NULL, low);
        compare(pools[i]);
    }
    close_memory();
}
