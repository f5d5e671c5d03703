/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device_state.c - removal, port and addresses of the device. Control lock.
 *
 * A removal has the effect that it has on a NIC: QPs go to ERR and flush, ids end and tell their peers, calls
 * on the contexts that were open fail with EIO from then on, destroy calls work. Which of the two notices
 * comes first, or at all, can be chosen, since their order is not defined on a real system either.
 */
#include "soft/control/device_state.h"

#include <errno.h>

#include "soft/cm/device.h"
#include "soft/cm/mcast.h"
#include "soft/fault/inject.h"
#include "soft/fault/plan.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/async_event.h"
#include "soft/object/attention.h"
#include "soft/object/device.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"

static void tell_all(enum ibv_event_type type) {
    struct soft_context *ctx;
    cds_list_for_each_entry(ctx, &soft_contexts, link) {
        if (!atomic_load(&ctx->removed))
            soft_async_event(&ctx->ibv, type, NULL);
    }
}

/* ---- removal ------------------------------------------------------------------------------------------ */

static void end_qp(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    bool live = qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_ERR;
    if (live)
        soft_qp_fail(qp);
    spin_unlock(&qp->lock);
    if (!live)
        return;
    soft_qp_kick(qp);
    soft_qp_progress(qp);
}

static int remove_device(enum soft_device_order order) {
    if (atomic_exchange(&soft_device_gone, true))
        return -EALREADY;
    bool fatal = order != ORDER_REMOVAL_ONLY;
    static uint32_t removals;
    struct soft_context *ctx;
    removals++;
    /* Contexts of an earlier removal have been told. */
    cds_list_for_each_entry(ctx, &soft_contexts, link) {
        if (!atomic_load(&ctx->removed))
            atomic_store(&ctx->removed, removals);
    }
    if (order != ORDER_FATAL_ONLY)
        soft_cm_mcast_lost();
    if (order == ORDER_REMOVAL_FIRST)
        soft_cm_device_removed();
    cds_list_for_each_entry(ctx, &soft_contexts, link) {
        if (fatal && atomic_load(&ctx->removed) == removals)
            soft_async_event(&ctx->ibv, IBV_EVENT_DEVICE_FATAL, NULL);
    }
    soft_qp_each(end_qp);
    if (order == ORDER_FATAL_ONLY)
        soft_cm_device_removed_untold();
    else if (order != ORDER_REMOVAL_FIRST)
        soft_cm_device_removed();
    return 0;
}

/* ---- port --------------------------------------------------------------------------------------------- */

static void show_port(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    struct soft_ring *rx = ld(qp->rx);
    if (rx)
        atomic_store(&rx->rx.dark, atomic_load(&soft_port_down));
    soft_qp_attend(qp);
    if (qp->tcp) { /* what comes meanwhile is not looked at */
        st(qp->need_tick, true);
        soft_qp_timer_want();
    }
    spin_unlock(&qp->lock);
    if (!atomic_load(&soft_port_down))
        soft_qp_progress(qp);
}

static int set_port(bool down) {
    if (atomic_exchange(&soft_port_down, down) == down)
        return -EALREADY;
    soft_fault_update();
    soft_qp_each(show_port);
    tell_all(down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
    if (down)
        soft_cm_mcast_lost();
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------------------ */

void soft_device_address_moved(const struct sockaddr *addr) {
    tell_all(IBV_EVENT_GID_CHANGE);
    soft_cm_device_address_changed(addr);
}

int soft_device_act(const struct soft_device_action *action) {
    switch (action->what) {
    case DEVICE_REMOVE:
        return remove_device(action->order);
    case DEVICE_RESTORE:
        return atomic_exchange(&soft_device_gone, false) ? 0 : -EALREADY;
    case DEVICE_PORT_DOWN:
        return set_port(true);
    case DEVICE_PORT_UP:
        return set_port(false);
    case DEVICE_ADDRESS_CHANGE:
        soft_device_address_moved(
            action->address.ss_family ? (const struct sockaddr *)&action->address : NULL);
        return 0;
    }
    return -EINVAL;
}
