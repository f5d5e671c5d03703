/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_waiting_test.c - who waits for much memory is not told of every little that comes back, and is told
 * of everything that may be enough, by whatever ways it comes.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <semaphore.h>

#include "support/fake_memory.h"
#include "support/pool_stats.h"
#include "pool/internal.h"

static _Atomic int woken;

static void wake(void *arg) {
    (void)arg;
    woken++;
}

static struct pool *starving_pool(uint64_t bytes_max) {
    struct pool *pool = fake_pool_open(bytes_max);
    pool_on_wake(pool, wake, NULL);
    woken = 0;
    return pool;
}

static uint64_t random_state;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

static struct pool_buffer **use_up(struct pool *pool, struct pool_cache *cache, size_t bytes,
                                   size_t *count) {
    size_t max = pool_bytes_max(pool) / 64;
    struct pool_buffer **held = calloc(max, sizeof(struct pool_buffer *));
    assert_non_null(held);
    for (*count = 0; (held[*count] = pool_get(pool, cache, bytes)) != NULL; ++*count)
        assert_true(*count + 1 < max);
    return held;
}

static void shuffle(struct pool_buffer **held, size_t count) {
    for (size_t i = count; i > 1; i--) {
        size_t at = random_below((uint32_t)i);
        struct pool_buffer *msg = held[at];
        held[at] = held[i - 1];
        held[i - 1] = msg;
    }
}

/* ---- one waits for a MiB while 10,000 messages of 64 bytes come back --------------------------- */

enum { MANY = 10000 };

/* Each is all given back once, and that is when the waiter may hope. */
static int spans_of_64(const struct pool *pool) {
    int count = 0;
    for (const struct span *span = pool->spans[class_of(64)].all; span; span = span->all_next)
        count++;
    return count;
}

/* Whoever returns them; how often the waiter was told and found nothing, and whether it got its MiB. */
static int vain_wakes(struct pool *pool, struct pool_cache *back, struct pool_buffer **held,
                      size_t count, struct pool_buffer **got) {
    int vain = 0, seen = woken;
    *got = NULL;
    assert_null(pool_get(pool, NULL, MIB));
    pool_wait(pool, MIB);
    assert_null(pool_get(pool, NULL, MIB));
    for (size_t i = 0; i < count; i++) {
        pool_put(pool, back, held[i]);
        if (woken == seen || *got)
            continue;
        seen = woken;
        if ((*got = pool_get(pool, NULL, MIB)) != NULL)
            continue;
        pool_wait(pool, MIB);
        if ((*got = pool_get(pool, NULL, MIB)) == NULL)
            vain++;
    }
    return vain;
}

POOL_TEST(small_returns_do_not_wake_who_waits_for_much) {
    for (int way = 0; way < 6;
         way++) { /* returned with no cache, its own, another; in order or not */
        struct pool *pool = starving_pool(8 * MIB);
        struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
        struct pool_cache *const with[] = {NULL, a, b};
        size_t count;
        struct pool_buffer **held = use_up(pool, a, 64, &count), *got;
        assert_true(count > MANY);
        pool_flush(a);
        if (way % 2)
            shuffle(held, count);
        int vain_max = spans_of_64(pool);
        assert_true(vain_max < MANY / 20);
        int vain = vain_wakes(pool, with[way / 2], held, MANY, &got);
        print_message("way %d: %d vain wakes%s\n", way, vain, got ? ", served" : "");
        assert_true(vain <= vain_max);
        assert_true(way % 2 || got); /* in order they leave a MiB free in one piece */
        if (!got) /* it is told in time in any case: when all is back at the latest */
            assert_true(vain_wakes(pool, with[way / 2], held + MANY, count - MANY, &got) <=
                        vain_max);
        else
            while (count > MANY)
                pool_put(pool, NULL, held[--count]);
        assert_non_null(got);
        pool_put(pool, NULL, got);
        pool_cache_close(a);
        pool_cache_close(b);
        free(held);
        fake_pool_close(pool);
    }
}

/* What serves one size wakes who waits for that size, and who waits for another beside it. */
POOL_TEST(a_buffer_of_the_size_waited_for_wakes_at_once) {
    struct pool *pool = starving_pool(2 * MIB);
    size_t count;
    struct pool_buffer **held = use_up(pool, NULL, 1000, &count);
    pool_wait(pool, MIB);
    pool_put(pool, NULL, held[--count]);
    assert_int_equal(woken, 0);
    pool_wait(pool, 900); /* the same class, and there it is */
    assert_non_null(held[count] = pool_get(pool, NULL, 900));
    pool_put(pool, NULL, held[count]);
    assert_int_equal(woken, 1);
    assert_non_null(held[count++] = pool_get(pool, NULL, 900));
    while (count > 0)
        pool_put(pool, NULL, held[--count]);
    assert_int_equal(woken, 1); /* nobody waits */
    free(held);
    fake_pool_close(pool);
}

