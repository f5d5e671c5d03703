/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * regcache_test.c - registrations of application memory: found again, never stale, within limits.
 *
 * The fake device remembers what lay at the first byte when it registered, as a device remembers pages:
 * a registration of memory that is gone shows old content.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <urcu/urcu-bp.h>

#include "support/fake_memory.h"
#include "support/grace.h"
#include "support/hole.h"
#include "pool/regcache/internal.h"

#define PAGE ((size_t)4096)

static _Atomic int64_t registered, calls;
static _Atomic bool vanish;   /* the memory goes while it is being registered, once */
static void *_Atomic refused; /* what covers this cannot be registered */
/* Whichever of this thread and the main one registers goes on when the other waits for it; 0: at once. */
static _Atomic pid_t awaited;
static int64_t lockable = INT64_MAX;
static struct regcache *open_cache;

struct seen {
    struct ibv_mr mr; /* first */
    uint64_t content;
};

/* Whether a thread of this process sleeps, or has ended. */
static bool rests(pid_t tid) {
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    FILE *file = fopen(path, "r");
    bool read = file && fgets(text, sizeof text, file);
    if (file)
        fclose(file);
    const char *name_ends = read ? strrchr(text, ')') : NULL;
    return !name_ends || strncmp(name_ends, ") S", 3) == 0;
}

static struct ibv_mr *see_reg_mr(struct ibv_pd *p, void *addr, size_t length, int access) {
    (void)access;
    if (refused && refused >= addr && (char *)refused < (char *)addr + length) {
        errno = EFAULT;
        return NULL;
    }
    if (registered + (int64_t)length > lockable) {
        errno = ENOMEM;
        return NULL;
    }
    struct seen *seen = calloc(1, sizeof *seen);
    seen->mr = (struct ibv_mr){.pd = p, .addr = addr, .length = length};
    seen->content = __atomic_load_n((uint64_t *)addr, __ATOMIC_RELAXED);
    registered += (int64_t)length;
    calls++;
    pid_t other = awaited == (pid_t)syscall(SYS_gettid) ? getpid() : awaited;
    while (other > 0 && !rests(other))
        sched_yield();
    if (vanish) {
        vanish = false;
        regcache_gone(open_cache, addr, length);
    }
    return &seen->mr;
}

static int see_dereg_mr(struct ibv_mr *mr) {
    registered -= (int64_t)mr->length;
    free(mr);
    return 0;
}

static const struct fabric_ops seeing = {.reg_mr = see_reg_mr, .dereg_mr = see_dereg_mr};

static uint64_t content(const struct regcache_entry *reg) {
    return ((const struct seen *)reg->mr)->content;
}

static struct regcache *cache_with(uint64_t bytes_max, uint32_t entries_max, bool told) {
    struct regcache_config config = {&seeing, &fake_pd, 0, bytes_max, entries_max, told};
    assert_int_equal(regcache_open(&open_cache, &config), 0);
    registered = calls = 0;
    return open_cache;
}

static bool is_on(struct regcache *cache) {
    struct regcache_stats f;
    regcache_get_stats(cache, &f);
    if (!f.on)
        print_message("%s\n", f.why);
    return f.on;
}

static void close_cache(struct regcache *cache) {
    regcache_close(cache);
    assert_int_equal(registered, 0);
}

static uint8_t *map_at(void *where, size_t bytes, uint64_t value) {
    uint8_t *addr = mmap(where, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);
    assert_ptr_not_equal(addr, MAP_FAILED);
    for (size_t at = 0; at < bytes; at += PAGE)
        memcpy(addr + at, &value, sizeof value);
    return addr;
}

static uint64_t look_up(struct regcache *cache, const void *addr, size_t bytes) {
    struct regcache_entry *reg = regcache_get(cache, addr, bytes);
    assert_non_null(reg);
    assert_true((uint8_t *)reg->mr->addr <= (const uint8_t *)addr);
    assert_true((uint8_t *)reg->mr->addr + reg->mr->length >= (const uint8_t *)addr + bytes);
    uint64_t value = content(reg);
    regcache_put(cache, reg);
    return value;
}

