/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * keys.c - the table of keys that peers of this user see.
 *
 * Owner: the table's making, the control lock; an entry, the thread that registers, binds or takes back.
 */
#define _GNU_SOURCE
#include "soft/object/keys.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/memory_file.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/mr.h"
#include "soft/object/mw.h"
#include "soft/object/qp.h"

struct soft_key *soft_keys;
uid_t soft_keys_uid;
static int keys_fd = -1;

/* Made once, kept as long as the process: control lock. */
int soft_keys_fd(void) {
    soft_assert_locked();
    if (keys_fd >= 0)
        return keys_fd;
    int fd = memory_file_create("sluice-keys", SOFT_KEYS_BYTES, 0);
    if (fd < 0)
        return -1;
    void *keys = mmap(NULL, SOFT_KEYS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (keys == MAP_FAILED ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)) {
        if (keys != MAP_FAILED)
            munmap(keys, SOFT_KEYS_BYTES);
        close(fd);
        return -1;
    }
    soft_keys = keys;
    soft_keys_uid = geteuid();
    keys_fd = fd;
    return fd;
}

/* Shows (or, with key 0, takes back) an entry, which is the caller's. */
void soft_key_publish(const struct soft_mr *mr, uint32_t key) {
    if (!soft_keys)
        return; /* peers then go through the ring */
    struct soft_key *at = &soft_keys[mr->index];
    uint32_t version = ld(at->version);
    st(at->version, version + 1);
    soft_fence_release(); /* partner: the acquire fence in rkey_reach_read() */
    if (key) {
        at->access = (mr->window ? SOFT_KEY_WINDOW : 0) | (uint32_t)mr->access;
        at->start = mr->start;
        at->length = mr->end - mr->start;
        at->offset = mr->region >= 0 ? mr->region_offset : mr->start + (uint64_t)mr->shift;
        at->region = mr->region;
        at->serial = mr->region >= 0 ? soft_regions[mr->region].serial : 0;
        at->pd = soft_pd_of(mr->window ? mr->window->ibv.pd : mr->ibv.pd)->number;
        at->qpn = mr->window ? ld(mr->window->qp)->ibv.qp_num : 0;
    }
    atomic_store_explicit(&at->key, key, memory_order_release);
    atomic_store_explicit(&at->version, version + 2, memory_order_release);
}

void soft_keys_forked(void) {
    if (keys_fd >= 0)
        close(keys_fd);
    keys_fd = -1;
    soft_keys = NULL;
}
