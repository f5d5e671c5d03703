/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device.c - binding ids to the device, and losing it.
 */
#include "soft/cm/device.h"

#include "soft/cm/addr.h"
#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/qp.h"
#include "soft/ipc/control_lock.h"
#include "soft/soft.h"

int soft_cm_device_attach(struct soft_cm_id *id, struct soft_cm_channel *channel) {
    struct ibv_context *verbs = NULL;
    if (!id->id.verbs) {
        verbs = soft_cm_context_get();
        if (!verbs)
            return errno ? errno : ENODEV;
    }
    /* For the channel. */
    struct ibv_context *second = verbs ? soft_cm_context_get() : NULL;
    struct ibv_pd *pd = verbs ? soft_cm_pd(verbs) : NULL;
    union ibv_gid sgid, dgid = {.raw = {0}};
    soft_cm_addr_gid(soft_cm_id_src(id), &sgid);
    if (soft_cm_addr_bytes(soft_cm_id_dst(id)))
        soft_cm_addr_gid(soft_cm_id_dst(id), &dgid);
    uint8_t index = soft_cm_qp_gid_index(verbs ? verbs : id->id.verbs, &sgid);
    soft_lock();
    bool surplus = verbs && id->context; /* two calls at once on one id */
    if (verbs && !surplus) {
        id->id.verbs = verbs;
        id->context = verbs;
        id->id.port_num = 1;
        if (!id->id.pd)
            id->id.pd = pd;
    }
    id->gid_index = index;
    struct rdma_ib_addr *ib = &id->id.route.addr.addr.ibaddr;
    ib->sgid = sgid;
    ib->dgid = dgid;
    ib->pkey = htons(0xffff);
    if (second && channel && channel->context != second) {
        struct ibv_context *former = channel->context; /* that of a device removed meanwhile */
        channel->context = second;
        second = former;
    }
    soft_unlock();
    if (surplus)
        soft_cm_context_put(verbs);
    if (second)
        soft_cm_context_put(second);
    return 0;
}

static void remove_one(struct soft_cm_id *id, void *arg) {
    const bool *tell = arg;
    bool bound = id->id.verbs || id->listener;
    if (!bound)
        return; /* unbound ids and wildcard listeners do not notice */
    if (id->published && *tell)
        soft_cm_event_raise(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
    atomic_store(&id->removed, true);
    soft_cm_id_kill(id);
}

void soft_cm_device_removed(void) {
    soft_assert_locked();
    bool tell = true;
    soft_cm_id_each(remove_one, &tell);
}

void soft_cm_device_removed_untold(void) {
    bool tell = false;
    soft_cm_id_each(remove_one, &tell);
}

static void change_one(struct soft_cm_id *id, void *arg) {
    if (id->id.verbs && id->published && (!arg || soft_cm_addr_equal(soft_cm_id_src(id), arg)))
        soft_cm_event_raise(id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
}

void soft_cm_device_address_changed(const struct sockaddr *addr) {
    struct sockaddr_storage copy;
    if (addr)
        soft_cm_addr_copy(&copy, addr);
    soft_cm_id_each(change_one, addr ? &copy : NULL);
}
