/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_key_test.c - the keys of memory: none opens what came after it, there are as many as the device
 * says, and what they take is what those need that live.
 */
#include "support/softverbs.h"

#include "common/sanitize.h"
#include "soft/ipc/shm_layout.h"
#include "soft/object/mw.h"
#include "soft/verbs/mw.h"

enum { BLOCK = 512, BLOCKS = SOFT_MAX_MR / BLOCK };

static void index_of_remote(struct sv_end *e, unsigned count, uint16_t *index) {
    struct ibv_mr **mrs = calloc(count, sizeof *mrs);
    must(mrs);
    for (unsigned i = 0; i < count; i++) {
        mrs[i] = soft_reg_mr(e->pd, e->buf, 64, IBV_ACCESS_REMOTE_READ);
        must(mrs[i]);
        index[i] = (uint16_t)(mrs[i]->rkey >> 16);
    }
    for (unsigned i = 0; i < count; i++)
        must(soft_dereg_mr(mrs[i]) == 0);
    free(mrs);
}

static unsigned blocks_of(bool seen[BLOCKS]) {
    uint16_t index[256];
    struct sv_end e;
    unsigned count = 0;
    memset(seen, 0, BLOCKS * sizeof *seen);
    sv_open(&e, SV_OPTIONS());
    index_of_remote(&e, 256, index);
    for (unsigned i = 0; i < 256; i++) {
        count += !seen[index[i] / BLOCK];
        seen[index[i] / BLOCK] = true;
    }
    sv_close(&e);
    return count;
}

static void tell_blocks(int fd) {
    bool seen[BLOCKS];
    (void)blocks_of(seen);
    for (unsigned i = 0; i < BLOCKS; i++)
        sv_tell(fd, seen[i]);
}

/*
 * The test is the first, while few indexes are in use: so they take little memory. Which they are, a process does not
 * know of another.
 */
TEST(the_indexes_in_use_are_others_in_each_process) {
#ifdef SANITIZE_THREAD
    skip(); /* which forbids threads in a child forked from a process that has some */
#endif
    bool own[BLOCKS];
    unsigned same = 0, count = blocks_of(own);
    assert_in_range(count, 2, 16);
    struct sv_child child = sv_fork(tell_blocks);
    for (unsigned i = 0; i < BLOCKS; i++)
        same += sv_hear(child.fd) && own[i];
    assert_true(same < count);
    assert_int_equal(sv_join(&child), 0);
}

/* A key that was given back does not open what is registered in its place. */
TEST(a_dead_key_stays_dead) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    struct ibv_mr *first = soft_reg_mr(e.pd, e.buf, 64, 0);
    assert_non_null(first);
    uint32_t key = first->lkey;
    assert_int_equal(soft_dereg_mr(first), 0);
    assert_null(soft_mr_find(key, e.pd));
    unsigned reused = 0;
    for (unsigned i = 0; i < SOFT_MAX_MR + 100; i++) { /* each index more than once */
        struct ibv_mr *mr = soft_reg_mr(e.pd, e.buf, 64, 0);
        assert_non_null(mr);
        reused += mr->lkey == key;
        assert_true(mr->lkey != 0);
        assert_int_equal(soft_dereg_mr(mr), 0);
    }
    assert_true(reused <= 1); /* by chance in one run of thousands, never by rule */
    sv_close(&e);
}

/* Bytes of shared memory this process has touched: where the key table is, and no sanitizer's memory. */
static uint64_t shared_bytes(void) {
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) && sscanf(line, "RssShmem: %llu", &kib) != 1)
        ;
    fclose(f);
    assert_true(kib > 0);
    return kib * 1024;
}

static void come_and_go(struct sv_end *e, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        struct ibv_mr *mr = soft_reg_mr(e->pd, e->buf, 64, IBV_ACCESS_REMOTE_READ);
        assert_non_null(mr);
        assert_int_equal(soft_dereg_mr(mr), 0);
    }
}

