/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_cache_test.c - caches: whose buffer it is, how it comes back from another thread, how much is
 * lost to sizes, what is told when there is no memory, and whether the figures are right.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <sched.h>
#include <semaphore.h>

#include "support/fake_memory.h"
#include "support/pool_stats.h"
#include "pool/internal.h"

static uint64_t in_use_of(const struct pool_stats *f, unsigned size_class) {
    return f->count[size_class].gets - f->count[size_class].puts;
}

/* ---- returns ----------------------------------------------------------------------------------- */

POOL_TEST(a_buffer_returned_elsewhere_goes_home) {
    enum { COUNT = 100 };
    struct pool *pool = fake_pool_open(64 * MIB);
    struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
    struct pool_buffer *held[COUNT], *again[COUNT];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < COUNT; i++)
            assert_non_null(held[i] = pool_get(pool, a, 1000));
        for (int i = 0; i < COUNT; i++)
            pool_put(pool, i % 2 ? b : NULL, held[i]);
    }
    struct pool_count count_a, count_b;
    pool_cache_get_stats(a, &count_a);
    pool_cache_get_stats(b, &count_b);
    assert_true(count_a.returned >= 49 * COUNT - POOL_CACHES_MAX);
    assert_int_equal(count_b.puts, 50 * COUNT / 2);
    assert_int_equal(count_b.cached, 0); /* it kept none of them */
    /* A few buffers went around all the time: the first round asked for them, and no other. */
    assert_true(count_a.refills <= 2);
    for (int i = 0; i < COUNT; i++)
        assert_non_null(again[i] = pool_get(pool, a, 1000));
    assert_int_equal(pool_in_use(pool), COUNT);
    for (int i = 0; i < COUNT; i++)
        pool_put(pool, a, again[i]);
    pool_cache_close(a);
    pool_cache_close(b);
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}

POOL_TEST(a_home_that_has_enough_gets_no_more) {
    enum { COUNT = 2000 };
    struct pool *pool = fake_pool_open(8 * MIB); /* an eighth of a MiB may be on its way back */
    struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
    static struct pool_buffer *held[COUNT];
    for (int i = 0; i < COUNT; i++)
        assert_non_null(held[i] = pool_get(pool, a, 1000));
    for (int i = 0; i < COUNT; i++)
        pool_put(pool, b, held[i]);
    assert_uint_in_range(atomic_load(&a->home.bytes), 0, 8 * MIB / 64 + 2 * KIB);
    struct pool_count count;
    pool_cache_get_stats(b, &count);
    assert_true(count.cached > 0);
    pool_cache_close(a);
    pool_cache_close(b);
    fake_pool_close(pool);
}

POOL_TEST(a_closed_cache_loses_nothing_and_is_used_again) {
    struct pool *pool = fake_pool_open(2 * MIB);
    struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
    uint64_t most = 0;
    for (int round = 0; round < 20; round++) {
        struct pool_buffer *chain = NULL, *msg;
        uint64_t count = 0;
        while ((msg = pool_get(pool, a, 60000)) != NULL) {
            msg->next = chain;
            chain = msg;
            count++;
        }
        most = count > most ? count : most;
        assert_int_equal(count, most); /* a round later all of them are there again */
        if (round % 2) {               /* its home is gone when they come back */
            pool_cache_close(a);
            a = NULL;
        }
        for (struct pool_buffer *next; chain; chain = next) {
            next = chain->next;
            pool_put(pool, count-- % 3 ? b : NULL, chain);
        }
        if (!a) {
            pool_flush(b);
            a = pool_cache_open(pool);
        }
        pool_flush(b);
    }
    assert_int_equal(pool->cache_count, 2);
    pool_cache_close(a);
    pool_cache_close(b);
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}

