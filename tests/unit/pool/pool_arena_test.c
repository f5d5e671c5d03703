/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_arena_test.c - where a pool's memory comes from: which pages, and which NUMA node.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <stdio.h>

#include "common/limits.h"
#include "base/topology.h"
#include "support/emulated.h"
#include "support/fake_memory.h"
#include "support/skip.h"
#include "support/pool_stats.h"
#include "pool/internal.h"

/* ---- pages --------------------------------------------------------------------------------------- */

POOL_TEST(huge_pages_are_used_while_there_are_any) {
    char text[200];
    fake.huge_2m = 6 * MIB; /* the first arena of 2 MiB and the second of 4 */
    struct pool *pool = fake_pool_open_with(30 * MIB, (struct hugepages_wish){21, false, -1});
    struct pool_buffer *chain = fake_get_all(pool, NULL, 60000);
    struct pool_stats f;
    pool_get_stats(pool, &f);
    assert_int_equal(f.kind[HUGEPAGES_2M], 6 * MIB);
    assert_int_equal(f.kind[HUGEPAGES_2M] + f.kind[HUGEPAGES_TRANSPARENT] + f.kind[HUGEPAGES_SMALL],
                     pool_bytes(pool));
    assert_int_equal(pool_bytes(pool), 30 * MIB);
    assert_int_equal(f.numa_bound, 0);
    pool_describe(pool, text, sizeof text);
    assert_non_null(strstr(text, "6144 KiB on 2 MiB pages"));
    assert_true(strstr(text, "ordinary pages") || strstr(text, "transparent"));
    assert_null(strstr(text, "NUMA"));
    fake_put_all(pool, NULL, chain);
    fake_pool_close(pool);
}

POOL_TEST(huge_pages_kept_apart_are_not_touched_unasked) {
    fake.huge_2m = 64 * MIB;
    struct pool *pool = fake_pool_open_with(8 * MIB, (struct hugepages_wish){0, false, -1});
    struct pool_stats f;
    pool_get_stats(pool, &f);
    assert_int_equal(fake.huge_asked, 0);
    assert_int_equal(f.kind[HUGEPAGES_2M], 0);
    fake_pool_close(pool);
    pool = fake_pool_open_with(8 * MIB, (struct hugepages_wish){0, true, -1});
    pool_get_stats(pool, &f);
    assert_int_equal(f.kind[HUGEPAGES_SMALL], 2 * MIB);
    fake_pool_close(pool);
}

/* Pages of a GiB, then of 2 MiB, then ordinary ones; the size of the arenas follows. */
POOL_TEST(what_is_not_there_falls_back) {
    fake.reg_bytes_max = 64 * MIB;
    struct pool *pool = fake_pool_open_with(2048 * MIB, (struct hugepages_wish){30, false, -1});
    assert_int_equal(fake.huge_asked, 1u << 30 | 1u << 21);
    assert_int_equal(pool_bytes(pool), 2 * MIB);
    fake_pool_close(pool);
    fake.huge_asked = 0;
    /* A cap below a GiB: nobody asks for such a page. */
    pool = fake_pool_open_with(512 * MIB, (struct hugepages_wish){30, false, -1});
    assert_int_equal(fake.huge_asked, 1u << 21);
    fake_pool_close(pool);
}

POOL_TEST(the_environment_chooses_pages) {
    const struct {
        const char *text;
        unsigned huge_log2;
        bool no_transparent;
    } list[] = {{"1G", 30, false}, {"2M", 21, false}, {"no", 0, true},  {"OFF", 0, true},
                {"", 0, false},    {"4K", 0, false},  {"2M ", 0, false}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct hugepages_wish wish = {.numa = -1};
        setenv("SLUICE_HUGE_PAGES", list[i].text, 1);
        hugepages_from_environment(&wish);
        assert_int_equal(wish.huge_log2, list[i].huge_log2);
        assert_int_equal(wish.no_transparent, list[i].no_transparent);
    }
    unsetenv("SLUICE_HUGE_PAGES");
}