TEST(memory_is_registered_once) {
    struct regcache *cache = cache_with(64 * MIB, 0, true);
    uint8_t *addr = map_at(NULL, 64 * PAGE, 7);
    for (int i = 0; i < 100; i++)
        assert_int_equal(look_up(cache, addr + 10, 20 * PAGE), 7);
    assert_int_equal(calls, 1);
    look_up(cache, addr + 5 * PAGE + 1, 100); /* inside */
    assert_int_equal(calls, 1);
    struct regcache_stats f;
    regcache_get_stats(cache, &f);
    assert_int_equal(f.hits, 100);
    assert_int_equal(f.misses, 1);
    assert_int_equal(f.bytes, 21 * PAGE);
    munmap(addr, 64 * PAGE);
    close_cache(cache);
}

TEST(overlapping_and_adjacent_ranges_become_one) {
    struct regcache *cache = cache_with(64 * MIB, 0, true);
    uint8_t *addr = map_at(NULL, 64 * PAGE, 7);
    look_up(cache, addr, 4 * PAGE);
    look_up(cache, addr + 8 * PAGE, 4 * PAGE);
    struct regcache_stats f;
    regcache_get_stats(cache, &f);
    assert_int_equal(f.entries, 2);
    look_up(cache, addr + 3 * PAGE, 6 * PAGE); /* touches both */
    regcache_get_stats(cache, &f);
    assert_int_equal(f.entries, 1);
    assert_int_equal(f.merged, 2);
    assert_int_equal(f.bytes, 12 * PAGE);
    assert_int_equal(registered, 12 * PAGE);
    look_up(cache, addr + 12 * PAGE, PAGE); /* next to it */
    regcache_get_stats(cache, &f);
    assert_int_equal(f.entries, 1);
    assert_int_equal(registered, 13 * PAGE);
    munmap(addr, 64 * PAGE);
    close_cache(cache);
}

/* A page beside it that cannot be registered any more, protected for instance: it goes alone. */
TEST(a_neighbour_that_is_refused_does_not_hinder) {
    struct regcache *cache = cache_with(64 * MIB, 0, true);
    uint8_t *addr = map_at(NULL, 8 * PAGE, 7);
    look_up(cache, addr, PAGE);
    refused = addr;
    look_up(cache, addr + PAGE, PAGE);
    assert_int_equal(calls, 2);
    assert_null(regcache_get(cache, addr, 2 * PAGE));
    assert_int_equal(errno, EFAULT);
    refused = NULL;
    assert_int_equal(registered, 2 * PAGE);
    munmap(addr, 8 * PAGE);
    close_cache(cache);
}

TEST(limits_hold_and_the_least_used_goes) {
    struct regcache *cache = cache_with(10 * PAGE, 4, true);
    uint8_t *addr = map_at(NULL, 200 * PAGE, 7);
    for (int i = 0; i < 4; i++)
        look_up(cache, addr + (size_t)i * 8 * PAGE, PAGE);
    assert_int_equal(calls, 4);
    look_up(cache, addr, PAGE);             /* used again, after the others */
    look_up(cache, addr + 80 * PAGE, PAGE); /* a fifth: one goes */
    assert_int_equal(registered, 4 * PAGE);
    int64_t before = calls;
    look_up(cache, addr, PAGE);
    assert_int_equal(calls, before); /* not that one */
    look_up(cache, addr + 100 * PAGE, 8 * PAGE);
    assert_true(registered <= (int64_t)(10 * PAGE));
    /* Pinned ones stay, and then there is no room. */
    struct regcache_entry *reg = regcache_get(cache, addr + 100 * PAGE, 8 * PAGE);
    assert_non_null(reg);
    assert_null(regcache_get(cache, addr + 150 * PAGE, 3 * PAGE));
    assert_int_equal(errno, ENOSPC);
    assert_null(regcache_get(cache, addr, 11 * PAGE));
    assert_int_equal(errno, ENOSPC);
    regcache_put(cache, reg);
    look_up(cache, addr + 150 * PAGE, 3 * PAGE);
    assert_null(regcache_get(cache, addr, 0));
    assert_null(regcache_get(cache, (void *)(UINTPTR_MAX - 10), 20));
    munmap(addr, 200 * PAGE);
    close_cache(cache);
}