/* What is on its way back to a cache whose owner sleeps is there for everybody before ENOMEM. */
POOL_TEST(returns_to_a_sleeping_cache_are_not_lost_to_others) {
    struct pool *pool = fake_pool_open(MIB);
    struct pool_cache *sleeper = pool_cache_open(pool), *b = pool_cache_open(pool);
    struct pool_buffer *chain = NULL, *msg;
    while ((msg = pool_get(pool, sleeper, 1000)) != NULL) {
        msg->next = chain;
        chain = msg;
    }
    for (int i = 0; i < 10; i++) {
        struct pool_buffer *next = chain->next;
        pool_put(pool, NULL, chain);
        chain = next;
    }
    assert_true(atomic_load(&sleeper->home.bytes) > 0);
    for (int i = 0; i < 10; i++) {
        assert_non_null(msg = pool_get(pool, b, 1000));
        msg->next = chain;
        chain = msg;
    }
    assert_null(pool_get(pool, b, 1000));
    for (struct pool_buffer *next; chain; chain = next) {
        next = chain->next;
        pool_put(pool, sleeper, chain);
    }
    pool_cache_close(sleeper);
    pool_cache_close(b);
    fake_pool_close(pool);
}

POOL_TEST(more_caches_than_numbers_work) {
    enum { COUNT = POOL_CACHES_MAX + 20 };
    struct pool *pool = fake_pool_open(64 * MIB);
    static struct pool_cache *caches[COUNT];
    for (int i = 0; i < COUNT; i++)
        assert_non_null(caches[i] = pool_cache_open(pool));
    for (int i = 0; i < COUNT; i++) {
        struct pool_buffer *msg = pool_get(pool, caches[i], 300);
        assert_non_null(msg);
        pool_put(pool, caches[(i + 7) % COUNT], msg);
    }
    assert_int_equal(pool_in_use(pool), 0);
    for (int i = 0; i < COUNT; i++)
        pool_cache_close(caches[i]);
    fake_pool_close(pool);
}

/* ---- what sizes cost ----------------------------------------------------------------------------- */

static uint64_t random_next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* As likely below a power of two as below the next; all of the arenas filled with them. */
/* Several at once are those that single calls would have got, and counted as they are. */
POOL_TEST(a_run_is_so_many_single_buffers) {
    enum { MOST = 40 };
    struct pool *pool = fake_pool_open(64 * MIB);
    struct pool_cache *own = pool_cache_open(pool), *caches[] = {own, NULL};
    static const size_t sizes[] = {0, 1, 64, 65, 1000, 3 * MIB};
    for (unsigned k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
        struct pool_cache *cache = caches[k % 2];
        size_t bytes = sizes[k / 2];
        for (unsigned want = 1; want <= MOST; want++) {
            unsigned count, seen = 0;
            struct pool_buffer *first = pool_get_run(pool, cache, bytes, want, &count),
                               *last = first;
            assert_non_null(first);
            assert_uint_in_range(count, 1, want);
            assert_int_equal(pool_in_use(pool), count);
            for (struct pool_buffer *msg = first; seen < count; msg = msg->next, seen++) {
                assert_int_equal(msg->size, bytes);
                assert_true(msg->capacity >= bytes && msg->state == 0 && !msg->owner);
                memset(msg->data, (int)seen, bytes);
                last = msg;
            }
            assert_null(last->next);
            seen = 0;
            for (struct pool_buffer *msg = first; msg; msg = msg->next, seen++)
                assert_true(bytes == 0 || msg->data[bytes - 1] == (uint8_t)seen);
            pool_put_run(pool, cache, first, last, count);
            assert_int_equal(pool_in_use(pool), 0);
        }
    }
    /* From the magazine, as many as there are. */
    unsigned count;
    struct pool_buffer *held[MOST];
    for (unsigned i = 0; i < MOST; i++)
        assert_non_null(held[i] = pool_get(pool, own, 64));
    for (unsigned i = 0; i < MOST; i++)
        pool_put(pool, own, held[i]);
    struct pool_buffer *first = pool_get_run(pool, own, 64, MOST, &count), *last = first;
    assert_int_equal(count, MOST);
    while (last->next)
        last = last->next;
    pool_put_run(pool, own, first, last, count);
    pool_cache_close(own);
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}

static uint32_t length_of(const struct pool_buffer *chain) {
    uint32_t length = 0;
    for (; chain; chain = chain->next)
        length++;
    return length;
}

