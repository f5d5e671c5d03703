/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_test.c - registered memory: the cap holds to the byte, every buffer comes back to use,
 * and what is free in one form can be had in another.
 *
 * The fabric is a small fake that counts registrations and can be told to fail.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/sanitize.h"
#include "support/fake_memory.h"
#include "support/pool_stats.h"
#include "pool/internal.h"
#include "pool/span.h"

/* Gets buffers of one size until there are no more; returns them chained by `next`. */
static struct pool_buffer *get_all(struct pool *pool, struct pool_cache *cache, size_t bytes,
                                   uint64_t *count) {
    struct pool_buffer *chain = NULL;
    *count = 0;
    for (;;) {
        errno = 0;
        struct pool_buffer *msg = pool_get(pool, cache, bytes);
        if (!msg) {
            assert_int_equal(errno, ENOMEM);
            return chain;
        }
        assert_true(pool_bytes(pool) <= pool_bytes_max(pool));
        assert_int_equal(fake.registered, pool_bytes(pool));
        msg->next = chain;
        chain = msg;
        ++*count;
    }
}

static void put_all(struct pool *pool, struct pool_cache *cache, struct pool_buffer *chain) {
    while (chain) {
        struct pool_buffer *next = chain->next;
        pool_put(pool, cache, chain);
        chain = next;
    }
}

/* ---- classes --------------------------------------------------------------------------------- */

POOL_TEST(classes_waste_a_quarter_or_63_bytes) {
    for (unsigned i = 0; i < POOL_CLASSES; i++) {
        size_t capacity = class_capacity(i);
        assert_int_equal(class_slot(i, false) % 64, 0);
        assert_int_equal(class_of(capacity), i);
        if (i + 1 < POOL_CLASSES)
            assert_int_equal(class_of(capacity + 1), i + 1);
        assert_true(span_pages(i, SPAN_SINGLE, false) * POOL_PAGE >= class_slot(i, false));
        /* What cutting a span leaves over is small too. */
        size_t span = span_pages(i, SPAN_BEST, false) * POOL_PAGE;
        assert_true(span % class_slot(i, false) * 20 <= span);
    }
    assert_int_equal(class_capacity(0), 64);
    assert_int_equal(class_capacity(POOL_CLASSES - 1), CLASS_BYTES_MAX);
    assert_int_equal(class_of(0), 0);
    for (size_t bytes = 1; bytes <= CLASS_BYTES_MAX; bytes++) {
        size_t capacity = class_capacity(class_of(bytes)), over = bytes / 4;
        if (capacity < bytes || capacity > bytes + (over < 63 ? 63 : over))
            fail_msg("%zu bytes get %zu", bytes, capacity);
    }
}

/*
 * Internal waste is what a buffer takes and nobody asked for: the rest of its class, the headroom, and its part of
 * what cutting the span left over. From WASTE_FROM on no size wastes a quarter. Without the headroom none does
 * from REST_FROM on, nor do those that end a class, or nearly: between them there is no place to begin a buffer.
 */
enum { WASTE_FROM = 544, REST_FROM = 145, WASTE_PERCENT = 25 };

POOL_TEST(no_size_wastes_a_quarter) {
    for (size_t bytes = WASTE_FROM; bytes <= CLASS_BYTES_MAX; bytes++) {
        unsigned i = class_of(bytes);
        uint64_t span = span_pages(i, SPAN_BEST, false) * POOL_PAGE;
        uint64_t taken = span / (span / class_slot(i, false));
        if ((taken - bytes) * 100 >= taken * WASTE_PERCENT)
            fail_msg("%zu bytes take %llu", bytes, (unsigned long long)taken);
    }
}

POOL_TEST(nothing_but_the_headroom_wastes_a_quarter) {
    for (size_t bytes = 1; bytes <= CLASS_BYTES_MAX; bytes++) {
        size_t capacity = class_capacity(class_of(bytes));
        bool ends_one = bytes == 64 || (bytes > 96 && bytes <= 128);
        bool less = (capacity - bytes) * 100 < capacity * WASTE_PERCENT;
        if (!less && (bytes >= REST_FROM || ends_one))
            fail_msg("%zu bytes get %zu", bytes, capacity);
    }
    /* What the document says of single small ones. */
    const size_t takes[][2] = {{1, 128},   {64, 128},  {65, 192},  {128, 192}, {129, 256},
                               {192, 256}, {193, 320}, {256, 320}, {257, 384}, {512, 576}};
    for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++)
        assert_int_equal(class_slot(class_of(takes[i][0]), false), takes[i][1]);
}

