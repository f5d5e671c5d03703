/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_arena_test.c - where a pool's memory comes from: which pages, which NUMA node, and who waits
 * while it is registered.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <stdio.h>
#include <time.h>

#include "base/limits.h"
#include "base/topology.h"
#include "fake_memory.h"
#include "pool/inside.h"

static struct pool *open_with(uint64_t bytes_max, struct backing_wish wish) {
    struct pool *pool = NULL;
    struct pool_config config = {&fake_fabric, &pd, bytes_max, wish};
    assert_int_equal(pool_open_with(&pool, &config), 0);
    return pool;
}

static struct sluice_msg *fill(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct sluice_msg *chain = NULL, *msg;
    while ((msg = pool_get(pool, cache, bytes)) != NULL) {
        msg->next = chain;
        chain = msg;
    }
    return chain;
}

static void drop(struct pool *pool, struct pool_cache *cache, struct sluice_msg *chain) {
    for (struct sluice_msg *next; chain; chain = next) {
        next = chain->next;
        pool_put(pool, cache, chain);
    }
}

/* ---- pages --------------------------------------------------------------------------------------- */

static void huge_pages_are_used_while_there_are_any(void **state) {
    (void)state;
    char text[200];
    fake.huge_2m = 6 * MIB; /* the first arena of 2 MiB and the second of 4 */
    struct pool *pool = open_with(30 * MIB, (struct backing_wish){21, false, -1});
    struct sluice_msg *chain = fill(pool, NULL, 60000);
    struct pool_figures f;
    pool_figures(pool, &f);
    assert_int_equal(f.kind[BACKING_2M], 6 * MIB);
    assert_int_equal(f.kind[BACKING_2M] + f.kind[BACKING_TRANSPARENT] + f.kind[BACKING_SMALL],
                     pool_bytes(pool));
    assert_int_equal(pool_bytes(pool), 30 * MIB);
    assert_int_equal(f.bound, 0);
    pool_describe(pool, text, sizeof text);
    assert_non_null(strstr(text, "6144 KiB on 2 MiB pages"));
    assert_true(strstr(text, "ordinary pages") || strstr(text, "transparent"));
    assert_null(strstr(text, "NUMA"));
    drop(pool, NULL, chain);
    close_pool(pool);
}

static void huge_pages_kept_apart_are_not_touched_unasked(void **state) {
    (void)state;
    fake.huge_2m = 64 * MIB;
    struct pool *pool = open_with(8 * MIB, (struct backing_wish){0, false, -1});
    struct pool_figures f;
    pool_figures(pool, &f);
    assert_int_equal(fake.huge_asked, 0);
    assert_int_equal(f.kind[BACKING_2M], 0);
    close_pool(pool);
    pool = open_with(8 * MIB, (struct backing_wish){0, true, -1});
    pool_figures(pool, &f);
    assert_int_equal(f.kind[BACKING_SMALL], 2 * MIB);
    close_pool(pool);
}

/* Pages of a GiB, then of 2 MiB, then ordinary ones; the size of the arenas follows. */
static void what_is_not_there_falls_back(void **state) {
    (void)state;
    fake.reg_bytes_max = 64 * MIB;
    struct pool *pool = open_with(2048 * MIB, (struct backing_wish){30, false, -1});
    assert_int_equal(fake.huge_asked, 1u << 30 | 1u << 21);
    assert_int_equal(pool_bytes(pool), 2 * MIB);
    close_pool(pool);
    fake.huge_asked = 0;
    /* A cap below a GiB: nobody asks for such a page. */
    pool = open_with(512 * MIB, (struct backing_wish){30, false, -1});
    assert_int_equal(fake.huge_asked, 1u << 21);
    close_pool(pool);
}

static void the_environment_chooses_pages(void **state) {
    (void)state;
    const struct {
        const char *text;
        unsigned huge_log2;
        bool no_transparent;
    } list[] = {
        {"1G", 30, false}, {"2M", 21, false}, {"no", 0, true}, {"", 0, false}, {"4K", 0, false}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct backing_wish wish = {.numa = -1};
        setenv("SLUICE_HUGE_PAGES", list[i].text, 1);
        backing_from_environment(&wish);
        assert_int_equal(wish.huge_log2, list[i].huge_log2);
        assert_int_equal(wish.no_transparent, list[i].no_transparent);
    }
    unsetenv("SLUICE_HUGE_PAGES");
}

