/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* grace.c - see grace.h. */
#include "support/grace.h"

#include <sched.h>

void grace_settle(struct regcache_index *table) {
    pthread_mutex_lock(&table->lock);
    uint64_t version = table->version;
    while (table->passed < version) {
        regcache_index_want_grace(table);
        pthread_mutex_unlock(&table->lock);
        sched_yield();
        pthread_mutex_lock(&table->lock);
    }
    pthread_mutex_unlock(&table->lock);
}
