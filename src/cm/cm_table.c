/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_table.c - the handler of every rdma_cm event in every state.
 *
 * Each pair has a handler, or the reason why the event is ignored; a unit test walks all of them.
 * Rows are states (core/connection.h), columns event numbers; the last column is for numbers this library
 * does not know. Constant; any thread.
 */
#include "cm/cm_table.h"

#define RUN(handler)                                                                               \
    { .run = handler }
#define IGNORE(why)                                                                                \
    { .ignored = why }

/* Columns that mean the same in every state. */
#define NEVER                                                                                      \
    NEVER_ANYWHERE,                                                                                \
        [FABRIC_CM_ADDRINFO_RESOLVED] = IGNORE("names are looked up with ids of their own"),       \
        [FABRIC_CM_ADDRINFO_ERROR] = IGNORE("names are looked up with ids of their own")

#define NEVER_ANYWHERE                                                                             \
    [RDMA_CM_EVENT_MULTICAST_JOIN] = IGNORE("no multicast group is ever joined"),                  \
    [RDMA_CM_EVENT_MULTICAST_ERROR] = IGNORE("no multicast group is ever joined"),                 \
    [FABRIC_CM_USER] = IGNORE("wakeups have channels of their own"),                               \
    [FABRIC_CM_INTERNAL] = IGNORE("between the library and its kernel"),                           \
    [CM_EVENT_UNKNOWN] = IGNORE("an event of a newer library; none needs an answer to live")

#define TIMEWAIT                                                                                   \
    [RDMA_CM_EVENT_TIMEWAIT_EXIT] = IGNORE("the device decides when QP numbers are used again")

/* A hint: logged; only a dial that has not found its peer yet acts on it. */
#define HINTS [RDMA_CM_EVENT_ADDR_CHANGE] = RUN(cm_on_addr_change), TIMEWAIT

/* The object that an event would be about does not exist any more, or not yet. */
#define NO_HINTS(why) [RDMA_CM_EVENT_ADDR_CHANGE] = IGNORE(why), TIMEWAIT

/* A request names its listener, never a connection. */
#define NO_REQUEST [RDMA_CM_EVENT_CONNECT_REQUEST] = IGNORE("only listeners get requests")

#define RESOLVED_BEFORE                                                                            \
    [RDMA_CM_EVENT_ADDR_RESOLVED] = IGNORE("the address was resolved before"),                     \
    [RDMA_CM_EVENT_ADDR_ERROR] = IGNORE("the address was resolved before")

#define ROUTED_BEFORE                                                                              \
    RESOLVED_BEFORE, [RDMA_CM_EVENT_ROUTE_RESOLVED] = IGNORE("the route was resolved before"),     \
                     [RDMA_CM_EVENT_ROUTE_ERROR] = IGNORE("the route was resolved before")

#define NOT_ROUTED_HERE                                                                            \
    [RDMA_CM_EVENT_ADDR_RESOLVED] = IGNORE("a listener's side resolves nothing"),                  \
    [RDMA_CM_EVENT_ADDR_ERROR] = IGNORE("a listener's side resolves nothing"),                     \
    [RDMA_CM_EVENT_ROUTE_RESOLVED] = IGNORE("a listener's side resolves nothing"),                 \
    [RDMA_CM_EVENT_ROUTE_ERROR] = IGNORE("a listener's side resolves nothing")

#define NOT_ROUTED_YET                                                                             \
    [RDMA_CM_EVENT_ROUTE_RESOLVED] = IGNORE("no route was asked for yet"),                         \
    [RDMA_CM_EVENT_ROUTE_ERROR] = IGNORE("no route was asked for yet")

#define NOT_CONNECTED_YET                                                                          \
    [RDMA_CM_EVENT_CONNECT_RESPONSE] = IGNORE("nothing was sent that could be answered"),          \
    [RDMA_CM_EVENT_CONNECT_ERROR] = IGNORE("nothing was sent that could fail"),                    \
    [RDMA_CM_EVENT_UNREACHABLE] = IGNORE("nothing was sent that could be unanswered"),             \
    [RDMA_CM_EVENT_REJECTED] = IGNORE("nothing was sent that could be rejected"),                  \
    [RDMA_CM_EVENT_ESTABLISHED] = IGNORE("nothing was sent that could be established"),            \
    [RDMA_CM_EVENT_DISCONNECTED] = IGNORE("there is no connection yet")

