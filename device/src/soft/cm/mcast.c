/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mcast.c - joining and leaving multicast groups.
 *
 * On one host there is no subnet manager to ask, so a join is done at once; the id's QP enters the group when the event
 * is fetched (mcast.h says how the other processes come to know). The list is guarded by the control
 * lock; the count of unacknowledged events by the id's ack mutex.
 */
#include "soft/cm/mcast.h"

#include <stdlib.h>
#include <string.h>
#include <urcu/list.h>

#include "common/uncancelled.h"
#include "soft/cm/addr.h"
#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/sync.h"
#include "soft/ipc/control_lock.h"
#include "soft/soft.h"

struct cm_group {
    struct cds_list_head link;
    struct soft_cm_id *id;
    struct sockaddr_storage addr;
    void *context; /* the application's */
    unsigned unacked;
    bool send_only;
    bool attached; /* the id's QP; calls on the id only */
};

void soft_cm_mcast_count(struct cm_group *group) {
    pthread_mutex_lock(&group->id->ack_mutex);
    group->unacked++;
    pthread_mutex_unlock(&group->id->ack_mutex);
}

void soft_cm_mcast_uncount(struct cm_group *group) {
    struct soft_cm_id *id = group->id; /* the group may be freed as soon as the count is down */
    pthread_mutex_lock(&id->ack_mutex);
    group->unacked--;
    pthread_cond_broadcast(&id->acked);
    pthread_mutex_unlock(&id->ack_mutex);
}

static void free_acked(struct cm_group *group) {
    pthread_mutex_lock(&group->id->ack_mutex);
    while (group->unacked)
        pthread_cond_wait(&group->id->acked, &group->id->ack_mutex);
    pthread_mutex_unlock(&group->id->ack_mutex);
    free(group);
}

/* ---- the QP --------------------------------------------------------------------------------------- */

int soft_cm_mcast_attach(struct cm_group *group) {
    union ibv_gid gid;
    if (!group->id->id.qp || group->send_only)
        return 0;
    soft_cm_addr_gid((struct sockaddr *)&group->addr, &gid);
    int error = soft_attach_mcast(group->id->id.qp, &gid, 0);
    if (error)
        return soft_cm_fail(error);
    group->attached = true;
    return 0;
}

static void detach(struct cm_group *group) {
    union ibv_gid gid;
    if (!group->attached || !group->id->id.qp)
        return;
    soft_cm_addr_gid((struct sockaddr *)&group->addr, &gid);
    (void)soft_detach_mcast(group->id->id.qp, &gid, 0);
    group->attached = false;
}

void soft_cm_mcast_detach_all(struct soft_cm_id *id) {
    struct cm_group *group;
    cds_list_for_each_entry(group, &id->groups, link)
        detach(group);
}

static struct soft_cm_event *event_new(struct cm_group *group, int type, int status) {
    struct soft_cm_event *event = soft_cm_event_new(group->id, type, status);
    if (!event)
        return NULL;
    event->event.param.ud.private_data = group->context; /* not data: the caller's pointer */
    event->group = group;
    return event;
}

static void lost_one(struct soft_cm_id *id, void *arg) {
    struct cm_group *group;
    (void)arg;
    cds_list_for_each_entry(group, &id->groups, link) {
        struct soft_cm_event *event = event_new(group, RDMA_CM_EVENT_MULTICAST_ERROR, -ENETRESET);
        if (event)
            soft_cm_event_post(event);
    }
}

void soft_cm_mcast_lost(void) {
    soft_assert_locked();
    soft_cm_id_each(lost_one, NULL);
}

void soft_cm_mcast_free_all(struct soft_cm_id *id) {
    struct cm_group *group, *next;
    cds_list_for_each_entry_safe(group, next, &id->groups, link) {
        cds_list_del(&group->link);
        free_acked(group);
    }
}

/* ---- joining -------------------------------------------------------------------------------------- */

static struct cm_group *group_find(struct soft_cm_id *id, const struct sockaddr *addr) {
    struct cm_group *group;
    cds_list_for_each_entry(group, &id->groups, link) {
        if (soft_cm_addr_equal((struct sockaddr *)&group->addr, addr))
            return group;
    }
    return NULL;
}

static int join_locked(struct soft_cm_id *id, const struct sockaddr *addr, void *context,
                       bool send_only) {
    if (!id->id.verbs || (id->state != SOFT_CM_BOUND && id->state != SOFT_CM_ADDR_RESOLVED))
        return EINVAL;
    struct cm_group *group = calloc(1, sizeof *group);
    if (!group)
        return ENOMEM;
    group->id = id;
    group->context = context;
    group->send_only = send_only;
    struct soft_cm_event *event = event_new(group, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
    if (!event) {
        free(group);
        return ENOMEM;
    }
    soft_cm_addr_copy(&group->addr, addr);
    cds_list_add(&group->link, &id->groups);
    struct rdma_ud_param *param = &event->event.param.ud;
    param->ah_attr.is_global = 1;
    param->ah_attr.port_num = 1;
    param->ah_attr.grh.sgid_index = id->gid_index;
    param->ah_attr.grh.hop_limit = 1;
    param->ah_attr.grh.traffic_class = id->tos;
    soft_cm_addr_gid(addr, &param->ah_attr.grh.dgid); /* RoCE v2: the address, mapped */
    param->qp_num = 0xFFFFFF;
    param->qkey = RDMA_UDP_QKEY;
    soft_cm_event_post(event);
    return 0;
}

static int join(struct rdma_cm_id *id, struct sockaddr *addr, void *context, bool send_only) {
    int error = soft_cm_id_unusable(id);
    if (!error && (!soft_cm_addr_bytes(addr) || soft_cm_addr_is_any(addr) ||
                   !soft_cm_id_is_ud(soft_cm_id_of(id))))
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    soft_lock();
    error = join_locked(soft_cm_id_of(id), addr, context, send_only);
    soft_unlock();
    return error ? soft_cm_fail(error) : soft_cm_sync_complete(soft_cm_id_of(id));
}

int soft_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context) {
    UNCANCELLED;
    return join(id, addr, context, false);
}

int soft_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
                           void *context) {
    UNCANCELLED;
    if (!id || !attr)
        return soft_cm_fail(EINVAL);
    if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
        return soft_cm_fail(ENOTSUP);
    if (!(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) ||
        !(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) ||
        attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
        return soft_cm_fail(EINVAL);
    return join(id, attr->addr, context, attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
}

int soft_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && !soft_cm_addr_bytes(addr))
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    soft_lock();
    struct cm_group *group = group_find(own, addr);
    struct soft_cm_channel *channel = atomic_load(&own->channel);
    if (group) {
        cds_list_del(&group->link);
        if (channel)
            soft_cm_event_discard_all(channel, own, group);
    }
    soft_unlock();
    if (!group)
        return soft_cm_fail(EADDRNOTAVAIL);
    detach(group);
    if (own->sync && id->event && ((struct soft_cm_event *)id->event)->group == group) {
        soft_ack_cm_event(id->event); /* kept by the join that waited for it */
        id->event = NULL;
    }
    free_acked(group);
    return 0;
}
