/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * id.c - making, finding, ending and freeing ids; acknowledgements; USER events.
 *
 * The table is guarded by the control lock. It belongs to one process: after a fork the child finds
 * it empty, and inherited ids are refused by their generation.
 */
#include "soft/cm/conn_end.h"
#include "soft/cm/id.h"
#include "soft/fault/environment.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/settings.h"
#include "common/uncancelled.h"
#include "soft/cm/event.h"
#include "soft/cm/mcast.h"
#include "soft/cm/mpa.h"
#include "soft/cm/port_cache.h"
#include "soft/cm/port_space.h"
#include "soft/cm/tcp_port.h"
#include "soft/fault/inject.h"
#include "soft/object/profile.h"
#include "soft/soft.h"

struct slot {
    struct soft_cm_id *id;
    uint32_t generation; /* of the id in the slot, or of the next one */
    uint32_t next_free;  /* index + 1 */
};

static struct {
    struct slot *slots;
    uint32_t size, used; /* allocated; ever used */
    uint32_t free;       /* index + 1 */
    uint32_t count;
    uint32_t generation; /* of the process */
    struct soft_timer sweep;
} table;

/* ---- table ---------------------------------------------------------------------------------------- */

static void table_check_fork(void) {
    if (table.generation == soft_generation_now)
        return;
    memset(&table, 0, sizeof table); /* the parent's, never freed here */
    table.generation = soft_generation_now;
    soft_cm_port_forked();
}

static int table_add(struct soft_cm_id *id) {
    uint32_t index;
    if (table.free) {
        index = table.free - 1;
        table.free = table.slots[index].next_free;
    } else {
        if (table.used == table.size) {
            uint32_t size = table.size ? 2 * table.size : 64;
            struct slot *slots = realloc(table.slots, size * sizeof *slots);
            if (!slots)
                return -ENOMEM;
            memset(slots + table.size, 0, (size - table.size) * sizeof *slots);
            table.slots = slots;
            table.size = size;
        }
        index = table.used++;
        table.slots[index].generation = 1;
    }
    table.slots[index].id = id;
    id->number = (uint64_t)table.slots[index].generation << 32 | (index + 1);
    table.count++;
    return 0;
}

static void table_remove(struct soft_cm_id *id) {
    if (!id->number)
        return;
    uint32_t index = (uint32_t)id->number - 1;
    struct slot *slot = &table.slots[index];
    slot->id = NULL;
    slot->generation++;
    slot->next_free = table.free;
    table.free = index + 1;
    id->number = 0;
    /* An armed timer must not outlive the engine, which lives while there are ids. */
    if (--table.count)
        return;
    soft_timer_cancel(&table.sweep);
    free(table.slots);
    table.slots = NULL;
    table.size = table.used = table.free = 0;
}

struct soft_cm_id *soft_cm_id_find(uint64_t number) {
    table_check_fork();
    uint32_t index = (uint32_t)number - 1;
    if (index >= table.used || !table.slots[index].id)
        return NULL;
    return table.slots[index].id->number == number ? table.slots[index].id : NULL;
}

struct soft_cm_id *soft_cm_id_at(uint32_t place) {
    table_check_fork();
    uint32_t index = place - 1;
    return index < table.used ? table.slots[index].id : NULL;
}

void soft_cm_id_each(void (*fn)(struct soft_cm_id *id, void *arg), void *arg) {
    soft_assert_locked();
    table_check_fork();
    for (uint32_t i = 0; i < table.used; i++)
        if (table.slots[i].id)
            fn(table.slots[i].id, arg);
}

struct search {
    const struct soft_peer *peer;
    uint64_t remote;
    struct soft_cm_id *found;
};

static void search_one(struct soft_cm_id *id, void *arg) {
    struct search *search = arg;
    if (id->conn.peer == search->peer && id->conn.remote == search->remote)
        search->found = id;
}

/* Only for what was repeated or given up early, so a walk through all ids will do. */
struct soft_cm_id *soft_cm_id_find_remote(const struct soft_peer *peer, uint64_t remote) {
    struct search search = {peer, remote, NULL};
    soft_cm_id_each(search_one, &search);
    return search.found;
}

/* ---- peers that died --------------------------------------------------------------------------------- */

static void sweep_one(struct soft_cm_id *id, void *arg) {
    (void)arg;
    const struct soft_peer *peer = id->conn.peer;
    if (peer && !soft_peer_alive(peer) && !soft_fault_arrival_waits(peer))
        soft_cm_conn_peer_gone(id);
}

static void sweep(struct soft_timer *timer) {
    (void)timer;
    soft_cm_id_each(sweep_one, NULL);
}