/* A limit of the system's that the cache knows nothing of: RLIMIT_MEMLOCK, say. */
TEST(idle_ones_give_way_to_what_the_system_refuses) {
    struct regcache *cache = cache_with(64 * MIB, 0, true);
    uint8_t *addr = map_at(NULL, 200 * PAGE, 7);
    for (size_t i = 0; i < 4; i++)
        look_up(cache, addr + i * 8 * PAGE, 2 * PAGE);
    look_up(cache, addr, 2 * PAGE); /* used again, after the others */
    lockable = 8 * PAGE;
    look_up(cache, addr + 100 * PAGE, 3 * PAGE); /* two have to go */
    struct regcache_stats f;
    regcache_get_stats(cache, &f);
    assert_int_equal(f.evicted, 2);
    assert_int_equal(f.entries, 3);
    assert_int_equal(f.bytes, registered);
    int64_t before = calls;
    look_up(cache, addr, 2 * PAGE);
    look_up(cache, addr + 24 * PAGE, 2 * PAGE);
    assert_int_equal(calls, before); /* not these */
    /* No more of them than would do: the limit is somebody else's. */
    lockable = 0;
    assert_null(regcache_get(cache, addr + 50 * PAGE, PAGE));
    assert_int_equal(errno, ENOMEM);
    regcache_get_stats(cache, &f);
    assert_int_equal(f.entries, 2);
    /* What is in use stays. */
    struct regcache_entry *pinned = regcache_get(cache, addr + 24 * PAGE, 2 * PAGE);
    assert_non_null(pinned);
    assert_null(regcache_get(cache, addr + 50 * PAGE, 20 * PAGE));
    assert_int_equal(errno, ENOMEM);
    regcache_get_stats(cache, &f);
    assert_int_equal(f.entries, 1);
    assert_int_equal(f.bytes, 2 * PAGE);
    regcache_put(cache, pinned);
    lockable = INT64_MAX;
    look_up(cache, addr + 50 * PAGE, 20 * PAGE);
    munmap(addr, 200 * PAGE);
    close_cache(cache);
}

TEST(what_the_application_says_is_gone_is_gone) {
    struct regcache *cache = cache_with(64 * MIB, 0, true);
    uint8_t *addr = map_at(NULL, 8 * PAGE, 1);
    struct regcache_entry *pinned = regcache_get(cache, addr, 2 * PAGE);
    assert_non_null(pinned);
    regcache_gone(cache, addr + PAGE, 1);
    addr = map_at(addr, 8 * PAGE, 2);
    assert_int_equal(look_up(cache, addr, 2 * PAGE), 2);
    assert_int_equal(registered, 4 * PAGE); /* the pinned one is in use still */
    regcache_put(cache, pinned);
    assert_int_equal(registered, 2 * PAGE);
    /* It goes while it is being registered. */
    regcache_gone(cache, addr, 8 * PAGE);
    vanish = true;
    int64_t before = calls;
    look_up(cache, addr, PAGE);
    assert_int_equal(calls - before, 2);
    munmap(addr, 8 * PAGE);
    close_cache(cache);
}

/* An entry counts a part of its hits in the word that has its pins. */
TEST(every_hit_is_counted) {
    struct regcache *cache = cache_with(64 * MIB, 1, true);
    uint8_t *addr = map_at(NULL, 4 * PAGE, 7);
    const int hits = 3 * 65536 + 100;
    look_up(cache, addr, PAGE);
    for (int i = 0; i < hits; i++)
        look_up(cache, addr, PAGE);
    struct regcache_stats f;
    regcache_get_stats(cache, &f);
    assert_int_equal(f.hits, hits);
    look_up(cache, addr + 2 * PAGE, PAGE); /* its place is another's */
    look_up(cache, addr + 2 * PAGE, PAGE);
    regcache_get_stats(cache, &f);
    assert_int_equal(f.hits, hits + 1);
    assert_int_equal(f.evicted, 1);
    munmap(addr, 4 * PAGE);
    close_cache(cache);
}

/* ---- with the kernel's word ---------------------------------------------------------------------- */

enum { UNMAP, REPLACE, MOVE, DISCARD, WAYS };

