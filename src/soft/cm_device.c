/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_device.c - binding ids to the device, and losing it.
 */
#include "soft/cm_device.h"

#include "soft/cm_addr.h"
#include "soft/cm_event.h"
#include "soft/cm_id.h"
#include "soft/cm_qp.h"
#include "soft/soft.h"

int cm_device_attach(struct cm_id *id, struct cm_channel *channel) {
    struct ibv_context *verbs = NULL;
    if (!id->id.verbs) {
        verbs = soft_cm_context_get();
        if (!verbs)
            return errno ? errno : ENODEV;
    }
    bool second = verbs && soft_cm_context_get(); /* for the channel; cannot fail any more */
    struct ibv_pd *pd = soft_cm_pd();
    union ibv_gid sgid, dgid = {.raw = {0}};
    cm_addr_gid(cm_id_src(id), &sgid);
    if (cm_addr_bytes(cm_id_dst(id)))
        cm_addr_gid(cm_id_dst(id), &dgid);
    uint8_t index = cm_qp_gid_index(verbs ? verbs : id->id.verbs, &sgid);
    soft_lock();
    bool surplus = verbs && id->context_held; /* two calls at once on one id */
    if (verbs && !surplus) {
        id->id.verbs = verbs;
        id->context_held = true;
        id->id.port_num = 1;
        if (!id->id.pd)
            id->id.pd = pd;
    }
    id->gid_index = index;
    struct rdma_ib_addr *ib = &id->id.route.addr.addr.ibaddr;
    ib->sgid = sgid;
    ib->dgid = dgid;
    ib->pkey = htons(0xffff);
    if (second && channel && !channel->context_held) {
        channel->context_held = true;
        second = false;
    }
    soft_unlock();
    if (surplus)
        soft_cm_context_put();
    if (second)
        soft_cm_context_put();
    return 0;
}

static void remove_one(struct cm_id *id, void *arg) {
    (void)arg;
    bool bound = id->id.verbs || id->listener;
    if (!bound)
        return; /* unbound ids and wildcard listeners do not notice */
    if (id->published)
        cm_event_raise(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
    atomic_store(&id->removed, true);
    cm_id_kill(id);
}

void cm_device_removed(void) {
    cm_id_each(remove_one, NULL);
}

static void change_one(struct cm_id *id, void *arg) {
    if (id->id.verbs && id->published && cm_addr_equal(cm_id_src(id), arg))
        cm_event_raise(id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
}

void cm_device_address_changed(const struct sockaddr *addr) {
    struct sockaddr_storage copy;
    cm_addr_copy(&copy, addr);
    cm_id_each(change_one, &copy);
}