enum mix { SMALL_ONLY, UP_TO_128K, ANY_SIZE };

/* Messages of a service: most are small, most bytes are in large ones. Or small ones, and nothing else. */
static size_t mixed_size(uint64_t *random, enum mix mix) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    uint64_t r = *random >> 20;
    unsigned kind = (unsigned)(*random >> 57) % 100;
    if (mix == SMALL_ONLY)
        return 1 + r % 512;
    if (kind < 60)
        return 16 + r % 500;
    if (kind < 90)
        return 516 + r % 7600;
    return kind < 99 || mix == UP_TO_128K ? 8192 + r % 120000 : 131072 + r % 2000000;
}

/* As the pool itself counts: what is registered, less what is free in it. */
static uint64_t bytes_taken(struct pool *pool) {
    struct pool_stats figures;
    pool_get_stats(pool, &figures);
    uint64_t taken = figures.bytes - figures.pages_free;
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        taken -= figures.shared[i] * class_slot(i, false);
    return taken;
}

/* Mappings of their own that are kept for reuse are free too. */
static uint64_t bytes_kept(const struct pool *pool) {
    return pool->larges.kept_bytes;
}

/* How many per cent are wasted; of_rest: how many if the headroom counts as used. */
static void waste_of_a_mix(enum mix mix, uint64_t percent, uint64_t of_rest) {
    enum { COUNT = 10000 };
    static struct pool_buffer *msgs[COUNT];
    struct pool *pool = fake_pool_open(1024 * MIB);
    uint64_t asked = 0, random = 1;
    for (int i = 0; i < COUNT; i++) {
        size_t bytes = mixed_size(&random, mix);
        assert_non_null(msgs[i] = pool_get(pool, NULL, bytes));
        asked += bytes;
    }
    for (int i = 0; i < 4 * COUNT; i++) { /* and after it went on for a while */
        int at = (int)(random >> 33) % COUNT;
        if (i % COUNT == 0) {
            uint64_t taken = bytes_taken(pool) - bytes_kept(pool);
            print_message("%llu bytes take %llu: %.1f %% wasted\n", (unsigned long long)asked,
                          (unsigned long long)taken,
                          100.0 * (double)(taken - asked) / (double)taken);
            assert_true(taken > asked);
            assert_true((taken - asked) * 100 < taken * percent);
            uint64_t rest = taken - (uint64_t)COUNT * POOL_HEADROOM;
            assert_true((rest - asked) * 100 < rest * of_rest);
        }
        asked -= msgs[at]->size;
        pool_put(pool, NULL, msgs[at]);
        size_t bytes = mixed_size(&random, mix);
        assert_non_null(msgs[at] = pool_get(pool, NULL, bytes));
        asked += bytes;
    }
    for (int i = 0; i < COUNT; i++)
        pool_put(pool, NULL, msgs[i]);
    fake_pool_close(pool);
}

POOL_TEST(mixed_sizes_waste_less_than_a_quarter) {
    waste_of_a_mix(UP_TO_128K, WASTE_PERCENT, WASTE_PERCENT);
    waste_of_a_mix(ANY_SIZE, WASTE_PERCENT, WASTE_PERCENT);
}

/* 64 bytes in front of 257 on the average are a fifth of all. */
POOL_TEST(small_sizes_waste_little_but_their_headroom) {
    waste_of_a_mix(SMALL_ONLY, 28, 12);
}