static const char huge_path[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/* The pages are the system's: one process at a time. -1: it has none of that size. */
static int lock_huge_pages(void) {
    int fd = open(huge_path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The real fabrics' huge pages: there or not, never half. */
static void fabrics_have_huge_pages_or_say_so(void **state) {
    (void)state;
    const struct fabric_ops *const list[] = {&fabric_system, &fabric_soft};
    int alone = lock_huge_pages();
    for (size_t i = 0; i < 2; i++) {
        struct backing got;
        struct backing_wish wish = {21, false, -1};
        uint8_t *addr = backing_alloc(list[i], 4 * MIB, &wish, &got);
        assert_non_null(addr);
        print_message("%s: %s\n", list[i]->name,
                      got.kind == BACKING_2M ? "2 MiB pages" : "none to be had, ordinary ones");
        memset(addr, 0x5a, 4 * MIB);
        list[i]->mem_free(addr, 4 * MIB);
    }
    if (alone >= 0)
        close(alone);
}

/* The pages the system keeps apart; -1: that cannot be read. */
static long reserved(const char *path) {
    char text[32] = "";
    FILE *file = fopen(path, "r");
    bool read = file && fgets(text, sizeof text, file);
    if (file)
        fclose(file);
    return read ? strtol(text, NULL, 10) : -1;
}

static void reserve(const char *path, long pages) {
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    fprintf(file, "%ld\n", pages);
    fclose(file);
}

/* What a pool of 16 MiB has on pages of 2 MiB; text: what it says of itself. */
static uint64_t huge_of(const struct fabric_ops *real, char *text, size_t bytes) {
    struct fabric_ops fabric = fake_fabric;
    struct pool_config config = {&fabric, &pd, 16 * MIB, {21, false, -1}};
    struct pool *pool = NULL;
    struct pool_figures f;
    fabric.mem_alloc = real->mem_alloc;
    fabric.mem_free = real->mem_free;
    fabric.mem_alloc_huge = real->mem_alloc_huge;
    if (pool_open_with(&pool, &config) != 0)
        return 0;
    struct sluice_msg *chain = fill(pool, NULL, 60000);
    for (struct sluice_msg *msg = chain; msg; msg = msg->next)
        memset(msg->data, 0x5a, msg->size);
    pool_figures(pool, &f);
    pool_describe(pool, text, bytes);
    drop(pool, NULL, chain);
    pool_close(pool);
    return f.missed == 0 ? f.kind[BACKING_2M] : 0;
}

/* The real thing, where this process may reserve some for a moment. */
static void reserved_huge_pages_are_got_and_reported(void **state) {
    (void)state;
    const struct fabric_ops *const list[] = {&fabric_system, &fabric_soft};
    uint64_t got[2] = {0};
    char text[2][200] = {"", ""};
    struct limits limits;
    int alone = lock_huge_pages();
    if (alone < 0) {
        print_message("SKIPPED: THIS SYSTEM HAS NO HUGE PAGES OF 2 MIB (%s)\n", huge_path);
        skip();
    }
    long before = reserved(huge_path);
    reserve(huge_path, before + 16); /* twice what is needed: there may be other users */
    limits_read(&limits, "");
    uint64_t there = 0;
    for (uint32_t i = 0; i < limits.huge_count; i++)
        there += limits.huge[i].page_log2 == 21 ? limits.huge[i].free : 0;
    for (size_t i = 0; i < 2 && there >= 8; i++)
        got[i] = huge_of(list[i], text[i], sizeof text[i]);
    if (before >= 0)
        reserve(huge_path, before);
    close(alone);
    if (there < 8) {
        print_message("SKIPPED: NO HUGE PAGES CAN BE RESERVED HERE (%s)\n", huge_path);
        skip();
    }
    for (size_t i = 0; i < 2; i++) {
        print_message("%s: %s\n", list[i]->name, text[i]);
        assert_int_equal(got[i], 16 * MIB);
        assert_non_null(strstr(text[i], "16384 KiB on 2 MiB pages"));
    }
}

/* ---- NUMA ---------------------------------------------------------------------------------------- */

static void memory_is_bound_to_the_node_it_is_wished_on(void **state) {
    (void)state;
    char text[200];
    hwloc_topology_t topology = topology_here();
    assert_non_null(topology);
    hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, 0);
    if (!node || !hwloc_topology_get_support(topology)->membind->set_area_membind)
        skip();
    struct pool *pool =
        open_with(8 * MIB, (struct backing_wish){0, false, (int16_t)node->os_index});
    struct sluice_msg *msg = pool_get(pool, NULL, 5000);
    assert_non_null(msg);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
    struct pool_figures f;
    pool_figures(pool, &f);
    if (f.bound == 0) {
        hwloc_bitmap_free(set);
        pool_put(pool, NULL, msg);
        close_pool(pool);
        skip(); /* the system refuses, as in some containers */
    }
    assert_int_equal(
        hwloc_get_area_membind(topology, msg->data, 5000, set, &policy, HWLOC_MEMBIND_BYNODESET),
        0);
    assert_int_equal(policy, HWLOC_MEMBIND_BIND);
    assert_true(hwloc_bitmap_isequal(set, node->nodeset));
    assert_int_equal(f.bound, pool_bytes(pool));
    pool_describe(pool, text, sizeof text);
    assert_non_null(strstr(text, "; all on NUMA node"));
    hwloc_bitmap_free(set);
    pool_put(pool, NULL, msg);
    close_pool(pool);
}

static void a_node_that_does_not_exist_costs_nothing(void **state) {
    (void)state;
    char text[200];
    struct pool *pool = open_with(8 * MIB, (struct backing_wish){0, false, 4000});
    struct pool_figures f;
    pool_figures(pool, &f);
    assert_int_equal(f.bound, 0);
    pool_describe(pool, text, sizeof text);
    assert_non_null(strstr(text, "not bound"));
    close_pool(pool);
}

/* ---- growing ahead -------------------------------------------------------------------------------- */

static void a_load_that_grows_steadily_never_registers_memory_itself(void **state) {
    (void)state;
    struct pool *pool = open_with(64 * MIB, (struct backing_wish){0, false, -1});
    struct pool_cache *cache = pool_cache_open(pool);
    pool_grow_ahead(pool, MIB);
    atomic_store(&fake.last_thread, 0);
    struct sluice_msg *chain = NULL;
    for (int i = 0; i < 700; i++) { /* 42 MB */
        struct sluice_msg *msg = pool_get(pool, i % 2 ? cache : NULL, 60000);
        assert_non_null(msg);
        assert_true(atomic_load(&fake.last_thread) != pthread_self());
        assert_true(pool_bytes(pool) <= 64 * MIB);
        msg->next = chain;
        chain = msg;
        pool_grow_settle(pool); /* as a load does that takes longer than the helper */
    }
    struct pool_figures f;
    pool_figures(pool, &f);
    assert_int_equal(f.grown_in_need, 0);
    assert_true(f.grown_ahead >= 4);
    drop(pool, cache, chain);
    pool_cache_close(cache);
    close_pool(pool);
}

/* A worker asks and waits; what it gets was registered by the helper, arenas and large mappings. */
static void a_burst_makes_no_worker_register_memory(void **state) {
    (void)state;
    struct pool *pool = open_with(64 * MIB, (struct backing_wish){0, false, -1});
    struct pool_cache *cache = pool_cache_open(pool);
    pool_grow_ahead(pool, MIB);
    atomic_store(&fake.last_thread, 0);
    struct sluice_msg *chain = NULL;
    unsigned small = 0, large = 0;
    for (int i = 0; i < 400; i++) { /* as fast as it goes */
        bool single = i % 100 == 99;
        struct sluice_msg *msg = pool_get(pool, cache, single ? 3 * MIB : 60000);
        assert_non_null(msg);
        assert_true(atomic_load(&fake.last_thread) != pthread_self());
        assert_true(pool_bytes(pool) <= 64 * MIB);
        msg->next = chain;
        chain = msg;
        single ? large++ : small++;
    }
    assert_true(large == 4 && small == 396);
    drop(pool, cache, chain);
    /* Up to the cap and no further, and with the cap reached nobody waits for the helper. */
    chain = fill(pool, cache, 60000);
    assert_true(atomic_load(&fake.last_thread) != pthread_self());
    pool_grow_settle(pool);
    struct pool_figures f;
    pool_figures(pool, &f);
    assert_null(pool_get(pool, cache, 60000));
    assert_true(pool_bytes(pool) <= 64 * MIB);
    drop(pool, cache, chain);
    pool_cache_close(cache);
    close_pool(pool);
}

/* Threads that want at the same time are all served, whoever takes what was added for whom. */
static void *take_some(void *arg) {
    struct pool *pool = arg;
    struct pool_cache *cache = pool_cache_open(pool);
    struct sluice_msg *list[80];
    void *wrong = NULL;
    int count = 0;
    for (; count < 80 && !wrong; count++)
        if (!(list[count] = pool_get(pool, cache, count % 20 == 19 ? 2 * MIB : 60000)))
            wrong = pool;
    if (atomic_load(&fake.last_thread) == pthread_self())
        wrong = pool;
    while (count > 0)
        if (list[--count])
            pool_put(pool, cache, list[count]);
    pool_cache_close(cache);
    return wrong;
}

static void all_who_wait_for_the_helper_are_served(void **state) {
    (void)state;
    for (int round = 0; round < 5; round++) {
        struct pool *pool = open_with(256 * MIB, (struct backing_wish){0, false, -1});
        pthread_t threads[4];
        pool_grow_ahead(pool, MIB);
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, take_some, pool), 0);
        for (int i = 0; i < 4; i++) {
            void *wrong;
            pthread_join(threads[i], &wrong);
            assert_null(wrong);
        }
        assert_int_equal(pool_in_use(pool), 0);
        close_pool(pool);
    }
}

