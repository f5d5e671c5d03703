/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * regtable_test.c - lookups under RCU: without a lock, never in a table that is being written, and without
 * anybody who waits for them.
 *
 * The test opens read-side sections of its own, as an application may that uses liburcu itself: to the
 * table they are lookups that have stopped half-way.
 */
#include "support/test.h"
#include "support/grace.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <urcu/urcu-bp.h>

#include "pool/regcache/index.h"

#define PAGE ((uintptr_t)4096)
#define STEP ((uintptr_t)0x10000)

static void no_reaping(void *arg) {
    (void)arg;
}

static struct regcache_index *opened(void) {
    struct regcache_index *table = malloc(sizeof *table);
    assert_non_null(table);
    assert_true(regcache_index_open(table));
    assert_int_equal(regcache_index_start(table, no_reaping, NULL), 0);
    return table;
}

static void closed(struct regcache_index *table) {
    regcache_index_stop(table);
    regcache_index_close(table);
    free(table);
}

/* A registration of [start, end), pinned by nobody, shown. */
static struct regcache_entry *enter(struct regcache_index *table, uintptr_t start, uintptr_t end) {
    pthread_mutex_lock(&table->lock);
    assert_true(table->unused_count > 0);
    struct regcache_entry *reg = regcache_index_take(table);
    atomic_store(&reg->start, start);
    atomic_store(&reg->end, end);
    reg->lkey = (uint32_t)(start / STEP);
    atomic_store(&reg->state, 0);
    regcache_index_link(table, reg);
    regcache_index_show(table);
    pthread_mutex_unlock(&table->lock);
    return reg;
}

/* The lock is held. Nobody has it pinned. */
static void drop(struct regcache_index *table, uintptr_t start) {
    uint32_t i = regcache_index_find(table, start);
    struct regcache_entry *reg = regcache_index_at(table, i);
    assert_non_null(reg);
    assert_true(regcache_index_unlink(table, i));
    assert_true(regcache_entry_claim(reg));
    regcache_index_give(table, reg);
}

static struct regcache_entry *look(struct regcache_index *table, uintptr_t start, uintptr_t end,
                                   bool *locked) {
    uint64_t hits = 0;
    struct regcache_entry *reg = regcache_index_lookup(table, start, end, locked, &hits);
    if (reg)
        assert_false(regcache_entry_unpin(reg));
    return reg;
}

TEST(a_lookup_takes_no_lock) {
    struct regcache_index *table = opened();
    bool locked;
    struct regcache_entry *one = enter(table, 2 * STEP, 3 * STEP),
                          *two = enter(table, 5 * STEP, 6 * STEP);
    pthread_mutex_lock(&table->lock); /* whoever wanted it would wait for ever */
    assert_ptr_equal(look(table, 2 * STEP, 3 * STEP, &locked), one);
    assert_ptr_equal(look(table, 2 * STEP + 1, 2 * STEP + 2, &locked), one);
    assert_ptr_equal(look(table, 5 * STEP, 5 * STEP + 1, &locked), two);
    assert_false(locked);
    assert_null(look(table, STEP, 2 * STEP, &locked));
    assert_null(look(table, 2 * STEP - 1, 3 * STEP, &locked));
    assert_null(look(table, 2 * STEP, 3 * STEP + 1, &locked));
    assert_null(look(table, 3 * STEP, 4 * STEP, &locked));
    assert_null(look(table, 6 * STEP, 7 * STEP, &locked));
    assert_false(locked);
    pthread_mutex_unlock(&table->lock);
    closed(table);
}

/* The page a lookup is to be met in, and whether that was inside of a section. */
static uint8_t *met_at;
static volatile sig_atomic_t met, in_section;

static void on_fault(int signal) {
    (void)signal;
    met = 1;
    in_section = urcu_bp_read_ongoing() != 0;
    mprotect(met_at, PAGE, PROT_READ | PROT_WRITE);
}

TEST(a_lookup_is_a_read_side_section) {
    struct regcache_index *table = opened();
    struct sigaction before, fault = {.sa_handler = on_fault};
    bool locked;
    /* One whose page has nothing but places. */
    struct regcache_entry *reg = NULL;
    for (uintptr_t i = 1; !reg; i++) {
        reg = enter(table, 2 * i * STEP, (2 * i + 1) * STEP);
        met_at = (uint8_t *)((uintptr_t)reg & ~(PAGE - 1));
        if (met_at < (uint8_t *)table->places ||
            met_at + PAGE > (uint8_t *)(table->places + REGCACHE_INDEX_ENTRIES))
            reg = NULL;
    }
    grace_settle(table); /* nobody else is in that page from now on */
    uintptr_t start = regcache_entry_start(reg);
    assert_int_equal(sigaction(SIGSEGV, &fault, &before), 0);
    assert_int_equal(mprotect(met_at, PAGE, PROT_NONE), 0);
    struct regcache_entry *found = look(table, start, start + STEP, &locked);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_ptr_equal(found, reg);
    assert_true(met && in_section);
    assert_int_equal(urcu_bp_read_ongoing(), 0);
    closed(table);
}