POOL_TEST(buffers_are_what_was_asked_for) {
    struct pool *pool = fake_pool_open(64 * MIB);
    struct pool_cache *cache = pool_cache_open(pool);
    assert_non_null(cache);
    const size_t sizes[] = {0,   1,     63,    64,    65,      192,         193,     256,
                            257, 16320, 16384, 65535, 1048576, 1048576 + 1, 3000000, 8 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int cached = 0; cached < 2; cached++) {
            struct pool_buffer *msg = pool_get(pool, cached ? cache : NULL, sizes[i]);
            assert_non_null(msg);
            assert_int_equal(msg->size, sizes[i]);
            assert_true(msg->capacity >= sizes[i]);
            assert_true(msg->capacity <= sizes[i] + (sizes[i] == 0    ? 64
                                                     : sizes[i] < 256 ? 63
                                                                      : sizes[i] / 4));
            assert_int_equal((uintptr_t)msg->data % 64, 0);
            assert_true(msg->lkey > 0);
            assert_ptr_equal(msg->pool, pool);
            assert_null(msg->next);
            assert_null(msg->owner);
            /* Headroom and payload are ours to the last byte. */
            SANITIZE_UNPOISON(msg->data, msg->capacity); /* an application has what it asked for */
            memset(msg->data - POOL_HEADROOM, 0xee, POOL_HEADROOM + msg->capacity);
            assert_int_equal(pool_in_use(pool), 1);
            msg->owner = msg;
            msg->flags = 77;
            pool_put(pool, cached ? cache : NULL, msg);
            assert_int_equal(pool_in_use(pool), 0);
        }
    pool_cache_close(cache);
    fake_pool_close(pool);
}

/* Buffers in hand never overlap, and lie in the registration whose key they carry. */
POOL_TEST(buffers_do_not_overlap) {
    enum { COUNT = 2000 };
    struct pool *pool = fake_pool_open(64 * MIB);
    static struct pool_buffer *msgs[COUNT];
    for (int i = 0; i < COUNT; i++) {
        msgs[i] = pool_get(pool, NULL, (size_t)(i * 37 % 20000));
        assert_non_null(msgs[i]);
        SANITIZE_UNPOISON(msgs[i]->data, msgs[i]->capacity);
        memset(msgs[i]->data - POOL_HEADROOM, i & 255, POOL_HEADROOM + msgs[i]->capacity);
        assert_uint_in_range(msgs[i]->lkey, 1, 1023);
        const struct ibv_mr *mr = fake.mrs[msgs[i]->lkey];
        const uint8_t *start = msgs[i]->data - POOL_HEADROOM;
        assert_true(start >= (uint8_t *)mr->addr);
        assert_true(msgs[i]->data + msgs[i]->capacity <= (uint8_t *)mr->addr + mr->length);
    }
    for (int i = 0; i < COUNT; i++) {
        const uint8_t *at = msgs[i]->data - POOL_HEADROOM;
        for (size_t j = 0; j < POOL_HEADROOM + msgs[i]->capacity; j++)
            if (at[j] != (i & 255))
                fail_msg("buffer %d was overwritten at %zu", i, j);
    }
    assert_int_equal(pool_in_use(pool), COUNT);
    for (int i = 0; i < COUNT; i++)
        pool_put(pool, NULL, msgs[i]);
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}

/* ---- the cap --------------------------------------------------------------------------------- */

POOL_TEST(the_cap_is_used_up_and_never_passed) {
    const uint64_t caps[] = {4 * KIB, 68 * KIB, MIB, 3 * MIB + 4 * KIB, 10 * MIB, 33 * MIB};
    const size_t sizes[] = {1, 1000, 4096, 16384, 65536, 262144};
    for (size_t c = 0; c < sizeof caps / sizeof caps[0]; c++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            struct pool *pool = fake_pool_open(caps[c]);
            uint64_t count;
            struct pool_buffer *chain = NULL;
            if (sizes[s] + POOL_HEADROOM > caps[c]) {
                assert_null(pool_get(pool, NULL, sizes[s]));
                assert_int_equal(errno, EMSGSIZE);
            } else {
                chain = get_all(pool, NULL, sizes[s], &count);
                assert_int_equal(pool_in_use(pool), count);
                /* Most of the cap is buffers: at least two thirds, counting whole ones. */
                uint64_t slot = class_slot(class_of(sizes[s]), false);
                assert_true(count >= caps[c] * 2 / 3 / slot);
                assert_true(count * slot <= caps[c]);
                put_all(pool, NULL, chain);
            }
            fake_pool_close(pool);
        }
}