/* May be called out of a send of ours, in the middle of changing an id: done a moment later. */
void soft_cm_on_peer_gone(struct soft_peer *peer) {
    soft_cm_port_cache_forget_peer(peer);
    table_check_fork();
    if (table.count)
        soft_timer_arm(&table.sweep, soft_now_ns(), sweep);
}

/* ---- making --------------------------------------------------------------------------------------- */

struct soft_cm_id *soft_cm_id_new(enum rdma_port_space ps, enum ibv_qp_type type, void *context) {
    table_check_fork();
    struct soft_cm_id *id = calloc(1, sizeof *id);
    if (!id)
        return NULL;
    CDS_INIT_LIST_HEAD(&id->groups);
    if (table_add(id)) {
        free(id);
        return NULL;
    }
    id->generation = soft_generation_now;
    id->fault.serial = soft_fault_id_serial();
    id->id.context = context;
    id->id.ps = ps;
    id->id.qp_type = type;
    pthread_mutex_init(&id->ack_mutex, NULL);
    pthread_cond_init(&id->acked, NULL);
    soft_cm_port_init(&id->port);
    if (getrandom(&id->conn.send_psn, sizeof id->conn.send_psn, 0) < 0)
        id->conn.send_psn = (uint32_t)soft_now_ns();
    id->conn.send_psn &= 0xffffff;
    return id;
}

int soft_create_id2(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
                    enum rdma_port_space ps, enum ibv_qp_type type) {
    UNCANCELLED;
    int refused = out ? soft_cm_check_types(ps, type) : EINVAL;
    if (refused)
        return soft_cm_fail(refused);
    struct soft_cm_channel *own = (struct soft_cm_channel *)channel;
    if (own && own->generation != soft_generation_now)
        return soft_cm_fail(EPERM);
    if ((!own && (settings_refused() || soft_fault_refused())) || soft_engine_get())
        return -1;
    errno = soft_fault_call(FAULT_CALL_create_id);
    if (errno)
        goto put_engine;
    if (!own)
        own = soft_cm_channel_open();
    if (!own)
        goto put_engine;
    soft_lock();
    struct soft_cm_id *id = soft_cm_id_new(ps, type, context);
    if (id) {
        id->engine_held = id->published = true;
        id->sync = !channel;
        id->net = own->net;
        soft_cm_id_set_channel(id, own);
    }
    soft_unlock();
    if (id) {
        *out = &id->id;
        return 0;
    }
    if (!channel)
        soft_cm_channel_close(own);
    errno = ENOMEM;
put_engine:;
    int error = errno;
    soft_engine_put();
    return soft_cm_fail(error);
}

int soft_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                   enum rdma_port_space ps) {
    UNCANCELLED;
    return soft_create_id2(channel, id, context, ps, (enum ibv_qp_type)soft_cm_qp_type_of(ps));
}

/* ---- states --------------------------------------------------------------------------------------- */

#define BIT(state) (1u << (SOFT_CM_##state))

/* Which states may follow. From any to DEAD, which is the last. */
static const uint16_t follows[] = {
    [SOFT_CM_IDLE] = BIT(BOUND) | BIT(CONNECT),
    [SOFT_CM_BOUND] = BIT(IDLE) | BIT(ADDR_RESOLVED) | BIT(LISTEN),
    [SOFT_CM_ADDR_RESOLVED] = BIT(BOUND) | BIT(ROUTE_RESOLVED),
    [SOFT_CM_ROUTE_RESOLVED] = BIT(CONNECT),
    [SOFT_CM_CONNECT] = BIT(ROUTE_RESOLVED) | BIT(DISCONNECT),
    [SOFT_CM_DISCONNECT] = 0,
    [SOFT_CM_LISTEN] = 0,
    [SOFT_CM_DEAD] = 0,
};

void soft_cm_id_enter(struct soft_cm_id *id, enum soft_cm_state state) {
    soft_assert_locked();
    ASSERT(id->state != SOFT_CM_DEAD &&
           (state == SOFT_CM_DEAD || (follows[id->state] >> state & 1)));
    id->state = state;
}

/* ---- ending --------------------------------------------------------------------------------------- */

void soft_cm_id_kill(struct soft_cm_id *id) {
    if (id->state == SOFT_CM_DEAD)
        return;
    soft_cm_id_enter(id, SOFT_CM_DEAD);
    soft_cm_port_release(id);
    soft_cm_tcp_port_close(id);
    soft_cm_conn_kill(id);
    table_remove(id);
}

/* Memory behind the application's pointers is released by the calls for it, the rest here. */
void soft_cm_id_free(struct soft_cm_id *id) {
    struct ibv_context *context = id->context;
    bool engine_held = id->engine_held;
    pthread_cond_destroy(&id->acked);
    pthread_mutex_destroy(&id->ack_mutex);
    free(id->id.route.path_rec);
    free(id->stored_qp_attr);
    free(id->connect_prefix);
    if (id->info)
        soft_freeaddrinfo(id->info);
    free(id);
    if (context)
        soft_cm_context_put(context);
    if (engine_held)
        soft_engine_put(); /* last: it may stop the engine */
}

