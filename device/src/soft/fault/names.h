/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * names.h - the words of fault plans and what they mean; lists end with a NULL text.
 */
#ifndef SOFT_FAULT_NAMES_H
#define SOFT_FAULT_NAMES_H

#include "soft/fault/plan.h"

struct soft_fault_word {
    const char *text;
    int value;
};

extern const struct soft_fault_word soft_fault_statuses[]; /* enum ibv_wc_status */
extern const struct soft_fault_word soft_fault_events[];   /* enum rdma_cm_event_type */
extern const struct soft_fault_word soft_fault_errors[];   /* errno */
extern const struct soft_fault_word soft_fault_calls[];    /* enum soft_fault_call */
extern const struct soft_fault_word soft_fault_messages[]; /* offset from the first cm message */
extern const struct soft_fault_word soft_fault_actions[];  /* enum soft_device_what */
extern const struct soft_fault_word soft_fault_orders[];   /* enum soft_device_order */
extern const struct soft_fault_word soft_fault_scopes[];   /* enum soft_fault_scope */
extern const struct soft_fault_word soft_fault_whens[];    /* enum soft_fault_when */

/* "?" for what has no name. */
const char *soft_fault_name_of(const struct soft_fault_word *list, int value);

/* Names as plans and logs have them; "?" for what has none. */
const char *soft_fault_when_name(enum soft_fault_when when);
const char *soft_fault_status_name(int status);
const char *soft_fault_event_name(int event);
const char *soft_fault_errno_name(int error);
const char *soft_fault_call_name(int call);
const char *soft_fault_message_name(int type); /* offset from the first cm message type */
const char *soft_device_what_name(enum soft_device_what what);

#endif