POOL_TEST(arenas_grow_in_steps) {
    struct pool *pool = fake_pool_open(1024 * MIB);
    assert_int_equal(pool_bytes(pool), 2 * MIB);
    uint64_t steps[8], found = 0, last = 2 * MIB, count = 0;
    struct pool_buffer *chain = NULL;
    while (found < 6) {
        struct pool_buffer *msg = pool_get(pool, NULL, 65536);
        assert_non_null(msg);
        msg->next = chain;
        chain = msg;
        count++;
        if (pool_bytes(pool) != last) {
            steps[found++] = pool_bytes(pool) - last;
            last = pool_bytes(pool);
        }
    }
    const uint64_t expected[] = {4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 32 * MIB, 32 * MIB};
    assert_memory_equal(steps, expected, sizeof expected);
    put_all(pool, NULL, chain);
    assert_true(count > 0);
    fake_pool_close(pool);
}

POOL_TEST(too_large_is_told_apart_from_no_memory) {
    struct pool *pool = fake_pool_open(8 * MIB);
    const size_t sizes[] = {8 * MIB,  8 * MIB - POOL_HEADROOM + 1, 9 * MIB,
                            SIZE_MAX, SIZE_MAX - POOL_HEADROOM,    SIZE_MAX - 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        errno = 0;
        assert_null(pool_get(pool, NULL, sizes[i]));
        assert_int_equal(errno, EMSGSIZE);
    }
    /* The largest there can be takes everything, the free first arena included. */
    struct pool_buffer *all = pool_get(pool, NULL, 8 * MIB - POOL_HEADROOM);
    assert_non_null(all);
    assert_int_equal(pool_bytes(pool), 8 * MIB);
    assert_null(pool_get(pool, NULL, 1));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(pool_in_use(pool), 1);
    pool_put(pool, NULL, all);
    fake_pool_close(pool);
}

/* ---- exhaustion and recovery ----------------------------------------------------------------- */

/* What one size used up and gave back serves any other size. */
POOL_TEST(memory_moves_between_sizes) {
    struct pool *pool = fake_pool_open(16 * MIB);
    struct pool_cache *cache = pool_cache_open(pool);
    const size_t sizes[] = {256, 16384, 5 * MIB, 1000, 1048576, 2 * MIB, 65536, 15 * MIB, 1};
    uint64_t first[9];
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            uint64_t count;
            put_all(pool, cache, get_all(pool, cache, sizes[i], &count));
            assert_int_equal(pool_in_use(pool), 0);
            assert_true(count > 0);
            if (round == 0)
                first[i] = count;
            else /* nothing leaks away: about as many as the first time */
                assert_true(count * 10 >= first[i] * 8);
        }
    pool_cache_close(cache);
    fake_pool_close(pool);
}

POOL_TEST(failures_of_the_system_are_survived) {
    struct pool *pool = NULL;
    fake.fail_alloc = 1;
    assert_int_equal(fake_pool_try(&pool, &fake_fabric, 8 * MIB), -ENOMEM);
    fake.fail_alloc = 0;
    fake.fail_reg = 1;
    assert_int_equal(fake_pool_try(&pool, &fake_fabric, 8 * MIB), -ENOMEM);
    assert_int_equal(fake.mapped, 0);
    assert_int_equal(fake_pool_try(&pool, &fake_fabric, 100), -ENOMEM);
    fake.fail_reg = 0;

    pool = fake_pool_open(64 * MIB);
    uint64_t count, later;
    fake.fail_reg = 1;
    struct pool_buffer *chain = get_all(pool, NULL, 16384, &count);
    assert_int_equal(pool_bytes(pool), 2 * MIB);
    assert_null(pool_get(pool, NULL, 2 * MIB));
    fake.fail_reg = 0;
    fake.fail_alloc = 1;
    assert_null(pool_get(pool, NULL, 16384));
    assert_null(pool_get(pool, NULL, 2 * MIB));
    fake.fail_alloc = 0;
    put_all(pool, NULL, chain);
    chain = get_all(pool, NULL, 16384, &later);
    assert_true(later > 20 * count);
    put_all(pool, NULL, chain);
    fake_pool_close(pool);
}

