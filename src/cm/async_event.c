/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * async_event.c - what a device reports of itself: counted by number, and written to the application's log.
 *
 * Events that end an object are handled with that object (qp_attr.c). The others change nothing here: only the
 * application, or the reader of its log, can know what to make of them. A port that goes down is a
 * warning, and so is its return, because a reader who sees only warnings waits for it.
 *
 * Owner: the CM thread.
 */
#include "cm/internal.h"
#include "core/context.h"

_Static_assert(STATS_ASYNC_WQ_FATAL == (int)IBV_EVENT_WQ_FATAL, "the same order, none left out");
#ifdef HAVE_IBV_EVENT_DEVICE_SPEED_CHANGE
_Static_assert(STATS_ASYNC_DEVICE_SPEED_CHANGE == (int)IBV_EVENT_DEVICE_SPEED_CHANGE, "likewise");
#endif

static const char *name_of(unsigned type) {
    static const char *const names[STATS_ASYNC_EVENTS] = {
#define STATS_X(name) #name,
        STATS_ASYNC_LIST(STATS_X)
#undef STATS_X
            "an event without a name here"};
    return names[type < STATS_ASYNC_UNKNOWN ? type : STATS_ASYNC_UNKNOWN];
}

void cm_async_event_count(struct cm *cm, const struct ibv_async_event *event) {
    cm_assert_thread(cm);
    unsigned type = (unsigned)event->event_type;
    stats_add(&cm->stats->async[type < STATS_ASYNC_UNKNOWN ? type : STATS_ASYNC_UNKNOWN], 1);
    /* The list of events in qp_attr.c has no line for what this build's headers do not know. */
#ifdef HAVE_IBV_EVENT_DEVICE_SPEED_CHANGE
    const unsigned last = IBV_EVENT_DEVICE_SPEED_CHANGE;
#else
    const unsigned last = IBV_EVENT_WQ_FATAL;
#endif
    if (type > last)
        cm_async_event_device(cm, event);
}

void cm_async_event_device(struct cm *cm, const struct ibv_async_event *event) {
    cm_assert_thread(cm);
    log_write(&cm->node->log, SLUICE_LOG_INFO, "device %s: %s (event %d)", cm->node->choice.device,
              name_of((unsigned)event->event_type), (int)event->event_type);
}

/* Whether it was down as far as was told. */
static bool set_down(struct cm *cm, unsigned port, bool down) {
    uint64_t *word = &cm->ports_down[port / 64 % 4], bit = UINT64_C(1) << port % 64;
    bool was = *word & bit;
    *word = down ? *word | bit : *word & ~bit;
    return was;
}

void cm_async_event_port(struct cm *cm, const struct ibv_async_event *event) {
    cm_assert_thread(cm);
    const char *device = cm->node->choice.device;
    int port = event->element.port_num;
    if (event->event_type == IBV_EVENT_PORT_ERR) {
        set_down(cm, (unsigned)port, true);
        log_write(&cm->node->log, SLUICE_LOG_WARNING, "port %d of %s is down", port, device);
    } else if (event->event_type == IBV_EVENT_PORT_ACTIVE) {
        bool back = set_down(cm, (unsigned)port, false);
        log_write(&cm->node->log, back ? SLUICE_LOG_WARNING : SLUICE_LOG_INFO,
                  "port %d of %s is active%s", port, device, back ? " again" : "");
    } else {
        log_write(&cm->node->log, SLUICE_LOG_INFO, "port %d of %s: %s (event %d)", port, device,
                  name_of((unsigned)event->event_type), (int)event->event_type);
    }
}