/* What a magazine holds is not counted for itself: it follows from counts of everything that comes and goes. */
POOL_TEST(the_count_of_a_magazine_follows_every_way) {
    enum { MOST = 300, STEPS = 20000 };
    static const size_t sizes[] = {1, 64, 3000, 60000, 2 * MIB};
    static struct pool_buffer *held[MOST];
    struct pool *pool = fake_pool_open(64 * MIB);
    struct pool_cache *own = pool_cache_open(pool), *other = pool_cache_open(pool);
    uint64_t random = 0x9e3779b97f4a7c15u;
    unsigned have = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t r = random_next(&random);
        struct pool_cache *cache = r % 8 == 0 ? NULL : r % 8 < 3 ? other : own;
        bool gets =
            r >> 8 & (step / 500 % 2 ? 3 : 1); /* more are got for a while, then more returned */
        unsigned count = 1 + r / 65536 % 40;
        if (r % 1000 == 0 && cache) {
            pool_cache_flush(cache);
        } else if (r % 1000 == 1) {
            pool_cache_close(other);
            other = pool_cache_open(pool);
        } else if (gets && have < MOST) {
            unsigned max = count < MOST - have ? count : MOST - have, got = 0;
            struct pool_buffer *msg = pool_get_run(pool, cache, sizes[r / 4096 % 5], max, &got);
            for (; msg && got > 0; got--, msg = held[have++]->next)
                held[have] = msg;
        } else {
            for (; count > 0 && have > 0; count--)
                pool_put(pool, cache, held[--have]);
        }
        for (unsigned i = 0; i <= POOL_CLASSES; i++)
            for (int which = 0; which < 2; which++) {
                const struct magazines *bin = &(which ? other : own)->bin[i];
                assert_int_equal(magazine_count(bin), length_of(bin->active));
                assert_int_equal(magazine_count_seen(bin), length_of(bin->active));
                assert_int_equal(atomic_load(&bin->spare_count), length_of(bin->spare));
            }
        if (step % 100 == 0)
            assert_int_equal(pool_in_use(pool), have);
    }
    while (have > 0)
        pool_put(pool, own, held[--have]);
    pool_cache_close(own);
    pool_cache_close(other);
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}

POOL_TEST(mixed_sizes_waste_less_than_a_quarter) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct pool *pool = fake_pool_open(256 * MIB);
        struct pool_cache *cache = pool_cache_open(pool);
        struct pool_buffer *chain = NULL, *msg;
        uint64_t random = seed * 0x9e3779b97f4a7c15u, asked = 0, slots = 0;
        for (;;) {
            unsigned log2 = 8 + (unsigned)(random_next(&random) % 13);
            size_t bytes = ((size_t)1 << log2) + random_next(&random) % ((uint64_t)1 << log2);
            if (!(msg = pool_get(pool, cache, bytes)))
                break;
            asked += bytes;
            slots += msg->capacity + POOL_HEADROOM;
            msg->next = chain;
            chain = msg;
        }
        double inside = 100.0 * (double)(slots - asked) / (double)slots;
        double all = 100.0 * (double)(pool_bytes(pool) - asked) / (double)pool_bytes(pool);
        print_message("waste: %.1f %% inside of buffers, %.1f %% of what is registered\n", inside,
                      all);
        assert_true(inside < 25);
        assert_true(all < 25);
        for (struct pool_buffer *next; chain; chain = next) {
            next = chain->next;
            pool_put(pool, cache, chain);
        }
        pool_cache_close(cache);
        fake_pool_close(pool);
    }
}

/* ---- nothing from the system ---------------------------------------------------------------------- */

POOL_TEST(a_steady_load_asks_the_system_for_nothing) {
    struct pool *pool = fake_pool_open(256 * MIB);
    struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
    struct pool_stats before, after;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            pool_get_stats(pool, &before);
            fake.calls = 0;
        }
        for (unsigned i = 0; i < 100000; i++) {
            struct pool_buffer *x = pool_get(pool, a, 100 + i % 7 * 3000);
            struct pool_buffer *y = pool_get(pool, b, 64000);
            pool_put(pool, i % 3 ? b : a, x);
            pool_put(pool, i % 5 ? a : b, y);
        }
    }
    pool_get_stats(pool, &after);
    assert_int_equal(fake.calls, 0);
    for (unsigned i = 0; i <= POOL_CLASSES; i++)
        assert_int_equal(before.count[i].refills, after.count[i].refills); /* no lock either */
    pool_cache_close(a);
    pool_cache_close(b);
    fake_pool_close(pool);
}

