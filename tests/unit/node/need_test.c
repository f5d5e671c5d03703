/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * need_test.c - the budget: connections times depth times size against every limit, when a node opens;
 * and what the node counts of its memory.
 */
#include "support/child.h"
#include "support/pair.h"
#include "support/pool_stats.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/limits.h"
#include "node/memory_budget.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static const struct limits unlimited = {
    .memlock = LIMITS_NONE, .cgroup = LIMITS_NONE, .files_max = LIMITS_NONE};

/* 4 frames of 8 KiB: 32 KiB a session. */
static struct memory_budget_input input(uint32_t sessions, const struct limits *limits) {
    return (struct memory_budget_input){.sessions = sessions,
                                        .chosen = true,
                                        .depth = 4,
                                        .full = 32,
                                        .frame = 8 * KIB,
                                        .receive_bytes_max = 32 * MIB,
                                        .memory_bytes_max = 128 * MIB,
                                        .locks = true,
                                        .limits = limits,
                                        .numa = -1};
}

TEST(the_need_is_connections_times_depth_times_size) {
    struct memory_budget need;
    char text[200];
    struct memory_budget_input in = input(1024, &unlimited);
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_int_equal(need.sessions, 1024);
    assert_int_equal(need.session_bytes, 32 * KIB);
    assert_int_equal(need.receive_bytes, 32 * MIB);
    assert_int_equal(need.receive_bytes_full, 256 * MIB);
    assert_string_equal(need.warning, "");
}

/* Every limit: the error names it, the need and the remedy, in less than the public struct holds. */
TEST(too_many_sessions_are_refused_with_limit_need_and_remedy) {
    static const struct {
        uint64_t receive, memlock, cgroup;
        int error;
        const char *limit, *remedy;
    } cases[] = {
        {16 * MIB, LIMITS_NONE, LIMITS_NONE, -EINVAL, "receive_bytes_max has room for 16384 KiB",
         "raise it, or lower sessions_max"},
        {32 * MIB, 8 * MIB, LIMITS_NONE, -ENOMEM, "RLIMIT_MEMLOCK is 8192 KiB",
         "`ulimit -l 131072`, or lower sessions_max"},
        {32 * MIB, LIMITS_NONE, 31 * MIB, -ENOMEM, "the cgroup's memory.max is 31744 KiB",
         "raise it, or lower sessions_max"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct limits limits = unlimited;
        struct memory_budget need;
        char text[160];
        limits.memlock = cases[i].memlock;
        limits.cgroup = cases[i].cgroup;
        struct memory_budget_input in = input(1024, &limits);
        in.receive_bytes_max = cases[i].receive;
        memset(text, 'x', sizeof text);
        assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), cases[i].error);
        assert_non_null(strstr(text, "1024 sessions x 4 x 8192 bytes need 32768 KiB"));
        assert_non_null(strstr(text, cases[i].limit));
        assert_non_null(strstr(text, cases[i].remedy));
        /* By default there are as many as fit. */
        in.chosen = false;
        assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
        uint64_t receive = cases[i].receive / 8 * 5; /* the others can have more than their least */
        uint64_t least = receive < cases[i].memlock ? receive : cases[i].memlock;
        least = least < cases[i].cgroup ? least : cases[i].cgroup;
        assert_int_equal(need.sessions, least / (32 * KIB));
        assert_int_equal(need.receive_bytes, (uint64_t)need.sessions * 32 * KIB);
        /* Not even one. */
        in.frame = 64 * MIB;
        assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), -EINVAL);
    }
}

TEST(locked_memory_does_not_count_where_nothing_is_locked) {
    struct limits limits = unlimited;
    struct memory_budget need;
    char text[200];
    limits.memlock = 64 * KIB;
    struct memory_budget_input in = input(1024, &limits);
    in.locks = false;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_string_equal(need.warning, "");
    in.locks = true;
    limits.memlock_exempt = true;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_string_equal(need.warning, "");
}

