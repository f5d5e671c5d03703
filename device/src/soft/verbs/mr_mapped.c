/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr_mapped.c - asks the kernel about a range of this process's memory.
 *
 * Linux 6.11 and later answer for one mapping at a time; before, all mappings are read as text. A process
 * without /proc learns at least whether the range has holes.
 */
#define _GNU_SOURCE
#include "soft/verbs/mr_mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

/* As <linux/fs.h> has them from Linux 6.11 on. */
struct map_query {
    uint64_t size, flags, addr;
    uint64_t start, end, rights, page_size, offset, inode;
    uint32_t dev_major, dev_minor;
    uint32_t name_size, build_id_size;
    uint64_t name, build_id;
};
#define MAP_QUERY _IOWR('f', 17, struct map_query)
enum { MAY_READ = 1, MAY_WRITE = 2, OR_NEXT = 0x10 };

bool soft_vma_as_text;

struct range {
    uintptr_t at, end; /* what is not judged yet */
    uintptr_t page;
    bool write;
};

/* The pages behind the end of a file are mapped and cannot be touched: the last one tells. */
static bool behind_its_file(const struct range *r, uintptr_t end) {
    uintptr_t last = ((end < r->end ? end : r->end) - 1) & ~(r->page - 1);
    return madvise((void *)last, r->page, MADV_POPULATE_READ) != 0 && errno == EFAULT;
}

/* Takes a mapping that reaches beyond what was judged off the range. 0 or EFAULT. */
static int judge(struct range *r, uintptr_t start, uintptr_t end, bool allowed, bool of_file) {
    if (start > r->at || !allowed || (of_file && behind_its_file(r, end)))
        return EFAULT;
    r->at = end;
    return 0;
}

/* -1: this kernel does not answer. */
static int ask(struct range *r, int fd) {
    while (r->at < r->end) {
        struct map_query q = {.size = sizeof q, .flags = OR_NEXT, .addr = r->at};
        if (ioctl(fd, MAP_QUERY, &q) != 0)
            return errno == ENOENT ? EFAULT : -1;
        bool allowed = q.rights & (r->write ? MAY_WRITE : MAY_READ);
        int error = judge(r, (uintptr_t)q.start, (uintptr_t)q.end, allowed, q.inode != 0);
        if (error)
            return error;
    }
    return 0;
}

/* -1: there is no text. */
static int read_all(struct range *r) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return -1;
    int error = 0;
    char line[512];
    bool whole = true; /* the line before had an end: names are long at times */
    while (error == 0 && r->at < r->end && fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        uint64_t inode;
        char rights[5];
        bool first = whole;
        whole = false;
        for (const char *c = line; *c; c++)
            whole |= *c == '\n';
        if (first &&
            sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*s %" SCNu64, &start, &end, rights,
                   &inode) == 4 &&
            end > r->at)
            error = judge(r, start, end, r->write ? rights[1] == 'w' : rights[0] == 'r', inode);
    }
    fclose(maps);
    return error || r->at >= r->end ? error : EFAULT;
}

/* A page is the least that msync() takes; without a flag to wait it writes nothing. */
static int has_holes(const struct range *r) {
    uintptr_t start = r->at & ~(r->page - 1);
    return msync((void *)start, r->end - start, MS_ASYNC) != 0 && errno == ENOMEM ? EFAULT : 0;
}

static bool more_than_there_is(size_t length) {
    struct sysinfo info;
    return sysinfo(&info) == 0 && length / info.mem_unit > info.totalram;
}

int soft_vma_check(const void *addr, size_t length, bool write) {
    struct range r = {(uintptr_t)addr, (uintptr_t)addr + length, (uintptr_t)sysconf(_SC_PAGESIZE),
                      write};
    if (length == 0)
        return 0;
    if (more_than_there_is(length))
        return ENOMEM;
    int fd = soft_vma_as_text ? -1 : open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int error = -1;
    if (fd >= 0) {
        error = ask(&r, fd);
        close(fd);
    }
    if (error < 0)
        error = read_all(&r);
    return error < 0 ? has_holes(&r) : error;
}
