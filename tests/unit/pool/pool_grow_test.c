/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_grow_test.c - who adds a pool's memory, and who waits meanwhile: the helper thread.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <dirent.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "support/fake_memory.h"
#include "support/pool_stats.h"
#include "pool/internal.h"

/* ---- growing ahead -------------------------------------------------------------------------------- */

POOL_TEST(a_load_that_grows_steadily_never_registers_memory_itself) {
    struct pool *pool = fake_pool_open_with(64 * MIB, (struct hugepages_wish){0, false, -1});
    struct pool_cache *cache = pool_cache_open(pool);
    pool_grow_ahead(pool, MIB);
    atomic_store(&fake.last_thread, 0);
    struct pool_buffer *chain = NULL;
    for (int i = 0; i < 700; i++) { /* 42 MB */
        struct pool_buffer *msg = pool_get(pool, i % 2 ? cache : NULL, 60000);
        assert_non_null(msg);
        assert_true(atomic_load(&fake.last_thread) != pthread_self());
        assert_true(pool_bytes(pool) <= 64 * MIB);
        msg->next = chain;
        chain = msg;
        pool_grow_settle(pool); /* as a load does that takes longer than the helper */
    }
    struct pool_stats f;
    pool_get_stats(pool, &f);
    assert_int_equal(f.grown_on_demand, 0);
    assert_true(f.grown_ahead >= 4);
    fake_put_all(pool, cache, chain);
    pool_cache_close(cache);
    fake_pool_close(pool);
}

/* A worker asks and waits; what it gets was registered by the helper, arenas and large mappings. */
POOL_TEST(a_burst_makes_no_worker_register_memory) {
    struct pool *pool = fake_pool_open_with(64 * MIB, (struct hugepages_wish){0, false, -1});
    struct pool_cache *cache = pool_cache_open(pool);
    pool_grow_ahead(pool, MIB);
    atomic_store(&fake.last_thread, 0);
    struct pool_buffer *chain = NULL;
    unsigned small = 0, large = 0;
    for (int i = 0; i < 400; i++) { /* as fast as it goes */
        bool single = i % 100 == 99;
        struct pool_buffer *msg = pool_get(pool, cache, single ? 3 * MIB : 60000);
        assert_non_null(msg);
        assert_true(atomic_load(&fake.last_thread) != pthread_self());
        assert_true(pool_bytes(pool) <= 64 * MIB);
        msg->next = chain;
        chain = msg;
        single ? large++ : small++;
    }
    assert_true(large == 4 && small == 396);
    fake_put_all(pool, cache, chain);
    /* Up to the cap and no further, and with the cap reached nobody waits for the helper. */
    chain = fake_get_all(pool, cache, 60000);
    assert_true(atomic_load(&fake.last_thread) != pthread_self());
    pool_grow_settle(pool);
    struct pool_stats f;
    pool_get_stats(pool, &f);
    assert_null(pool_get(pool, cache, 60000));
    assert_true(pool_bytes(pool) <= 64 * MIB);
    fake_put_all(pool, cache, chain);
    pool_cache_close(cache);
    fake_pool_close(pool);
}