TEST(a_cap_above_a_limit_is_warned_of) {
    struct limits limits = unlimited;
    struct memory_budget need;
    char text[200];
    limits.memlock = 64 * MIB;
    struct memory_budget_input in = input(1024, &limits);
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_true(need.serious);
    assert_non_null(strstr(need.warning, "131072 KiB, but only 65536 KiB may be locked"));
    assert_non_null(strstr(need.warning, "ulimit -l 131072"));
    limits.memlock = LIMITS_NONE;
    limits.cgroup = 100 * MIB;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_false(need.serious);
    assert_non_null(strstr(need.warning, "the cgroup may have 102400 KiB"));
}

TEST(too_few_huge_pages_are_warned_of) {
    struct limits limits = unlimited;
    struct memory_budget need;
    char text[200];
    limits.huge[0] = (struct limits_huge){0, 21, 60, 60};
    limits.huge[1] = (struct limits_huge){1, 21, 9, 3};
    limits.huge_count = 2;
    struct memory_budget_input in = input(64, &limits);
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_string_equal(need.warning, ""); /* nobody asked for them */
    in.huge_log2 = 21;
    in.numa = 1;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_non_null(strstr(need.warning, "64 pages of 2048 KiB, and 3 are free"));
    assert_non_null(strstr(need.warning, "raise hugepages-2048kB/nr_hugepages by 61"));
    assert_int_equal(memory_budget_huge_free(&limits, 21, -1), 63);
    assert_int_equal(memory_budget_huge_free(&limits, 30, -1), 0);
    limits.huge[1].free = 64;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_string_equal(need.warning, "");
    /* Each part has pages of its own, and whole ones: 3 of 3.375 GiB and 1 of 1.125. */
    in.huge_log2 = 30;
    in.numa = -1;
    in.memory_bytes_max = 4608 * MIB;
    in.receive_bytes_max = 1152 * MIB;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_non_null(strstr(need.warning, "4 pages of 1048576 KiB, and 0 are free"));
    assert_non_null(strstr(need.warning, "hugepages-1048576kB/nr_hugepages by 4"));
    in.memory_bytes_max = 1024 * MIB;
    in.receive_bytes_max = 256 * MIB;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_non_null(strstr(need.warning, "pages of 1048576 KiB are larger than either part of "
                                         "memory_bytes_max, 786432 and 262144 KiB: raise it"));
}

/* ---- a node ------------------------------------------------------------------------------------ */

/* Descriptors: the node's own must be possible; one process a session is only spoken of. */
TEST(too_few_descriptors_are_told_with_limit_need_and_remedy) {
    struct memory_budget need;
    char text[200];
    struct limits limits = unlimited;
    struct memory_budget_input in = input(100, &limits);
    in.files = 20;
    in.files_peer = 5;
    limits.files = 10;
    limits.files_max = 530;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_string_equal(need.files, "");
    limits.files_max = 529;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_non_null(strstr(need.files, "100 sessions with as many processes need 530 files"));
    assert_non_null(strstr(need.files, "RLIMIT_NOFILE is 529: `ulimit -n 530`"));
    limits.files_max = 29;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), -EMFILE);
    assert_non_null(strstr(text, "a node opens 20 files, 10 are open and RLIMIT_NOFILE is 29"));
    assert_non_null(strstr(text, "`ulimit -n 530` or LimitNOFILE= raises it"));
    assert_uint_in_range(strlen(text), 1, 159);
    in.files_peer = 0; /* a device that needs none for its peers */
    limits.files_max = 30;
    assert_int_equal(memory_budget_make(&need, &in, text, sizeof text), 0);
    assert_string_equal(need.files, "");
}

#define FILES_ENOUGH 200

/* Opens a node with fewer and fewer files. Returns what is wrong, or NULL. */
static const char *open_with_fewer(void) {
    struct limits now;
    unsigned named = 0, of_device = 0, silent = 0;
    limits_read(&now, "");
    for (unsigned left = FILES_ENOUGH; left > 0; left--) {
        const struct rlimit limit = {now.files + left, now.files + left};
        sluice_node *node = NULL;
        sluice_error e = {0};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            return "setrlimit()";
        int status = sluice_open(&node, SLUICE_NODE(.device = "soft", .workers = 3), &e);
        bool told = strstr(e.text, "RLIMIT_NOFILE is") && strstr(e.text, "`ulimit -n ");
        if (status == 0)
            sluice_close(node, 0);
        if (left == FILES_ENOUGH ? status != 0 : status == 0 && named > 0)
            return status ? "it does not open" : "it opens with fewer than it said";
        if (status != 0 && told && (status != SLUICE_ELIMIT || e.os_errno != EMFILE))
            return "another status";
        if (strstr(e.text, " 0 are open")) /* of a process that has standard output */
            return "none are open";
        if ((status != 0 && !told && named == 0) || (told && silent > 0))
            return "it began, and could not end";
        named += status != 0 && told;
        silent += status != 0 && !told;
        of_device += strstr(e.text, "cannot be opened, RLIMIT_NOFILE is") != NULL;
    }
    return named > of_device && of_device > 0 ? NULL : "the device needs some, too";
}

