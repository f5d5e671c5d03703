/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * buffer.h - the control block of a buffer: what the pool knows of it, and room for what its user does.
 *
 * Owner: the pool, or who got the buffer.
 */
#ifndef POOL_BUFFER_H
#define POOL_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <urcu/wfstack.h>

#include "base/mpsc_queue.h"

#define POOL_HEADROOM 64 /* bytes in front of the payload for the frame header */
#define POOL_HEADER 32   /* the last of these: the others are unused, and guarded in debug mode */
#define POOL_CLASSES 52  /* 64 B to 1 MiB: see size_class.h; larger ones are mapped singly */

#define POOL_CHARGED                                                                               \
    0x8000u /* of pool_buffer.cache, so that no buffer with it goes the quick way */

struct pool;

struct pool_buffer {
    union {
        struct mpsc_queue_item item;  /* the user's */
        struct cds_wfs_node returned; /* on its way back to its cache */
    };
    struct pool_buffer *next; /* free lists; the user's queues */
    struct pool *pool;
    uint8_t *data; /* payload; headroom lies before it */
    uint32_t lkey;
    uint8_t size_class; /* POOL_CLASSES = a mapping of its own */
    uint8_t state;      /* the user's; the pool sets it and the next one, and reads neither */
    uint16_t flags;
    uint64_t size;     /* payload bytes */
    uint64_t capacity; /* payload bytes the buffer can hold */
    void *home;        /* the span or the mapping it was cut from */
    void *owner;       /* the user's; the pool makes it NULL */
    uint16_t cache;    /* number of the cache it was got from, 0: none; POOL_CHARGED */
    uint16_t account;  /* POOL_CHARGED: to whom, see pool_charge() */
    uint8_t user[44];  /* the pool leaves it as it is */
} __attribute__((may_alias, aligned(64))); /* its user has a type of its own for it */

_Static_assert(sizeof(struct pool_buffer) == 128, "two cache lines");

#endif