/* ---- waiting -------------------------------------------------------------------------------------- */

static _Atomic int woken;

static void wake(void *arg) {
    assert_ptr_equal(arg, &woken);
    woken++;
}

static struct pool_buffer *use_up(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct pool_buffer *chain = NULL, *msg;
    while ((msg = pool_get(pool, cache, bytes)) != NULL) {
        msg->next = chain;
        chain = msg;
    }
    assert_int_equal(errno, ENOMEM);
    return chain;
}

static struct pool_buffer *put_first(struct pool *pool, struct pool_cache *cache,
                                     struct pool_buffer *chain) {
    struct pool_buffer *next = chain->next;
    pool_put(pool, cache, chain);
    return next;
}

POOL_TEST(who_waits_for_memory_is_woken_once_and_finds_it) {
    struct pool *pool = fake_pool_open(MIB);
    struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
    pool_on_wake(pool, wake, &woken);
    woken = 0;
    /* Whichever way it comes back: own cache, another's, none, a buffer that belongs to nobody. */
    for (int way = 0; way < 4; way++) {
        struct pool_buffer *chain = use_up(pool, way == 3 ? NULL : a, 1000);
        chain = put_first(pool, way == 0 ? a : way == 1 ? b : NULL, chain);
        assert_int_equal(woken, way); /* nobody waited */
        struct pool_buffer *msg = pool_get(pool, way == 0 ? a : b, 1000);
        assert_non_null(msg);
        msg->next = chain;
        chain = msg;
        pool_wait(pool, 1000);
        assert_null(pool_get(pool, b, 1000));
        chain = put_first(pool, way == 0 ? a : way == 1 ? b : NULL, chain);
        assert_int_equal(woken, way + 1);
        /* It is there for a thread that is neither. */
        assert_non_null(msg = pool_get(pool, NULL, 1000));
        msg->next = chain;
        chain = put_first(pool, NULL, msg);
        assert_int_equal(woken, way + 1); /* once */
        while (chain)
            chain = put_first(pool, a, chain);
        pool_flush(a);
        pool_flush(b);
    }
    struct pool_stats figures;
    pool_get_stats(pool, &figures);
    assert_int_equal(figures.alloc_waits, 4);
    assert_int_equal(figures.alloc_wakeups, 4);
    pool_cache_close(a);
    pool_cache_close(b);
    fake_pool_close(pool);
}

POOL_TEST(a_large_message_that_comes_back_wakes_too) {
    struct pool *pool = fake_pool_open(8 * MIB);
    pool_on_wake(pool, wake, &woken);
    woken = 0;
    struct pool_buffer *all = pool_get(pool, NULL, 7 * MIB);
    assert_non_null(all);
    assert_null(pool_get(pool, NULL, 4 * MIB));
    pool_wait(pool, 4 * MIB);
    pool_put(pool, NULL, all);
    assert_int_equal(woken, 1);
    struct pool_buffer *msg = pool_get(pool, NULL, 4 * MIB);
    assert_non_null(msg);
    pool_put(pool, NULL, msg);
    fake_pool_close(pool);
}

/* Two threads that always want more than there is: neither may sleep while memory is free. */
struct waiter {
    struct pool *pool;
    sem_t *bell;
    uint64_t got;
};

static void ring_all(void *arg) {
    sem_t *bells = arg;
    sem_post(&bells[0]);
    sem_post(&bells[1]);
}

