/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * regwatch_test.c - the kernel's word on memory: read whatever becomes of the process's limits. All
 * tests are skipped where a userfaultfd is not allowed.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pool/regcache/monitor.h"

#define PAGE ((size_t)4096)

static _Atomic unsigned told;

static void count_all(void *arg) {
    uintptr_t start, end;
    while (regcache_monitor_read(arg, &start, &end))
        told++;
}

static void open_watch(struct regcache_monitor *watch) {
    char why[120];
    if (!regcache_monitor_open(watch, count_all, watch, why, sizeof why)) {
        print_message("%s\n", why);
        skip();
    }
}

static uint8_t *map(size_t bytes) {
    uint8_t *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(addr, MAP_FAILED);
    return addr;
}

/* As a sandbox does: whoever unmaps must not wait for a reader that has given up. */
TEST(without_descriptors_events_are_read_still) {
    struct rlimit before, none;
    struct regcache_monitor watch;
    open_watch(&watch);
    uint8_t *addr = map(8 * PAGE);
    assert_int_equal(regcache_monitor_add(&watch, (uintptr_t)addr, (uintptr_t)addr + 8 * PAGE), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    unsigned was = told;
    for (unsigned i = 0; i < 8; i++)
        madvise(addr + i * PAGE, PAGE, MADV_DONTNEED); /* returns when it was read */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    munmap(addr, 8 * PAGE);
    regcache_monitor_close(&watch);
    assert_int_equal(told - was, 9);
}

TEST(a_file_cannot_be_watched) {
    struct regcache_monitor watch;
    open_watch(&watch);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    void *file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(file, MAP_FAILED);
    uintptr_t start = (uintptr_t)file;
    int error = regcache_monitor_add(&watch, start, start + PAGE);
    assert_true(error == 0 || error == EOPNOTSUPP); /* a later kernel may */
    munmap(file, PAGE);
    assert_int_equal(regcache_monitor_add(&watch, start, start + PAGE), EOPNOTSUPP);
    close(fd);
    regcache_monitor_close(&watch);
}