#define ALL_OVER(why)                                                                              \
    [RDMA_CM_EVENT_ADDR_RESOLVED] = IGNORE(why), [RDMA_CM_EVENT_ADDR_ERROR] = IGNORE(why),         \
    [RDMA_CM_EVENT_ROUTE_RESOLVED] = IGNORE(why), [RDMA_CM_EVENT_ROUTE_ERROR] = IGNORE(why),       \
    [RDMA_CM_EVENT_CONNECT_RESPONSE] = IGNORE(why), [RDMA_CM_EVENT_CONNECT_ERROR] = IGNORE(why),   \
    [RDMA_CM_EVENT_UNREACHABLE] = IGNORE(why), [RDMA_CM_EVENT_REJECTED] = IGNORE(why),             \
    [RDMA_CM_EVENT_ESTABLISHED] = IGNORE(why), [RDMA_CM_EVENT_DISCONNECTED] = IGNORE(why),         \
    [RDMA_CM_EVENT_DEVICE_REMOVAL] = IGNORE(why)

#define REMOVAL [RDMA_CM_EVENT_DEVICE_REMOVAL] = RUN(cm_on_device_removal)

/* Once something was sent or received, it may be lost at any time. */
#define MAY_BE_LOST                                                                                \
    [RDMA_CM_EVENT_CONNECT_ERROR] = RUN(cm_on_connect_error),                                      \
    [RDMA_CM_EVENT_REJECTED] = RUN(cm_on_rejected),                                                \
    [RDMA_CM_EVENT_DISCONNECTED] = RUN(cm_on_disconnected), REMOVAL

#define MAY_BE_UNANSWERED [RDMA_CM_EVENT_UNREACHABLE] = RUN(cm_on_lost)