/* What a budget counts on: not one buffer less, whatever cutting loses; and it is no guess far below. */
POOL_TEST(a_pool_has_as_many_buffers_as_it_says) {
    static const uint64_t caps[] = {256 * KIB, MIB, 2 * MIB + 4096, 5 * MIB - 4096, 48 * MIB};
    static const size_t sizes[] = {512, 600, 4096, 8192, 10000, 65536};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            struct pool *pool = fake_pool_open(caps[i]);
            uint64_t count, holds = pool_holds(caps[i], sizes[j]);
            put_all(pool, NULL, get_all(pool, NULL, sizes[j], &count));
            if (count < holds || count > holds + holds / 50)
                fail_msg("%zu bytes in %llu: %llu, and not %llu", sizes[j],
                         (unsigned long long)caps[i], (unsigned long long)count,
                         (unsigned long long)holds);
            fake_pool_close(pool);
        }
}

/* A limit on locked memory refuses large steps and allows small ones. */
POOL_TEST(a_refused_step_is_tried_smaller) {
    fake.reg_bytes_max = MIB / 2;
    struct pool *pool = fake_pool_open(8 * MIB);
    assert_true(pool_bytes(pool) > 0 && pool_bytes(pool) <= MIB / 2);
    uint64_t count;
    struct pool_buffer *chain = get_all(pool, NULL, 16384, &count);
    assert_true(pool_bytes(pool) > 7 * MIB);
    put_all(pool, NULL, chain);
    fake_pool_close(pool);
}

POOL_TEST(kept_large_buffers_are_reused_and_released) {
    struct pool *pool = fake_pool_open(32 * MIB);
    struct pool_cache *cache = pool_cache_open(pool);
    struct pool_buffer *a = pool_get(pool, cache, 4 * MIB);
    assert_non_null(a);
    pool_put(pool, cache, a);
    int64_t calls = fake.calls;
    for (size_t bytes = 4 * MIB; bytes > 4 * MIB - 100 * KIB; bytes -= 10 * KIB) {
        struct pool_buffer *b = pool_get(pool, cache, bytes);
        assert_ptr_equal(a, b);
        assert_int_equal(b->size, bytes);
        pool_put(pool, NULL, b);
    }
    assert_int_equal(fake.calls, calls);
    /* Too much waste: another mapping. */
    struct pool_buffer *c = pool_get(pool, cache, 2 * MIB);
    assert_ptr_not_equal(a, c);
    pool_put(pool, cache, c);
    /* Kept ones never hold more than half of the cap ... */
    struct pool_buffer *chain;
    uint64_t count;
    chain = get_all(pool, cache, 3 * MIB, &count);
    assert_true(count >= 8);
    put_all(pool, cache, chain);
    assert_true(pool_bytes(pool) <= 2 * MIB + 16 * MIB);
    /* ... and make way for small buffers, and the other way round. */
    chain = get_all(pool, cache, 1000, &count);
    assert_true(count * class_slot(class_of(1000), false) > 24 * MIB);
    assert_null(pool_get(pool, cache, 3 * MIB));
    put_all(pool, cache, chain);
    chain = get_all(pool, cache, 3 * MIB, &count);
    assert_true(count >= 8);
    assert_int_equal(pool_in_use(pool), count);
    put_all(pool, cache, chain);
    assert_int_equal(pool_in_use(pool), 0);
    pool_cache_close(cache);
    fake_pool_close(pool);
}

/* ---- steady state ---------------------------------------------------------------------------- */

