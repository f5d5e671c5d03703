/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device_removal.c - the end of a device: noticing it, ending everything that is on it, closing it.
 *
 * Removing a device may have to wait for every process that holds an object of it: ids, queue pairs,
 * completion queues, memory, a context. So a node whose device is gone gives all of them back, though
 * it stays open itself, and does not depend on the application for that: this thread runs loops that no thread polls,
 * after a grace (upcalls.h, loop_assist). Events for an application wait until it polls.
 *
 *   DEVICE_FATAL or DEVICE_REMOVAL, whichever is first
 *     -> every connection fails, every listener is closed, every loop is told (DEVICE_LOST)
 *     -> sessions drain as ever; a loop without queue pairs gives its CQ back
 *     -> no loop has a CQ and no id is left: memory, context, and what rdma_cm keeps
 *
 * Owner: the CM thread.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/epoll.h>

#include "cm/connector.h"
#include "cm/internal.h"
#include "core/context.h"

#define GRACE_NS 500000000ull /* how long a loop may go without being polled */
#define STEP_NS 10000000ull   /* between two looks at what is left */
#define GIDS_MAX 64           /* of one port, looked at for an address */
#define ADDRESSES_MAX 64      /* of one interface, likewise */

/* ---- noticing -------------------------------------------------------------------------------- */

static bool is_link_local(const union ibv_gid *gid) {
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* A GID of a RoCE device is an IP address of its interface. One of a link alone does not say of which. */
static bool address_of(const union ibv_gid *gid, union address *out) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, none[16] = {0};
    memset(out, 0, sizeof *out);
    if (memcmp(gid->raw, mapped, sizeof mapped) == 0) {
        out->v4.sin_family = AF_INET;
        memcpy(&out->v4.sin_addr, gid->raw + 12, 4);
        return true;
    }
    if (is_link_local(gid) || memcmp(gid->raw, none, sizeof none) == 0)
        return false;
    out->v6.sin6_family = AF_INET6;
    memcpy(&out->v6.sin6_addr, gid->raw, 16);
    return true;
}

static bool watch_at(struct cm *cm, union address *address) {
    const struct fabric_ops *fabric = cm->node->fabric;
    if (fabric->create_id(cm->channel, &cm->watch.id, &cm->watch, RDMA_PS_TCP) != 0) {
        cm->watch.id = NULL;
        return false;
    }
    if (fabric->bind_addr(cm->watch.id, &address->any) == 0 && cm_same_device(cm, cm->watch.id))
        return true;
    fabric->destroy_id(cm->watch.id);
    cm->watch.id = NULL;
    return false;
}

