/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port.c - reserving ports on this host, and finding the id that has one. Control lock; it is given up while the
 * names of all processes are read, because any process can make any number of them.
 *
 * A port is taken first and looked for conflicts after: of two processes that take overlapping
 * addresses at the same moment, one or both give way, never none.
 */
#define _GNU_SOURCE
#include "soft/cm/port.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/cm/addr.h"
#include "soft/cm/id.h"
#include "soft/cm/port_cache.h"
#include "soft/cm/port_name.h"
#include "soft/cm/port_range.h"
#include "soft/cm/tcp_port.h"
#include "soft/ipc/control_lock.h"

#define BUCKETS 256
#define EPHEMERAL_TRIES 64

static struct soft_cm_id *buckets[BUCKETS]; /* ids with a name, by port */
static uint64_t ephemeral[65536 / 64];      /* ports handed out without a name */
static bool looking;                        /* a thread reads the names of all */
static uint16_t ephemeral_next;

void soft_cm_port_forked(void) {
    memset(buckets, 0, sizeof buckets);
    memset(ephemeral, 0, sizeof ephemeral);
    ephemeral_next = 0;
    looking = false;
    soft_cm_port_cache_forked();
    soft_cm_tcp_port_forked();
}

void soft_cm_port_init(struct soft_cm_port *port) {
    port->names[0].watch.fd = port->names[1].watch.fd = -1;
    port->name = -1;
}

/* ---- names ---------------------------------------------------------------------------------------- */

static void name_of(struct soft_cm_id *id, bool reuse, struct soft_cm_port_name *name) {
    name->ps = soft_cm_id_ps(id);
    soft_cm_addr_copy(&name->addr, soft_cm_id_src(id));
    name->port = soft_cm_addr_port(soft_cm_id_src(id));
    name->afonly = name->addr.ss_family == AF_INET || id->port.afonly;
    name->reuse = reuse;
}

struct conflict {
    const struct soft_cm_port_name *mine;
    const char *text, *former; /* own names, not in the way */
    uint64_t *owned; /* any owner of the port is in the way; ports that have one are noted */
    int error;
};

static bool see_conflict(const char *text, const struct soft_cm_port_name *other, void *arg) {
    struct conflict *conflict = arg;
    const struct soft_cm_port_name *mine = conflict->mine;
    const struct sockaddr *a = (const struct sockaddr *)&mine->addr;
    const struct sockaddr *b = (const struct sockaddr *)&other->addr;
    if (!strcmp(text, conflict->text) || !strcmp(text, conflict->former))
        return true;
    if (conflict->owned) { /* of all ports, so that another one is not tried in vain */
        conflict->owned[other->port / 64] |= 1ull << other->port % 64;
        if (other->port == mine->port)
            conflict->error = -EADDRINUSE;
        return true;
    }
    if (mine->reuse && other->reuse)
        return true;
    if (mine->afonly && other->afonly && a->sa_family != b->sa_family)
        return true;
    if (soft_cm_addr_is_any(a) || soft_cm_addr_is_any(b))
        conflict->error = -EADDRNOTAVAIL;
    else if (soft_cm_addr_equal(a, b))
        conflict->error = -EADDRINUSE;
    return !conflict->error;
}

/* Gives the control lock up meanwhile; one call at a time, so that of two of this process not both give way. */
static void look_for_conflict(struct conflict *conflict) {
    while (looking)
        (void)soft_lock_wait(UINT64_MAX);
    int state; /* a thread that is cancelled there would leave `looking` set for ever */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    looking = true;
    soft_unlock();
    (void)soft_cm_port_name_scan(conflict->mine->ps, conflict->owned ? 0 : conflict->mine->port,
                                 see_conflict, conflict);
    soft_lock();
    looking = false;
    soft_lock_wake();
    pthread_setcancelstate(state, NULL);
}

/* Takes the name of the id's present address and options; a former one is given up on success. */
static int take(struct soft_cm_id *id, bool reuse, uint64_t *owned) {
    struct soft_cm_port *port = &id->port;
    struct soft_cm_port_name mine, old;
    char text[SOFT_CM_NAME_BYTES], former[SOFT_CM_NAME_BYTES] = "";
    name_of(id, reuse, &mine);
    soft_cm_port_name_format(&mine, id->number, text);
    int next = port->name == 0;
    if (port->name >= 0) {
        old = port->taken;
        soft_cm_port_name_format(&old, id->number, former);
        if (!strcmp(text, former))
            return 0;
    }
    int error = soft_abstract_socket_bind(&port->names[next], text, soft_peer_accepted);
    if (error == -EADDRINUSE && soft_cm_addr_is_any(soft_cm_id_src(id)))
        return -EADDRNOTAVAIL; /* two wildcards: the kernel says so */
    if (error)
        return error;
    struct conflict conflict = {&mine, text, former, owned, 0};
    look_for_conflict(&conflict);
    if (conflict.error) {
        soft_abstract_socket_unbind(&port->names[next]);
        return conflict.error;
    }
    if (port->name >= 0)
        soft_abstract_socket_unbind(&port->names[port->name]);
    port->name = next;
    port->taken = mine;
    return 0;
}

