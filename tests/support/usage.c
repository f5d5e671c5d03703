/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* usage.c - see usage.h. */
#include "support/usage.h"

#include <dirent.h>
#include <stdio.h>

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