/* Helper threads of this process: a sanitizer may have threads of its own. */
static unsigned helpers_now(void) {
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *at; (at = readdir(dir)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", at->d_name);
        FILE *file = fopen(path, "r");
        count += file && fgets(name, sizeof name, file) && strcmp(name, "sluice-mem\n") == 0;
        if (file)
            fclose(file);
    }
    closedir(dir);
    return count;
}

/* One that was joined is still listed for a moment. */
static void expect_no_helper(void) {
    time_t limit = time(NULL) + 20;
    while (helpers_now() > 0 && time(NULL) < limit)
        sched_yield();
    assert_int_equal(helpers_now(), 0);
}

static void the_helper_starts_when_it_is_needed_and_ends_with_the_pool(void **state) {
    (void)state;
    expect_no_helper(); /* of the test before */
    struct pool *pool = open_with(16 * MIB, (struct backing_wish){0, false, -1});
    pool_grow_ahead(pool, MIB);
    drop(pool, NULL, pool_get(pool, NULL, 1000));
    assert_int_equal(helpers_now(), 0);
    struct sluice_msg *chain = fill(pool, NULL, 60000);
    assert_int_equal(helpers_now(), 1);
    pool_grow_settle(pool);
    assert_int_equal(pool_bytes(pool), 16 * MIB); /* to the cap and no further */
    drop(pool, NULL, chain);
    close_pool(pool);
    expect_no_helper();
}

