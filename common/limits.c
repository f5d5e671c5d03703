/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* limits.c - limits, read from where the kernel tells them. Any thread. */
#define _GNU_SOURCE
#include "common/limits.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define CAP_IPC_LOCK_BIT 14
#define CGROUP_NONE ((uint64_t)1 << 60) /* version 1 writes a very large number for none */
#define NODES_MAX_READ 64

static bool read_number(const char *path, uint64_t *out) {
    char text[64], *end;
    FILE *file = fopen(path, "re");
    bool read = file && fgets(text, sizeof text, file);
    if (file)
        fclose(file);
    if (!read)
        return false;
    *out = strtoull(text, &end, 10);
    return end != text; /* "max" is none */
}

/* ---- locked memory --------------------------------------------------------------------------- */

static bool is_exempt(const char *root) {
    char path[512], line[256];
    uint64_t caps = 0;
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "CapEff: %" SCNx64, &caps) == 1)
            break;
    if (file)
        fclose(file);
    return caps >> CAP_IPC_LOCK_BIT & 1;
}

static uint64_t soft_limit(int which) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return LIMITS_NONE;
    return limit.rlim_cur;
}

uint64_t limits_memlock(void) {
    return is_exempt("") ? LIMITS_NONE : soft_limit(RLIMIT_MEMLOCK);
}

uint64_t limits_file_bytes(void) {
    return soft_limit(RLIMIT_FSIZE);
}

uint64_t limits_raise_files(uint64_t wanted) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY &&
        files.rlim_cur < wanted && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = wanted < files.rlim_max ? wanted : files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    return soft_limit(RLIMIT_NOFILE);
}

/* ---- cgroups --------------------------------------------------------------------------------- */

/* The least limit of a cgroup and all those above it. */
static uint64_t least_above(const char *mount, const char *group, const char *name) {
    char at[512], path[1200];
    uint64_t least = LIMITS_NONE, value;
    if (strlen(group) >= sizeof at)
        return least;
    strcpy(at, group);
    for (;;) {
        char *last = strrchr(at, '/');
        snprintf(path, sizeof path, "%s%s/%s", mount, strcmp(at, "/") == 0 ? "" : at, name);
        if (read_number(path, &value) && value < CGROUP_NONE && value < least)
            least = value;
        if (!last)
            return least;
        *last = 0; /* the mount itself is the last */
    }
}

static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, length) == 0 && (at[length] == 0 || at[length] == ','))
            return true;
    return false;
}

/* The limit has two names: in the second version of cgroups and in the first. */
static uint64_t read_cgroup(const char *root, const char *controller, const char *in_second,
                            const char *in_first) {
    char path[512], mount[600], line[1024];
    uint64_t least = LIMITS_NONE;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) { /* number:controllers:group */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        controllers++;
        *group++ = 0;
        bool second = *controllers == 0;
        if (!second && !has_word(controllers, controller))
            continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, second ? "" : "/",
                 second ? "" : controller);
        uint64_t value = least_above(mount, group, second ? in_second : in_first);
        least = value < least ? value : least;
    }
    if (file)
        fclose(file);
    return least;
}

/* ---- huge pages ------------------------------------------------------------------------------ */

static int by_node_and_size(const void *a, const void *b) {
    const struct limits_huge *x = a, *y = b;
    if (x->numa != y->numa)
        return x->numa < y->numa ? -1 : 1;
    return x->page_log2 < y->page_log2 ? -1 : x->page_log2 > y->page_log2;
}

