/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sync.c - synchronous ids, and moving ids between channels.
 *
 * A synchronous id owns its channel. The event that ended its last call stays in id->event until the
 * next call. Called by the id's user, control lock not held.
 */
#include "soft/cm/sync.h"

#include "common/uncancelled.h"
#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/soft.h"

static void ack_last(struct rdma_cm_id *id) {
    if (id->event)
        soft_ack_cm_event(id->event);
    id->event = NULL;
}

/* The errno of a call that waited for this event. */
static int errno_of(const struct rdma_cm_event *event) {
    if (!event->status)
        return 0;
    if (event->event == RDMA_CM_EVENT_REJECTED)
        return ECONNREFUSED;
    return event->status < 0 ? -event->status : event->status;
}

int soft_cm_sync_complete(struct soft_cm_id *id) {
    if (!id->sync)
        return 0;
    ack_last(&id->id);
    if (!id->id.channel)
        return soft_cm_fail(EINVAL);
    if (soft_get_cm_event(id->id.channel, &id->id.event))
        return -1;
    int error = errno_of(id->id.event);
    return error ? soft_cm_fail(error) : 0;
}

int soft_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(listen);
    if (!error && (!id || !soft_cm_id_of(listen)->sync || !listen->channel))
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    ack_last(listen);
    struct rdma_cm_event *event;
    if (soft_cm_get_event(listen->channel, &event, uncancelled_before))
        return -1;
    error = errno_of(event);
    if (!error && event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
        error = EINVAL;
    if (error)
        goto keep;
    const struct ibv_qp_init_attr *stored = soft_cm_id_of(listen)->stored_qp_attr;
    if (stored) {
        struct ibv_qp_init_attr attr = *stored;
        if (soft_cm_create_qp(event->id, listen->pd, &attr)) {
            error = errno;
            soft_destroy_id(event->id); /* refuses; its event counts on the listener */
            goto keep;
        }
    }
    *id = event->id;
    (*id)->event = event;
    return 0;
keep:
    listen->event = event;
    return soft_cm_fail(error);
}

int soft_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    struct soft_cm_channel *to = (struct soft_cm_channel *)channel;
    if (to && to->generation != soft_generation_now)
        return soft_cm_fail(EPERM);
    bool was_sync = own->sync;
    if (was_sync && (!to || channel == id->channel))
        return soft_cm_fail(EINVAL);
    if (!to)
        to = soft_cm_channel_open();
    if (!to)
        return -1;
    soft_lock();
    struct soft_cm_channel *from = atomic_load(&own->channel);
    if (from && from != to) {
        soft_cm_id_set_channel(own, to);
        soft_cm_event_move(own, from, to);
    }
    soft_unlock();
    if (!from) {
        if (!channel)
            soft_cm_channel_close(to);
        return soft_cm_fail(EINVAL); /* its channel was destroyed */
    }
    own->sync = !channel;
    if (was_sync)
        ack_last(id);
    soft_cm_id_wait_acked(own);
    if (was_sync)
        soft_cm_channel_close(from);
    return 0;
}