static void link_port(struct soft_cm_id *id) {
    struct soft_cm_id **bucket = &buckets[soft_cm_addr_port(soft_cm_id_src(id)) % BUCKETS];
    id->port.next = *bucket;
    id->port.link = bucket;
    if (*bucket)
        (*bucket)->port.link = &id->port.next;
    *bucket = id;
    id->port.linked = true;
}

static void give_back(struct soft_cm_id *id) {
    soft_abstract_socket_unbind(&id->port.names[id->port.name]);
    id->port.name = -1;
}

/* One that is not known to have an owner; 0: there is none. */
static uint16_t free_port(const uint64_t *owned) {
    const struct soft_cm_port_range range = soft_cm_port_range();
    uint16_t port = soft_cm_port_random();
    for (unsigned left = range.last - range.first + 1u; left > 0; left--) {
        if (!(owned[port / 64] & 1ull << port % 64))
            return port;
        port = port == range.last ? range.first : (uint16_t)(port + 1);
    }
    return 0;
}

int soft_cm_port_claim(struct soft_cm_id *id) {
    struct sockaddr_storage *src = &id->id.route.addr.src_storage;
    uint64_t owned[65536 / 64] = {0};
    if (soft_cm_addr_port(soft_cm_id_src(id))) {
        int error = take(id, id->port.reuse, NULL);
        if (!error)
            link_port(id);
        return error;
    }
    for (int i = 0; i < EPHEMERAL_TRIES; i++) {
        uint16_t port = free_port(owned);
        if (!port)
            break;
        soft_cm_addr_set_port(src, port);
        int error = take(id, id->port.reuse, owned);
        if (!error) { /* other hosts are to find it there, too, should it listen */
            error = soft_cm_tcp_port_reserve(id);
            if (error)
                give_back(id);
        }
        if (!error) {
            link_port(id);
            return 0;
        }
        if (error != -EADDRINUSE && error != -EADDRNOTAVAIL) {
            soft_cm_addr_set_port(src, 0);
            return error;
        }
    }
    soft_cm_addr_set_port(src, 0);
    return -EADDRNOTAVAIL;
}

int soft_cm_port_rename(struct soft_cm_id *id) {
    return id->port.name < 0 ? 0 : take(id, id->port.reuse, NULL);
}

int soft_cm_port_claim_ephemeral(struct soft_cm_id *id) {
    if (!ephemeral_next) /* processes start at different places */
        ephemeral_next = soft_cm_port_random();
    const struct soft_cm_port_range range = soft_cm_port_range();
    for (unsigned left = range.last - range.first + 1u; left > 0; left--) {
        uint16_t port = ephemeral_next;
        ephemeral_next = port == range.last ? range.first : (uint16_t)(port + 1);
        uint64_t bit = 1ull << port % 64;
        if (ephemeral[port / 64] & bit)
            continue;
        ephemeral[port / 64] |= bit;
        id->port.ephemeral = true;
        soft_cm_addr_set_port(&id->id.route.addr.src_storage, port);
        return 0;
    }
    return -EADDRNOTAVAIL;
}

void soft_cm_port_release(struct soft_cm_id *id) {
    struct soft_cm_port *port = &id->port;
    if (port->ephemeral) {
        uint16_t number = soft_cm_addr_port(soft_cm_id_src(id));
        ephemeral[number / 64] &= ~(1ull << number % 64);
        port->ephemeral = false;
    }
    if (port->linked) {
        *port->link = port->next;
        if (port->next)
            port->next->port.link = port->link;
        port->linked = false;
    }
    if (port->name >= 0)
        give_back(id);
}

/* ---- finding -------------------------------------------------------------------------------------- */

struct soft_cm_id *soft_cm_port_listener(int ps, const struct sockaddr *dst, bool *known) {
    struct soft_cm_id *wildcard = NULL;
    *known = false;
    for (struct soft_cm_id *id = buckets[soft_cm_addr_port(dst) % BUCKETS]; id;
         id = id->port.next) {
        const struct sockaddr *src = soft_cm_id_src(id);
        if (id->state != SOFT_CM_LISTEN || soft_cm_id_ps(id) != ps ||
            soft_cm_addr_port(src) != soft_cm_addr_port(dst))
            continue;
        *known = true;
        if (soft_cm_addr_equal(src, dst))
            return id;
        bool family =
            src->sa_family == dst->sa_family || (src->sa_family == AF_INET6 && !id->port.afonly);
        if (soft_cm_addr_is_any(src) && family)
            wildcard = id;
    }
    return wildcard;
}