POOL_TEST(a_million_gets_and_puts_grow_nothing) {
    enum { WINDOW = 64 };
    struct pool *pool = fake_pool_open(256 * MIB);
    struct pool_cache *cache = pool_cache_open(pool);
    struct pool_buffer *window[WINDOW] = {NULL};
    const size_t sizes[] = {64, 300, 1500, 4096, 16320, 65536, 2000000};
    uint64_t bytes = 0;
    int64_t calls = 0;
    for (unsigned i = 0; i < 1000000; i++) {
        struct pool_buffer **at = &window[i * 29 % WINDOW];
        if (*at)
            pool_put(pool, i % 3 ? cache : NULL, *at);
        *at = pool_get(pool, i % 5 ? cache : NULL, sizes[i % 7]);
        assert_non_null(*at);
        if (i == 100000) { /* caches hold as much as they may */
            bytes = pool_bytes(pool);
            calls = fake.calls;
        }
    }
    assert_int_equal(pool_bytes(pool), bytes);
    assert_int_equal(fake.calls, calls);
    assert_int_equal(pool_in_use(pool), WINDOW);
    for (int i = 0; i < WINDOW; i++)
        pool_put(pool, cache, window[i]);
    assert_int_equal(pool_in_use(pool), 0);
    pool_cache_close(cache);
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { SLOTS = 256, TURNS = 100000 };

struct lane { /* hands buffers from one thread to another */
    struct pool *pool;
    _Atomic(struct pool_buffer *) slot[SLOTS];
    _Atomic int done;
    uint64_t wrong, missed, handed;
    unsigned number;
};

static void *lane_source(void *arg) {
    struct lane *lane = arg;
    struct pool_cache *cache = pool_cache_open(lane->pool);
    for (unsigned i = 0; cache && i < TURNS; i++) {
        size_t bytes = (i * 7919u) % 20000;
        struct pool_buffer *msg = pool_get(lane->pool, i % 11 ? cache : NULL, bytes);
        if (!msg) {
            lane->missed++; /* allowed when the cap is tight */
            sched_yield();
            continue;
        }
        uint64_t tag = (uint64_t)lane->number << 32 | i;
        memcpy(msg->user, &tag, sizeof tag);
        memcpy(msg->data, msg->user, bytes < 8 ? bytes : 8);
        while (atomic_load_explicit(&lane->slot[i % SLOTS], memory_order_acquire))
            sched_yield();
        atomic_store_explicit(&lane->slot[i % SLOTS], msg, memory_order_release);
        lane->handed++;
    }
    if (cache)
        pool_cache_close(cache);
    atomic_store(&lane->done, 1);
    return NULL;
}

static void *lane_sink(void *arg) {
    struct lane *lane = arg;
    struct pool_cache *cache = pool_cache_open(lane->pool);
    uint64_t taken = 0;
    for (unsigned i = 0, empty = 0; empty < SLOTS;) {
        int done = atomic_load(&lane->done);
        struct pool_buffer *msg = atomic_exchange(&lane->slot[i++ % SLOTS], NULL);
        if (!msg) {
            empty = done ? empty + 1 : 0;
            if (i % SLOTS == 0)
                sched_yield();
            continue;
        }
        empty = 0;
        uint64_t tag;
        memcpy(&tag, msg->size >= 8 ? msg->data : msg->user, sizeof tag);
        lane->wrong += memcmp(&tag, msg->user, sizeof tag) != 0 || tag >> 32 != lane->number;
        taken++;
        pool_put(lane->pool, taken % 13 ? cache : NULL, msg);
    }
    pool_cache_close(cache);
    lane->wrong += taken != lane->handed;
    return NULL;
}

static void run_lanes(uint64_t cap) {
    enum { LANES = 2 };
    struct pool *pool = fake_pool_open(cap);
    static struct lane lanes[LANES];
    pthread_t threads[2 * LANES];
    memset(lanes, 0, sizeof lanes);
    for (unsigned i = 0; i < LANES; i++) {
        lanes[i].pool = pool;
        lanes[i].number = i + 1;
        assert_int_equal(pthread_create(&threads[2 * i], NULL, lane_source, &lanes[i]), 0);
        assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, lane_sink, &lanes[i]), 0);
    }
    for (int i = 0; i < 2 * LANES; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < LANES; i++) {
        assert_int_equal(lanes[i].wrong, 0);
        assert_true(lanes[i].handed > 0);
        assert_int_equal(lanes[i].handed + lanes[i].missed, TURNS);
    }
    assert_int_equal(pool_in_use(pool), 0);
    fake_pool_close(pool);
}

POOL_TEST(buffers_cross_threads) {
    run_lanes(256 * MIB);
}

POOL_TEST(buffers_cross_threads_at_the_cap) {
    run_lanes(3 * MIB);
}

int main(void) {
    /* Many buffers, some written to the last byte of what they can hold: pool_debug_test has the rest. */
    setenv("SLUICE_POOL_DEBUG", "0", 1);
    return tests_run(NULL, NULL);
}
