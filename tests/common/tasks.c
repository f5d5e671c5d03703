/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tasks.c - proc(5): the ninth field of stat are the kernel's flags of a task. */
#include "tasks.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FLAG_EXITING 0x4u /* PF_EXITING, since before Linux had threads */

static bool is_alive(const char *tid) {
    char path[64], text[512];
    unsigned flags;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", tid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    const char *rest = strrchr(text, ')'); /* the name before may have spaces */
    return rest && sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
           !(flags & FLAG_EXITING);
}

unsigned tasks_alive(void) {
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.' && is_alive(entry->d_name);
    if (dir)
        closedir(dir);
    return count;
}