/* Nothing is out but what stays out for good: who waits is told, to hear that there is no hope. */
POOL_TEST(who_waits_in_vain_is_told_when_nothing_is_left_to_come_back) {
    struct pool *pool = starving_pool(2 * MIB);
    struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
    struct pool_buffer *for_good = pool_get(pool, a, 1000), *msg = pool_get(pool, a, 1000);
    pool_flush(a);
    atomic_fetch_add(pool_note(pool), 1);
    assert_null(pool_get(pool, NULL, 1900 * KIB));
    uint64_t came_back = pool_wait(pool, 1900 * KIB);
    assert_null(pool_get(pool, NULL, 1900 * KIB));
    assert_true(pool_may_return(pool, came_back));
    assert_int_equal(woken, 0);
    pool_put(pool, b, msg); /* the span it is in is not empty */
    assert_int_equal(woken, 1);
    came_back = pool_wait(pool, 1900 * KIB);
    assert_null(pool_get(pool, NULL, 1900 * KIB));
    assert_false(pool_may_return(pool, came_back));
    pool_put(pool, a, for_good);
    pool_cache_close(a);
    pool_cache_close(b);
    fake_pool_close(pool);
}

/* Somebody begins to wait while memory for another thread is being registered. */
static struct pool *waits_meanwhile;

static struct ibv_mr *register_while_somebody_waits(struct ibv_pd *p, void *addr, size_t length,
                                                    int access) {
    if (waits_meanwhile)
        pool_wait(waits_meanwhile, 1000);
    return fake_reg_mr(p, addr, length, access);
}

POOL_TEST(who_gets_more_than_it_needs_gives_it_to_who_began_to_wait) {
    struct fabric_ops fabric = fake_fabric;
    fabric.reg_mr = register_while_somebody_waits;
    struct pool_config config = {&fabric, &fake_pd, 64 * MIB, {0, false, -1}};
    struct pool *pool = NULL;
    assert_int_equal(pool_open(&pool, &config), 0);
    pool_on_wake(pool, wake, NULL);
    woken = 0;
    struct pool_cache *a = pool_cache_open(pool);
    struct pool_buffer *held[POOL_CLASSES];
    unsigned count = 0;
    waits_meanwhile = pool;
    while (woken ==
           0) { /* of each class the first in this cache: one of them makes the pool grow */
        assert_true(count < POOL_CLASSES);
        assert_non_null(held[count] = pool_get(pool, a, pool_class_bytes(count)));
        count++;
    }
    assert_true(pool->magazine_max[count - 1] > 1);
    assert_false(pool_cache_has(a));
    waits_meanwhile = NULL;
    while (count > 0)
        pool_put(pool, a, held[--count]);
    pool_cache_close(a);
    fake_pool_close(pool);
}

/* The other way round: when the last came back, nobody had said yet that the other stays. */
POOL_TEST(who_waits_in_vain_is_told_when_what_is_out_turns_out_to_stay) {
    struct pool *pool = starving_pool(2 * MIB);
    struct pool_cache *a = pool_cache_open(pool);
    struct pool_buffer *stays = pool_get(pool, a, 1000), *msg = pool_get(pool, a, 1000);
    pool_flush(a);
    pool_wait(pool, 1900 * KIB);
    assert_null(pool_get(pool, NULL, 1900 * KIB));
    pool_put(pool, NULL, msg);
    assert_int_equal(woken, 0);
    pool_noted(pool, a);
    assert_int_equal(woken, 1);
    uint64_t came_back = pool_wait(pool, 1900 * KIB);
    assert_null(pool_get(pool, NULL, 1900 * KIB));
    assert_false(pool_may_return(pool, came_back));
    pool_put(pool, a, stays);
    pool_cache_close(a);
    fake_pool_close(pool);
}

/* A cache may have what is waited for from before. Its owner flushes it when it needs memory itself. */
POOL_TEST(who_empties_its_cache_for_itself_wakes_who_waits_for_it) {
    for (int way = 0; way < 2; way++) {
        struct pool *pool = starving_pool(2 * MIB);
        struct pool_cache *a = pool_cache_open(pool);
        size_t count;
        struct pool_buffer **held = use_up(pool, NULL, 1000, &count);
        pool_put(pool, a, held[--count]);
        pool_wait(pool, 1000);
        assert_null(pool_get(pool, NULL, 1000));
        assert_int_equal(woken, 0);
        assert_null(pool_get(pool, a, way ? MIB : 1100 * KIB));
        assert_int_equal(woken, 1);
        assert_non_null(held[count++] = pool_get(pool, NULL, 1000));
        while (count > 0)
            pool_put(pool, NULL, held[--count]);
        pool_cache_close(a);
        free(held);
        fake_pool_close(pool);
    }
}