/* Threads that want at the same time are all served, whoever takes what was added for whom. */
static void *take_some(void *arg) {
    struct pool *pool = arg;
    struct pool_cache *cache = pool_cache_open(pool);
    struct pool_buffer *list[80];
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

POOL_TEST(all_who_wait_for_the_helper_are_served) {
    for (int round = 0; round < 5; round++) {
        struct pool *pool = fake_pool_open_with(256 * MIB, (struct hugepages_wish){0, false, -1});
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
        fake_pool_close(pool);
    }
}

static pid_t helper; /* the last that was counted */

/* The application's signals are not for threads of the library. */
static bool takes_signal(pid_t thread, int number) {
    char path[64], line[128];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
            break;
    fclose(file);
    return !(blocked >> (number - 1) & 1);
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
        bool its = file && fgets(name, sizeof name, file) && strcmp(name, "sluice-mem\n") == 0;
        if (file)
            fclose(file);
        if (!its)
            continue;
        count++;
        helper = (pid_t)strtol(at->d_name, NULL, 10);
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

POOL_TEST(the_helper_starts_when_it_is_needed_and_ends_with_the_pool) {
    expect_no_helper(); /* of the test before */
    struct pool *pool = fake_pool_open_with(16 * MIB, (struct hugepages_wish){0, false, -1});
    pool_grow_ahead(pool, MIB);
    fake_put_all(pool, NULL, pool_get(pool, NULL, 1000));
    assert_int_equal(helpers_now(), 0);
    struct pool_buffer *chain = fake_get_all(pool, NULL, 60000);
    assert_int_equal(helpers_now(), 1);
    assert_false(takes_signal(helper, SIGTERM) || takes_signal(helper, SIGUSR1));
    pool_grow_settle(pool);
    assert_int_equal(pool_bytes(pool), 16 * MIB); /* to the cap and no further */
    fake_put_all(pool, NULL, chain);
    fake_pool_close(pool);
    expect_no_helper();
}

static void *first_cpu_only(void *arg) {
    struct pool *pool = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof set, &set), 0);
    fake_put_all(pool, NULL, fake_get_all(pool, NULL, 60000));
    return NULL;
}

/* A worker is pinned, and may spin: what it starts runs where the process may. */
POOL_TEST(the_helper_is_not_pinned_with_the_worker_that_starts_it) {
    cpu_set_t all, its;
    pthread_t worker;
    struct pool *pool = fake_pool_open_with(16 * MIB, (struct hugepages_wish){0, false, -1});
    pool_grow_ahead(pool, MIB);
    assert_int_equal(pthread_create(&worker, NULL, first_cpu_only, pool), 0);
    pthread_join(worker, NULL);
    assert_true(pool->grower.started);
    assert_int_equal(sched_getaffinity(getpid(), sizeof all, &all), 0);
    assert_int_equal(pthread_getaffinity_np(pool->grower.thread, sizeof its, &its), 0);
    assert_true(CPU_EQUAL(&all, &its));
    fake_pool_close(pool);
}

/* ---- while the helper registers ---- */

static sem_t inside, go_on;

static struct ibv_mr *slow_reg_mr(struct ibv_pd *p, void *addr, size_t length, int access) {
    if (atomic_load(&fake.calls) > 1) { /* not the first arena, which is the opener's */
        sem_post(&inside);
        while (sem_wait(&go_on) != 0)
            ;
    }
    return fake_reg_mr(p, addr, length, access);
}

static void *take_large(void *arg) {
    struct pool_buffer *msg = pool_get(arg, NULL, 3 * MIB);
    assert_non_null(msg);
    pool_put(arg, NULL, msg);
    return NULL;
}

/* Registering takes long: others get what is there meanwhile, even where that needs the pages' lock. */
POOL_TEST(nobody_waits_while_the_helper_registers) {
    struct fabric_ops slow = fake_fabric;
    struct pool *pool;
    struct pool_config config = {&slow, &fake_pd, 64 * MIB, {0, false, -1}};
    pthread_t large;
    int waited = 0;
    slow.reg_mr = slow_reg_mr;
    assert_int_equal(sem_init(&inside, 0, 0), 0);
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
    assert_int_equal(pool_open(&pool, &config), 0);
    for (int i = 0; i < 2; i++) {
        if (i == 0) /* an arena ahead of need, then a mapping that somebody waits for */
            pool_grow_ahead(pool, 4 * MIB);
        else
            assert_int_equal(pthread_create(&large, NULL, take_large, pool), 0);
        while (sem_wait(&inside) != 0)
            ;
        bool held = pthread_mutex_trylock(&pool->slow) != 0;
        if (!held) {
            pthread_mutex_unlock(&pool->slow);
            for (size_t bytes = 256; bytes <= 8192; bytes *= 2) /* sizes nobody had yet */
                fake_put_all(pool, NULL, pool_get(pool, NULL, bytes << i));
        }
        waited += held;
        sem_post(&go_on);
        if (i == 0)
            pool_grow_settle(pool);
        else
            pthread_join(large, NULL);
    }
    fake_pool_close(pool);
    sem_destroy(&inside);
    sem_destroy(&go_on);
    assert_int_equal(waited, 0);
}

