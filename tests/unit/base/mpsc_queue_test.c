/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* mpsc_queue_test.c - records come out once and in each producer's order; nobody ever waits. */
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/mpsc_queue.h"

TEST(tells_when_the_consumer_must_be_woken) {
    struct mpsc_queue box;
    struct mpsc_queue_item items[3] = {0};
    mpsc_queue_init(&box);
    assert_true(mpsc_queue_empty(&box));
    assert_null(mpsc_queue_take(&box));
    assert_true(mpsc_queue_post(&box, &items[0]));
    assert_false(mpsc_queue_post(&box, &items[1]));
    assert_false(mpsc_queue_empty(&box));
    assert_ptr_equal(mpsc_queue_take(&box), &items[0]);
    assert_false(mpsc_queue_post(&box, &items[2]));
    assert_ptr_equal(mpsc_queue_take(&box), &items[1]);
    assert_ptr_equal(mpsc_queue_take(&box), &items[2]);
    assert_true(mpsc_queue_empty(&box));
    assert_null(mpsc_queue_take(&box));
}

TEST(a_taken_record_can_be_posted_again) {
    struct mpsc_queue box;
    struct mpsc_queue_item item = {.verb = 7, .slot = 9};
    mpsc_queue_init(&box);
    for (int i = 0; i < 100; i++) {
        assert_true(mpsc_queue_post(&box, &item));
        assert_ptr_equal(mpsc_queue_take(&box), &item);
        assert_int_equal(item.verb, 7);
        assert_int_equal(item.slot, 9);
    }
}

/* The first half of a post by hand: the tail moved, the link not written yet. */
TEST(a_preempted_producer_holds_nobody_up) {
    struct mpsc_queue box;
    struct mpsc_queue_item half = {0}, whole = {0};
    mpsc_queue_init(&box);
    cds_wfcq_node_init(&half.node);
    struct cds_wfcq_node *old = __atomic_exchange_n(&box.tail.p, &half.node, __ATOMIC_SEQ_CST);
    assert_false(mpsc_queue_empty(&box));
    assert_null(mpsc_queue_take(&box));
    assert_false(mpsc_queue_post(&box, &whole)); /* others post on */
    assert_null(mpsc_queue_take(&box));
    assert_false(mpsc_queue_empty(&box));
    __atomic_store_n(&old->next, &half.node, __ATOMIC_RELEASE);
    assert_ptr_equal(mpsc_queue_take(&box), &half);
    assert_ptr_equal(mpsc_queue_take(&box), &whole);
    assert_true(mpsc_queue_empty(&box));
}

enum { PRODUCERS = 4, RECORDS = 50000 };

struct record {
    struct mpsc_queue_item item;
    uint32_t check;
};
struct producer {
    pthread_t thread;
    struct mpsc_queue *box;
    struct record *records;
    uint32_t number;
    uint32_t woke; /* posts that found the queue empty */
};

static void *produce(void *arg) {
    struct producer *p = arg;
    for (uint32_t i = 0; i < RECORDS; i++) {
        struct record *record = &p->records[i];
        record->item.verb = p->number;
        record->item.slot = i;
        record->check = i * 2654435761u + p->number;
        p->woke += mpsc_queue_post(p->box, &record->item);
    }
    return NULL;
}

TEST(many_producers_keep_their_order) {
    struct mpsc_queue box;
    mpsc_queue_init(&box);
    struct producer producers[PRODUCERS];
    uint32_t next[PRODUCERS] = {0};
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){.box = &box, .number = i};
        producers[i].records = calloc(RECORDS, sizeof(struct record));
        assert_non_null(producers[i].records);
        assert_int_equal(pthread_create(&producers[i].thread, NULL, produce, &producers[i]), 0);
    }
    uint32_t wrong = 0;
    for (uint32_t taken = 0; taken < PRODUCERS * RECORDS;) {
        struct mpsc_queue_item *item = mpsc_queue_take(&box);
        if (!item) {
            sched_yield();
            continue;
        }
        struct record *record = (struct record *)item;
        wrong += item->verb >= PRODUCERS || item->slot != next[item->verb]++;
        wrong += record->check != item->slot * 2654435761u + item->verb;
        taken++;
    }
    uint32_t woke = 0;
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        pthread_join(producers[i].thread, NULL);
        woke += producers[i].woke;
        free(producers[i].records);
    }
    assert_int_equal(wrong, 0);
    assert_uint_in_range(woke, 1, PRODUCERS * RECORDS);
    assert_true(mpsc_queue_empty(&box));
}

TEST(the_tail_has_a_cache_line_of_its_own) {
    assert_int_equal(offsetof(struct mpsc_queue, tail) % 64, 0);
    assert_true(offsetof(struct mpsc_queue, tail) >= 64);
}
