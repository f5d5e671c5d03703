/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* upcalls.c - see ipc/upcalls.h and object/upcalls.h: which folder answers, and in which order. */
#include "soft/ipc/upcalls.h"

#include "soft/cm/agreed.h"
#include "soft/cm/default_context.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/mpa.h"
#include "soft/cm/port.h"
#include "soft/cm/port_range.h"
#include "soft/cm/tcp.h"
#include "soft/cm/wire.h"
#include "soft/control/address_watch.h"
#include "soft/control/ctl.h"
#include "soft/control/device_state.h"
#include "soft/fault/inject.h"
#include "soft/ipc/name_search.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/process_fence.h"
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_engine.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/device.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/upcalls.h"
#include "soft/rc/order.h"
#include "soft/rc/process_copy.h"
#include "soft/rc/cq_bell.h"
#include "soft/rc/qp_timer.h"
#include "soft/rc/region_exchange.h"
#include "soft/rc/region_memory.h"
#include "soft/rc/ring_exchange.h"
#include "soft/rc/stage.h"
#include "soft/ud/mcast.h"
#include "soft/ud/ud_link.h"
#include "soft/verbs/mr.h"

/* ---- the engine -------------------------------------------------------------------------------- */

static void started(void) {
    soft_ctl_start();
    soft_address_watch_start();
    soft_fault_start();
    soft_fault_run(soft_device_act); /* a device that is removed from the start */
}

static void thread_ended(void) {
    soft_name_search_stop();
    soft_process_copy_stop();
}

static void stops(void) {
    soft_ctl_stop();
    soft_address_watch_stop();
    soft_fault_messages_flush();
    soft_device_forget();
    soft_fault_stop();
    soft_stage_stop();
}

static void peers_stop(void) {
    soft_mcast_stop();
    soft_ud_stop();
}

static void peers_stopped(void) {
    soft_qp_numbers_reset();
    soft_qp_timer_stop();
}

static void turn(void) {
    soft_fence_if_wanted();
    soft_qp_timer_if_wanted();
    soft_tcp_sets_if_wanted();
    soft_process_copy_if_wanted();
    soft_bells_if_wanted();
    soft_stage_if_wanted();
    if (soft_name_search_if_done())
        soft_ud_on_names();
    soft_ud_if_wanted();
    soft_mcast_if_wanted();
    soft_fault_run(soft_device_act);
}

static void forked(void) {
    soft_peer_forked();
    soft_bells_forked();
    soft_cq_words_forked();
    soft_qp_numbers_forked();
    soft_order_forked();
    soft_qp_timer_forked();
    soft_ring_exchange_forked();
    soft_region_exchange_forked();
    soft_ud_forked();
    soft_tcp_forked();
    soft_mcast_forked();
    soft_mr_forked();
    soft_region_memory_forked();
    soft_stage_forked();
    soft_fault_messages_forked();
    soft_device_forget();
    soft_fault_forked();
    soft_ctl_forked();
    soft_address_watch_forked();
    soft_process_copy_forked();
    soft_name_search_forked();
}

/* ---- peers ------------------------------------------------------------------------------------- */

static void peer_said(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                      int *file) {
    int fd = file ? *file : -1;
    switch (type) {
    case SOFT_MSG_LINK:
    case SOFT_MSG_KEYS:
        soft_ring_exchange_on_message(peer, type, data, bytes, fd);
        break;
    case SOFT_MSG_UD_RING:
    case SOFT_MSG_UD_OK:
    case SOFT_MSG_UD_REFUSE:
    case SOFT_MSG_UD_CLOSE:
        soft_ud_on_message(peer, type, data, bytes, fd);
        break;
    case SOFT_MSG_CQ_BELL:
        soft_bell_on_message(peer, data, bytes, file);
        break;
    case SOFT_MSG_GROUP_ASK:
    case SOFT_MSG_GROUP_JOIN:
    case SOFT_MSG_GROUP_LEAVE:
    case SOFT_MSG_GROUP_OK:
        soft_mcast_on_message(peer, type, data, bytes);
        break;
    case SOFT_MSG_REGION:
    case SOFT_MSG_REGION_OK:
    case SOFT_MSG_REGION_DROP:
        soft_region_exchange_on_message(peer, type, data, bytes, file);
        break;
    default: /* a newer peer's: not for us */
        if (type >= SOFT_MSG_CM_FIRST && type <= SOFT_MSG_CM_LAST)
            soft_cm_on_message(peer, type, data, bytes);
        break;
    }
}

static void peer_rang(struct soft_peer *peer) {
    soft_ring_exchange_on_bell(peer);
    soft_ud_on_bell(peer);
}

static void peer_unordered(struct soft_peer *peer) {
    soft_ring_exchange_put_fences(peer);
    soft_ud_put_fences(peer);
}

static void peer_gone(struct soft_peer *peer, bool known) {
    soft_mcast_on_peer_gone(peer);
    soft_ud_on_peer_gone(peer);
    soft_ring_exchange_on_peer_gone(peer);
    if (known)
        soft_cm_on_peer_gone(peer);
}

static void peer_free(struct soft_peer *peer) {
    for (unsigned i = 0; i < SOFT_MAX_REGIONS; i++)
        soft_region_exchange_drop(peer, i, false);
}

const struct soft_upcalls soft_upcalls = {
    .once = soft_mcast_once,
    .starts = soft_cm_port_range_read,
    .peers_begin = soft_peer_start,
    .started = started,
    .thread_ended = thread_ended,
    .stops = stops,
    .peers_end = soft_peer_stop,
    .peers_stop = peers_stop,
    .peers_stopped = peers_stopped,
    .stopped = soft_tcp_stop,
    .turn = turn,
    .fork_outside = soft_default_context_fork,
    .fork_inside = soft_process_copy_fork,
    .forked = forked,
    .peer_greeted = soft_ring_exchange_on_greeting,
    .peer_said = peer_said,
    .peer_rang = peer_rang,
    .peer_unordered = peer_unordered,
    .peer_gone = peer_gone,
    .peer_free = peer_free,
};

const struct soft_object_upcalls soft_object_upcalls = {
    .profile_of_plan = soft_fault_profile,
    .tcp_down = soft_tcp_down,
    .tcp_cut_off = soft_tcp_cut_off,
    .tcp_event = soft_tcp_event,
    .tcp_heard = soft_cm_tcp_heard,
    .tcp_closed = soft_cm_tcp_closed,
    .tcp_attach = soft_cm_tcp_attach,
    .iwarp_down = soft_cm_mpa_qp_down,
    .iwarp_settle = soft_cm_mpa_settle_qp,
    .agreed_peer = soft_cm_agreed_peer,
    .agreed_with = soft_cm_agreed_with,
};
