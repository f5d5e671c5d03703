/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * plan.h - a fault plan as text and as rules. device/docs/faults.md has the grammar.
 *
 * A plan is constant once parsed. Pure functions, no state, any thread.
 */
#ifndef SOFT_FAULT_PLAN_H
#define SOFT_FAULT_PLAN_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_PLAN_RULES 256
#define SOFT_PLAN_BYTES 32768

enum soft_fault_scope {
    FAULT_QP,
    FAULT_ID,
    FAULT_CM,    /* messages sent */
    FAULT_CM_IN, /* messages received */
    FAULT_CALL,
    FAULT_DEVICE,
};

enum soft_fault_when { /* of one scope each */
                       FAULT_SEND,
                       FAULT_RECV, /* FAULT_QP */
                       FAULT_RESOLVE_ADDR,
                       FAULT_RESOLVE_ROUTE,
                       FAULT_CONNECT,
                       FAULT_ACCEPT,
                       FAULT_AFTER, /* FAULT_ID */
                       FAULT_NTH,   /* the others */
};
#define FAULT_ID_CALLS (FAULT_ACCEPT - FAULT_RESOLVE_ADDR + 1)

enum soft_fault_what {
    FAULT_NONE,
    FAULT_STATUS, /* value: enum ibv_wc_status */
    FAULT_DELAY,  /* ns */
    FAULT_LOSS,   /* value: transmissions lost, 0 all */
    FAULT_RNR,    /* value: times the sender is told */
    FAULT_CUT,
    FAULT_CORRUPT,
    FAULT_STALL,  /* ns */
    FAULT_EVENT,  /* event, value: its status */
    FAULT_ERRNO,  /* value */
    FAULT_ACTION, /* action */
};

#define SOFT_FAULT_CALLS(X)                                                                        \
    X(open_device)                                                                                 \
    X(alloc_pd)                                                                                    \
    X(reg_mr)                                                                                      \
    X(create_comp_channel)                                                                         \
    X(create_cq)                                                                                   \
    X(create_srq)                                                                                  \
    X(create_qp) X(modify_qp) X(mem_alloc) X(create_event_channel) X(create_id) X(set_option)
enum soft_fault_call {
#define SOFT_FAULT_X(name) FAULT_CALL_##name,
    SOFT_FAULT_CALLS(SOFT_FAULT_X)
#undef SOFT_FAULT_X
        FAULT_CALLS,
};

enum soft_device_what {
    DEVICE_REMOVE,
    DEVICE_RESTORE,
    DEVICE_PORT_DOWN,
    DEVICE_PORT_UP,
    DEVICE_ADDRESS_CHANGE,
};
enum soft_device_order { /* of a removal's two notices */
                         ORDER_FATAL_FIRST,
                         ORDER_REMOVAL_FIRST,
                         ORDER_FATAL_ONLY,
                         ORDER_REMOVAL_ONLY,
};
struct soft_device_action {
    enum soft_device_what what;
    enum soft_device_order order;
    struct sockaddr_storage address; /* DEVICE_ADDRESS_CHANGE; family 0: every address */
};

struct soft_rule {
    unsigned line;
    enum soft_fault_scope scope;
    bool by_number; /* FAULT_QP: who is a queue pair number, else the order of creation */
    uint32_t who;   /* 0: any; FAULT_CM, _IN: message type + 1; FAULT_CALL: enum soft_fault_call */
    enum soft_fault_when when;
    int after; /* FAULT_AFTER: which event */
    uint32_t first, last;
    enum soft_fault_what what;
    int64_t value;
    uint64_t ns;
    int event;
    struct soft_device_action action;
};

struct soft_profile;

struct soft_plan {
    const struct soft_profile
        *profile; /* what the device is to be like; NULL: the plan does not say */
    unsigned count;
    struct soft_rule rule[];
};

struct soft_plan_error {
    unsigned line, column; /* from 1 */
    char reason[160];
};

/* NULL and *error where the text is no plan. ENOMEM is an error at line 0. free() it. */
struct soft_plan *soft_plan_parse(const char *text, struct soft_plan_error *error);

#endif