TEST(no_registration_outlives_its_memory) {
    struct regcache *cache = cache_with(64 * MIB, 0, false);
    if (!is_on(cache)) {
        close_cache(cache);
        skip();
    }
    uint8_t *addr = map_at(NULL, 16 * PAGE, 1), *moved = NULL;
    for (uint64_t round = 1; round < 2000; round++) {
        assert_int_equal(look_up(cache, addr + 2 * PAGE, 4 * PAGE), round);
        assert_int_equal(look_up(cache, addr + 2 * PAGE, 4 * PAGE), round);
        switch (round % WAYS) {
        case UNMAP:
            munmap(addr, 16 * PAGE);
            if (!hole_keep(addr, 16 * PAGE))
                addr = map_at(NULL, 16 * PAGE, 0);
            break;
        case REPLACE: /* mapped over */
            break;
        case MOVE:
            moved = mremap(addr + 2 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                           map_at(NULL, 4 * PAGE, 0));
            assert_ptr_not_equal(moved, MAP_FAILED);
            if (!hole_keep(addr + 2 * PAGE, 4 * PAGE)) {
                munmap(addr, 2 * PAGE);
                munmap(addr + 6 * PAGE, 10 * PAGE);
                addr = map_at(NULL, 16 * PAGE, 0);
            }
            assert_int_equal(look_up(cache, moved, PAGE), round);
            munmap(moved, 4 * PAGE);
            break;
        case DISCARD:
            madvise(addr + 5 * PAGE, PAGE, MADV_DONTNEED);
            break;
        }
        map_at(addr, 16 * PAGE, round + 1);
    }
    struct regcache_stats f;
    regcache_get_stats(cache, &f);
    assert_true(f.gone >= 1999);
    assert_true(f.hits >= 1999);
    munmap(addr, 16 * PAGE);
    close_cache(cache);
}

/* Nobody calls the cache again, and the device keeps nothing of what is gone. */
TEST(what_is_gone_is_ended_though_nobody_calls) {
    struct regcache *cache = cache_with(64 * MIB, 0, false);
    if (!is_on(cache)) {
        close_cache(cache);
        skip();
    }
    uint8_t *addr = map_at(NULL, 200 * PAGE, 1);
    for (size_t i = 0; i < 100; i++)
        look_up(cache, addr + 2 * i * PAGE, PAGE);
    assert_int_equal(registered, 100 * PAGE);
    munmap(addr, 200 * PAGE);
    time_t limit = time(NULL) + 20;
    while (registered > 0 && time(NULL) < limit)
        sched_yield();
    assert_int_equal(registered, 0);
    close_cache(cache);
}

TEST(a_device_that_is_gone_has_nothing_registered) {
    struct regcache *cache = cache_with(64 * MIB, 0, true);
    struct regcache_stats f;
    uint8_t *addr = map_at(NULL, 4 * PAGE, 1);
    struct regcache_entry *pinned = regcache_get(cache, addr, PAGE);
    assert_non_null(pinned);
    look_up(cache, addr + 2 * PAGE, PAGE);
    regcache_detach(cache);
    assert_int_equal(registered, 0);
    regcache_get_stats(cache, &f);
    assert_false(f.on);
    assert_int_equal(f.bytes, 0);
    assert_int_equal(f.entries, 0);
    assert_null(regcache_get(cache, addr, PAGE));
    assert_int_equal(errno, EOPNOTSUPP);
    regcache_put(cache, pinned);
    munmap(addr, 4 * PAGE);
    close_cache(cache);
}

/*
 * An application that uses RCU itself may send, and unmap, inside of a read-side section of its own. Whoever
 * waited for a grace period there would wait for ever.
 */
TEST(inside_of_a_read_side_section_nothing_waits) {
    enum { AREAS_MAX = 100 };
    for (int told = 0; told < 2; told++) {
        struct regcache *cache = cache_with(64 * MIB, 16, told);
        if (!is_on(cache)) {
            close_cache(cache);
            continue;
        }
        uint8_t *addr = map_at(NULL, 2 * AREAS_MAX * PAGE, 7);
        urcu_bp_read_lock();
        for (size_t i = 0; i < AREAS_MAX; i++) { /* enough to run out of tables, and to evict */
            assert_int_equal(look_up(cache, addr + 2 * i * PAGE, PAGE), 7);
            assert_int_equal(look_up(cache, addr + 2 * i * PAGE, PAGE), 7);
        }
        if (told)
            regcache_gone(cache, addr, 2 * AREAS_MAX * PAGE);
        map_at(addr, 2 * AREAS_MAX * PAGE, 8);
        for (size_t i = 0; i < AREAS_MAX; i++)
            assert_int_equal(look_up(cache, addr + 2 * i * PAGE, PAGE), 8);
        urcu_bp_read_unlock();
        grace_settle(&cache->table);
        assert_int_equal(look_up(cache, addr + 2 * (AREAS_MAX - 1) * PAGE, PAGE), 8);
        munmap(addr, 2 * AREAS_MAX * PAGE);
        close_cache(cache);
    }
}

