/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * region_exchange.c - how processes of one user map each other's regions.
 *
 * Owner: control lock; what pollers read of a peer's region is changed so that one that looks meanwhile stays inside of
 * what is mapped.
 */
#define _GNU_SOURCE
#include "soft/rc/region_exchange.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/spinlock.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/object/mr.h"
#include "soft/object/qp_numbers.h"

#define REGION_WRITABLE 1u
struct region_msg {
    uint32_t index, serial; /* serial: an answer to an older region of that index is void */
    uint64_t bytes;
    uint32_t flags, zero;
};

static void send_region(struct soft_peer *peer, int index) {
    const struct soft_region *r = &soft_regions[index];
    if (!r->addr || !peer->greeted || !peer->own || r->uid != peer->uid ||
        ld(peer->region_sent[index]) != REGION_UNSENT)
        return;
    struct region_msg msg = {.index = (uint32_t)index,
                             .serial = r->serial,
                             .bytes = r->bytes,
                             .flags = r->writable ? REGION_WRITABLE : 0};
    st(peer->has_memory, true);
    if (soft_peer_send(peer, SOFT_MSG_REGION, &msg, sizeof msg, r->fd) == 0 && peer->alive)
        st(peer->region_sent[index], REGION_SENT);
}

void soft_region_exchange_announce(struct soft_peer *peer) {
    for (int i = 0; i < SOFT_MAX_REGIONS && peer->alive; i++)
        send_region(peer, i);
}

void soft_region_exchange_added(int index) {
    struct soft_peer *peer, *next;
    cds_list_for_each_entry_safe(peer, next, &soft_peers, link) {
        st(peer->region_sent[index], REGION_UNSENT);
        send_region(peer, index);
    }
}

void soft_region_exchange_removed(int index) {
    struct region_msg msg = {.index = (uint32_t)index};
    struct soft_peer *peer, *next;
    cds_list_for_each_entry_safe(peer, next, &soft_peers, link) {
        if (ld(peer->region_sent[index]) != REGION_UNSENT)
            soft_peer_send(peer, SOFT_MSG_REGION_DROP, &msg, sizeof msg, -1);
        st(peer->region_sent[index], REGION_UNSENT);
    }
}

/* Registered for remote writing later than announced: the same again, now with that right. */
void soft_region_exchange_writable(int index) {
    struct soft_peer *peer, *next;
    cds_list_for_each_entry_safe(peer, next, &soft_peers, link) {
        if (ld(peer->region_sent[index]) == REGION_UNSENT)
            continue;
        const struct soft_region *r = &soft_regions[index];
        struct region_msg msg = {.index = (uint32_t)index,
                                 .serial = r->serial,
                                 .bytes = r->bytes,
                                 .flags = REGION_WRITABLE};
        soft_peer_send(peer, SOFT_MSG_REGION, &msg, sizeof msg, r->fd);
    }
}

/* Descriptors of regions, of all peers: a share of those that the process may have. Control lock. */
static unsigned region_fds;

static bool may_hold_one_more(void) {
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) == 0 && region_fds < files.rlim_cur / 4;
}

/* More than the machine has is of no use to any process. */
static bool is_too_much(const struct soft_peer *peer, uint64_t bytes) {
    struct sysinfo info;
    if (sysinfo(&info) != 0)
        return true;
    uint64_t all = (uint64_t)info.totalram * info.mem_unit;
    return bytes > all || peer->region_bytes > all - bytes;
}

/* A region that is mapped for reading is announced again, as one that peers may write. */
static void widen(struct soft_peer *peer, const struct region_msg *msg, int fd,
                  struct soft_peer_region *region) {
    void *old = (void *)(uintptr_t)atomic_load(&region->addr), *addr;
    struct stat now, before; /* what holes are read from stays what is mapped */
    if (atomic_load(&region->bytes) != msg->bytes || fstat(fd, &now) != 0 ||
        fstat(region->fd, &before) != 0 || now.st_ino != before.st_ino ||
        now.st_dev != before.st_dev)
        return;
    addr = mmap(NULL, msg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (addr == MAP_FAILED)
        return; /* we may not have them: it stays */
    atomic_store(&region->serial, msg->serial);
    atomic_store_explicit(&region->addr, addr, memory_order_release);
    soft_qp_quiesce(); /* a thread that saw the old one must not learn that it can be written */
    soft_untrusted_unmap(old, msg->bytes, soft_untrusted_fd_who(peer->uid, peer->pid));
    atomic_store_explicit(&region->writable, true, memory_order_release);
    soft_peer_send(peer, SOFT_MSG_REGION_OK, msg, sizeof *msg, -1);
}

static void on_region(struct soft_peer *peer, const struct region_msg *msg, int *fd) {
    /* Memory of another user is not mapped: its messages travel through the rings. */
    if (msg->index >= SOFT_MAX_REGIONS || !fd || !peer->own || msg->bytes == 0 ||
        !soft_untrusted_fd_memory(*fd, msg->bytes))
        return;
    struct soft_peer_region *region = &peer->regions[msg->index];
    bool writable = (msg->flags & REGION_WRITABLE) != 0;
    if (atomic_load(&region->addr)) {
        if (writable)
            widen(peer, msg, *fd, region);
        return;
    }
    if (is_too_much(peer, msg->bytes) || !may_hold_one_more())
        return; /* nor is this */
    void *addr =
        mmap(NULL, msg->bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, *fd, 0);
    if (addr == MAP_FAILED)
        return;
    region->fd = *fd;
    *fd = -1;
    region_fds++;
    peer->region_bytes += msg->bytes;
    region->bytes = msg->bytes;
    atomic_store(&region->serial, msg->serial);
    atomic_store_explicit(&region->addr, addr, memory_order_release);
    atomic_store_explicit(&region->writable, writable, memory_order_release);
    soft_peer_send(peer, SOFT_MSG_REGION_OK, msg, sizeof *msg, -1);
}

void soft_region_exchange_drop(struct soft_peer *peer, uint32_t index, bool in_use) {
    if (index >= SOFT_MAX_REGIONS)
        return;
    struct soft_peer_region *region = &peer->regions[index];
    void *addr = (void *)(uintptr_t)atomic_exchange(&region->addr, NULL);
    if (!addr)
        return;
    atomic_store(&region->writable, false);
    if (in_use)
        soft_qp_quiesce(); /* a poller may be copying from it */
    uint64_t who = soft_untrusted_fd_who(peer->uid, peer->pid);
    peer->region_bytes -= region->bytes;
    region_fds--;
    soft_untrusted_unmap(addr, region->bytes, who);
    soft_untrusted_fd_close(region->fd, who);
}

void soft_region_exchange_on_message(struct soft_peer *peer, uint32_t type, const void *data,
                                     size_t bytes, int *file) {
    struct region_msg region;
    if (bytes != sizeof region)
        return;
    memcpy(&region, data, sizeof region);
    if (type == SOFT_MSG_REGION)
        on_region(peer, &region, file);
    else if (type == SOFT_MSG_REGION_DROP)
        soft_region_exchange_drop(peer, region.index, true);
    else if (region.index < SOFT_MAX_REGIONS &&
             ld(peer->region_sent[region.index]) == REGION_SENT &&
             soft_regions[region.index].serial == region.serial)
        atomic_store(&peer->region_sent[region.index], REGION_READY);
}

void soft_region_exchange_forked(void) {
    region_fds = 0;
}
