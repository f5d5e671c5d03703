/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shm_page.c - the board: a word per CQ, one per QP and counts of changes that peers read, in memory only its owner can write.
 * Control lock; each word belongs to its CQ or QP.
 */
#define _GNU_SOURCE
#include "soft/ipc/shm_page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/memory_file.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/shm_layout.h"

struct soft_shm_page *soft_shm_page;
static int shm_page_fd = -1;

static int shm_page_create(void) {
    int fd = memory_file_create("sluice-board", sizeof(struct soft_shm_page), 0);
    if (fd < 0)
        return -errno;
    struct soft_shm_page *shm_page =
        mmap(NULL, sizeof *shm_page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shm_page == MAP_FAILED)
        goto fail;
    shm_page->magic = SOFT_SHM_PAGE_MAGIC;
    shm_page->version = SOFT_WIRE_VERSION;
    memcpy(shm_page->uuid, soft_own_uuid, sizeof shm_page->uuid);
    /* From here on no process can map it writable any more; our own mapping stays. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) !=
        0) {
        munmap(shm_page, sizeof *shm_page);
        goto fail;
    }
    soft_shm_page = shm_page;
    shm_page_fd = fd;
    return 0;
fail:;
    int rc = -errno;
    close(fd);
    return rc;
}

/* The board outlives a stopped engine: CQs may still point at their words. */
int soft_shm_page_start(void) {
    return soft_shm_page ? 0 : shm_page_create();
}

int soft_shm_page_fd(void) {
    return shm_page_fd;
}

/* The child makes its own; the inherited mapping is the parent's. */
void soft_shm_page_forked(void) {
    soft_shm_page = NULL;
    if (shm_page_fd >= 0)
        close(shm_page_fd);
    shm_page_fd = -1;
}
