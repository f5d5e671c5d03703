/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* pool_debug_test.c - misuse of buffers is told, with who did it, and does no harm. */
#include "support/pool_stats.h"
#include "support/test.h"

#include <stdio.h>

#include "common/sanitize.h"
#include "support/fake_memory.h"
#include "support/reports.h"
#include "pool/debug.h"
#include "sluice/sluice.h"
#include "core/message.h"

/* Room for twenty reports whose call sites name a program that may lie in a deep folder. */
/* Whether a report names a call from this function, which is short. */
static bool names_site(const char *what, const void *function) {
    uintptr_t from = (uintptr_t)function;
    const char *line = strstr(reports, what), *end = line ? strchr(line, '\n') : NULL;
    for (const char *at = line; at && (at = strstr(at, "[0x")) != NULL && at < end; at++) {
        uintptr_t site = (uintptr_t)strtoull(at + 1, NULL, 16);
        if (site > from && site - from < 256)
            return true;
    }
    return false;
}

static __attribute__((noinline)) struct pool_buffer *get_one(struct pool *pool, size_t bytes) {
    struct pool_buffer *msg = pool_get(pool, NULL, bytes);
    __asm__ volatile("" ::: "memory"); /* no jump in place of the call */
    return msg;
}

static __attribute__((noinline)) void put_first(struct pool *pool, struct pool_buffer *msg) {
    pool_put(pool, NULL, msg);
    __asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void put_second(struct pool *pool, struct pool_buffer *msg) {
    pool_put(pool, NULL, msg);
    __asm__ volatile("# 2" ::: "memory");
}

static struct pool *open_debug(void) {
    setenv("SLUICE_POOL_DEBUG", "1", 1);
    struct pool *pool = fake_pool_open(8 * MIB);
    unsetenv("SLUICE_POOL_DEBUG");
    reports_of(pool);
    reports[0] = 0;
    return pool;
}

POOL_TEST(returning_twice_is_told_and_harmless) {
    struct pool *pool = open_debug();
    struct pool_cache *cache = pool_cache_open(pool);
    struct pool_buffer *msg = pool_get(pool, cache, 1000);
    pool_put(pool, cache, msg);
    assert_string_equal(reports, "");
    pool_put(pool, cache, msg);
    assert_non_null(strstr(reports, "returned twice"));
    assert_non_null(strstr(reports, "first by:"));
    assert_non_null(strstr(reports, "got by:"));
    struct pool_buffer *a = pool_get(pool, cache, 1000), *b = pool_get(pool, cache, 1000);
    assert_ptr_not_equal(a, b);
    pool_put(pool, cache, a);
    pool_put(pool, NULL, b);
    assert_int_equal(pool_in_use(pool), 0);
    pool_cache_close(cache);
    fake_pool_close(pool);
}

/* However the compiler arranged the calls in between. */
POOL_TEST(the_calls_that_got_and_returned_it_are_named) {
    static const size_t sizes[] = {1000, 2 << 20};
    for (int i = 0; i < 2; i++) {
        struct pool *pool = open_debug();
        struct pool_buffer *msg = get_one(pool, sizes[i]);
        put_first(pool, msg);
        put_second(pool, msg);
        assert_true(names_site("got by:", (const void *)(uintptr_t)get_one));
        assert_true(names_site("first by:", (const void *)(uintptr_t)put_first));
        assert_true(names_site("now by:", (const void *)(uintptr_t)put_second));
        msg = get_one(pool, sizes[i]);
        msg->data[sizes[i]] = 1;
        reports[0] = 0;
        put_first(pool, msg);
        assert_true(names_site("returned by:", (const void *)(uintptr_t)put_first));
        (void)get_one(pool, sizes[i]);
        reports[0] = 0;
        fake_pool_close(pool);
        assert_non_null(strstr(reports, "was not returned"));
        assert_true(names_site("got by:", (const void *)(uintptr_t)get_one));
    }
}

/* Nobody may ever get it again; of a mapping of its own the first MiB is looked at. */
POOL_TEST(writing_after_return_is_told_at_the_end) {
    static const size_t sizes[] = {1000, 1 << 20, 2 << 20};
    for (int i = 0; i < 3; i++) {
        struct pool *pool = open_debug();
        struct pool_cache *cache = pool_cache_open(pool);
        struct pool_buffer *msg = pool_get(pool, cache, sizes[i]);
        pool_put(pool, cache, msg);
        SANITIZE_UNPOISON(msg->data, sizes[i]);
        msg->data[77] = 1;
        pool_cache_close(cache);
        assert_string_equal(reports, "");
        fake_pool_close(pool);
        assert_non_null(strstr(reports, "written at byte 77 after it was returned"));
        assert_null(strstr(reports, "was not returned"));
    }
}

POOL_TEST(writing_after_return_is_told) {
    struct pool *pool = open_debug();
    struct pool_cache *cache = pool_cache_open(pool);
    struct pool_buffer *msg = pool_get(pool, cache, 1000);
    pool_put(pool, cache, msg);
    SANITIZE_UNPOISON(msg->data, 1000); /* as a device writes, which no sanitizer sees */
    msg->data[77] = 1;
    assert_ptr_equal(pool_get(pool, cache, 1000), msg);
    assert_non_null(strstr(reports, "written at byte 77 after it was returned"));
    pool_put(pool, cache, msg);
    pool_cache_close(cache);
    fake_pool_close(pool);
}

/* One byte behind what was asked for: within its class, where that is full, and in a mapping. */
POOL_TEST(writing_behind_the_end_is_told_on_return) {
    static const size_t sizes[] = {1000, 1024, 4096, 1 << 20, (2 << 20) + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char expected[100];
        struct pool *pool = open_debug();
        struct pool_buffer *msg = pool_get(pool, NULL, sizes[i]);
        msg->data[sizes[i]] = 1;
        sluice_trim(message_of(msg), 5); /* it stays as large as it was asked for */
        pool_put(pool, NULL, msg);
        snprintf(expected, sizeof expected, "of %zu bytes was written at byte %zu, behind its end",
                 sizes[i], sizes[i]);
        assert_non_null(strstr(reports, expected));
        assert_non_null(strstr(reports, "returned by:"));
        assert_non_null(strstr(reports, "got by:"));
        reports[0] = 0;
        msg = pool_get(pool, NULL, sizes[i]); /* told once, and harmless */
        pool_put(pool, NULL, msg);
        fake_pool_close(pool);
        assert_string_equal(reports, "");
    }
}

/* Of a buffer that has much left not all is looked at: that would cost more than the message. */
POOL_TEST(a_zone_has_4096_bytes_at_most) {
    for (int behind = 0; behind < 2; behind++) {
        struct pool *pool = open_debug();
        struct pool_buffer *msg = pool_get(pool, NULL, 800000);
        assert_true(msg->capacity > 800000 + 4096);
        msg->data[800000 + 4095 + behind] = 1;
        pool_put(pool, NULL, msg);
        if (behind)
            assert_string_equal(reports, "");
        else
            assert_non_null(strstr(reports, "was written at byte 804095, behind its end"));
        fake_pool_close(pool);
    }
}

POOL_TEST(writing_before_the_beginning_is_told_on_return) {
    struct pool *pool = open_debug();
    struct pool_buffer *msg = pool_get(pool, NULL, 1000);
    msg->data[-POOL_HEADER - 1] = 1;
    pool_put(pool, NULL, msg);
    assert_non_null(strstr(reports, "of 1000 bytes was written 33 bytes before its beginning"));
    assert_non_null(strstr(reports, "got by:"));
    fake_pool_close(pool);
}

/* What is not told at once: who wrote. So a neighbour is not accused. */
POOL_TEST(an_overrun_does_not_reach_the_next_buffer) {
    struct pool *pool = open_debug();
    struct pool_buffer *a = pool_get(pool, NULL, 1024), *b = pool_get(pool, NULL, 1024);
    uint64_t apart = (uint64_t)(a > b ? a->data - b->data : b->data - a->data);
    assert_int_equal(apart, 1024 + POOL_HEADROOM + DEBUG_GUARD);
    memset(a->data + 1024, 0, DEBUG_GUARD);
    memset(b->data + 1024, 0, DEBUG_GUARD);
    pool_put(pool, NULL, a);
    assert_non_null(strstr(reports, "behind its end"));
    assert_null(strstr(reports, "before its beginning"));
    reports[0] = 0;
    pool_put(pool, NULL, b);
    assert_non_null(strstr(reports, "behind its end"));
    assert_null(strstr(reports, "before its beginning"));
    fake_pool_close(pool);
}

POOL_TEST(the_environment_decides_before_the_build) {
    const char *saved = getenv("SLUICE_POOL_DEBUG");
    setenv("SLUICE_POOL_DEBUG", "0", 1);
    assert_false(debug_wanted());
    setenv("SLUICE_POOL_DEBUG", "1", 1);
    assert_true(debug_wanted());
    unsetenv("SLUICE_POOL_DEBUG");
#ifdef SLUICE_POOL_DEBUG
    assert_true(debug_wanted());
#else
    assert_false(debug_wanted());
#endif
    if (saved)
        setenv("SLUICE_POOL_DEBUG", saved, 1);
}

POOL_TEST(a_message_not_returned_names_its_session) {
    struct pool *pool = open_debug();
    struct pool_buffer *small = pool_get(pool, NULL, 1234), *large = pool_get(pool, NULL, 3 << 20);
    pool_belongs(small, 0xab01, "192.0.2.1:7471");
    pool_belongs(large, 0xab02, "192.0.2.2:7471");
    struct pool_buffer *other = pool_get(pool, NULL, 777);
    pool_belongs(other, 0xab03, "192.0.2.3:7471");
    pool_put(pool, NULL, other);
    assert_ptr_equal(pool_get(pool, NULL, 777), other); /* the session's no more */
    fake_pool_close(pool);
    assert_non_null(strstr(reports,
                           "of 1234 bytes was not returned, a message of session ab01 with "
                           "192.0.2.1:7471"));
    assert_non_null(strstr(reports,
                           "of 3145728 bytes was not returned, a message of session ab02 with "
                           "192.0.2.2:7471"));
    assert_non_null(strstr(reports, "of 777 bytes was not returned\n"));
}

POOL_TEST(what_was_not_returned_is_told_at_the_end) {
    struct pool *pool = open_debug();
    for (int i = 0; i < 20; i++)
        assert_non_null(pool_get(pool, NULL, 1234));
    fake_pool_close(pool);
    assert_non_null(strstr(reports, "of 1234 bytes was not returned"));
    assert_non_null(strstr(reports, "20 buffers in all"));
}

POOL_TEST(right_use_is_silent) {
    struct pool *pool = open_debug();
    struct pool_cache *a = pool_cache_open(pool), *b = pool_cache_open(pool);
    for (int i = 0; i < 2000; i++) {
        struct pool_buffer *msg = pool_get(pool, a, (size_t)(i * 31 % 9000));
        memset(msg->data - POOL_HEADER, i & 255, POOL_HEADER + msg->size);
        sluice_trim(message_of(msg), msg->size / 2);
        pool_put(pool, i % 3 == 0 ? a : i % 3 == 1 ? b : NULL, msg);
    }
    pool_cache_close(a);
    pool_cache_close(b);
    fake_pool_close(pool);
    assert_string_equal(reports, "");
}

/* The device is gone: its memory serves on, without a key. */
POOL_TEST(buffers_can_be_got_when_the_device_is_gone) {
    struct pool *pool = fake_pool_open(8 * MIB);
    pool_detach(pool);
    struct pool_buffer *msg = pool_get(pool, NULL, 1000);
    assert_non_null(msg);
    assert_int_equal(msg->lkey, 0);
    pool_put(pool, NULL, msg);
    fake_pool_close(pool);
}