/* Of what the pool grows by for one buffer there may be enough for who waits, too. */
POOL_TEST(growth_for_one_wakes_who_waits) {
    struct pool *pool = starving_pool(16 * MIB);
    fake.fail_reg = 1;
    size_t count;
    struct pool_buffer **held = use_up(pool, NULL, 60000, &count);
    pool_wait(pool, 60000);
    assert_null(pool_get(pool, NULL, 60000));
    fake.fail_reg = 0;
    struct pool_buffer *small = pool_get(pool, NULL, 64);
    assert_non_null(small);
    assert_int_equal(woken, 1);
    assert_non_null(held[count++] = pool_get(pool, NULL, 60000));
    pool_put(pool, NULL, small);
    while (count > 0)
        pool_put(pool, NULL, held[--count]);
    free(held);
    fake_pool_close(pool);
}

/*
 * All that was out comes back between an attempt and the question whether there is hope. One row for each state in which
 * the thread that returns may be then: it woke, another began to wait after that, and it has not looked at the flag yet.
 */
POOL_TEST(what_came_back_after_the_attempt_is_hope) {
    for (int way = 0; way < 3; way++) {
        struct pool *pool = starving_pool(2 * MIB);
        struct pool_cache *a = pool_cache_open(pool);
        size_t count;
        struct pool_buffer **held = use_up(pool, NULL, 1000, &count);
        struct pool_buffer *last = held[--count];
        if (way == 2)
            while (count > 0)
                pool_put(pool, NULL, held[--count]);
        assert_null(pool_get(pool, NULL, MIB + 1000 * KIB));
        uint64_t came_back = pool_wait(pool, MIB + 1000 * KIB);
        assert_null(pool_get(pool, NULL, MIB + 1000 * KIB));
        if (way == 2) {
            depot_give(pool, last); /* what a return does first */
            assert_int_equal(woken, 0);
        } else {
            pool_put(pool, NULL, last);
            while (count > 0)
                pool_put(pool, NULL, held[--count]);
            assert_int_equal(woken, 1);
        }
        if (way == 1)
            pool_wait(pool, 64);
        assert_true(pool_may_return(pool, came_back));
        if (way == 2)
            atomic_fetch_add(&pool->puts[last->size_class], 1);
        assert_non_null(last = pool_get(pool, NULL, MIB + 500 * KIB));
        pool_put(pool, NULL, last);
        pool_cache_close(a);
        free(held);
        fake_pool_close(pool);
    }
}

/* ---- whatever happens -------------------------------------------------------------------------- */

/*
 * Random sizes are got and returned with random caches, and somebody waits for a random size: as long as it
 * was not told it must not be able to get that, whenever it looks.
 */
enum { HELD_MAX = 30000, CACHES = 3, STEPS = 3000 };

struct play {
    struct pool *pool;
    struct pool_cache *caches[CACHES + 1]; /* the last: none */
    struct pool_buffer *held[HELD_MAX];
    size_t count;
    size_t wants; /* 0: nobody waits */
    int seen;
    uint64_t looks, served;
};

static size_t play_size(void) {
    static const size_t up_to[] = {64, 512, 4096, 70000, 1 << 20, 3 << 20};
    return 1 + random_below((uint32_t)up_to[random_below(sizeof up_to / sizeof up_to[0])]);
}

static void play_get(struct play *p) {
    size_t bytes = play_size(), many = 1 + random_below(bytes < 600 ? 300 : 3);
    struct pool_cache *cache = p->caches[random_below(CACHES + 1)];
    struct pool_buffer *msg;
    while (many-- > 0 && p->count < HELD_MAX && (msg = pool_get(p->pool, cache, bytes)) != NULL)
        p->held[p->count++] = msg;
}

static void play_put(struct play *p) {
    struct pool_cache *cache = p->caches[random_below(CACHES + 1)];
    for (size_t many = 1 + random_below(300); many > 0 && p->count > 0; many--) {
        size_t at = random_below(8) ? p->count - 1 : random_below((uint32_t)p->count);
        struct pool_buffer *msg = p->held[at];
        p->held[at] = p->held[--p->count];
        pool_put(p->pool, cache, msg);
    }
}

/* As one who waits does: what lies in caches from before is asked for, as its owners do when they are rung. */
static void play_wait(struct play *p) {
    size_t bytes = play_size();
    p->seen = woken;
    pool_wait(p->pool, bytes);
    struct pool_buffer *msg = pool_get(p->pool, NULL, bytes);
    if (msg) {
        pool_put(p->pool, NULL, msg);
        return;
    }
    for (int i = 0; i < CACHES; i++)
        pool_cache_flush(p->caches[i]);
    p->wants = bytes;
}

