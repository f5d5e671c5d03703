/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* limit_text_test.c - a node that gets no memory says which limit, how much it needs, and what to do. */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/test.h"
#include "support/wait.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fake_memory.h"
#include "support/pool_stats.h"
#include "pool/arena.h"
#include "pool/limit_text.h"

/* As a device does it: what is registered is locked. */
static struct ibv_mr *locking_reg_mr(struct ibv_pd *p, void *addr, size_t length, int access) {
    if (syscall(SYS_mlock, addr, length) != 0) /* sanitizers make nothing of mlock() */
        return NULL;
    return fake_reg_mr(p, addr, length, access);
}

static int in_child(void) {
    struct rlimit limit = {64 * KIB, 64 * KIB};
    struct fabric_ops locking = fake_fabric;
    struct pool *pool = NULL;
    char text[200];
    locking.reg_mr = locking_reg_mr;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && seteuid(65534) != 0))
        return 77;
    if (syscall(SYS_mlock, text, 1) != 0)
        return 77;
    /* Steps grow smaller until one is allowed; a single page is not too much. */
    int error = fake_pool_try(&pool, &locking, 64 * MIB);
    if (error != 0 || pool_bytes(pool) > 64 * KIB)
        return 1;
    struct pool_buffer *msg = pool_get(pool, NULL, 4 * MIB);
    if (msg || errno != ENOMEM)
        return 2;
    struct limit_text shortage = {4 * MIB, 64 * MIB, ENOMEM, true, 0};
    limit_text_explain(text, sizeof text, &shortage);
    printf("%s\n", text);
    pool_close(pool);
    return strstr(text, "4096 KiB cannot be registered") && strstr(text, "is 64 KiB") &&
                   strstr(text, "ulimit -l 65536")
               ? 0
               : 3;
}

POOL_TEST(a_limit_on_locked_memory_is_named_with_need_and_remedy) {
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(in_child());
    int status = wait_exit(child);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

POOL_TEST(the_cap_is_named_where_it_is_the_limit) {
    char text[200];
    struct limit_text shortage = {9 * MIB, 8 * MIB, ENOMEM, true, 0};
    limit_text_explain(text, sizeof text, &shortage);
    assert_string_equal(text, "9216 KiB are needed and memory_bytes_max allows 8192 KiB: raise it");
    shortage = (struct limit_text){MIB, 8 * MIB, ENODEV, true, 0};
    limit_text_explain(text, sizeof text, &shortage);
    assert_non_null(strstr(text, "No such device"));
    assert_null(strstr(text, "RLIMIT"));
}

/* The software device locks nothing: the limit on locked memory is not what was in the way. */
POOL_TEST(a_limit_that_does_not_count_is_not_blamed) {
    char text[200];
    struct limit_text shortage = {4 * MIB, UINT64_MAX, ENOMEM, false, 0};
    limit_text_explain(text, sizeof text, &shortage);
    assert_null(strstr(text, "RLIMIT_MEMLOCK"));
    shortage.error = EMFILE;
    limit_text_explain(text, sizeof text, &shortage);
    assert_non_null(strstr(text, "4096 KiB cannot be had"));
    assert_non_null(strstr(text, "ulimit -n"));
}

POOL_TEST(missing_huge_pages_are_told_with_need_and_remedy) {
    char text[200];
    struct limit_text shortage = {4 * MIB, 65 * MIB, ENOMEM, false, 21};
    limit_text_explain(text, sizeof text, &shortage);
    assert_true(strlen(text) < 160);
    assert_non_null(strstr(text, "4096 KiB are not to be had on pages of 2048 KiB"));
    assert_non_null(strstr(text, "raise hugepages-2048kB/nr_hugepages by 33"));
}

/* ---- while a pool runs --------------------------------------------------------------------------- */

static struct told {
    int count;
    char text[200];
} told;

static void tell(const char *text, void *arg) {
    assert_ptr_equal(arg, &told);
    told.count++;
    snprintf(told.text, sizeof told.text, "%s", text);
}

static void take_all(struct pool *pool, struct pool_buffer **list, unsigned *count) {
    while (*count < 4096 && (list[*count] = pool_get(pool, NULL, 60000)) != NULL)
        ++*count;
}

/* Once, and again only after it went well; the cap itself is no shortage of the system. */
POOL_TEST(a_shortage_at_run_time_is_told_once) {
    static struct pool_buffer *list[4096];
    for (int helper = 0; helper < 2; helper++) {
        unsigned count = 0;
        struct pool *pool = fake_pool_open(16 * MIB);
        memset(&told, 0, sizeof told);
        pool_on_shortage(pool, false, tell, &told);
        fake.fail_reg = 1;
        if (helper)
            pool_grow_ahead(pool, MIB);
        take_all(pool, list, &count);
        assert_null(pool_get(pool, NULL, 3 * MIB));
        pool_grow_settle(pool);
        assert_int_equal(told.count, 1);
        assert_non_null(strstr(told.text, "KiB cannot be registered"));
        fake.fail_reg = 0;
        take_all(pool, list, &count);
        pool_grow_settle(pool);
        assert_true(pool_bytes(pool) > 15 * MIB);
        assert_null(pool_get(pool, NULL, 3 * MIB));
        assert_int_equal(told.count, 1);
        while (count > 0)
            pool_put(pool, NULL, list[--count]);
        fake_pool_close(pool);
    }
}

POOL_TEST(huge_pages_that_run_out_are_told_once) {
    static struct pool_buffer *list[4096];
    struct pool *pool;
    struct pool_config config = {
        .fabric = &fake_fabric, .pd = &fake_pd, .bytes_max = 30 * MIB, .wish = {21, false, -1}};
    for (int there = 0; there < 2; there++) {
        unsigned count = 0;
        memset(&told, 0, sizeof told);
        fake.huge_2m = there ? 2 * MIB : 0; /* the first arena has them, or not even that */
        assert_int_equal(pool_open(&pool, &config), 0);
        pool_on_shortage(pool, false, tell, &told);
        assert_int_equal(told.count, !there);
        take_all(pool, list, &count);
        assert_int_equal(told.count, 1);
        assert_non_null(strstr(told.text, "raise hugepages-2048kB/nr_hugepages by 15"));
        struct pool_stats f;
        pool_get_stats(pool, &f);
        assert_int_equal(f.huge_missed, there ? 28 * MIB : 30 * MIB);
        while (count > 0)
            pool_put(pool, NULL, list[--count]);
        fake_pool_close(pool);
    }
}
