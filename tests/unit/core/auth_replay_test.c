/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * auth_replay_test.c - the memory of tags holds the last 4096 exactly, whoever uses it.
 */
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/auth/auth.h"
#include "core/auth/replay.h"

struct tag {
    uint8_t bytes[REPLAY_TAG_BYTES];
};

/* One tag for each number; two differ in few bits. */
static struct tag tag_of(uint32_t number) {
    struct tag tag = {{0}};
    memcpy(tag.bytes + 12, &number, sizeof number);
    tag.bytes[number % 12] = 1;
    return tag;
}

static struct replay *open_replay(void) {
    struct replay *replay = replay_open(&env_default);
    assert_non_null(replay);
    return replay;
}

static bool add(struct replay *replay, uint32_t number) {
    struct tag tag = tag_of(number);
    return replay_add(replay, tag.bytes);
}

static bool seen(struct replay *replay, uint32_t number) {
    struct tag tag = tag_of(number);
    return replay_seen(replay, tag.bytes);
}

TEST(the_last_4096_are_remembered_and_none_before) {
    enum { ALL = 3 * REPLAY_TAGS + 17 };
    struct replay *replay = open_replay();
    for (uint32_t i = 0; i < ALL; i++) {
        assert_false(seen(replay, i));
        assert_false(add(replay, i));
        assert_true(seen(replay, i));
        if (i >= REPLAY_TAGS) { /* exactly at the edge */
            assert_false(seen(replay, i - REPLAY_TAGS));
            assert_true(seen(replay, i - REPLAY_TAGS + 1));
        }
    }
    for (uint32_t i = 0; i < ALL; i++)
        assert_int_equal(seen(replay, i), i >= ALL - REPLAY_TAGS);
    replay_close(replay);
    replay_close(NULL);
}

TEST(looking_and_adding_again_make_nothing_younger) {
    struct replay *replay = open_replay();
    for (uint32_t i = 0; i < REPLAY_TAGS; i++)
        assert_false(add(replay, i));
    for (uint32_t i = 0; i < REPLAY_TAGS; i++) {
        assert_true(seen(replay, i));
        assert_true(add(replay, i));
    }
    assert_false(add(replay, REPLAY_TAGS));
    assert_false(seen(replay, 0));
    assert_true(seen(replay, 1));
    replay_close(replay);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, SHARED = REPLAY_TAGS };

struct worker {
    struct replay *replay;
    pthread_barrier_t *start;
    atomic_uint *fresh; /* of each tag: threads that were told it is new */
    uint32_t number;
};

static void *add_all(void *arg) {
    struct worker *w = arg;
    pthread_barrier_wait(w->start);
    for (uint32_t i = 0; i < SHARED; i++) {
        /* Two in the same order, two from elsewhere: they meet often. */
        uint32_t number = w->number < 2 ? i : (i * 5 + w->number * 1000) % SHARED;
        if (!add(w->replay, number))
            atomic_fetch_add(&w->fresh[number], 1);
        if (!seen(w->replay, number))
            atomic_fetch_add(&w->fresh[number], 100); /* it was just put in */
    }
    return NULL;
}

TEST(of_several_threads_one_is_told_a_tag_is_new) {
    static atomic_uint fresh[SHARED];
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    struct replay *replay = open_replay();
    memset(fresh, 0, sizeof fresh);
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){replay, &start, fresh, i};
        assert_int_equal(pthread_create(&threads[i], NULL, add_all, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < SHARED; i++)
        assert_int_equal(atomic_load(&fresh[i]), 1);
    pthread_barrier_destroy(&start);
    replay_close(replay);
}

static void *add_own(void *arg) {
    struct worker *w = arg;
    pthread_barrier_wait(w->start);
    for (uint32_t i = 0; i < 2 * REPLAY_TAGS; i++)
        if (add(w->replay, i * THREADS + w->number))
            atomic_fetch_add(w->fresh, 1);
    return NULL;
}

TEST(threads_that_push_each_other_out_leave_4096) {
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    atomic_uint known = 0;
    unsigned left = 0;
    struct replay *replay = open_replay();
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){replay, &start, &known, i};
        assert_int_equal(pthread_create(&threads[i], NULL, add_own, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < 2 * REPLAY_TAGS * THREADS; i++)
        left += seen(replay, i);
    assert_int_equal(atomic_load(&known), 0);
    assert_int_equal(left, REPLAY_TAGS);
    pthread_barrier_destroy(&start);
    replay_close(replay);
}

int main(void) {
    if (!auth_init())
        return 1;
    return tests_run(NULL, NULL);
}
