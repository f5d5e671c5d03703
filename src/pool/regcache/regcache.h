/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * regcache.h - registrations of application memory, kept until the memory goes away.
 *
 * Registering costs far more than a message, and applications send from the same memory again and
 * again. The danger is a registration that outlives its memory: unmapped and mapped again, the same
 * address is other memory, and the device would go on with the old pages. So the cache works only
 * where it is told: by the kernel, with userfaultfd (unmap, remap, remove; the ranges are watched in
 * write-protect mode with nothing protected, so that no fault is ever caught), or by the application, which
 * promises to call regcache_gone() before it gives memory back. With neither it is off, and reports why.
 *
 * How a stale hit is excluded: munmap() of watched memory returns only when its event was read. The
 * thread that reads events withdraws the table of lookups first and shows it again when every entry that the
 * events name is dead; a lookup that finds no table waits on the lock. So a lookup that begins after an unmapping
 * does not find that memory. Memory that another thread unmaps, or has mapped anew, while the lookup runs or while
 * munmap() has not returned yet is a race of the application's, as with any use of that memory. Not
 * noticed: a shared file that is truncated or punched, by any process. A watched range is a mapping of
 * its own to the kernel: mremap() of more than that fails with EFAULT, which realloc() takes as a reason
 * to copy.
 *
 * Lookups run under RCU, without a lock: index.h. RCU defers only writing to a table that a lookup
 * may be reading; a registration ends at once.
 *
 * Entries cover whole pages and never overlap. Any thread; nothing is allocated after opening, but for what
 * liburcu keeps of each thread, with its first lookup. Two locks: `registering` is held across calls to the
 * device and is taken first. The table's is never held across a call that may map or unmap, because the
 * unmapping thread waits for the one that reads events, which needs the lock.
 */
#ifndef POOL_REGCACHE_REGCACHE_H
#define POOL_REGCACHE_REGCACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "pool/regcache/index.h"

#define REGCACHE_ENTRIES REGCACHE_INDEX_ENTRIES /* at most, whatever is asked for */

struct regcache;

struct regcache_config {
    const struct fabric_ops *fabric;
    struct ibv_pd *pd;
    int access;
    uint64_t bytes_max;   /* registered by the cache */
    uint32_t entries_max; /* 0: REGCACHE_ENTRIES */
    bool told;            /* the application calls regcache_gone(): no userfaultfd is needed */
};

struct regcache_stats {
    uint64_t hits, misses, merged, evicted, gone; /* gone: entries whose memory went away */
    uint64_t bytes;
    uint32_t entries;
    bool on;
    char why[120]; /* what tells the cache of memory that goes, or why it is off */
};

/* 0, also when the cache is off; or -errno. */
int regcache_open(struct regcache **out, const struct regcache_config *config);
void regcache_close(
    struct regcache *cache); /* nothing is pinned any more; see regcache_index_stop() */
/* The device is gone: ends every registration, pinned or not, and the cache is off. Any thread. */
void regcache_detach(struct regcache *cache);

/*
 * A registration that covers [addr, addr + bytes), pinned until regcache_put(). NULL and errno:
 * EOPNOTSUPP the cache is off, or this memory cannot be watched (a file's): register it for once;
 * ENOSPC everything within the limits is pinned; or what registering failed with.
 */
struct regcache_entry *regcache_get(struct regcache *cache, const void *addr, size_t bytes);
void regcache_put(struct regcache *cache, struct regcache_entry *reg);

/* Memory is about to go away: its registrations are not found any more when this returns. */
void regcache_gone(struct regcache *cache, const void *addr, size_t bytes);

void regcache_get_stats(struct regcache *cache, struct regcache_stats *out);

#endif
