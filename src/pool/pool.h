/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool.h - registered memory cut into message buffers.
 *
 * Arenas come from the fabric (mem_alloc), are registered once for LOCAL_WRITE only, and are cut
 * into size classes. Each loop owns a cache it uses without locks; everybody else goes through the
 * shared lists under a mutex. Registered bytes never exceed bytes_max. A buffer's control block
 * (struct buffer) lies outside registered memory, so a stray DMA cannot corrupt it; headroom in
 * front of the payload takes the frame header, so that one sge describes a whole frame.
 *
 * Owner: the node owns the pool; a cache belongs to one thread at a time. Nothing here knows a
 * connection.
 */
#ifndef SLUICE_POOL_H
#define SLUICE_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/inbox.h"
#include "fabric/fabric.h"

#define POOL_HEADROOM 64 /* bytes in front of the payload for the frame header */
#define POOL_CLASSES 49  /* 256 B to 1 MiB, four per power of two; larger ones are mapped singly */

struct pool;
struct pool_cache;

/* Control block. The public sluice_msg is this struct. */
struct sluice_msg {
    struct inbox_item item;  /* cross-thread send */
    struct sluice_msg *next; /* free lists and queues of its owner */
    struct pool *pool;
    uint8_t *data; /* payload; headroom lies before it */
    uint32_t lkey;
    uint8_t size_class; /* the pool's; POOL_CLASSES = a mapping of its own */
    uint8_t state;      /* owner's: enum msg_state of the data path */
    uint16_t flags;
    uint64_t size;     /* payload bytes */
    uint64_t capacity; /* payload bytes the buffer can hold */
    /* data path's use while it owns the message */
    uint64_t tag, deadline_ns, session_id, sent;
    uint32_t send_flags, pieces;
    void *owner; /* MESSAGE events: the session whose credit this buffer holds, else NULL */
    void *home;  /* the pool's: the span or the mapping it was cut from */
} __attribute__((aligned(64)));

/* Opens a pool with an own PD's memory and its first arena. bytes_max caps registered bytes. 0 or
 * -errno. */
int pool_open(struct pool **out, const struct fabric_ops *fabric, struct ibv_pd *pd,
              uint64_t bytes_max);
/* Every message of the pool dies with it. */
void pool_close(struct pool *pool);
/* The device is gone: ends every registration. Messages keep their memory; no more is registered. */
void pool_let_go(struct pool *pool);

/*
 * A buffer with room for bytes (and POOL_HEADROOM before it), size = bytes. cache may be NULL (any
 * thread). NULL and errno: ENOMEM the cap is reached or the system has no memory, EMSGSIZE more
 * than the cap. Contents are not zeroed; state, flags and owner are 0, the data path's other fields
 * are as they were. Never more than a quarter larger than asked for (256 B at least; mappings of
 * their own: one page).
 */
struct sluice_msg *pool_get(struct pool *pool, struct pool_cache *cache, size_t bytes);
void pool_put(struct pool *pool, struct pool_cache *cache, struct sluice_msg *msg);

struct pool_cache *pool_cache_open(struct pool *pool); /* NULL: out of memory */
void pool_cache_close(struct pool_cache *cache);       /* returns its buffers to the pool */

uint64_t pool_bytes(const struct pool *pool); /* registered now */
uint64_t pool_bytes_max(const struct pool *pool);
/* Buffers handed out and not returned; exact while nobody gets or puts. */
uint64_t pool_in_use(const struct pool *pool);

#endif
