/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cpu_begin.h - where claims of CPUs begin. Claims are names of a network namespace (cpus.h, and pin.h of the tools), so
 * those of containers on one host do not see each other: if all began at the first CPU, all would share it. What they
 * have is the namespace's number. Processes of one namespace begin at one place, and share no CPU by their claims.
 *
 * Any thread. The tools, which have nothing else of the library, include it, too.
 */
#ifndef BASE_CPU_BEGIN_H
#define BASE_CPU_BEGIN_H

#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>

/* Numbers that follow each other, or have a divisor in common, are as far apart as others (splitmix64). */
static inline uint64_t cpu_begin_of(uint64_t space) {
    space += 0x9e3779b97f4a7c15;
    space = (space ^ space >> 30) * 0xbf58476d1ce4e5b9;
    space = (space ^ space >> 27) * 0x94d049bb133111eb;
    return space ^ space >> 31;
}

/* Without /proc: by chance. */
static inline uint64_t cpu_begin_here(void) {
    struct stat space;
    uint64_t begin = 0;
    if (stat("/proc/self/ns/net", &space) == 0)
        return cpu_begin_of(space.st_ino);
    return getrandom(&begin, sizeof begin, GRND_NONBLOCK) == sizeof begin ? begin : 0;
}

#endif