static void play_look(struct play *p) {
    if (woken != p->seen) {
        p->wants = 0;
        p->served++;
        return;
    }
    p->looks++;
    struct pool_buffer *msg = pool_get(p->pool, NULL, p->wants);
    if (msg)
        fail_msg("%zu bytes are there, and who waits for them was not told", p->wants);
    if (woken != p->seen)
        p->wants = 0;
    else if (p->count == 0)
        fail_msg("nothing is out, and who waits for %zu bytes was not told", p->wants);
}

static void play(struct play *p, uint64_t seed) {
    random_state = seed;
    int lean = 0;
    for (int i = 0; i < STEPS; i++) {
        if (i % 50 == 0)
            lean = (int)random_below(3);
        if (lean == 1 || (lean == 2 && random_below(2)))
            play_put(p);
        else
            play_get(p);
        if (p->wants == 0 && random_below(3) == 0)
            play_wait(p);
        else if (p->wants != 0 && random_below(4) == 0)
            play_look(p);
    }
}

POOL_TEST(whatever_happens_who_waits_is_told_when_it_could_be_served) {
    static struct play p;
    uint64_t looks = 0, served = 0,
             seeds = debug_wanted() ? 12 : 60; /* debugging looks at each byte */
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        p = (struct play){.pool = starving_pool((3 + seed % 6) * MIB + 4 * KIB * (seed % 7))};
        for (int i = 0; i < CACHES; i++)
            assert_non_null(p.caches[i] = pool_cache_open(p.pool));
        play(&p, seed);
        looks += p.looks;
        served += p.served;
        if (p.wants == 0)
            play_wait(&p);
        while (p.count > 0)
            play_put(&p);
        if (p.wants != 0)
            play_look(&p);
        for (int i = 0; i < CACHES; i++)
            pool_cache_close(p.caches[i]);
        fake_pool_close(p.pool);
    }
    print_message("%llu looks in vain, %llu wakes\n", (unsigned long long)looks,
                  (unsigned long long)served);
    assert_true(looks > 50 * seeds && served > 20 * seeds); /* it was worth something */
}

/* ---- threads that want different sizes of what is too little for all -------------------------------- */

enum { THREADS = 3, TURNS = 100, WAKES = 200 };

struct waiter {
    struct pool *pool;
    size_t bytes, wants;
    sem_t bell;
    pthread_t thread;
};

static struct waiter waiters[THREADS];

static void ring_all(void *arg) {
    (void)arg;
    for (int i = 0; i < THREADS; i++)
        sem_post(&waiters[i].bell);
}

static void *want(void *arg) {
    struct waiter *w = arg;
    struct pool_cache *cache = pool_cache_open(w->pool);
    struct pool_buffer **held = calloc(w->wants, sizeof(struct pool_buffer *));
    /* Until they have been in each other's way often enough, however they are scheduled. */
    for (int i = 0; i < TURNS || atomic_load(&w->pool->alloc_wakeups) < WAKES; i++) {
        size_t count = 0;
        while (count < w->wants) {
            held[count] = pool_get(w->pool, cache, w->bytes);
            if (!held[count]) {
                pool_wait(w->pool, w->bytes);
                held[count] = pool_get(w->pool, cache, w->bytes);
            }
            if (held[count]) {
                count++;
                continue;
            }
            while (count > 0) /* others wait for what this one has */
                pool_put(w->pool, cache, held[--count]);
            while (sem_wait(&w->bell) != 0)
                ;
        }
        while (count > 0)
            pool_put(w->pool, i % 2 ? cache : NULL, held[--count]);
    }
    free(held);
    pool_cache_close(cache);
    return NULL;
}

/* A wake that is lost leaves it asleep for ever. */
POOL_TEST(no_wake_is_lost_between_threads_that_want_different_sizes) {
    struct pool *pool = fake_pool_open(3 * MIB);
    pool_on_wake(pool, ring_all, NULL);
    static const size_t wants[THREADS][2] = {{60000, 30}, {100, 6000}, {1200000, 1}};
    for (int i = 0; i < THREADS; i++) {
        waiters[i] = (struct waiter){.pool = pool, .bytes = wants[i][0], .wants = wants[i][1]};
        sem_init(&waiters[i].bell, 0, 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, want, &waiters[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(waiters[i].thread, NULL);
    struct pool_stats figures;
    pool_get_stats(pool, &figures);
    print_message("%llu waits, %llu wakes\n", (unsigned long long)figures.alloc_waits,
                  (unsigned long long)figures.alloc_wakeups);
    assert_true(figures.alloc_wakeups >= WAKES);
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}
