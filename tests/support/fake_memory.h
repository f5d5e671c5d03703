/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fake_memory.h - a fabric that only has memory, for the tests of the pool: it counts registrations
 * and can be told to fail.
 */
#ifndef TESTS_SUPPORT_FAKE_MEMORY_H
#define TESTS_SUPPORT_FAKE_MEMORY_H

#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/pool.h"

#define KIB ((uint64_t)1024)
#define MIB ((uint64_t)1 << 20)

extern struct fake {
    _Atomic int64_t mapped, registered, registrations, calls;
    _Atomic int64_t peak;             /* of registered */
    _Atomic int fail_alloc, fail_reg; /* 1: from now on */
    _Atomic int64_t reg_bytes_max;    /* larger registrations fail, as with a locked-memory limit */
    _Atomic int wrong_access;
    _Atomic int64_t huge_2m;       /* that many bytes are there on 2 MiB pages */
    _Atomic uint64_t huge_asked;   /* bit 21, bit 30 */
    struct ibv_mr *mrs[1024];      /* by lkey, where it fits */
    _Atomic pthread_t last_thread; /* that registered */
} fake;

/* What the fabric registers with. */
struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);

extern const struct fabric_ops fake_fabric;
extern struct ibv_pd fake_pd;

/* What pool_open() says, with the pages that the environment asks for. */
int fake_pool_try(struct pool **out, const struct fabric_ops *fabric, uint64_t bytes_max);
/* A pool on the fake fabric. */
struct pool *fake_pool_open(uint64_t bytes_max);
/* Every test ends here: nothing may stay registered or mapped. */
void fake_pool_close(struct pool *pool);
/* A pool that asks for huge pages. */
struct pool *fake_pool_open_with(uint64_t bytes_max, struct hugepages_wish wish);
/* All that can be had of a size, chained. */
struct pool_buffer *fake_get_all(struct pool *pool, struct pool_cache *cache, size_t bytes);
/* Gives the whole chain back. */
void fake_put_all(struct pool *pool, struct pool_cache *cache, struct pool_buffer *chain);
/* Setup of every test. */
int fake_reset(void **state);

#define POOL_TEST(name) TEST_WITH(fake_reset, NULL, name)

#endif