void soft_cm_id_unlink_request(struct soft_cm_id *id) {
    if (id->listener)
        id->listener->request_count--;
    id->listener = NULL;
}

void soft_cm_id_drop_request(struct soft_cm_id *id) {
    soft_cm_id_unlink_request(id);
    soft_cm_id_kill(id);
    soft_cm_id_free(id); /* holds neither context nor engine yet, so nothing is waited for */
}

int soft_destroy_id(struct rdma_cm_id *id) {
    UNCANCELLED;
    if (!id)
        return soft_cm_fail(EINVAL);
    struct soft_cm_id *own = soft_cm_id_of(id);
    if (own->generation != soft_generation_now)
        return soft_cm_fail(EPERM);
    if (soft_profile()->iwarp)
        soft_cm_mpa_settle(own);
    soft_lock();
    struct soft_cm_channel *channel = atomic_load(&own->channel);
    soft_cm_id_kill(own);
    soft_cm_id_set_channel(own, NULL);
    if (channel)
        soft_cm_event_discard_all(channel, own, NULL);
    soft_unlock();
    if (own->sync && id->event) {
        soft_ack_cm_event(id->event);
        id->event = NULL;
    }
    soft_cm_id_wait_acked(own);
    soft_cm_mcast_free_all(own);
    if (own->sync && channel)
        soft_cm_channel_close(channel);
    soft_cm_id_free(own);
    return 0;
}

static void kill_on_channel(struct soft_cm_id *id, void *arg) {
    if (atomic_load(&id->channel) != arg)
        return;
    soft_cm_id_kill(id);
    soft_cm_id_set_channel(id, NULL);
}

struct rdma_event_channel *soft_create_event_channel(void) {
    UNCANCELLED;
    if (settings_refused() || soft_fault_refused())
        return NULL;
    struct soft_cm_channel *channel = soft_cm_channel_open();
    int refused = channel ? soft_fault_call(FAULT_CALL_create_event_channel) : 0;
    if (refused) {
        soft_cm_channel_close(channel);
        errno = refused;
        return NULL;
    }
    return channel ? &channel->channel : NULL;
}

void soft_destroy_event_channel(struct rdma_event_channel *channel) {
    UNCANCELLED;
    struct soft_cm_channel *own = (struct soft_cm_channel *)channel;
    if (!own)
        return;
    if (own->generation != soft_generation_now) {
        /* The parent's: its queue stays where it is, our copy of the descriptor goes. */
        close(channel->fd);
        return;
    }
    soft_lock();
    soft_cm_id_each(kill_on_channel, own);
    soft_cm_event_discard_channel(own);
    soft_unlock();
    soft_cm_channel_close(own);
}

/* ---- acknowledging ---------------------------------------------------------------------------------- */

void soft_cm_id_count(struct soft_cm_id *id) {
    pthread_mutex_lock(&id->ack_mutex);
    id->unacked++;
    pthread_mutex_unlock(&id->ack_mutex);
}

void soft_cm_id_uncount(struct soft_cm_id *id) {
    pthread_mutex_lock(&id->ack_mutex);
    id->unacked--;
    pthread_cond_broadcast(&id->acked);
    pthread_mutex_unlock(&id->ack_mutex);
}

void soft_cm_id_wait_acked(struct soft_cm_id *id) {
    pthread_mutex_lock(&id->ack_mutex);
    while (id->unacked)
        pthread_cond_wait(&id->acked, &id->ack_mutex);
    pthread_mutex_unlock(&id->ack_mutex);
}

/* ---- USER events ------------------------------------------------------------------------------------ */

void soft_cm_id_set_channel(struct soft_cm_id *id, struct soft_cm_channel *channel) {
    atomic_store(&id->channel, channel);
    id->id.channel = channel ? &channel->channel : NULL;
    /* A writer is some instructions and one write() long, and never waits for us. */
    while (atomic_load(&id->writers))
        sched_yield();
}

/* Async-signal-safe: no lock, no allocation. */
int soft_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                        uint64_t arg) {
    UNCANCELLED;
    if ((int)event != SOFT_CM_EVENT_USER || !soft_profile()->user_events)
        return soft_cm_fail(EINVAL);
    int error = soft_cm_id_unusable(id);
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    atomic_fetch_add(&own->writers, 1);
    struct soft_cm_channel *channel = atomic_load(&own->channel);
    error = channel ? soft_cm_channel_push_user(channel, own, status, arg) : EINVAL;
    atomic_fetch_sub(&own->writers, 1);
    return error ? soft_cm_fail(error) : 0;
}