TEST(a_table_somebody_may_look_at_is_not_written) {
    struct regcache_index *table = opened();
    enter(table, STEP, 2 * STEP);
    urcu_bp_read_lock();
    struct regcache_index_table *seen = atomic_load(&table->shown);
    assert_non_null(seen);
    struct regcache_index_table *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, seen, sizeof *copy);
    for (uintptr_t i = 2; i < 10 * REGCACHE_INDEX_TABLES; i++)
        enter(table, 2 * i * STEP, (2 * i + 1) * STEP);
    assert_int_equal(seen->count, copy->count);
    assert_memory_equal(seen->end, copy->end, sizeof copy->end);
    assert_memory_equal(seen->place, copy->place, sizeof copy->place);
    urcu_bp_read_unlock();
    /* And is written then: else tables would run out. */
    for (uintptr_t i = 10 * REGCACHE_INDEX_TABLES; i < 20 * REGCACHE_INDEX_TABLES; i++) {
        enter(table, 2 * i * STEP, (2 * i + 1) * STEP);
        grace_settle(table);
        assert_non_null(atomic_load(&table->shown));
    }
    assert_true(seen->count > copy->count);
    free(copy);
    closed(table);
}

TEST(while_no_table_may_be_written_the_lock_is_taken) {
    struct regcache_index *table = opened();
    bool locked = false;
    uint64_t hits = 0;
    uintptr_t last = 1;
    urcu_bp_read_lock();
    while (!locked) {
        last++;
        enter(table, 2 * last * STEP, (2 * last + 1) * STEP);
        struct regcache_entry *reg = look(table, 2 * last * STEP, (2 * last + 1) * STEP, &locked);
        assert_true(reg || locked);
        assert_true(last < 4 * REGCACHE_INDEX_TABLES);
    }
    assert_true(last >= REGCACHE_INDEX_TABLES); /* not earlier than need be */
    for (uintptr_t i = 2; i <= last; i++) {
        struct regcache_entry *reg =
            regcache_index_lookup_locked(table, 2 * i * STEP, 2 * i * STEP + 1, &hits);
        assert_non_null(reg);
        assert_int_equal(reg->lkey, 2 * i);
        assert_false(regcache_entry_unpin(reg));
    }
    urcu_bp_read_unlock();
    grace_settle(table);
    assert_non_null(look(table, 2 * last * STEP, (2 * last + 1) * STEP, &locked));
    assert_false(locked);
    closed(table);
}

/* A lookup that began before the place was used again sees an old table. */
TEST(a_place_that_is_used_again_is_not_mistaken) {
    struct regcache_index *table = opened();
    bool locked;
    struct regcache_entry *reg = enter(table, 2 * STEP, 3 * STEP);
    pthread_mutex_lock(&table->lock);
    struct regcache_index_table *old = regcache_index_withdraw(table);
    assert_null(look(table, 2 * STEP, 3 * STEP, &locked));
    assert_true(locked);
    drop(table, 2 * STEP);
    regcache_index_restore(table, old);
    assert_null(look(table, 2 * STEP, 3 * STEP, &locked)); /* dead, at once */
    assert_false(locked);
    pthread_mutex_unlock(&table->lock);
    assert_ptr_equal(enter(table, 7 * STEP, 8 * STEP), reg); /* the same place */
    struct regcache_index_table *new = regcache_index_withdraw(table);
    regcache_index_restore(table, old);
    assert_null(look(table, 2 * STEP, 3 * STEP, &locked));
    assert_int_equal(atomic_load(&reg->state) & REGCACHE_ENTRY_USE, 0); /* and not kept */
    regcache_index_restore(table, new);
    assert_ptr_equal(look(table, 7 * STEP, 8 * STEP, &locked), reg);
    closed(table);
}