/* ---- threads --------------------------------------------------------------------------------------- */

struct second {
    struct regcache *cache;
    const uint8_t *addr;
    pthread_barrier_t begun;
    struct regcache_entry *reg;
};

static void *miss_too(void *arg) {
    struct second *second = arg;
    awaited = (pid_t)syscall(SYS_gettid);
    pthread_barrier_wait(&second->begun);
    second->reg = regcache_get(second->cache, second->addr, 2 * PAGE);
    return NULL;
}

/* What threads miss at the same time is registered by one of them. */
TEST(threads_that_miss_the_same_register_it_once) {
    struct regcache *cache = cache_with(64 * MIB, 0, true);
    struct regcache_stats f;
    enum { TURNS = 50 };
    uint8_t *addr = map_at(NULL, 4 * TURNS * PAGE, 1);
    for (unsigned i = 0; i < TURNS; i++) {
        struct second second = {.cache = cache, .addr = addr + 4 * i * PAGE};
        pthread_t thread;
        pthread_barrier_init(&second.begun, NULL, 2);
        assert_int_equal(pthread_create(&thread, NULL, miss_too, &second), 0);
        pthread_barrier_wait(&second.begun);
        struct regcache_entry *reg = regcache_get(cache, second.addr, 2 * PAGE);
        pthread_join(thread, NULL);
        awaited = 0;
        pthread_barrier_destroy(&second.begun);
        assert_non_null(reg);
        assert_ptr_equal(second.reg, reg);
        regcache_put(cache, reg);
        regcache_put(cache, reg);
    }
    assert_int_equal(calls, TURNS);
    regcache_get_stats(cache, &f);
    assert_int_equal(f.misses, TURNS);
    assert_int_equal(f.hits, TURNS);
    assert_int_equal(f.entries, TURNS);
    assert_int_equal(f.bytes, registered);
    munmap(addr, 4 * TURNS * PAGE);
    close_cache(cache);
}

enum { AREAS = 4 };

struct area {
    struct regcache *cache;
    uint8_t *addr;
    uint64_t value;
    _Atomic bool *stop;
    uint64_t wrong;
};

/* Maps its area anew again and again, and looks it up: a stale one shows the value before. */
static void *remap_and_look(void *arg) {
    struct area *area = arg;
    for (unsigned i = 0; i < 2000; i++) {
        area->value++;
        /* Over it, without a gap in which another thread's memory could come there. */
        if (mmap(area->addr, 8 * PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != area->addr)
            area->wrong++;
        for (size_t at = 0; at < 8 * PAGE; at += PAGE)
            __atomic_store_n((uint64_t *)(area->addr + at), area->value, __ATOMIC_RELAXED);
        for (int j = 0; j < 3; j++) {
            struct regcache_entry *reg = regcache_get(area->cache, area->addr + PAGE, 2 * PAGE);
            if (!reg)
                continue; /* others unmapped something each time it was tried */
            area->wrong += content(reg) != area->value;
            regcache_put(area->cache, reg);
        }
    }
    return NULL;
}

static void *only_look(void *arg) {
    struct area *area = arg;
    while (!atomic_load(area->stop)) {
        struct regcache_entry *reg = regcache_get(area->cache, area->addr + PAGE, 2 * PAGE);
        if (!reg)
            continue;
        area->wrong += content(reg) != area->value;
        regcache_put(area->cache, reg);
    }
    return NULL;
}

TEST(lookups_beside_invalidations_are_never_stale) {
    struct regcache *cache = cache_with(64 * MIB, 0, false);
    if (!is_on(cache)) {
        close_cache(cache);
        skip();
    }
    _Atomic bool stop = false;
    struct area areas[AREAS];
    pthread_t threads[AREAS];
    for (int i = 0; i < AREAS; i++) {
        areas[i] = (struct area){cache, map_at(NULL, 16 * PAGE, 5), 5, &stop, 0};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < 2 ? remap_and_look : only_look, &areas[i]), 0);
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    stop = true;
    for (int i = 2; i < AREAS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < AREAS; i++) {
        assert_int_equal(areas[i].wrong, 0);
        munmap(areas[i].addr, 16 * PAGE);
    }
    close_cache(cache);
}