/* A row is a list, one pair a line. */
/* clang-format off */
const struct cm_cell cm_table[CM_STATE_COUNT][CM_EVENT_COUNT] = {
    [CM_IDLE] = {
        ALL_OVER("there is no id it could belong to"),
        NO_REQUEST,
        NO_HINTS("there is no id it could belong to"),
        NEVER,
    },
    [CM_REMOVAL_WATCH] = {
        [RDMA_CM_EVENT_ADDR_RESOLVED] = IGNORE("it resolves nothing"),
        [RDMA_CM_EVENT_ADDR_ERROR] = IGNORE("it resolves nothing"),
        [RDMA_CM_EVENT_ROUTE_RESOLVED] = IGNORE("it resolves nothing"),
        [RDMA_CM_EVENT_ROUTE_ERROR] = IGNORE("it resolves nothing"),
        NO_REQUEST,
        NOT_CONNECTED_YET,
        [RDMA_CM_EVENT_DEVICE_REMOVAL] = RUN(cm_on_watch_removal),
        HINTS,
        NEVER,
    },
    [CM_RESOLVING_ADDRINFO] = {
        ALL_OVER("its id is bound to nothing, it only looks a name up"),
        NO_REQUEST,
        [FABRIC_CM_ADDRINFO_RESOLVED] = RUN(cm_on_addrinfo_resolved),
        [FABRIC_CM_ADDRINFO_ERROR] = RUN(cm_on_addrinfo_error),
        NO_HINTS("its id is bound to nothing, it only looks a name up"),
        NEVER_ANYWHERE,
    },
    [CM_LISTENING] = {
        [RDMA_CM_EVENT_CONNECT_REQUEST] = RUN(cm_on_request),
        NOT_ROUTED_HERE,
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = IGNORE("a listener connects to no peer"),
        [RDMA_CM_EVENT_CONNECT_ERROR] = IGNORE("a listener connects to no peer"),
        [RDMA_CM_EVENT_UNREACHABLE] = IGNORE("a listener connects to no peer"),
        [RDMA_CM_EVENT_REJECTED] = IGNORE("a listener connects to no peer"),
        [RDMA_CM_EVENT_ESTABLISHED] = IGNORE("a listener connects to no peer"),
        [RDMA_CM_EVENT_DISCONNECTED] = IGNORE("a listener connects to no peer"),
        [RDMA_CM_EVENT_DEVICE_REMOVAL] = RUN(cm_on_listener_removal),
        HINTS,
        NEVER,
    },
    [CM_RESOLVING_NAME] = {
        ALL_OVER("there is no id while the name is resolved"),
        NO_REQUEST,
        NO_HINTS("there is no id while the name is resolved"),
        NEVER,
    },
    [CM_BACKOFF] = {
        ALL_OVER("the id of the last try is destroyed, that of the next not made"),
        NO_REQUEST,
        NO_HINTS("the next try looks its route up anyway"),
        NEVER,
    },
    [CM_RESOLVING_ADDR] = {
        [RDMA_CM_EVENT_ADDR_RESOLVED] = RUN(cm_on_addr_resolved),
        [RDMA_CM_EVENT_ADDR_ERROR] = RUN(cm_on_addr_error),
        NOT_ROUTED_YET,
        NO_REQUEST,
        NOT_CONNECTED_YET,
        REMOVAL,
        HINTS,
        NEVER,
    },
    [CM_RESOLVING_ROUTE] = {
        RESOLVED_BEFORE,
        [RDMA_CM_EVENT_ROUTE_RESOLVED] = RUN(cm_on_route_resolved),
        [RDMA_CM_EVENT_ROUTE_ERROR] = RUN(cm_on_route_error),
        NO_REQUEST,
        NOT_CONNECTED_YET,
        REMOVAL,
        HINTS,
        NEVER,
    },
    [CM_CREATING_QP ... CM_IN_LINE] = {
        ROUTED_BEFORE,
        NO_REQUEST,
        NOT_CONNECTED_YET,
        REMOVAL,
        HINTS,
        NEVER,
    },
    [CM_CONNECTING] = {
        ROUTED_BEFORE,
        NO_REQUEST,
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = RUN(cm_on_response),
        [RDMA_CM_EVENT_ESTABLISHED] = RUN(cm_on_established), /* iWARP's answer */
        MAY_BE_LOST,
        MAY_BE_UNANSWERED,
        HINTS,
        NEVER,
    },
    [CM_MODIFYING_QP] = {
        ROUTED_BEFORE,
        NO_REQUEST,
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = IGNORE("the answer is being applied"),
        [RDMA_CM_EVENT_ESTABLISHED] = IGNORE("the answer is being applied"),
        MAY_BE_LOST,
        MAY_BE_UNANSWERED,
        HINTS,
        NEVER,
    },
    /* and QUEUED; AWAITING_APP comes after HELLO too, then with a connection that is established */
    [CM_AWAITING_APP ... CM_CREATING_QP_PASSIVE] = {
        NOT_ROUTED_HERE,
        NO_REQUEST,
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = IGNORE("answers go to the dialer"),
        [RDMA_CM_EVENT_ESTABLISHED] = IGNORE("not accepted yet, or established before HELLO"),
        MAY_BE_LOST,
        MAY_BE_UNANSWERED,
        HINTS,
        NEVER,
    },
    [CM_ACCEPTING] = {
        NOT_ROUTED_HERE,
        NO_REQUEST,
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = IGNORE("answers go to the dialer"),
        [RDMA_CM_EVENT_ESTABLISHED] = RUN(cm_on_established),
        [RDMA_CM_EVENT_CONNECT_ERROR] = RUN(cm_on_connect_error),
        [RDMA_CM_EVENT_UNREACHABLE] = RUN(cm_on_lost),
        [RDMA_CM_EVENT_REJECTED] = RUN(cm_on_rejected),
        [RDMA_CM_EVENT_DISCONNECTED] = RUN(cm_on_closed_early),
        REMOVAL,
        HINTS,
        NEVER,
    },

    /* UNREACHABLE and REJECTED may come late: an RTU that never arrived, a peer that moved. */
    [CM_HANDSHAKE ... CM_UP] = {
        ROUTED_BEFORE,
        NO_REQUEST,
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = IGNORE("a repeated answer"),
        [RDMA_CM_EVENT_ESTABLISHED] = IGNORE("it is established already"),
        MAY_BE_LOST,
        [RDMA_CM_EVENT_UNREACHABLE] = RUN(cm_on_unreachable),
        HINTS,
        NEVER,
    },
    [CM_FAILED] = {
        ALL_OVER("the loop knows already that the connection is down"),
        NO_REQUEST,
        NO_HINTS("the loop knows already that the connection is down"),
        NEVER,
    },
    [CM_RELEASED] = {
        ALL_OVER("the connection is being closed already"),
        NO_REQUEST,
        NO_HINTS("the connection is being closed already"),
        NEVER,
    },
};
/* clang-format on */

