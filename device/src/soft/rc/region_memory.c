/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * region_memory.c - see region_memory.h.
 */
#define _GNU_SOURCE
#include "soft/rc/region_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/memory_file.h"
#include "common/uncancelled.h"
#include "soft/fault/inject.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/shm_layout.h"
#include "soft/object/mr.h"
#include "soft/rc/region_exchange.h"
#include "soft/soft.h"

static uint32_t region_serial;

static int memfd_sealed(size_t bytes, unsigned page_flags) {
    int fd = memory_file_create("sluice-region", bytes, page_flags);
    if (fd < 0)
        return -1;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

#define LOOKED_AT ((size_t)64 << 20) /* less than that any machine has */

/* A file without pages may have any length. More than a NIC could pin is refused here too. */
static bool is_too_much(size_t bytes) {
    return bytes >= LOOKED_AT && bytes > limits_memory();
}

/* What is of a file, and where. Failure: errno. */
static uint8_t *map(size_t bytes, unsigned page_flags, int *fd) {
    *fd = memfd_sealed(bytes, page_flags);
    if (*fd < 0)
        return NULL;
    uint8_t *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (addr != MAP_FAILED)
        return addr;
    int err = errno;
    close(*fd);
    errno = err;
    return NULL;
}

/* Takes a free index, and tells peers. -1: there is none. */
static int share(uint8_t *addr, size_t bytes, int fd) {
    soft_assert_locked();
    size_t parts = bytes / SOFT_MADE_BYTES + 1;
    for (int i = 0; i < SOFT_MAX_REGIONS; i++) {
        if (soft_regions[i].addr)
            continue;
        soft_regions[i] = (struct soft_region){.addr = addr,
                                               .bytes = bytes,
                                               .fd = fd,
                                               .serial = ++region_serial,
                                               .uid = geteuid(),
                                               .made = calloc(parts / 64 + 1, sizeof(uint64_t))};
        soft_region_exchange_added(i);
        return i;
    }
    return -1;
}

static void forget(struct soft_region *region) {
    close(region->fd);
    free((void *)region->made);
    region->addr = NULL;
    region->made = NULL;
}

int soft_region_memory(size_t bytes) {
    soft_assert_locked();
    int fd, index, err = soft_fault_call(FAULT_CALL_mem_alloc);
    uint8_t *addr = err ? NULL : map(bytes, 0, &fd);
    if (!addr) {
        errno = err ? err : errno;
        return -1;
    }
    index = share(addr, bytes, fd);
    if (index < 0) {
        close(fd);
        munmap(addr, bytes);
        errno = ENOSPC;
    }
    return index;
}

void soft_region_memory_end(int index) {
    soft_assert_locked();
    struct soft_region *region = &soft_regions[index];
    soft_region_exchange_removed(index);
    munmap(region->addr, region->bytes);
    forget(region);
}

static void *mem_alloc(size_t bytes, unsigned page_flags) {
    if (is_too_much(bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    if (soft_engine_get() != 0)
        return NULL;
    int err = soft_fault_call(FAULT_CALL_mem_alloc), fd;
    uint8_t *addr = err ? NULL : map(bytes, page_flags, &fd);
    if (!addr) {
        err = err ? err : errno;
        soft_engine_put();
        errno = err;
        return NULL;
    }
    soft_lock();
    int index = share(addr, bytes, fd);
    soft_unlock();
    if (index < 0)
        close(fd); /* more regions than peers are told of: still good memory, two copies */
    return addr;
}

void *soft_mem_alloc(size_t bytes) {
    UNCANCELLED;
    return mem_alloc(bytes, 0);
}

void *soft_mem_alloc_huge(size_t bytes, unsigned page_log2) {
    UNCANCELLED;
    return mem_alloc(bytes, MFD_HUGETLB | page_log2 << MFD_HUGE_SHIFT);
}

void soft_mem_free(void *addr, size_t bytes) {
    UNCANCELLED;
    soft_lock();
    for (int i = 0; i < SOFT_MAX_REGIONS; i++)
        if (soft_regions[i].addr == addr) {
            soft_region_exchange_removed(i);
            forget(&soft_regions[i]);
            break;
        }
    soft_unlock();
    munmap(addr, bytes);
    soft_engine_put();
}

void soft_region_memory_forked(void) {
    for (int i = 0; i < SOFT_MAX_REGIONS; i++)
        if (soft_regions[i].addr)
            forget(&soft_regions[i]);
}
