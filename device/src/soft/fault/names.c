/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * names.c - the words of fault plans and of the log of decisions. No state, any thread.
 */
#include "soft/fault/names.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define WC(name)                                                                                   \
    { #name, IBV_WC_##name }
const struct soft_fault_word soft_fault_statuses[] = {WC(LOC_LEN_ERR),        WC(LOC_QP_OP_ERR),
                                                      WC(LOC_EEC_OP_ERR),     WC(LOC_PROT_ERR),
                                                      WC(WR_FLUSH_ERR),       WC(MW_BIND_ERR),
                                                      WC(BAD_RESP_ERR),       WC(LOC_ACCESS_ERR),
                                                      WC(REM_INV_REQ_ERR),    WC(REM_ACCESS_ERR),
                                                      WC(REM_OP_ERR),         WC(RETRY_EXC_ERR),
                                                      WC(RNR_RETRY_EXC_ERR),  WC(LOC_RDD_VIOL_ERR),
                                                      WC(REM_INV_RD_REQ_ERR), WC(REM_ABORT_ERR),
                                                      WC(INV_EECN_ERR),       WC(INV_EEC_STATE_ERR),
                                                      WC(FATAL_ERR),          WC(RESP_TIMEOUT_ERR),
                                                      WC(GENERAL_ERR),        {NULL, 0}};
#undef WC

#define EV(name)                                                                                   \
    { #name, RDMA_CM_EVENT_##name }
const struct soft_fault_word soft_fault_events[] = {EV(ADDR_RESOLVED),
                                                    EV(ADDR_ERROR),
                                                    EV(ROUTE_RESOLVED),
                                                    EV(ROUTE_ERROR),
                                                    EV(CONNECT_REQUEST),
                                                    EV(CONNECT_RESPONSE),
                                                    EV(CONNECT_ERROR),
                                                    EV(UNREACHABLE),
                                                    EV(REJECTED),
                                                    EV(ESTABLISHED),
                                                    EV(DISCONNECTED),
                                                    EV(DEVICE_REMOVAL),
                                                    EV(MULTICAST_JOIN),
                                                    EV(MULTICAST_ERROR),
                                                    EV(ADDR_CHANGE),
                                                    EV(TIMEWAIT_EXIT),
                                                    {"ADDRINFO_RESOLVED", 16},
                                                    {"ADDRINFO_ERROR", 17},
                                                    {"INTERNAL", 19},
                                                    {NULL, 0}};
#undef EV

#define ER(name)                                                                                   \
    { #name, name }
const struct soft_fault_word soft_fault_errors[] = {
    ER(ENOMEM),      ER(EAGAIN),        ER(EACCES),     ER(EBUSY),   ER(ECONNREFUSED),
    ER(ECONNRESET),  ER(EINTR),         ER(EINVAL),     ER(EIO),     ER(EMFILE),
    ER(ENETUNREACH), ER(EHOSTUNREACH),  ER(ENFILE),     ER(ENOBUFS), ER(ENODEV),
    ER(ENOSPC),      ER(ENXIO),         ER(EOPNOTSUPP), ER(EPERM),   ER(ETIMEDOUT),
    ER(EADDRINUSE),  ER(EADDRNOTAVAIL), ER(EREMOTE),    {NULL, 0}};
#undef ER

#define SOFT_FAULT_X(name) {#name, FAULT_CALL_##name},
const struct soft_fault_word soft_fault_calls[] = {SOFT_FAULT_CALLS(SOFT_FAULT_X){NULL, 0}};
#undef SOFT_FAULT_X

/* In the order of enum soft_cm_wire_type. */
const struct soft_fault_word soft_fault_messages[] = {
    {"REQ", 0},       {"MRA", 1},      {"REP", 2},      {"RTU", 3},      {"REJ", 4},
    {"DREQ", 5},      {"DREP", 6},     {"SIDR_REQ", 7}, {"SIDR_REP", 8}, {"MPA_REQ", 9},
    {"MPA_SEEN", 10}, {"MPA_REP", 11}, {"MPA_REJ", 12}, {"FIN", 13},     {NULL, 0}};
const struct soft_fault_word soft_fault_actions[] = {{"remove", DEVICE_REMOVE},
                                                     {"restore", DEVICE_RESTORE},
                                                     {"port-down", DEVICE_PORT_DOWN},
                                                     {"port-up", DEVICE_PORT_UP},
                                                     {"address-change", DEVICE_ADDRESS_CHANGE},
                                                     {NULL, 0}};
const struct soft_fault_word soft_fault_orders[] = {{"fatal-first", ORDER_FATAL_FIRST},
                                                    {"removal-first", ORDER_REMOVAL_FIRST},
                                                    {"fatal-only", ORDER_FATAL_ONLY},
                                                    {"removal-only", ORDER_REMOVAL_ONLY},
                                                    {NULL, 0}};
const struct soft_fault_word soft_fault_scopes[] = {
    {"qp", FAULT_QP},     {"id", FAULT_ID},         {"cm", FAULT_CM}, {"cm_in", FAULT_CM_IN},
    {"call", FAULT_CALL}, {"device", FAULT_DEVICE}, {NULL, 0}};
const struct soft_fault_word soft_fault_whens[] = {{"send", FAULT_SEND},
                                                   {"recv", FAULT_RECV},
                                                   {"resolve_addr", FAULT_RESOLVE_ADDR},
                                                   {"resolve_route", FAULT_RESOLVE_ROUTE},
                                                   {"connect", FAULT_CONNECT},
                                                   {"accept", FAULT_ACCEPT},
                                                   {"after", FAULT_AFTER},
                                                   {"n", FAULT_NTH},
                                                   {NULL, 0}};

const char *soft_fault_name_of(const struct soft_fault_word *list, int value) {
    for (; list->text; list++)
        if (list->value == value)
            return list->text;
    return "?";
}

const char *soft_fault_when_name(enum soft_fault_when when) {
    return soft_fault_name_of(soft_fault_whens, (int)when);
}
const char *soft_fault_status_name(int status) {
    return soft_fault_name_of(soft_fault_statuses, status);
}
const char *soft_fault_event_name(int event) {
    return soft_fault_name_of(soft_fault_events, event);
}
const char *soft_fault_errno_name(int error) {
    return soft_fault_name_of(soft_fault_errors, error);
}
const char *soft_fault_call_name(int call) {
    return soft_fault_name_of(soft_fault_calls, call);
}
const char *soft_fault_message_name(int type) {
    return soft_fault_name_of(soft_fault_messages, type);
}
const char *soft_device_what_name(enum soft_device_what what) {
    return soft_fault_name_of(soft_fault_actions, (int)what);
}