static void *first_cpu_only(void *arg) {
    struct pool *pool = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof set, &set), 0);
    drop(pool, NULL, fill(pool, NULL, 60000));
    return NULL;
}

/* A worker is pinned, and may spin: what it starts runs where the process may. */
static void the_helper_is_not_pinned_with_the_worker_that_starts_it(void **state) {
    (void)state;
    cpu_set_t all, its;
    pthread_t worker;
    struct pool *pool = open_with(16 * MIB, (struct backing_wish){0, false, -1});
    pool_grow_ahead(pool, MIB);
    assert_int_equal(pthread_create(&worker, NULL, first_cpu_only, pool), 0);
    pthread_join(worker, NULL);
    assert_true(pool->grower.started);
    assert_int_equal(sched_getaffinity(getpid(), sizeof all, &all), 0);
    assert_int_equal(pthread_getaffinity_np(pool->grower.thread, sizeof its, &its), 0);
    assert_true(CPU_EQUAL(&all, &its));
    close_pool(pool);
}

/* The helper's failure is nobody else's, and does not make it run hot. */
static void a_helper_that_gets_no_memory_gives_up_for_a_while(void **state) {
    (void)state;
    struct pool *pool = open_with(64 * MIB, (struct backing_wish){0, false, -1});
    fake.fail_reg = 1;
    pool_grow_ahead(pool, 2 * MIB + 1);
    pool_grow_settle(pool);
    int64_t calls = fake.calls;
    struct sluice_msg *chain = NULL;
    for (int i = 0; i < 16; i++) {
        struct sluice_msg *msg = pool_get(pool, NULL, 100000);
        assert_non_null(msg);
        msg->next = chain;
        chain = msg;
        pool_grow_settle(pool);
    }
    assert_true(fake.calls - calls <= 4);
    fake.fail_reg = 0;
    drop(pool, NULL, fill(pool, NULL, 100000));
    assert_true(pool_bytes(pool) > 60 * MIB);
    drop(pool, NULL, chain);
    close_pool(pool);
}