/* However many were registered: what is resident is what those need that live. */
TEST(registrations_that_come_and_go_touch_no_more_memory) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    come_and_go(&e, SOFT_MAX_MR / 8);
    uint64_t before = shared_bytes();
    come_and_go(&e, SOFT_MAX_MR);
    assert_true(shared_bytes() <= before + 16 * 4096);
    sv_close(&e);
}

TEST(the_table_of_registrations_has_an_end) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    struct ibv_device_attr dev;
    assert_int_equal(soft_query_device(e.ctx, &dev), 0);
    struct ibv_mr **mrs = calloc((size_t)dev.max_mr + 1, sizeof *mrs);
    unsigned n = 0;
    while (n <= (unsigned)dev.max_mr && (mrs[n] = soft_reg_mr(e.pd, e.buf, 64, 0)) != NULL)
        n++;
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(n, dev.max_mr - 1); /* e.mr has one */
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 1; i < 100 && k < 100; k++)
            assert_true(i == k || mrs[i]->lkey != mrs[k]->lkey);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(soft_dereg_mr(mrs[i]), 0);
    free(mrs);
    sv_close(&e);
}

/* ---- fork: a child has keys of its own, not those that its parent hands out next ------------------- */

enum { KEYS = 16 };

static void keys_of(uint16_t *salts) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    for (int i = 0; i < KEYS; i++) {
        struct ibv_mr *mr = soft_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_REMOTE_READ);
        must(mr);
        salts[i] = (uint16_t)mr->rkey;
        must(soft_dereg_mr(mr) == 0);
    }
    sv_close(&e);
}

static void tell_keys(int fd) {
    uint16_t salts[KEYS];
    keys_of(salts);
    for (int i = 0; i < KEYS; i++)
        sv_tell(fd, salts[i]);
}

TEST(a_child_hands_out_other_keys_than_its_parent) {
#ifdef SANITIZE_THREAD
    skip(); /* which forbids threads in a child forked from a process that has some */
#endif
    uint16_t own[KEYS];
    keys_of(own); /* there is a store of random numbers now */
    struct sv_child child = sv_fork(tell_keys);
    keys_of(own);
    unsigned same = 0;
    for (int i = 0; i < KEYS; i++) {
        uint16_t other = (uint16_t)sv_hear(child.fd);
        for (int k = 0; k < KEYS; k++)
            same += own[k] == other;
    }
    assert_true(same < KEYS / 4); /* by chance one in 256 runs, never all by rule */
    assert_int_equal(sv_join(&child), 0);
}

/* ---- what a peer that does not see the table would have to guess ----------------------------------------- */

/* Neither the key before it nor one that was given back says where the next is. */
TEST(the_index_of_remote_keys_has_no_order) {
    enum { COUNT = 512, BUCKETS = 16 };
    uint16_t index[COUNT];
    unsigned near = 0, low[BUCKETS] = {0};
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    index_of_remote(&e, COUNT, index);
    for (unsigned i = 0; i < COUNT; i++) {
        low[index[i] % BUCKETS]++;
        near += i > 0 && (uint16_t)(index[i] - index[i - 1] + 4) <= 8;
    }
    assert_true(near < 40);                /* one is expected */
    for (unsigned i = 0; i < BUCKETS; i++) /* 32 are */
        assert_in_range(low[i], 4, 100);
    sv_close(&e);
}

TEST(windows_have_random_places_too) {
    enum { COUNT = 64 };
    struct ibv_mw *mw[COUNT];
    unsigned near = 0;
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    for (unsigned i = 0; i < COUNT; i++) {
        mw[i] = soft_alloc_mw(e.pd, IBV_MW_TYPE_2);
        assert_non_null(mw[i]);
        near += i > 0 && (uint16_t)((mw[i]->rkey >> 16) - (mw[i - 1]->rkey >> 16) + 4) <= 8;
    }
    assert_true(near < 20);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(soft_dealloc_mw(mw[i]), 0);
    sv_close(&e);
}