/* An iWARP device's GID is its interface's hardware address; a RoCE device makes one of it (RFC 4291, appendix A). */
static bool is_of_hardware(const union ibv_gid *gid, const uint8_t mac[6]) {
    static const uint8_t none[16] = {0}, prefix[8] = {0xfe, 0x80};
    const uint8_t id[8] = {
        (uint8_t)(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    if (memcmp(mac, none, 6) == 0)
        return false;
    if (memcmp(gid->raw, mac, 6) == 0 && memcmp(gid->raw + 6, none, 10) == 0)
        return true;
    return memcmp(gid->raw, prefix, sizeof prefix) == 0 && memcmp(gid->raw + 8, id, sizeof id) == 0;
}

/* This address says that its interface is the one behind a GID. */
static bool tells_interface(const struct ifaddrs *at, const union ibv_gid *gid) {
    const struct sockaddr_ll *link = (const struct sockaddr_ll *)(const void *)at->ifa_addr;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)at->ifa_addr;
    if (link && link->sll_family == AF_PACKET)
        return link->sll_halen == 6 && is_of_hardware(gid, link->sll_addr);
    return v6 && v6->sin6_family == AF_INET6 && is_link_local(gid) &&
           memcmp(&v6->sin6_addr, gid->raw, sizeof gid->raw) == 0;
}

static bool watch_at_interface(struct cm *cm, const struct ifaddrs *list, const char *name) {
    unsigned tries = 0;
    for (const struct ifaddrs *at = list; at && tries < ADDRESSES_MAX; at = at->ifa_next) {
        int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
        union address address;
        if (strcmp(at->ifa_name, name) != 0 || (family != AF_INET && family != AF_INET6))
            continue;
        memset(&address, 0, sizeof address);
        memcpy(&address, at->ifa_addr, family == AF_INET ? sizeof address.v4 : sizeof address.v6);
        tries++;
        if (watch_at(cm, &address))
            return true;
    }
    return false;
}

/*
 * The GID tells an interface and no address that can be bound by itself. Only that interface's addresses
 * are tried: librdmacm opens, and keeps open, the device behind each address that an id is bound to.
 */
bool cm_watch_by_interface(struct cm *cm, const union ibv_gid *gid, const struct ifaddrs *list) {
    cm_assert_thread(cm);
    for (const struct ifaddrs *at = list; at; at = at->ifa_next)
        if (tells_interface(at, gid) && watch_at_interface(cm, list, at->ifa_name))
            return true;
    return false;
}

static bool watch_at_gid(struct cm *cm, const union ibv_gid *gid) {
    union address address;
    struct ifaddrs *list = NULL;
    if (address_of(gid, &address) && watch_at(cm, &address))
        return true;
    if (getifaddrs(&list) != 0)
        return false;
    bool found = cm_watch_by_interface(cm, gid, list);
    freeifaddrs(list);
    return found;
}

/*
 * A node without a connection or a listener would hear nothing of the removal where the driver
 * raises no DEVICE_FATAL. So it keeps one id bound to an address of the device. Where there is no
 * such address it does without.
 */
void cm_watch_device(struct cm *cm) {
    cm_assert_thread(cm);
    const struct fabric_ops *fabric = cm->node->fabric;
    cm->watch.state = CM_REMOVAL_WATCH;
    for (unsigned port = 1; port <= cm->node->device_attr.phys_port_cnt; port++) {
        struct ibv_port_attr attr;
        if (fabric->query_port(cm->node->context, (uint8_t)port, &attr) != 0)
            continue;
        for (int i = 0; i < attr.gid_tbl_len && i < GIDS_MAX; i++) {
            union ibv_gid gid;
            if (fabric->query_gid(cm->node->context, (uint8_t)port, i, &gid) == 0 &&
                watch_at_gid(cm, &gid))
                return;
        }
    }
}

void cm_on_watch_removal(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    (void)owner, (void)event;
    cm_device_lost(cm);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Under the node's lock: a loop that is being closed is off the list, or not closed yet. */
static void tell_loops(struct cm *cm) {
    sluice_node *n = cm->node;
    pthread_mutex_lock(&n->assist_lock);
    atomic_store(&n->device_lost, true);
    pthread_mutex_lock(&n->lock);
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        if (n->loops[i])
            n->upcalls->loop_device_lost(n->loops[i]);
    pthread_mutex_unlock(&n->lock);
    pthread_mutex_unlock(&n->assist_lock);
}

void cm_device_lost(struct cm *cm) {
    cm_assert_thread(cm);
    if (cm->device_lost)
        return;
    cm->device_lost = true;
    cm->lost_ns = cm->now_ns;
    log_write(&cm->node->log, SLUICE_LOG_ERROR, "device %s failed or was removed",
              cm->node->choice.device);
    struct cm_conn *conn;
    cds_list_for_each_entry(conn, &cm->conns, link)
        cm_fail(cm, conn, SLUICE_REASON_DEVICE_REMOVED, 0, "%s failed or was removed",
                cm->node->choice.device);
    cm_listeners_lost(cm);
    if (cm->watch.id)
        cm->node->fabric->destroy_id(cm->watch.id);
    cm->watch.id = NULL;
    tell_loops(cm); /* after the failures: no loop makes a QP once it has read this */
}

/* ---- letting go ------------------------------------------------------------------------------ */

static void assist_loops(struct cm *cm) {
    sluice_node *n = cm->node;
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        pthread_mutex_lock(&n->assist_lock);
        pthread_mutex_lock(&n->lock);
        struct sluice_loop *l = n->loops[i];
        pthread_mutex_unlock(&n->lock);
        if (l)
            n->upcalls->loop_assist(l);
        pthread_mutex_unlock(&n->assist_lock);
    }
}

static bool ids_left(const struct cm *cm) {
    const struct cm_conn *conn;
    cds_list_for_each_entry(conn, &cm->conns, link) {
        if (conn->owner.id)
            return true;
    }
    return cm->connector && connector_busy(cm->connector);
}

void cm_detach(struct cm *cm) {
    cm_assert_thread(cm);
    sluice_node *n = cm->node;
    if (atomic_load(&n->device_users) > 0 || ids_left(cm)) {
        if (cm->now_ns - cm->lost_ns >= GRACE_NS)
            assist_loops(cm);
        if (cm->now_ns + STEP_NS < cm->next_deadline_ns)
            cm->next_deadline_ns = cm->now_ns + STEP_NS; /* and look again */
        return;
    }
    cm->device_gone = true;
    pthread_mutex_lock(&n->assist_lock);
    epoll_ctl(cm->epoll_fd, EPOLL_CTL_DEL, n->context->async_fd, NULL);
    cm->async_source.out = false; /* and is never put back */
    n->upcalls->device_put(n);
    pthread_mutex_unlock(&n->assist_lock);
    n->fabric->cm_detach(&cm->mark);
    log_write(&n->log, SLUICE_LOG_INFO, "device %s is let go of", n->choice.device);
}
