/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * registrations.h - a node's cache of registrations, for messages that are sent in place.
 *
 * The cache, with the thread that watches for the kernel, is opened by the first such message: who sends
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

struct registrations {
    struct regcache *_Atomic cache; /* NULL: not opened yet, or not to be */
    pthread_mutex_t lock;           /* who opens it */
    bool done;                      /* lock: it was tried, or the device is gone */
    _Atomic uint64_t copied;
};

void registrations_init(struct registrations *set);
void registrations_close(struct registrations *set); /* no message is left */
/* The device is gone: ends every registration. */
void registrations_let_go(struct registrations *set);

/* A registration of these bytes, pinned for regcache_put(); NULL: they have to be copied. */
struct reg *registrations_get(struct sluice_node *n, const void *addr, size_t bytes);

#endif
