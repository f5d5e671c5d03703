/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tasks.c - proc(5): the second field of stat is a task's name, the ninth are the kernel's flags of it. */
#include "support/tasks.h"

#include <dirent.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FLAG_EXITING 0x4u /* PF_EXITING, since before Linux had threads */

enum which { EVERY, NAMED, NOT_NAMED };

static bool counts(const char *tid, enum which which, const char *name) {
    char path[64], text[512];
    unsigned flags;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", tid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    const char *first = strchr(text, '(');
    char *rest = strrchr(text, ')'); /* the name between may have spaces */
    if (!first || !rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
        (flags & FLAG_EXITING))
        return false;
    *rest = '\0';
    return which == EVERY || !strcmp(first + 1, name) == (which == NAMED);
}

static unsigned count(enum which which, const char *name) {
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.' && counts(entry->d_name, which, name);
    if (dir)
        closedir(dir);
    return n;
}

unsigned tasks_alive(void) {
    return count(EVERY, NULL);
}

unsigned tasks_named(const char *name) {
    return count(NAMED, name);
}

unsigned tasks_not_named(const char *name) {
    return count(NOT_NAMED, name);
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

unsigned tasks_busy(unsigned ms) {
    uint64_t used = clock_ns(CLOCK_PROCESS_CPUTIME_ID), since = clock_ns(CLOCK_MONOTONIC);
    poll(NULL, 0, (int)ms);
    used = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used;
    since = clock_ns(CLOCK_MONOTONIC) - since;
    return since > 0 ? (unsigned)(used * 100 / since) : 0;
}