/* The helper's failure is nobody else's, and does not make it run hot. */
POOL_TEST(a_helper_that_gets_no_memory_gives_up_for_a_while) {
    struct pool *pool = fake_pool_open_with(64 * MIB, (struct hugepages_wish){0, false, -1});
    fake.fail_reg = 1;
    pool_grow_ahead(pool, 2 * MIB + 1);
    pool_grow_settle(pool);
    int64_t calls = fake.calls;
    struct pool_buffer *chain = NULL;
    for (int i = 0; i < 16; i++) {
        struct pool_buffer *msg = pool_get(pool, NULL, 100000);
        assert_non_null(msg);
        msg->next = chain;
        chain = msg;
        pool_grow_settle(pool);
    }
    assert_true(fake.calls - calls <= 4);
    fake.fail_reg = 0;
    fake_put_all(pool, NULL, fake_get_all(pool, NULL, 100000));
    assert_true(pool_bytes(pool) > 60 * MIB);
    fake_put_all(pool, NULL, chain);
    fake_pool_close(pool);
}

/* Who waits for memory is told when the helper has brought some. */
static _Atomic int woken;
static void wake(void *arg) {
    (void)arg;
    woken++;
}

POOL_TEST(growth_wakes_who_waits) {
    struct pool *pool = fake_pool_open_with(16 * MIB, (struct hugepages_wish){0, false, -1});
    pool_on_wake(pool, wake, NULL);
    woken = 0;
    fake.fail_reg = 1;
    struct pool_buffer *chain = fake_get_all(pool, NULL, 60000);
    pool_wait(pool, 60000);
    fake.fail_reg = 0;
    pool_grow_ahead(pool, MIB);
    while (!woken)
        sched_yield();
    struct pool_buffer *msg = pool_get(pool, NULL, 60000);
    assert_non_null(msg);
    pool_put(pool, NULL, msg);
    fake_put_all(pool, NULL, chain);
    fake_pool_close(pool);
}

/* The device goes while the helper registers: nothing stays registered. */
POOL_TEST(a_device_that_goes_finds_the_helper_idle) {
    for (int round = 0; round < 50; round++) {
        struct pool *pool = fake_pool_open_with(64 * MIB, (struct hugepages_wish){0, false, -1});
        pool_grow_ahead(pool, 32 * MIB);
        pool_detach(pool);
        assert_int_equal(fake.registered, 0);
        assert_null(pool_get(pool, NULL, 64 * MIB - POOL_HEADROOM));
        assert_int_equal(fake.registered, 0);
        fake_pool_close(pool);
    }
}

static void *use_and_return(void *arg) {
    struct pool *pool = arg;
    struct pool_cache *cache = pool_cache_open(pool);
    for (int round = 0; round < 20; round++) {
        struct pool_buffer *chain = NULL, *msg;
        for (int i = 0; i < 300 && (msg = pool_get(pool, cache, 60000)) != NULL; i++) {
            msg->next = chain;
            chain = msg;
        }
        fake_put_all(pool, round % 2 ? cache : NULL, chain);
        if (round % 5 == 0 && (msg = pool_get(pool, cache, 5 * MIB)) != NULL)
            pool_put(pool, cache, msg);
    }
    pool_cache_close(cache);
    return NULL;
}

POOL_TEST(the_cap_holds_with_helper_and_threads) {
    struct pool *pool = fake_pool_open_with(24 * MIB, (struct hugepages_wish){0, false, -1});
    pthread_t threads[3];
    pool_grow_ahead(pool, 4 * MIB);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_and_return, pool), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(pool_in_use(pool), 0);
    assert_true(fake.peak <= (int64_t)(24 * MIB));
    fake_pool_close(pool);
}