/* The kernel's flag of the mapping an address lies in, as "hg" (huge pages asked for) or "nh". */
static bool has_flag(const void *addr, const char *flag) {
    char line[512];
    bool inside = false, found = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' '))
            inside = (uintptr_t)addr >= from && (uintptr_t)addr < to;
        if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    }
    fclose(file);
    return found;
}

/* Asked for where the report says so, and forbidden where the environment does. */
POOL_TEST(transparent_pages_are_asked_for_or_forbidden) {
    skip_emulated("SHOWS NO FLAGS OF MAPPINGS");
    const struct fabric_ops *const list[] = {&fabric_system, &fabric_soft};
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
        skip_with("THIS KERNEL HAS NO TRANSPARENT HUGE PAGES");
    for (size_t i = 0; i < 2; i++)
        for (int no = 0; no < 2; no++) {
            struct hugepages got;
            struct hugepages_wish wish = {0, no, -1};
            uint8_t *addr = hugepages_alloc(list[i], 4 * MIB, &wish, &got);
            assert_non_null(addr);
            assert_int_equal(got.kind, no ? HUGEPAGES_SMALL : HUGEPAGES_TRANSPARENT);
            assert_int_equal(has_flag(addr, " hg"), !no);
            assert_int_equal(has_flag(addr, " nh"), no);
            list[i]->mem_free(addr, 4 * MIB);
        }
}