static void *wait_and_get(void *arg) {
    enum { TURNS = 1000, HELD = 40 };
    struct waiter *w = arg;
    struct pool_cache *cache = pool_cache_open(w->pool);
    struct pool_buffer *held[HELD];
    for (int i = 0; i < TURNS; i++) {
        int count = 0;
        while (count < HELD) {
            struct pool_buffer *msg = pool_get(w->pool, cache, 60000);
            if (!msg) {
                pool_wait(w->pool, 60000);
                msg = pool_get(w->pool, cache, 60000);
            }
            if (msg) {
                held[count++] = msg;
                continue;
            }
            /* Both may hold half of it: who holds something gives it back first. */
            while (count > 0)
                pool_put(w->pool, cache, held[--count]);
            sem_wait(w->bell);
        }
        while (count > 0)
            pool_put(w->pool, i % 2 ? cache : NULL, held[--count]);
        w->got++;
    }
    pool_cache_close(cache);
    return NULL;
}

POOL_TEST(no_wake_is_lost_between_two_threads) {
    struct pool *pool = fake_pool_open(3 * MIB); /* 46 buffers or so, and each wants 40 */
    sem_t bells[2];
    struct waiter w[2];
    pthread_t threads[2];
    pool_on_wake(pool, ring_all, bells);
    for (int i = 0; i < 2; i++) {
        sem_init(&bells[i], 0, 0);
        w[i] = (struct waiter){.pool = pool, .bell = &bells[i]};
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_and_get, &w[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(w[0].got, 1000);
    assert_int_equal(w[1].got, 1000);
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}

/* ---- figures -------------------------------------------------------------------------------------- */

POOL_TEST(the_figures_add_up) {
    struct pool *pool = fake_pool_open(64 * MIB);
    struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
    struct pool_buffer *small[30], *big = pool_get(pool, a, 3 * MIB);
    unsigned size_class = class_of(5000);
    for (int i = 0; i < 30; i++)
        assert_non_null(small[i] = pool_get(pool, i < 10 ? NULL : a, 5000));
    for (int i = 5; i < 30; i++)
        pool_put(pool, i < 20 ? b : i < 25 ? a : NULL, small[i]);
    struct pool_stats f;
    struct pool_count count;
    pool_get_stats(pool, &f);
    assert_int_equal(f.bytes, pool_bytes(pool));
    assert_int_equal(f.bytes_max, 64 * MIB);
    assert_true(pool_class_bytes(size_class) >= 5000);
    assert_int_equal(f.count[size_class].gets, 30);
    assert_int_equal(f.count[size_class].puts, 25);
    assert_int_equal(in_use_of(&f, size_class), 5);
    assert_int_equal(in_use_of(&f, POOL_CLASSES), 1);
    /* Of 25: 5 belonged to nobody and b keeps them; 5 a has; 15 are on their way back to a. */
    pool_cache_get_stats(b, &count);
    assert_int_equal(count.puts, 15);
    assert_int_equal(count.cached, 5);
    assert_int_equal(count.refills, 0);
    pool_cache_get_stats(a, &count);
    assert_int_equal(count.gets, 21);
    assert_int_equal(count.returned, 0);
    assert_true(count.refills > 0);
    pool_flush(a);
    pool_cache_get_stats(a, &count);
    assert_int_equal(count.returned, 15);
    assert_int_equal(count.cached, 0);
    for (int i = 0; i < 5; i++)
        pool_put(pool, a, small[i]);
    pool_put(pool, b, big);
    pool_cache_close(a);
    pool_cache_close(b);
    pool_get_stats(pool, &f);
    assert_int_equal(f.count[size_class].gets, 30); /* closed caches are counted still */
    assert_int_equal(f.count[size_class].cached, 0);
    for (unsigned i = 0; i <= POOL_CLASSES; i++)
        assert_int_equal(in_use_of(&f, i), 0);
    uint64_t free_slots = 0;
    for (const struct span *span = pool->spans[size_class].all; span; span = span->all_next)
        free_slots += span->slots;
    assert_int_equal(f.shared[size_class], free_slots);
    fake_pool_close(pool);
}

int main(void) {
    /* Millions of buffers: with two call sites for each this would take minutes. */
    setenv("SLUICE_POOL_DEBUG", "0", 1);
    return tests_run(NULL, NULL);
}
