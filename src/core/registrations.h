/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * registrations.h - a node's cache of registrations, for messages that are sent in place.
 *
 * The cache, with the thread that watches for the kernel, is opened by the first such message: a node that sends
 * none has neither. From then on the pointer is constant until the node closes.
 *
 * Owner: the node. Any thread that is inside of a call (context_call_begin()).
 */
#ifndef CORE_REGISTRATIONS_H
#define CORE_REGISTRATIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pool/regcache/regcache.h"

struct sluice_node;

struct regcache_lazy {
    struct regcache *_Atomic cache; /* NULL: not opened yet, or not to be */
    pthread_mutex_t lock;           /* the thread that opens it */
    bool done;                      /* lock: it was tried, or the device is gone */
    _Atomic uint64_t copied;
};

void regcache_lazy_init(struct regcache_lazy *set);
void regcache_lazy_close(struct regcache_lazy *set); /* no message is left */
/* The device is gone: ends every registration. */
void regcache_lazy_detach(struct regcache_lazy *set);

/* A registration of these bytes, pinned for regcache_put(); NULL: they have to be copied. */
struct regcache_entry *regcache_lazy_get(struct sluice_node *n, const void *addr, size_t bytes);

#endif