static void read_huge_of(struct limits *out, const char *root, int numa) {
    char folder[512], path[1024];
    snprintf(folder, sizeof folder, "%s/sys/devices/system/node/node%d/hugepages", root, numa);
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *at; (at = readdir(dir)) != NULL && out->huge_count < LIMITS_HUGE_MAX;) {
        uint64_t kib = 0;
        if (sscanf(at->d_name, "hugepages-%" SCNu64 "kB", &kib) != 1 || kib == 0)
            continue;
        struct limits_huge huge = {.numa = numa, .page_log2 = 73 - (uint32_t)__builtin_clzll(kib)};
        snprintf(path, sizeof path, "%s/%s/nr_hugepages", folder, at->d_name);
        read_number(path, &huge.total);
        snprintf(path, sizeof path, "%s/%s/free_hugepages", folder, at->d_name);
        read_number(path, &huge.free);
        out->huge[out->huge_count++] = huge;
    }
    closedir(dir);
}

static uint64_t count_files(const char *root) {
    char path[512];
    uint64_t count = 0;
    snprintf(path, sizeof path, "%s/proc/self/fd", root);
    DIR *dir = opendir(path);
    if (!dir) /* that it cannot be counted says it as well */
        return errno == EMFILE ? soft_limit(RLIMIT_NOFILE) : 0;
    for (struct dirent *at; (at = readdir(dir)) != NULL;)
        count += at->d_name[0] != '.';
    closedir(dir);
    return count > 0 ? count - 1 : 0; /* the one it is read by */
}

void limits_read(struct limits *out, const char *root) {
    *out = (struct limits){
        .memlock = soft_limit(RLIMIT_MEMLOCK),
        .memlock_exempt = is_exempt(root),
        .cgroup = read_cgroup(root, "memory", "memory.max", "memory.limit_in_bytes"),
        .files_max = soft_limit(RLIMIT_NOFILE),
        .files = count_files(root),
    };
    for (int numa = 0; numa < NODES_MAX_READ; numa++)
        read_huge_of(out, root, numa);
    qsort(out->huge, out->huge_count, sizeof out->huge[0], by_node_and_size);
}

uint64_t limits_memory(void) {
    struct sysinfo machine;
    struct limits limits;
    uint64_t all = LIMITS_NONE;
    if (sysinfo(&machine) == 0)
        all = (uint64_t)machine.totalram * machine.mem_unit;
    limits_read(&limits, "");
    return limits.cgroup < all ? limits.cgroup : all;
}

/* ---- in words ---------------------------------------------------------------------------------- */

/* Names the limits that may have been in the way, among those that are set: the kernel does not say which it was. */
static void name_limits(char *text, size_t size, const char *what, bool thread) {
    static const struct {
        int which;
        const char *name, *raise;
        bool of_threads;
    } limits[] = {{RLIMIT_NPROC, "RLIMIT_NPROC", "ulimit -u", true},
                  {RLIMIT_DATA, "RLIMIT_DATA", "ulimit -d", false},
                  {RLIMIT_AS, "RLIMIT_AS", "ulimit -v", false}};
    uint64_t pids = thread ? read_cgroup("", "pids", "pids.max", "pids.max") : LIMITS_NONE;
    int used = snprintf(text, size, "%s", what);
    for (size_t i = 0; i < sizeof limits / sizeof *limits && used < (int)size; i++)
        if (soft_limit(limits[i].which) != LIMITS_NONE && (thread || !limits[i].of_threads))
            used += snprintf(text + used, size - (size_t)used, "; %s is %" PRIu64 " (`%s`)",
                             limits[i].name, soft_limit(limits[i].which), limits[i].raise);
    if (pids != LIMITS_NONE && used < (int)size)
        snprintf(text + used, size - (size_t)used, "; the cgroup's pids.max is %" PRIu64, pids);
}

void limits_error_text(char *text, size_t size, int error) {
    if (error == EFBIG)
        snprintf(
            text, size,
            "RLIMIT_FSIZE is too low for memory that processes share: `ulimit -f unlimited` or "
            "LimitFSIZE= raises it");
    else if (error == EAGAIN)
        name_limits(text, size, "no thread can be started", true);
    else if (error == ENOMEM)
        name_limits(text, size, strerror(error), false);
    else
        snprintf(text, size, "%s", strerror(error));
}
