/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* cm.h - faults of rdma_cm: of its calls, its events and its messages. Control lock held. */
#ifndef SOFT_CM_FAULT_H
#define SOFT_CM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/fault/plan.h"

struct soft_cm_id;
struct soft_peer;

#define SOFT_FAULT_MESSAGES 14 /* types of cm messages */

struct soft_fault_id { /* part of a cm id */
    uint32_t serial;
    uint32_t calls[FAULT_ID_CALLS];
    uint32_t sent[SOFT_FAULT_MESSAGES], received[SOFT_FAULT_MESSAGES]; /* by type */
};

struct soft_fault_way {     /* the two ends: a process of this host, or a TCP connection */
    struct soft_peer *peer; /* NULL: over TCP */
    uint64_t tcp;           /* its number: soft/cm/tcp.h */
};

/* Of an id's (or, without one, the process's) next message. True: lost, or taken to be sent later. */
bool soft_fault_message(struct soft_fault_id *id, struct soft_fault_way way, uint32_t type,
                        const void *msg, size_t bytes);
/* Of a message that arrived, for this id or for none. True: lost, or kept to be delivered later. */
bool soft_fault_arrival(struct soft_fault_id *id, struct soft_fault_way way, uint32_t type,
                        const void *msg, size_t bytes);
/* Whether something of this peer arrived and is yet to be heard; then its end is heard behind that. */
bool soft_fault_arrival_waits(const struct soft_peer *peer);
/* True: this call shall end with *event and *status. Counts calls, so ask once in each. */
bool soft_fault_id_call(struct soft_fault_id *id, enum soft_fault_when call, int *event,
                        int *status);
/* True: another event shall follow the one of that type. */
bool soft_fault_id_after(struct soft_fault_id *id, int type, int *event, int *status);
void soft_fault_messages_flush(void);
void soft_fault_messages_forked(void);

#endif
