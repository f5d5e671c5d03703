/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stats.c - makes the page of counters, and finds those of another process.
 *
 * Owner: the node writes its page. A reader treats everything it finds as hostile: a descriptor is
 * taken for a page only if it is a memfd of our name, sealed against resizing (so that reading can
 * never fault) and of the exact size, with our magic and version. The counters themselves and the
 * two names come from the other process; a reader of the names bounds them by their arrays.
 */
#define _GNU_SOURCE
#include "base/stats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "common/memory_file.h"

#define STATS_NAME "sluice-stat"

int stats_open(struct stats *stats, const char *name, const char *device) {
    const size_t bytes = sizeof(struct stats_page);
    stats->page = NULL;
    stats->fd = memory_file_create(STATS_NAME, bytes, 0);
    if (stats->fd < 0)
        return -errno;
    struct stats_page *page = MAP_FAILED;
    if (fcntl(stats->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, stats->fd, 0);
    if (page == MAP_FAILED) {
        int error = errno;
        close(stats->fd);
        stats->fd = -1;
        return -error;
    }
    page->version = STATS_VERSION;
    page->bytes = bytes;
    page->start_ns = env_now(&env_default);
    page->pid = getpid();
    snprintf(page->name, sizeof page->name, "%s", name);
    snprintf(page->device, sizeof page->device, "%s", device);
    for (int i = 0; i < STATS_LOOPS_MAX; i++)
        atomic_store_explicit(&page->loops[i].cpu, -1, memory_order_relaxed);
    /* Last: a reader that sees the magic sees the rest. */
    __atomic_store_n(&page->magic, STATS_MAGIC, __ATOMIC_RELEASE);
    stats->page = page;
    return 0;
}

void stats_forked(struct stats *stats) {
    if (stats->fd >= 0)
        close(stats->fd);
    stats->fd = -1;
}

void stats_close(struct stats *stats) {
    if (stats->page)
        munmap(stats->page, sizeof *stats->page);
    if (stats->fd >= 0)
        close(stats->fd);
    stats->page = NULL;
    stats->fd = -1;
}

/* ---- sessions -------------------------------------------------------------------------------- */

void stats_session_up(struct stats_page *page, uint32_t slot, uint64_t id, uint32_t loop,
                      uint32_t transport, const char *peer) {
    if (slot >= STATS_SESSIONS_MAX)
        return;
    struct stats_session *s = &page->sessions[slot];
    uint64_t text[STATS_PEER_BYTES / 8] = {0};
    memcpy(text, peer, strnlen(peer, sizeof text - 1));
    atomic_store_explicit(&s->id, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* a reader that sees any later store sees id 0 */
    atomic_store_explicit(&s->loop, loop, memory_order_relaxed);
    atomic_store_explicit(&s->transport, transport, memory_order_relaxed);
    for (unsigned i = 0; i < STATS_PEER_BYTES / 8; i++)
        atomic_store_explicit(&s->peer[i], text[i], memory_order_relaxed);
    atomic_store_explicit(&s->id, id, memory_order_release);
}

void stats_session_down(struct stats_page *page, uint32_t slot) {
    if (slot < STATS_SESSIONS_MAX)
        atomic_store_explicit(&page->sessions[slot].id, 0, memory_order_relaxed);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_page_link(int dir_fd, const char *entry) {
    static const char expected[] = "/memfd:" STATS_NAME " (deleted)";
    char target[sizeof expected];
    ssize_t length = readlinkat(dir_fd, entry, target, sizeof target);
    return length == (ssize_t)sizeof expected - 1 && memcmp(target, expected, (size_t)length) == 0;
}

/* Maps the page behind one descriptor: 0, or -errno. *inode identifies the page. */
static int map_page(int dir_fd, const char *entry, const struct stats_page **out, ino_t *inode) {
    /* The owner may have put something else there meanwhile: never wait in the open. */
    int fd = openat(dir_fd, entry, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int result = -EPROTO;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || seals < 0 || !(seals & F_SEAL_SHRINK) ||
        st.st_size != (off_t)sizeof(struct stats_page))
        goto close_fd;
    void *map = mmap(NULL, sizeof(struct stats_page), PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        result = -errno;
        goto close_fd;
    }
    const struct stats_page *page = map;
    if (__atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) != STATS_MAGIC ||
        page->version != STATS_VERSION || page->bytes != sizeof *page) {
        munmap(map, sizeof *page);
        goto close_fd;
    }
    *inode = st.st_ino;
    *out = page;
    result = 0;
close_fd:
    close(fd);
    return result;
}

static bool seen(const ino_t *inodes, int count, ino_t inode) {
    for (int i = 0; i < count; i++)
        if (inodes[i] == inode)
            return true;
    return false;
}

int stats_attach(int pid, const struct stats_page **pages, int max) {
    if (pid <= 0)
        return -ESRCH;
    if (max <= 0)
        return -EINVAL;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? -ESRCH : -errno;
    ino_t *inodes = calloc((size_t)max, sizeof *inodes);
    if (!inodes) {
        closedir(dir);
        return -ENOMEM;
    }
    int found = 0, error = -ENOENT;
    struct dirent *entry;
    while (found < max && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || !is_page_link(dirfd(dir), entry->d_name))
            continue;
        int result = map_page(dirfd(dir), entry->d_name, &pages[found], &inodes[found]);
        if (result != 0)
            error = result; /* told only if no page is good */
        else if (seen(inodes, found, inodes[found]))
            stats_detach(pages[found]); /* a second descriptor of the same page */
        else
            found++;
    }
    free(inodes);
    closedir(dir);
    return found > 0 ? found : error;
}

void stats_detach(const struct stats_page *page) {
    munmap((void *)(uintptr_t)page, sizeof *page);
}
