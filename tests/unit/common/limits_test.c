/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* limits_test.c - what the kernel's files say about limits, from files of our own. */
#define _GNU_SOURCE
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"

static char root[64];

static void put(const char *path, const char *text) {
    char at[512];
    snprintf(at, sizeof at, "%s%s", root, path);
    for (char *slash = strchr(at + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(at, 0777);
        *slash = '/';
    }
    FILE *file = fopen(at, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int setup(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/sluice-limits-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

#define LIMITS_TEST(name) TEST_WITH(setup, teardown, name)

LIMITS_TEST(the_least_of_all_cgroups_above_counts) {
    struct limits limits;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "1048576\n");
    put("/sys/fs/cgroup/memory.max", "4194304\n");
    limits_read(&limits, root);
    assert_int_equal(limits.cgroup, 1048576);
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    limits_read(&limits, root);
    assert_int_equal(limits.cgroup, 4194304);
    put("/sys/fs/cgroup/memory.max", "max\n");
    limits_read(&limits, root);
    assert_true(limits.cgroup == LIMITS_NONE);
}

LIMITS_TEST(the_older_cgroups_count_too) {
    struct limits limits;
    put("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/p/q\n3:notmemory:/z\n0::/\n");
    put("/sys/fs/cgroup/memory/p/q/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    limits_read(&limits, root);
    assert_true(limits.cgroup == LIMITS_NONE);
    put("/sys/fs/cgroup/memory/p/memory.limit_in_bytes", "8192\n");
    limits_read(&limits, root);
    assert_int_equal(limits.cgroup, 8192);
}

LIMITS_TEST(huge_pages_are_told_by_node_and_size) {
    struct limits limits;
    put("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "7\n");
    put("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "5\n");
    put("/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages", "2\n");
    put("/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages", "1\n");
    put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "9\n");
    put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "x\n");
    put("/sys/devices/system/node/node0/hugepages/nonsense/nr_hugepages", "9\n");
    limits_read(&limits, root);
    static const struct limits_huge expected[] = {{0, 21, 9, 0}, {0, 30, 2, 1}, {1, 21, 7, 5}};
    assert_int_equal(limits.huge_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(limits.huge[i].numa, expected[i].numa);
        assert_int_equal(limits.huge[i].page_log2, expected[i].page_log2);
        assert_int_equal(limits.huge[i].total, expected[i].total);
        assert_int_equal(limits.huge[i].free, expected[i].free);
    }
}

LIMITS_TEST(the_right_to_lock_any_memory_is_seen) {
    struct limits limits;
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000003fff\n");
    limits_read(&limits, root);
    assert_false(limits.memlock_exempt);
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
    limits_read(&limits, root);
    assert_true(limits.memlock_exempt);
}

LIMITS_TEST(what_cannot_be_read_is_no_limit) {
    struct limits limits;
    limits_read(&limits, root);
    assert_true(limits.cgroup == LIMITS_NONE);
    assert_int_equal(limits.huge_count, 0);
    assert_int_equal(limits.files, 0);
    assert_false(limits.memlock_exempt);
    put("/proc/self/cgroup", "\n0\n::\n5:memory\nmemory:memory:memory");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "-\n");
    limits_read(&limits, root);
    assert_true(limits.cgroup == LIMITS_NONE);
}

/* This machine, whatever it is. */
LIMITS_TEST(descriptors_are_counted) {
    struct limits before, after;
    struct rlimit limit;
    limits_read(&before, "");
    int fd = dup(0);
    assert_true(fd >= 0);
    limits_read(&after, "");
    assert_int_equal(after.files, before.files + 1);
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(before.files_max, limit.rlim_cur);
    assert_true(before.files > 0 && before.files <= before.files_max);
}
