/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault.c - faults of the connection manager: messages late or lost on either side, calls that end with another
 * event, events without a cause. Control lock for everything.
 *
 * Late messages wait in one bounded list, sorted by their time; two between the same ends keep their
 * order. A full list loses the message, which the CM repeats like any other lost message.
 */
#include <stdlib.h>
#include <string.h>
#include <urcu/list.h>

#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/tcp.h"
#include "soft/cm/tcp_offer.h"
#include "soft/cm/wire.h"
#include "soft/fault/inject.h"
#include "soft/ipc/peer_queue.h"
#include "soft/object/device.h"

#define LATE_MAX 4096

struct late {
    struct cds_list_head link;
    struct soft_fault_way way; /* its peer is held */
    uint64_t due_ns;
    bool arrived; /* else: to be sent */
    uint32_t type;
    size_t bytes;
    uint8_t data[sizeof(union soft_cm_wire_any)];
};

static CDS_LIST_HEAD(late_list);
static unsigned late_count;
static struct soft_timer late_timer;

static void send_due(struct soft_timer *timer);

static void wait_for_first(void) {
    if (!cds_list_empty(&late_list))
        soft_timer_arm(&late_timer, cds_list_first_entry(&late_list, struct late, link)->due_ns,
                       send_due);
}

static void hear_late(const struct late *late) {
    if (!late->way.peer)
        soft_cm_tcp_deliver(late->way.tcp, late->type, late->data, late->bytes);
    else if (!soft_peer_alive(late->way.peer))
        soft_cm_on_peer_gone(late->way.peer);
    else
        soft_cm_wire_deliver(late->way.peer, late->type, late->data, late->bytes);
}

static void send_late(const struct late *late) {
    if (atomic_load(&soft_port_down))
        return;
    if (!late->way.peer)
        soft_cm_tcp_send(late->way.tcp, late->type, late->data);
    else
        (void)soft_peer_send(late->way.peer, late->type, late->data, late->bytes, -1);
}

static void send_due(struct soft_timer *timer) {
    uint64_t now = soft_now_ns();
    while (!cds_list_empty(&late_list)) {
        struct late *late = cds_list_first_entry(&late_list, struct late, link);
        if (late->due_ns > now)
            break;
        cds_list_del(&late->link);
        late_count--;
        if (late->arrived && timer)
            hear_late(late);
        else if (!late->arrived)
            send_late(late);
        if (late->way.peer)
            soft_peer_release(late->way.peer);
        free(late);
    }
    wait_for_first();
}

static bool is_same(struct soft_fault_way a, struct soft_fault_way b) {
    return a.peer == b.peer && a.tcp == b.tcp;
}

static void later(struct soft_fault_way way, bool arrived, uint32_t type, const void *msg,
                  size_t bytes, uint64_t delay_ns) {
    if (late_count == LATE_MAX || bytes > sizeof(union soft_cm_wire_any))
        return;
    struct late *late = malloc(sizeof *late);
    if (!late)
        return;
    if (way.peer)
        soft_peer_hold(way.peer);
    *late = (struct late){.way = way,
                          .due_ns = soft_now_ns() + delay_ns,
                          .arrived = arrived,
                          .type = type,
                          .bytes = bytes};
    memcpy(late->data, msg, bytes);
    struct late *one;
    cds_list_for_each_entry(one, &late_list, link) {
        if (is_same(one->way, way) && one->arrived == arrived && one->due_ns > late->due_ns)
            late->due_ns = one->due_ns;
    }
    cds_list_for_each_entry_reverse(one, &late_list, link) {
        if (one->due_ns <= late->due_ns)
            break;
    }
    cds_list_add(&late->link, &one->link); /* nothing before it: the list's head */
    late_count++;
    wait_for_first();
}

/* The engine stops: delayed messages go out now, because no time is left; no thread waits for arrivals any more. */
void soft_fault_messages_flush(void) {
    struct late *one;
    cds_list_for_each_entry(one, &late_list, link)
        one->due_ns = 0;
    soft_timer_cancel(&late_timer);
    send_due(NULL);
}

void soft_fault_messages_forked(void) {
    CDS_INIT_LIST_HEAD(&late_list); /* the parent's */
    late_count = 0;
    late_timer.due_ns = 0;
}

static bool waits_before(struct soft_fault_way way, bool arrived) {
    const struct late *one;
    cds_list_for_each_entry(one, &late_list, link) {
        if (is_same(one->way, way) && one->arrived == arrived)
            return true;
    }
    return false;
}

bool soft_fault_arrival_waits(const struct soft_peer *peer) {
    const struct late *one;
    cds_list_for_each_entry(one, &late_list, link) {
        if (one->way.peer == peer && one->arrived)
            return true;
    }
    return false;
}

static struct soft_fault_id nobody; /* counts answers and requests without an id */

bool soft_fault_message(struct soft_fault_id *id, struct soft_fault_way way, uint32_t type,
                        const void *msg, size_t bytes) {
    struct soft_rule rule;
    unsigned index = type - SOFT_CM_WIRE_REQ;
    if (!id)
        id = &nobody;
    uint32_t n = ++id->sent[index];
    bool found = soft_fault_decide(FAULT_CM, id->serial, 0, FAULT_NTH, (int)index, n, &rule);
    if (atomic_load(&soft_port_down) || (found && rule.what == FAULT_LOSS))
        return true;
    if (!found && !waits_before(way, false))
        return false;
    later(way, false, type, msg, bytes, found ? rule.ns : 0);
    return true;
}

bool soft_fault_arrival(struct soft_fault_id *id, struct soft_fault_way way, uint32_t type,
                        const void *msg, size_t bytes) {
    struct soft_rule rule;
    unsigned index = type - SOFT_CM_WIRE_REQ;
    if (!id)
        id = &nobody;
    uint32_t n = ++id->received[index];
    bool found = soft_fault_decide(FAULT_CM_IN, id->serial, 0, FAULT_NTH, (int)index, n, &rule);
    if (found && rule.what == FAULT_LOSS)
        return true;
    if (!found && !waits_before(way, true))
        return false;
    later(way, true, type, msg, bytes, found ? rule.ns : 0);
    return true;
}

bool soft_fault_id_call(struct soft_fault_id *id, enum soft_fault_when call, int *event,
                        int *status) {
    struct soft_rule rule;
    uint32_t n = ++id->calls[call - FAULT_RESOLVE_ADDR];
    if (!soft_fault_active() || !soft_fault_decide(FAULT_ID, id->serial, 0, call, 0, n, &rule) ||
        rule.what != FAULT_EVENT)
        return false;
    *event = rule.event;
    *status = (int)rule.value;
    return true;
}

bool soft_fault_id_after(struct soft_fault_id *id, int type, int *event, int *status) {
    struct soft_rule rule;
    if (!soft_fault_decide(FAULT_ID, id->serial, 0, FAULT_AFTER, type, 1, &rule) ||
        rule.what != FAULT_EVENT)
        return false;
    *event = rule.event;
    *status = (int)rule.value;
    return true;
}