/* Under every limit either it says so, before it begins, or all of it can be opened. A hard limit cannot be raised again. */
TEST(a_node_that_lacks_descriptors_says_so_and_does_not_open) {
    int status;
    struct rlimit before;
    struct limits now;
    limits_read(&now, "");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < now.files + FILES_ENOUGH)
        skip();
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const char *wrong = open_with_fewer();
        if (wrong)
            print_error("%s\n", wrong);
        _exit(wrong != NULL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Also those that the device needs before anything else. */
TEST(a_node_takes_the_descriptors_that_there_may_be) {
    struct rlimit before, limit;
    struct limits now;
    sluice_node *node;
    sluice_error e;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limits_read(&now, "");
    if (before.rlim_max < now.files + FILES_ENOUGH)
        skip();
    limit = before;
    limit.rlim_cur = now.files + 2;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (sluice_open(&node, SLUICE_NODE(.device = "soft"), &e) != 0)
        fail_msg("%s", e.text);
    sluice_close(node, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(a_node_that_cannot_feed_its_sessions_does_not_open) {
    sluice_node *n;
    sluice_error e = {0};
    const sluice_node_options *o =
        SLUICE_NODE(.device = "soft", .sessions_max = 4000, .memory_bytes_max = 64 << 20);
    assert_int_equal(sluice_open(&n, o, &e), SLUICE_EINVAL);
    assert_non_null(strstr(e.text, "4000 sessions x 4 x 8256 bytes need 129000 KiB"));
    char room[80];
    uint64_t frames = pool_holds(16 << 20, 8192);
    snprintf(room, sizeof room, "receive_bytes_max has room for %llu KiB: raise it",
             (unsigned long long)(frames * 8256 + 1023) / 1024);
    assert_non_null(strstr(e.text, room));
    /* Not chosen, there are as many as fit. */
    o = SLUICE_NODE(.device = "soft", .memory_bytes_max = 64 << 20, .workers = SLUICE_NO_WORKERS);
    assert_int_equal(sluice_open(&n, o, &e), 0);
    sluice_node_info info = {.size = sizeof info};
    assert_int_equal(sluice_node_get_info(n, &info), 0);
    assert_int_equal(info.receive_bytes_max, 16 << 20);
    assert_int_equal(info.session_bytes, 4 * 8256);
    assert_int_equal(info.sessions_max, frames * 8256 / 8 * 5 / (4 * 8256));
    assert_int_equal(info.sessions_bytes, info.sessions_max * info.session_bytes);
    assert_int_equal(info.sessions_bytes_full, info.sessions_max * CREDITS_DEFAULT * 8256ull);
    assert_true(info.files_max >= info.files && info.files > 0);
    sluice_close(n, 0);
}

/* ---- counters ---------------------------------------------------------------------------------- */

static void publish(struct pair *p) {
    struct side *sides[] = {&p->a, &p->b};
    for (int i = 0; i < 2; i++) {
        loop_publish(sides[i]->loop);
        loop_publish_memory(sides[i]->loop);
    }
}

/* What the page shows of one class, all loops and threads together. */
static uint64_t shown(sluice_node *n, int pool, unsigned size_class, bool puts) {
    const struct stats_page *page = n->stats.page;
    const struct stats_buffers *of = &page->memory[pool].buffers[size_class];
    uint64_t sum = atomic_load(puts ? &of->puts : &of->gets);
    for (int i = 0; i < STATS_LOOPS_MAX; i++) {
        of = &page->loops[i].buffers[pool][size_class];
        if (atomic_load(&page->loops[i].in_use))
            sum += atomic_load(puts ? &of->puts : &of->gets);
    }
    return sum;
}

static void check_shown(sluice_node *n) {
    struct pool *const pools[] = {[STATS_SEND] = n->pool, [STATS_RECEIVE] = n->rx_pool};
    for (int p = 0; p < STATS_POOLS; p++) {
        struct pool_stats f;
        const struct stats_memory *memory = &n->stats.page->memory[p];
        pool_get_stats(pools[p], &f);
        for (unsigned i = 0; i <= POOL_CLASSES; i++) {
            assert_int_equal(shown(n, p, i, false), f.count[i].gets);
            assert_int_equal(shown(n, p, i, true), f.count[i].puts);
        }
        assert_int_equal(memory->bytes, f.bytes);
        assert_int_equal(memory->bytes_max, f.bytes_max);
        assert_int_equal(memory->ordinary + memory->transparent + memory->huge_2m + memory->huge_1g,
                         f.bytes);
        assert_int_equal(memory->grown_on_demand, f.grown_on_demand);
        assert_int_equal(memory->numa, -1);
    }
    assert_int_equal(n->stats.page->memory[STATS_SEND].bytes_max +
                         n->stats.page->memory[STATS_RECEIVE].bytes_max,
                     n->options.memory_bytes_max);
}

PAIR_WITH(pair_connected, buffers_are_counted_per_size_worker_and_pool) {
    struct pair *p = *state;
    static const size_t sizes[] = {100, 3000, 20000, 300000, 3000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(pair_send(&p->b, sizes[i], (unsigned)i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, sizes[i], (unsigned)i));
    }
    publish(p);
    check_shown(p->a.node);
    check_shown(p->b.node);
    /* The one that received has receive buffers, got by its loop; the sender got some to send. */
    const struct stats_loop *a = &p->a.node->stats.page->loops[p->a.loop->index];
    uint64_t received = 0;
    for (int i = 0; i < STATS_CLASSES; i++)
        received += atomic_load(&a->buffers[STATS_RECEIVE][i].gets);
    assert_true(received >= CREDITS_INITIAL);
    assert_true(shown(p->b.node, STATS_SEND, POOL_CLASSES, false) >= 1); /* the largest */
    assert_int_equal(p->a.node->stats.page->class_bytes[0], 64);
    assert_int_equal(p->a.node->stats.page->class_bytes[POOL_CLASSES - 1], 1 << 20);
    assert_int_equal(p->a.node->stats.page->class_bytes[POOL_CLASSES], 0);
}

/* A loop that closes takes nothing with it: its counts are the pool's then. */
TEST(a_closed_loops_buffers_stay_counted) {
    sluice_node *n;
    sluice_loop *loop;
    sluice_msg *msg;
    sluice_error e = {0};
    const sluice_node_options *o = SLUICE_NODE(.device = "soft", .workers = SLUICE_NO_WORKERS);
    assert_int_equal(sluice_open(&n, o, &e), 0);
    assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
    assert_true(sluice_poll(loop, NULL, 0, 0) >= 0); /* it is this thread's */
    assert_int_equal(sluice_alloc(n, 1000, &msg), 0);
    sluice_free(msg);
    loop_publish(loop);
    unsigned size_class = 0;
    while (pool_class_bytes(size_class) < 1000)
        size_class++;
    assert_int_equal(n->stats.page->loops[loop->index].buffers[STATS_SEND][size_class].gets, 1);
    assert_int_equal(sluice_loop_close(loop), 0);
    check_shown(n);
    assert_int_equal(n->stats.page->memory[STATS_SEND].buffers[size_class].gets, 1);
    assert_int_equal(sluice_alloc(n, 1000, &msg), 0); /* a thread without a loop */
    sluice_free(msg);
    assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
    assert_int_equal(n->stats.page->loops[loop->index].buffers[STATS_SEND][size_class].gets, 0);
    loop_publish_memory(loop);
    check_shown(n);
    assert_int_equal(n->stats.page->memory[STATS_SEND].buffers[size_class].gets, 2);
    sluice_close(n, 0);
}