bool cm_may_follow(enum cm_state from, enum cm_state to) {
#define TO(state) (1u << CM_##state)
#define TRY_AGAIN (TO(BACKOFF) | TO(RESOLVING_ADDR))
    static const uint32_t next[CM_STATE_COUNT] = {
        [CM_IDLE] = TRY_AGAIN | TO(RESOLVING_NAME) | TO(AWAITING_APP) | TO(QUEUED) |
                    TO(CREATING_QP_PASSIVE),
        /* and from try to try of those that are under way (dial_race.c), or to the name again (dial_names.c) */
        [CM_RESOLVING_NAME] = TRY_AGAIN | TO(RESOLVING_ROUTE),
        [CM_BACKOFF] = TRY_AGAIN | TO(RESOLVING_ROUTE) | TO(RESOLVING_NAME),
        [CM_RESOLVING_ADDR] = TRY_AGAIN | TO(RESOLVING_ROUTE) | TO(RESOLVING_NAME),
        [CM_RESOLVING_ROUTE] =
            TRY_AGAIN | TO(RESOLVING_ROUTE) | TO(CREATING_QP) | TO(RESOLVING_NAME),
        [CM_CREATING_QP] = TRY_AGAIN | TO(IN_LINE) | TO(CONNECTING),
        [CM_IN_LINE] = TRY_AGAIN | TO(CONNECTING),
        [CM_CONNECTING] = TRY_AGAIN | TO(MODIFYING_QP),
        [CM_MODIFYING_QP] = TO(HANDSHAKE) | TO(UP),
        [CM_AWAITING_APP] = TO(QUEUED) | TO(CREATING_QP_PASSIVE) | TO(UP),
        [CM_QUEUED] = TO(CREATING_QP_PASSIVE),
        [CM_CREATING_QP_PASSIVE] = TO(ACCEPTING),
        [CM_ACCEPTING] = TO(HANDSHAKE) | TO(UP),
        [CM_HANDSHAKE] = TO(AWAITING_APP) | TO(UP),
    };
    if (to == CM_FAILED)
        return from != CM_FAILED && from != CM_RELEASED;
    if (to == CM_RELEASED)
        return from != CM_RELEASED;
    return next[from] >> to & 1;
#undef TO
#undef TRY_AGAIN
}

const char *cm_state_name(unsigned state) {
    switch ((enum cm_state)state) {
#define CM_X(name, text)                                                                           \
    case CM_##name:                                                                                \
        return text;
        CM_STATES(CM_X)
#undef CM_X
    case CM_STATE_COUNT:
        break;
    }
    return "?";
}

const char *cm_event_name(unsigned type) {
    static const char *const names[CM_EVENT_COUNT] = {
        [RDMA_CM_EVENT_ADDR_RESOLVED] = "ADDR_RESOLVED",
        [RDMA_CM_EVENT_ADDR_ERROR] = "ADDR_ERROR",
        [RDMA_CM_EVENT_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
        [RDMA_CM_EVENT_ROUTE_ERROR] = "ROUTE_ERROR",
        [RDMA_CM_EVENT_CONNECT_REQUEST] = "CONNECT_REQUEST",
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = "CONNECT_RESPONSE",
        [RDMA_CM_EVENT_CONNECT_ERROR] = "CONNECT_ERROR",
        [RDMA_CM_EVENT_UNREACHABLE] = "UNREACHABLE",
        [RDMA_CM_EVENT_REJECTED] = "REJECTED",
        [RDMA_CM_EVENT_ESTABLISHED] = "ESTABLISHED",
        [RDMA_CM_EVENT_DISCONNECTED] = "DISCONNECTED",
        [RDMA_CM_EVENT_DEVICE_REMOVAL] = "DEVICE_REMOVAL",
        [RDMA_CM_EVENT_MULTICAST_JOIN] = "MULTICAST_JOIN",
        [RDMA_CM_EVENT_MULTICAST_ERROR] = "MULTICAST_ERROR",
        [RDMA_CM_EVENT_ADDR_CHANGE] = "ADDR_CHANGE",
        [RDMA_CM_EVENT_TIMEWAIT_EXIT] = "TIMEWAIT_EXIT",
        [FABRIC_CM_ADDRINFO_RESOLVED] = "ADDRINFO_RESOLVED",
        [FABRIC_CM_ADDRINFO_ERROR] = "ADDRINFO_ERROR",
        [FABRIC_CM_USER] = "USER",
        [FABRIC_CM_INTERNAL] = "INTERNAL",
        [CM_EVENT_UNKNOWN] = "an unknown event",
    };
    return type < CM_EVENT_COUNT ? names[type] : "?";
}
