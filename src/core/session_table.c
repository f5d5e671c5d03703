/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_table.c - taking and freeing the slots of sessions.
 *
 * One lock for all tables: it is held for a few instructions, once when a session opens and once
 * when it ends.
 */
#include "core/session_table.h"

struct session_table session_tables[NODES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void session_table_fork(bool begins) {
    if (begins)
        pthread_mutex_lock(&lock);
    else
        pthread_mutex_unlock(&lock);
}

static void prepare(void *slot) {
    struct session *s = slot;
    atomic_init(&s->ref, 1ull << 32 | SESSION_REF_FREE);
}

struct session *session_table_alloc(uint32_t node, uint32_t max) {
    struct session_table *table = &session_tables[node];
    struct session *s = NULL;
    uint32_t slot;
    pthread_mutex_lock(&lock);
    if (table->open < max)
        s = slot_table_take(&table->slots, sizeof *s, prepare, &slot);
    if (s) {
        s->slot = slot;
        table->open++;
        table->taken++;
    }
    pthread_mutex_unlock(&lock);
    return s;
}

uint64_t session_table_publish(struct session *s, uint32_t node, uint64_t bits) {
    uint64_t word = atomic_load_explicit(&s->ref, memory_order_relaxed);
    uint64_t id = session_handle_make(node, s->slot, session_ref_generation(word));
    atomic_store_explicit(&s->id, id, memory_order_relaxed);
    atomic_store_explicit(&s->ref, (word & ~SESSION_REF_FREE) | bits, memory_order_release);
    return id;
}

void session_table_free(struct session *s, uint32_t node) {
    struct session_table *table = &session_tables[node];
    pthread_mutex_lock(&lock);
    slot_table_give(&table->slots, sizeof *s, s->slot);
    table->taken--;
    pthread_mutex_unlock(&lock);
}

void session_table_uncount(uint32_t node) {
    pthread_mutex_lock(&lock);
    session_tables[node].open--;
    pthread_mutex_unlock(&lock);
}

uint32_t session_table_open_count(uint32_t node) {
    pthread_mutex_lock(&lock);
    uint32_t open = session_tables[node].open;
    pthread_mutex_unlock(&lock);
    return open;
}

uint32_t session_table_used_count(uint32_t node) {
    pthread_mutex_lock(&lock);
    uint32_t taken = session_tables[node].taken;
    pthread_mutex_unlock(&lock);
    return taken;
}
