/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* fake_memory.c - see fake_memory.h. */
#include "support/fake_memory.h"
#include "support/pool_stats.h"

struct fake fake;

static void *fake_mem_alloc(size_t bytes) {
    fake.calls++;
    if (fake.fail_alloc || bytes == 0 || bytes % 4096) {
        errno = ENOMEM;
        return NULL;
    }
    void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr == MAP_FAILED)
        return NULL;
    fake.mapped += (int64_t)bytes;
    return addr;
}

static void *fake_mem_alloc_huge(size_t bytes, unsigned page_log2) {
    fake.huge_asked |= (uint64_t)1 << page_log2;
    if (page_log2 != 21 || (int64_t)bytes > fake.huge_2m) {
        errno = ENOMEM;
        return NULL;
    }
    fake.huge_2m -= (int64_t)bytes;
    return fake_mem_alloc(bytes);
}

static void fake_mem_free(void *addr, size_t bytes) {
    fake.mapped -= (int64_t)bytes;
    munmap(addr, bytes);
}

struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    if (access != (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND))
        fake.wrong_access = 1;
    if (fake.fail_reg || (fake.reg_bytes_max && (int64_t)length > fake.reg_bytes_max)) {
        errno = ENOMEM;
        return NULL;
    }
    struct ibv_mr *mr = calloc(1, sizeof *mr);
    if (!mr)
        return NULL;
    mr->pd = pd;
    mr->addr = addr;
    mr->length = length;
    mr->lkey = (uint32_t)++fake.registrations;
    if (mr->lkey < 1024)
        fake.mrs[mr->lkey] = mr;
    atomic_store(&fake.last_thread, pthread_self());
    int64_t now = atomic_fetch_add(&fake.registered, (int64_t)length) + (int64_t)length;
    int64_t peak = atomic_load(&fake.peak);
    while (now > peak && !atomic_compare_exchange_weak(&fake.peak, &peak, now))
        ;
    return mr;
}

static int fake_dereg_mr(struct ibv_mr *mr) {
    fake.registered -= (int64_t)mr->length;
    free(mr);
    return 0;
}

const struct fabric_ops fake_fabric = {
    .name = "fake",
    .reg_mr = fake_reg_mr,
    .dereg_mr = fake_dereg_mr,
    .mem_alloc = fake_mem_alloc,
    .mem_free = fake_mem_free,
    .mem_alloc_huge = fake_mem_alloc_huge,
};
struct ibv_pd fake_pd;

int fake_pool_try(struct pool **out, const struct fabric_ops *fabric, uint64_t bytes_max) {
    struct pool_config config = {fabric, &fake_pd, bytes_max, {.numa = HUGEPAGES_NO_NUMA}};
    hugepages_from_environment(&config.wish);
    return pool_open(out, &config);
}

struct pool *fake_pool_open(uint64_t bytes_max) {
    struct pool *pool = NULL;
    assert_int_equal(fake_pool_try(&pool, &fake_fabric, bytes_max), 0);
    assert_int_equal(pool_bytes_max(pool), bytes_max);
    return pool;
}

void fake_pool_close(struct pool *pool) {
    assert_true(pool_bytes(pool) <= pool_bytes_max(pool));
    pool_close(pool);
    assert_int_equal(fake.mapped, 0);
    assert_int_equal(fake.registered, 0);
    assert_int_equal(fake.wrong_access, 0);
}

struct pool *fake_pool_open_with(uint64_t bytes_max, struct hugepages_wish wish) {
    struct pool *pool = NULL;
    struct pool_config config = {&fake_fabric, &fake_pd, bytes_max, wish};
    assert_int_equal(pool_open(&pool, &config), 0);
    return pool;
}

struct pool_buffer *fake_get_all(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct pool_buffer *chain = NULL, *msg;
    while ((msg = pool_get(pool, cache, bytes)) != NULL) {
        msg->next = chain;
        chain = msg;
    }
    return chain;
}

void fake_put_all(struct pool *pool, struct pool_cache *cache, struct pool_buffer *chain) {
    for (struct pool_buffer *next; chain; chain = next) {
        next = chain->next;
        pool_put(pool, cache, chain);
    }
}

int fake_reset(void **state) {
    (void)state;
    memset(&fake, 0, sizeof fake);
    return 0;
}