/* Whoever asks at the same time: what there is room for is decided when it is taken. */
POOL_TEST(a_block_never_exceeds_the_cap) {
    struct budget budget = {.fabric = &fake_fabric, .pd = &fake_pd, .bytes_max = 3 * MIB};
    struct block one, two;
    budget.wish.numa = -1;
    assert_int_equal(block_open(&one, &budget, 2 * MIB), 0);
    assert_int_equal(block_open(&two, &budget, 2 * MIB), -ENOMEM);
    assert_int_equal(fake.registered, 2 * MIB);
    assert_int_equal(block_open(&two, &budget, MIB), 0);
    block_close(&one, &budget);
    assert_int_equal(block_open(&one, &budget, 3 * MIB), -ENOMEM);
    block_close(&two, &budget);
    assert_int_equal(fake.registered, 0);
    assert_int_equal(budget.bytes, 0);
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
POOL_TEST(fabrics_have_huge_pages_or_say_so) {
    const struct fabric_ops *const list[] = {&fabric_system, &fabric_soft};
    int alone = lock_huge_pages();
    for (size_t i = 0; i < 2; i++) {
        struct hugepages got;
        struct hugepages_wish wish = {21, false, -1};
        uint8_t *addr = hugepages_alloc(list[i], 4 * MIB, &wish, &got);
        assert_non_null(addr);
        print_message("%s: %s\n", list[i]->name,
                      got.kind == HUGEPAGES_2M ? "2 MiB pages" : "none to be had, ordinary ones");
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
    struct pool_config config = {&fabric, &fake_pd, 16 * MIB, {21, false, -1}};
    struct pool *pool = NULL;
    struct pool_stats f;
    fabric.mem_alloc = real->mem_alloc;
    fabric.mem_free = real->mem_free;
    fabric.mem_alloc_huge = real->mem_alloc_huge;
    if (pool_open(&pool, &config) != 0)
        return 0;
    struct pool_buffer *chain = fake_get_all(pool, NULL, 60000);
    for (struct pool_buffer *msg = chain; msg; msg = msg->next)
        memset(msg->data, 0x5a, msg->size);
    pool_get_stats(pool, &f);
    pool_describe(pool, text, bytes);
    fake_put_all(pool, NULL, chain);
    pool_close(pool);
    return f.huge_missed == 0 ? f.kind[HUGEPAGES_2M] : 0;
}

/* Whether every page is there, without its having been written to. */
static bool is_resident(uint8_t *addr, size_t bytes) {
    static unsigned char pages[4096];
    size_t size = (size_t)sysconf(_SC_PAGESIZE), count = bytes / size;
    assert_true(count <= sizeof pages);
    assert_int_equal(mincore(addr, bytes, pages), 0);
    for (size_t i = 0; i < count; i++)
        if (!(pages[i] & 1))
            return false;
    return true;
}

/* Touched at once: a cgroup that allows fewer than there are must refuse here, not end the process later. */
static bool are_touched_at_once(const struct fabric_ops *real) {
    struct hugepages got;
    struct hugepages_wish wish = {21, false, -1};
    uint8_t *addr = hugepages_alloc(real, 4 * MIB, &wish, &got);
    bool there = got.kind == HUGEPAGES_2M && is_resident(addr, 4 * MIB);
    /* A kernel before 5.14 cannot be asked to. */
    bool old = madvise(addr, 4 * MIB, 23 /* MADV_POPULATE_WRITE */) != 0 && errno == EINVAL;
    real->mem_free(addr, 4 * MIB);
    return there || old;
}

/* The real thing, where this process may reserve some for a moment. */
POOL_TEST(reserved_huge_pages_are_got_and_reported) {
    skip_emulated("MAPS NO HUGE PAGES");
    const struct fabric_ops *const list[] = {&fabric_system, &fabric_soft};
    uint64_t got[2] = {0};
    char text[2][200] = {"", ""};
    struct limits limits;
    int alone = lock_huge_pages();
    if (alone < 0)
        skip_with("THIS SYSTEM HAS NO HUGE PAGES OF 2 MIB (%s)", huge_path);
    long before = reserved(huge_path);
    reserve(huge_path, before + 16); /* twice what is needed: there may be other users */
    limits_read(&limits, "");
    uint64_t there = 0;
    for (uint32_t i = 0; i < limits.huge_count; i++)
        there += limits.huge[i].page_log2 == 21 ? limits.huge[i].free : 0;
    bool touched = true;
    for (size_t i = 0; i < 2 && there >= 8; i++) {
        got[i] = huge_of(list[i], text[i], sizeof text[i]);
        touched = touched && are_touched_at_once(list[i]);
    }
    if (before >= 0)
        reserve(huge_path, before);
    close(alone);
    if (there < 8)
        skip_with("NO HUGE PAGES CAN BE RESERVED HERE (%s)", huge_path);
    for (size_t i = 0; i < 2; i++) {
        print_message("%s: %s\n", list[i]->name, text[i]);
        assert_int_equal(got[i], 16 * MIB);
        assert_non_null(strstr(text[i], "16384 KiB on 2 MiB pages"));
    }
    assert_true(touched);
}

/* ---- NUMA ---------------------------------------------------------------------------------------- */

POOL_TEST(memory_is_bound_to_the_node_it_is_wished_on) {
    char text[200];
    hwloc_topology_t topology = topology_here();
    assert_non_null(topology);
    hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, 0);
    if (!node || !hwloc_topology_get_support(topology)->membind->set_area_membind)
        skip();
    struct pool *pool =
        fake_pool_open_with(8 * MIB, (struct hugepages_wish){0, false, (int16_t)node->os_index});
    struct pool_buffer *msg = pool_get(pool, NULL, 5000);
    assert_non_null(msg);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
    struct pool_stats f;
    pool_get_stats(pool, &f);
    if (f.numa_bound == 0) {
        hwloc_bitmap_free(set);
        pool_put(pool, NULL, msg);
        fake_pool_close(pool);
        skip(); /* the system refuses, as in some containers */
    }
    assert_int_equal(
        hwloc_get_area_membind(topology, msg->data, 5000, set, &policy, HWLOC_MEMBIND_BYNODESET),
        0);
    assert_int_equal(policy, HWLOC_MEMBIND_BIND);
    assert_true(hwloc_bitmap_isequal(set, node->nodeset));
    assert_int_equal(f.numa_bound, pool_bytes(pool));
    pool_describe(pool, text, sizeof text);
    assert_non_null(strstr(text, "; all on NUMA node"));
    hwloc_bitmap_free(set);
    pool_put(pool, NULL, msg);
    fake_pool_close(pool);
}

POOL_TEST(a_node_that_does_not_exist_costs_nothing) {
    char text[200];
    struct pool *pool = fake_pool_open_with(8 * MIB, (struct hugepages_wish){0, false, 4000});
    struct pool_stats f;
    pool_get_stats(pool, &f);
    assert_int_equal(f.numa_bound, 0);
    pool_describe(pool, text, sizeof text);
    assert_non_null(strstr(text, "not bound"));
    fake_pool_close(pool);
}
