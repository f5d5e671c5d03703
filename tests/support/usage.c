/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* usage.c - see usage.h. */
#include "support/usage.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>

#include "support/must.h"

unsigned usage_entries(const char *path) {
    DIR *dir = opendir(path);
    must(dir);
    unsigned n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

size_t usage_resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t total = 0, resident = 0;
    must(file && fscanf(file, "%zu %zu", &total, &resident) == 2);
    fclose(file);
    return resident * 4096;
}

uint64_t usage_processor_ns(void) {
    struct timespec ts;
    must(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts) == 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