TEST(who_pins_sees_the_range_it_pinned) {
    struct regcache_entry reg = {.state = 0};
    uint64_t hits = 0;
    assert_true(regcache_entry_pin(&reg, &hits));
    assert_int_equal(regcache_entry_hits(&reg), 1);
    assert_false(regcache_entry_kill(&reg)); /* pinned: the last pin ends it */
    assert_false(regcache_entry_pin(&reg, &hits));
    assert_false(regcache_entry_claim(&reg));
    assert_true(regcache_entry_unpin(&reg));
    assert_true(regcache_entry_claim(&reg));
    assert_false(regcache_entry_claim(&reg)); /* once */
    atomic_store(&reg.state, REGCACHE_ENTRY_PINS_MAX);
    assert_false(regcache_entry_pin(&reg, &hits));
    atomic_store(&reg.state, REGCACHE_ENTRY_HITS_FULL - REGCACHE_ENTRY_HIT);
    assert_true(regcache_entry_pin(&reg, &hits));
    assert_int_equal(hits + regcache_entry_hits(&reg),
                     REGCACHE_ENTRY_HITS_FULL / REGCACHE_ENTRY_HIT);
    assert_int_equal(atomic_load(&reg.state) & REGCACHE_ENTRY_USE, REGCACHE_ENTRY_PIN);
    /* It was another's when it was looked at. */
    bool last = true;
    hits = 0;
    atomic_store(&reg.state, 0);
    atomic_store(&reg.start, 7 * STEP);
    atomic_store(&reg.end, 8 * STEP);
    assert_false(regcache_entry_hold(&reg, 2 * STEP, 3 * STEP, &hits, &last));
    assert_int_equal(atomic_load(&reg.state) & REGCACHE_ENTRY_USE, 0);
    assert_false(last);
    assert_int_equal(hits + regcache_entry_hits(&reg), 0); /* and that was no hit */
    assert_true(regcache_entry_hold(&reg, 7 * STEP, 8 * STEP, &hits, &last));
    assert_int_equal(atomic_load(&reg.state) & REGCACHE_ENTRY_USE, REGCACHE_ENTRY_PIN);
}

/* ---- threads --------------------------------------------------------------------------------------- */

enum { AREAS = 40, READERS = 3, ROUNDS = 5000 };

struct readers {
    struct regcache_index *table;
    _Atomic bool stop;
    _Atomic uint64_t found, wrong;
};

static void *read_on(void *arg) {
    struct readers *r = arg;
    for (uintptr_t i = 0; !atomic_load(&r->stop); i = (i + 7) % AREAS) {
        bool locked;
        uint64_t hits = 0;
        uintptr_t start = (2 * i + 2) * STEP;
        struct regcache_entry *reg =
            regcache_index_lookup(r->table, start, start + STEP, &locked, &hits);
        if (locked)
            reg = regcache_index_lookup_locked(r->table, start, start + STEP, &hits);
        if (!reg)
            continue;
        r->found++;
        r->wrong += reg->lkey != start / STEP || !regcache_entry_covers(reg, start, start + STEP);
        (void)regcache_entry_unpin(reg); /* if it is dead the other thread ends it */
    }
    return NULL;
}

/* Ends what others had pinned when it was dropped. */
static void reap(struct regcache_index *table) {
    pthread_mutex_lock(&table->lock);
    for (uint32_t i = 0; i < REGCACHE_INDEX_ENTRIES; i++)
        if (regcache_entry_claim(&table->places[i]))
            regcache_index_give(table, &table->places[i]);
    pthread_mutex_unlock(&table->lock);
}

/* Two areas at a time, so that they exchange their places. */
TEST(lookups_beside_changes_find_what_they_asked_for) {
    struct readers r = {.table = opened()};
    pthread_t threads[READERS];
    for (uintptr_t i = 0; i < AREAS; i++)
        enter(r.table, (2 * i + 2) * STEP, (2 * i + 3) * STEP);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &r), 0);
    for (unsigned round = 0; round < ROUNDS || atomic_load(&r.found) < ROUNDS; round++) {
        uintptr_t start[2] = {((uintptr_t)rand() % (AREAS / 2) * 2 + 2) * STEP};
        start[1] = start[0] + AREAS / 2 * 2 * STEP;
        for (int i = 0; i < 2; i++) {
            pthread_mutex_lock(&r.table->lock);
            uint32_t at = regcache_index_find(r.table, start[i]);
            assert_int_equal(regcache_index_at(r.table, at)->lkey, start[i] / STEP);
            regcache_index_unlink(r.table, at);
            pthread_mutex_unlock(&r.table->lock);
        }
        reap(r.table);
        enter(r.table, start[0], start[0] + STEP);
        enter(r.table, start[1], start[1] + STEP);
    }
    atomic_store(&r.stop, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(r.wrong, 0);
    reap(r.table);
    assert_int_equal(r.table->unused_count, REGCACHE_INDEX_ENTRIES - AREAS);
    closed(r.table);
}
