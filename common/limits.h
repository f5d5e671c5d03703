/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * limits.h - what the system allows this process: locked memory, memory of its cgroup, descriptors, and
 * the huge pages of each NUMA node.
 *
 * Read anew at every call, from files: slow. Any thread. No call here fails:
 * a value that cannot be read counts as no limit.
 */
#ifndef COMMON_LIMITS_H
#define COMMON_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMITS_NONE UINT64_MAX
#define LIMITS_HUGE_MAX 32

struct limits_huge { /* pages of one size on one NUMA node */
    int32_t numa;
    uint32_t page_log2;
    uint64_t total, free;
};

struct limits {
    uint64_t memlock;    /* RLIMIT_MEMLOCK, bytes */
    bool memlock_exempt; /* it has CAP_IPC_LOCK: the limit does not count */
    uint64_t cgroup;     /* the least memory limit of its cgroups, bytes */
    uint64_t files_max;  /* RLIMIT_NOFILE */
    uint64_t files;      /* descriptors open now; 0: not known */
    uint32_t huge_count;
    struct limits_huge huge[LIMITS_HUGE_MAX]; /* by node, then size */
};

/* root: in front of /proc and /sys, "" but for tests. */
void limits_read(struct limits *out, const char *root);
/* The limit on locked memory that counts, LIMITS_NONE: none. */
uint64_t limits_memlock(void);
/*
 * strerror()'s words, or where a limit of this process is behind that errno its name and how it is raised: EFBIG of
 * memory that processes share, EAGAIN of a thread, ENOMEM of memory.
 */
void limits_error_text(char *text, size_t size, int error);
/*
 * Raises the soft limit on descriptors to `wanted`, or to the hard one if that is lower. Returns what it is then; LIMITS_NONE:
 * there is none.
 */
uint64_t limits_raise_files(uint64_t wanted);
uint64_t limits_file_bytes(void); /* how long a file may be made; LIMITS_NONE */
/* Bytes that a process can have at the very most: of this machine, or what its cgroups allow. */
uint64_t limits_memory(void);

#endif