/* Who waits for memory is told when the helper has brought some. */
static _Atomic int woken;
static void wake(void *arg) {
    (void)arg;
    woken++;
}

static void growth_wakes_who_waits(void **state) {
    (void)state;
    struct pool *pool = open_with(16 * MIB, (struct backing_wish){0, false, -1});
    pool_on_wake(pool, wake, NULL);
    woken = 0;
    fake.fail_reg = 1;
    struct sluice_msg *chain = fill(pool, NULL, 60000);
    pool_wait(pool);
    fake.fail_reg = 0;
    pool_grow_ahead(pool, MIB);
    while (!woken)
        sched_yield();
    struct sluice_msg *msg = pool_get(pool, NULL, 60000);
    assert_non_null(msg);
    pool_put(pool, NULL, msg);
    drop(pool, NULL, chain);
    close_pool(pool);
}

/* The device goes while the helper registers: nothing stays registered. */
static void a_device_that_goes_finds_the_helper_idle(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct pool *pool = open_with(64 * MIB, (struct backing_wish){0, false, -1});
        pool_grow_ahead(pool, 32 * MIB);
        pool_let_go(pool);
        assert_int_equal(fake.registered, 0);
        assert_null(pool_get(pool, NULL, 64 * MIB - POOL_HEADROOM));
        assert_int_equal(fake.registered, 0);
        close_pool(pool);
    }
}

static void *use_and_return(void *arg) {
    struct pool *pool = arg;
    struct pool_cache *cache = pool_cache_open(pool);
    for (int round = 0; round < 20; round++) {
        struct sluice_msg *chain = NULL, *msg;
        for (int i = 0; i < 300 && (msg = pool_get(pool, cache, 60000)) != NULL; i++) {
            msg->next = chain;
            chain = msg;
        }
        drop(pool, round % 2 ? cache : NULL, chain);
        if (round % 5 == 0 && (msg = pool_get(pool, cache, 5 * MIB)) != NULL)
            pool_put(pool, cache, msg);
    }
    pool_cache_close(cache);
    return NULL;
}

static void the_cap_holds_with_helper_and_threads(void **state) {
    (void)state;
    struct pool *pool = open_with(24 * MIB, (struct backing_wish){0, false, -1});
    pthread_t threads[3];
    pool_grow_ahead(pool, 4 * MIB);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_and_return, pool), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(pool_in_use(pool), 0);
    assert_true(fake.registered <= (int64_t)(24 * MIB));
    close_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        POOL_TEST(huge_pages_are_used_while_there_are_any),
        POOL_TEST(huge_pages_kept_apart_are_not_touched_unasked),
        POOL_TEST(what_is_not_there_falls_back),
        POOL_TEST(the_environment_chooses_pages),
        POOL_TEST(fabrics_have_huge_pages_or_say_so),
        POOL_TEST(reserved_huge_pages_are_got_and_reported),
        POOL_TEST(memory_is_bound_to_the_node_it_is_wished_on),
        POOL_TEST(a_node_that_does_not_exist_costs_nothing),
        POOL_TEST(a_load_that_grows_steadily_never_registers_memory_itself),
        POOL_TEST(a_burst_makes_no_worker_register_memory),
        POOL_TEST(all_who_wait_for_the_helper_are_served),
        POOL_TEST(the_helper_starts_when_it_is_needed_and_ends_with_the_pool),
        POOL_TEST(the_helper_is_not_pinned_with_the_worker_that_starts_it),
        POOL_TEST(a_helper_that_gets_no_memory_gives_up_for_a_while),
        POOL_TEST(growth_wakes_who_waits),
        POOL_TEST(a_device_that_goes_finds_the_helper_idle),
        POOL_TEST(the_cap_holds_with_helper_and_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
